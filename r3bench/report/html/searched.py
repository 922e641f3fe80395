"""The page of a search."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from r3bench.ledger import Failures, KernelResult, SourceResult
from r3bench.report import applied, kinds, prose
from r3bench.report.documents import result_of
from r3bench.report.html import charts, code
from r3bench.report.html.elements import Markup, element
from r3bench.report.html.parts import anchor, badge, bullets, command, contents, contest, head, machine
from r3bench.report.html.plot import figure
from r3bench.report.html.tables import Cell, table
from r3bench.report.patches import also, known
from r3bench.report.terminal import HEAD, columns
from r3bench.report.words import (
    as_sentence,
    baseline_time,
    best_time,
    busy_line,
    configured,
    course,
    duration,
    in_contest,
    matched,
    own_line,
    places,
    result_word,
    source_name,
    speedup,
    warnings,
    with_configuration,
    work_line,
)
from r3bench.stats import Comparison, Decision
from r3bench.symbols import full_name, short_name

SOURCES = 15  # rows of a kernel's tables of sources and failures
PICTURES = 1  # of wrong results of one kernel
LINES = 800  # of source changes in a page, shared by its kernels

Entry = Mapping[str, Any]


def searched(document: Mapping[str, Any]) -> tuple[str, list[Markup]]:
    """Title and content."""
    entries = document["kernels"]
    kernels = [result_of(entry) for entry in entries]
    improved = sum(kernel.status == "improved" for kernel in kernels)
    title = f"{document['application']}: {improved} of {len(kernels)} kernels improved"
    doubts = [as_sentence(line) for line in (busy_line(kernels), *warnings(document)) if line]
    main = [
        *_overview(kernels),
        element("h2", "Kernels", id="kernels"),
        table("Largest gain first. Headings sort.", *_kernels(kernels)),
        *_in_application(document),
        *_places(kernels),
        *_methods(entries),
        *(
            _section(entry, kernel, LINES // len(entries), own_line(kernel, document))
            for entry, kernel in zip(entries, kernels, strict=True)
        ),
        element("h2", "How to read this"),
        *bullets(line.removeprefix("- ").replace("*", "") for line in prose.legend(entries)),
        *_busy(kernels),
        element("h2", "To reproduce"),
        command(document["reproduce"]),
        machine(document["conditions"]),
    ]
    return title, [
        head(document, title, doubts),
        contents([kernel.kernel for kernel in kernels]),
        element("main", *main),
    ]


def _in_application(document: Mapping[str, Any]) -> Iterator[Markup]:
    """What all tuned kernels together bring where they are used, if that was tried."""
    if found := document.get("in_application"):
        yield element("h2", applied.TITLE)
        yield command(shlex.join(found["command"]))
        yield table("Runs of each kind, in turns.", applied.HEAD, found["rows"])
        yield from bullets(found["notes"])


def _busy(kernels: Sequence[KernelResult]) -> list[Markup]:
    line = work_line(kernels)
    return [element("details", element("summary", "How busy the device was"), as_sentence(line))] if line else []


def _places(kernels: Sequence[KernelResult]) -> list[Markup]:
    """Where contests were timed, if a cluster did it."""
    lines = places(kernels)
    return [element("h3", "Contests, by device"), *bullets(lines)] if lines else []


# -- all kernels ------------------------------------------------------------------------------------------------------


def _kernels(kernels: Sequence[KernelResult]) -> tuple[list[str], list[list[Cell | str]]]:
    head, *rows = columns(kernels, [(*HEAD, "evaluations"), *map(_row, kernels)])
    return head, rows


def _row(kernel: KernelResult) -> list[Cell | str]:
    alone, full = kernel.arm("patch"), with_configuration(kernel)
    name = element("a", full_name(kernel.kernel), href=f"#{anchor(kernel.kernel)}")
    return [
        *(name, Cell(badge(result_word(kernel)))),
        *(Cell(speedup(alone), _gain(alone)), Cell(configured(kernel), _gain(full))),
        Cell(baseline_time(kernel), kernel.baseline_ns or 0.0),
        Cell(str(kernel.evaluations), kernel.evaluations),
    ]


def _gain(comparison: Comparison | None) -> float:
    """What a column is sorted by."""
    return (comparison.speedup or 0.0) if comparison is not None else 0.0


def best_arm(kernel: KernelResult) -> Comparison | None:
    """The contest with the largest claimed speedup, else any that was timed."""
    timed = [arm.comparison for arm in kernel.arms if arm.name != "toolchain" and arm.comparison.candidate_ns]
    return max(timed, key=lambda c: (c.decision is Decision.FASTER, c.speedup or 0.0), default=None)


def _overview(kernels: Sequence[KernelResult]) -> Iterator[Markup]:
    points = [_point(kernel) for kernel in kernels if in_contest(kernel)]
    rows = [
        (short_name(kernel.kernel), _SUFFIX[arm.name], arm.comparison)
        for kernel in kernels
        for arm in kernel.arms
        if _timed(arm.comparison)
    ]
    shown = []
    if rows:
        note = (
            "+c: with configuration; (tool): our compiler alone; (own): the patch by the application's own compiler. "
            "Band: within the gate."
        )
        shown.append(figure("Speedups and their intervals", charts.forest(rows, rows[0][2].gate), note=note))
    if points:
        chart = charts.scatter(points, "time of the baseline", "time under r3bench")
        shown.append(figure("Time of a launch", chart, note="Times of contests. Hollow: nothing surely faster."))
    written = [found for kernel in kernels if (found := _written(kernel)) is not None]
    if written:
        speed = charts.size(written[0].speed)
        note = f"The line: writing alone, predicted from the {speed} a second measured of memory. Caches may be faster."
        shown.append(figure("Distance from the memory roof", charts.memory_roof(written), note=note))
    if shown:
        yield element("div", *shown, class_="pair overview")


def _written(kernel: KernelResult) -> charts.Written | None:
    """Where a kernel stands below the speed of memory; None where its contests do not say what it writes."""
    conditions = next((dict(arm.comparison.conditions) for arm in kernel.arms), {})
    point = _point(kernel)
    if not kernel.baseline_ns or "written_bytes" not in conditions:
        return None
    nbytes, speed = float(conditions["written_bytes"]), float(conditions["write_speed"])
    return charts.Written(point.name, nbytes, point.x_ns, point.y_ns, speed)


_SUFFIX = {
    "patch": "",
    "patch and configuration": " +c",
    "configuration": " +c",
    "toolchain": " (tool)",
    "own compiler": " (own)",
}


def _timed(comparison: Comparison) -> bool:
    bounds = (comparison.speedup, comparison.low, comparison.high)
    return comparison.candidate_ns is not None and all(bound is not None and bound > 0 for bound in bounds)


def _point(kernel: KernelResult) -> charts.Point:
    best, baseline = best_arm(kernel), kernel.baseline_ns or 1.0
    claimed = best is not None and best.decision is Decision.FASTER
    after = best.candidate_ns if best is not None and claimed else None
    decision = best.decision.value if best is not None else "nothing timed"
    return charts.Point(short_name(kernel.kernel), baseline, after or baseline, decision)


def _methods(entries: Sequence[Entry]) -> Iterator[Markup]:
    """Where several kinds of search were run: what each came to, and each against the full one."""
    if compared := list(kinds.rows(entries)):
        yield element("h2", "Kinds of search")
        yield table("Each kernel's searches, at equal evaluations and as they were set to run.", kinds.HEAD, compared)
    found: dict[str, list[charts.Point]] = {}
    for entry in entries:
        curves = entry.get("convergence", {})
        for name, curve in curves.items():
            if name != "full" and "full" in curves:
                equal = min(curve[-1][0], curves["full"][-1][0])
                x, y = kinds.best_after(equal, curve), kinds.best_after(equal, curves["full"])
                kind = "faster" if y < x else "not faster"
                found.setdefault(name, []).append(charts.Point(short_name(entry["kernel"]), x, y, kind))
    if found:
        note = "Best ranked times at equal evaluations: quick measurements, no claims."
        drawn = (
            (name, charts.scatter(points, f"time under {name}", "time under full")) for name, points in found.items()
        )
        yield element(
            "div", *(figure(f"Full search against {name}", chart, note=note) for name, chart in drawn), class_="pair"
        )


# -- one kernel -------------------------------------------------------------------------------------------------------


def _section(entry: Entry, kernel: KernelResult, lines: int, where: str) -> Markup:
    summary = f"{as_sentence(kernel.detail)} Baseline: {kernel.baseline}, {baseline_time(kernel)} a launch; "
    summary += f"{kernel.evaluations} evaluations, seed {kernel.seed}. {where}"
    contests = (contest(f"Contest, {arm.name}", arm.comparison) for arm in kernel.arms)
    figures = [*contests, *_search_figures(entry)]
    return element(
        "section",
        element("h2", full_name(kernel.kernel), " ", badge(result_word(kernel)), id=anchor(kernel.kernel)),
        element("p", summary),
        *_offered(entry, kernel),
        *([element("div", *figures, class_="pair")] if figures else []),
        *_change(entry, lines),
        *_tried(entry, kernel),
        class_="kernel",
    )


def _offered(entry: Entry, kernel: KernelResult) -> list[Markup]:
    lines: list[str] = []
    if entry["patch_file"]:
        lines += [f"Source change: {kernel.description} ({entry['patch_file']})", *also(kernel)]
        lines += [f"It {said}." for said in known(kernel, entry["overlaps"], entry.get("applied", ()))]
    if entry["configuration_file"]:
        lines.append(f"Configuration {entry['configuration_file']}: {'; '.join(kernel.settings)}")
    return bullets(lines)


def _search_figures(entry: Entry) -> Iterator[Markup]:
    if "convergence" in entry:
        chart = charts.convergence(entry["convergence"])
        yield figure("How fast the best was found", chart, note="Ranked times: quick measurements, no claims.")
    if "archive" in entry:
        fates = ", ".join(f"{count} {fate}" for fate, count in entry["archive"]["fates"].items())
        note = (
            f"Best ranked speedup of a cell, no claim. Programs: {fates}. p0 is the text that the search began with, "
            "p17 that of step 17."
        )
        yield figure("Archive", charts.heat_map(entry["archive"]), note=note)
    for picture in entry.get("pictures", [])[:PICTURES]:
        where = f"{picture['buffer']}[{', '.join(map(str, picture['first']))}]"
        note = (
            f"Source {picture['source']}: {where} is {picture['first_actual']} where {picture['first_expected']} was "
            f"recorded, the first of {picture['count']}; each square is a part of the buffer."
        )
        yield figure(f"Wrong result in {picture['buffer']}", charts.error_picture(picture), note=note)


def _change(entry: Entry, lines: int) -> list[Markup]:
    if not entry["diff"]:
        return []
    hunks = re.split(r"^diff --git .*\n--- .*\n\+\+\+ .*\n", entry["diff"], flags=re.MULTILINE)[1:]
    files = zip(entry.get("changed", [entry["source"]]), hunks, strict=False)
    return [piece for name, own in files for piece in _file_change(name, own, lines)]


def _file_change(name: str, hunks: str, lines: int) -> Iterator[Markup]:
    yield element("h3", f"Source change in {name}")
    yield code.difference(hunks, lines)


def _tried(entry: Entry, kernel: KernelResult) -> Iterator[Markup]:
    inside = [*bullets([*course(kernel), *_candidates(kernel)]), *_tables(entry, kernel)]
    yield element("details", element("summary", "What was tried, and what failed"), *inside)


def _candidates(kernel: KernelResult) -> Iterator[str]:
    for promotion in kernel.promotions:
        yield f"Candidate {source_name(kernel, promotion.rule)}: {promotion.reason} ({matched(promotion)})"
        for verdict in promotion.levels if promotion.promoted else ():
            yield f"Verified, {verdict.level.value}: {verdict.detail}"


def _tables(entry: Entry, kernel: KernelResult) -> Iterator[Markup]:
    if kernel.sources:
        ranked = sorted(kernel.sources, key=lambda s: s.best_ns or float("inf"))
        rows = [_source(kernel, source) for source in ranked[:SOURCES]]
        caption = "Sources" + (f": the fastest {SOURCES} of {len(ranked)}" if len(ranked) > SOURCES else "")
        yield table(caption, prose.SOURCES_HEAD, rows)
    if kernel.failures:
        failed = [_failure(kernel, failures) for failures in kernel.failures[:SOURCES]]
        yield table("Failures", ("source", "how", "times", "the first said"), failed)
    if "replies" in entry:
        yield table("Proposals", ("from", "calls", "failed", "tokens", "cached", "cost", "seconds"),
                    [_reply(total) for total in entry["replies"]])  # fmt: skip


def _source(kernel: KernelResult, source: SourceResult) -> list[Cell | str]:
    return [
        source_name(kernel, source.rule),
        *(Cell(str(count), count) for count in (source.trials, source.matched)),
        Cell(duration(source.default_ns), source.default_ns or 0.0),
        Cell(best_time(kernel, source), source.best_ns or float("inf")),
    ]


def _failure(kernel: KernelResult, failures: Failures) -> list[Cell | str]:
    count = Cell(str(failures.count), failures.count)
    return [source_name(kernel, failures.source), failures.status, count, failures.detail[:200]]


def _reply(total: Mapping[str, Any]) -> list[Cell | str]:
    tokens = total["tokens"] + total["answer_tokens"]
    cached = total["cached_tokens"] / total["tokens"] if total["tokens"] else 0.0
    shown = [("calls", "{}"), ("failed", "{}"), ("cost", "{:.4g}"), ("seconds", "{:.0f}")]
    calls, failed, cost, seconds = (Cell(form.format(total[key]), total[key]) for key, form in shown)
    return [total["model"], calls, failed, Cell(f"{tokens:.0f}", tokens), Cell(f"{cached:.0%}", cached), cost, seconds]
