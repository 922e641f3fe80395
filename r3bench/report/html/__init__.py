"""A document as one HTML file: nothing is fetched, nothing from kernels or models is executed or taken for markup."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from r3bench.report.html.elements import Markup, element
from r3bench.report.html.guarded import guarded
from r3bench.report.html.searched import searched

_PARTS = {"search": searched, "guard": guarded}


def html(document: Mapping[str, Any]) -> str:
    """The page of a document. Its content security policy allows its own style and script, by their hashes, no more."""
    title, content = _PARTS[document["kind"]](document)
    style, script = _part("style.css"), _part("script.js")
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; form-action 'none'"
    )
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title} - r3bench"),
        element("style", Markup(style)),
    ]
    body = [element("a", "Skip to the kernels", href="#kernels", class_="skip"), *content, _footer(document)]
    page = element("html", element("head", *head), element("body", *body, element("script", Markup(script))), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


@cache
def _part(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(content.encode()).digest()).decode()}'"


def _footer(document: Mapping[str, Any]) -> Markup:
    made = f"Written by r3bench at {document['created']}. The same data for programs: report.json beside this file."
    return element("footer", element("p", made))
