"""The page of a guard: base against head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from r3bench.report import guards
from r3bench.report.html import charts
from r3bench.report.html.elements import Markup, element
from r3bench.report.html.parts import anchor, badge, bullets, command, contents, contest, head, machine
from r3bench.report.html.plot import figure
from r3bench.report.html.tables import Cell, table
from r3bench.report.words import as_sentence, disturbed, duration
from r3bench.symbols import full_name, short_name

Finding = Mapping[str, Any]


def guarded(document: Mapping[str, Any]) -> tuple[str, list[Markup]]:
    """Title and content."""
    guard = document["guard"]
    found = guard["kernels"]
    notes = {finding["kernel"]: guards.own_notes(finding, found) for finding in found}
    said = [finding for finding in found if finding["fails"] or notes[finding["kernel"]] or _timed(finding)]
    main = [
        *([element("p", guards.LAUNCH)] if guards.timed(found) else []),
        *_overview(found),
        element("h2", "Kernels", id="kernels"),
        table("Worst first. Headings sort.", guards.HEAD, [_row(finding) for finding in found]),
        *bullets(guards.shared_notes(found)),
        *(_section(finding, notes[finding["kernel"]]) for finding in said),
        element("h2", "To reproduce"),
        command(guard["reproduce"]),
        machine(document["conditions"]),
    ]
    title = as_sentence(guard["sentence"])
    busy = disturbed([document["conditions"]])
    warnings = [f"Could not be guarded: {error}" for error in guard["errors"]]
    warnings += [as_sentence(busy)] if busy and guards.timed(found) else []
    return title, [head(document, title, warnings), contents([f["kernel"] for f in said]), element("main", *main)]


def _timed(finding: Finding) -> bool:
    contest_ = guards.comparison_of(finding)
    return contest_ is not None and contest_.candidate_ns is not None


def _row(finding: Finding) -> list[Cell | str]:
    contest_ = guards.comparison_of(finding)
    times = (contest_.baseline_ns, contest_.candidate_ns) if contest_ is not None else (None, None)
    name, verdict, said, *_ = guards.row(finding)
    change = Cell(said, (contest_.speedup or 0.0) if contest_ is not None else 0.0)
    return [
        name,
        Cell(badge(verdict)),
        change,
        *(Cell(duration(ns), ns or 0.0) for ns in times),
    ]


def _overview(found: list[Finding]) -> Iterator[Markup]:
    timed = [
        (short_name(f["kernel"]), f["verdict"], c)
        for f in found
        if (c := guards.comparison_of(f)) is not None and c.candidate_ns and c.low and c.high and c.speedup
    ]
    if not timed:
        return
    points = [
        charts.Point(name, c.baseline_ns, c.candidate_ns, verdict)
        for name, verdict, c in timed
        if c.baseline_ns and c.candidate_ns
    ]
    shown = [figure("Time of a launch", charts.scatter(points, "time of base", "time of head"))] if points else []
    rows = [(name, "", c) for name, _, c in timed]
    chart = charts.forest(rows, timed[0][2].gate, lambda c: guards.change(c, interval=False))
    yield element(
        "div", *shown, figure("Head against base", chart, note="Left of 1x the head is slower."), class_="pair"
    )


def _section(finding: Finding, notes: Sequence[str]) -> Markup:
    name, comparison = finding["kernel"], guards.comparison_of(finding)
    rows = guards.static_rows(finding)
    timed = comparison if _timed(finding) else None
    shown = contest("head against base", timed, guards.change) if timed is not None else ""
    return element(
        "section",
        element("h2", full_name(name), " ", badge(finding["verdict"]), id=anchor(name)),
        element("p", as_sentence(finding["detail"])) if finding["detail"] else "",
        *bullets(notes),
        element("div", shown, class_="pair") if shown else "",
        *([table("Compiled code", ("code for", "what", "base", "head"), rows)] if rows else []),
        class_="kernel",
    )
