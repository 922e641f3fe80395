"""HTML and SVG elements from Python. Text is escaped unless it is :class:`Markup`, so nothing can slip through."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "link", "br", "col", "hr", "img", "input"})

Attribute = str | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_PLAIN = re.compile(r"[\w.#-]+", re.ASCII)  # what needs no quotes


def text(value: str) -> Markup:
    """Text as HTML. Control characters, which no HTML may hold, and those that turn its direction are replaced."""
    return Markup(escape(_CONTROL.sub("\ufffd", value)))


def join(children: Iterable[str]) -> Markup:
    """One after the other; what is no :class:`Markup` is escaped."""
    return Markup("".join(child if isinstance(child, Markup) else text(child) for child in children))


def element(name: str, /, *children: str, **attributes: Attribute) -> Markup:
    """An element. ``class_`` is written ``class``, ``aria_label`` ``aria-label``; None and False are left out."""
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{join(children)}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    shown = number(value) if isinstance(value, float) else text(str(value))
    return f" {name}={shown}" if _PLAIN.fullmatch(shown) else f' {name}="{shown}"'


def number(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".rstrip("0").rstrip(".")
