"""Parts that the pages of searches and guards share: head, lists, contests, the machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from r3bench.report.html import charts
from r3bench.report.html.elements import Markup, element
from r3bench.report.html.plot import figure
from r3bench.report.words import speedup, where_line, words
from r3bench.stats import Comparison
from r3bench.symbols import short_name


def head(document: Mapping[str, Any], title: str, warnings: Iterable[str] = ()) -> Markup:
    """What it is, how it ended, and where the times were taken."""
    return element(
        "header",
        element("p", f"r3bench {document['kind']} · {document['application']}", class_="eyebrow"),
        element("h1", title),
        element("p", where_line(document), class_="device"),
        *(element("p", warning, class_="warning") for warning in warnings if warning),
    )


def anchor(name: str) -> str:
    """An id for a kernel's section: readable, and another for every name."""
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', name)[:60]}-{sha256(name.encode(errors='surrogatepass')).hexdigest()[:6]}"


def contents(names: Sequence[str]) -> Markup:
    """Links to the kernels' sections."""
    links = [element("li", element("a", short_name(name), href=f"#{anchor(name)}")) for name in names]
    return element("nav", element("ul", *links), aria_label="Kernels")


def badge(word: str) -> Markup:
    return element("span", word, class_=f"verdict v-{re.sub(r'[^a-z]', '-', word)}")


def bullets(lines: Iterable[str]) -> list[Markup]:
    items = [element("li", line) for line in lines]
    return [element("ul", *items, class_="plain")] if items else []


def contest(name: str, comparison: Comparison, value: Callable[[Comparison], str] = speedup) -> Markup:
    """One contest: in words, and its blocks where any was timed; ``value`` says its speedup."""
    said = words(comparison, value(comparison))
    if not comparison.d:
        return figure(name, note=said)
    note = f"{said}. One mark a block: filled where the baseline came first, hollow where it came second."
    if comparison.repeat is not None and comparison.repeat.d:
        note += " On the right the repetition in a fresh process."
    return figure(name, charts.strip(comparison, value), note=note)


def machine(conditions: Mapping[str, str], title: str = "Machine and calibration") -> Markup:
    """The conditions of the measurements, as they were told."""
    pairs = [part for key, value in sorted(conditions.items()) for part in (_term(key), element("dd", value))]
    return element("details", element("summary", title), element("dl", *pairs))


def _term(key: str) -> Markup:
    return element("dt", key.replace("_", " "))


def command(line: str) -> Markup:
    return element("pre", element("code", line), tabindex="0", role="group", aria_label="command")
