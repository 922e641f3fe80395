"""A guard's document for people: what became slower, wrong or could not be told, worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from r3bench.nouns import decode
from r3bench.report.marks import bounded, command, escape, folded, grid, short_grid
from r3bench.report.words import begun, disturbed, duration, marker, where_line, words
from r3bench.stats import Comparison, Decision, ratio
from r3bench.symbols import full_name

HEAD = ("kernel", "verdict", "change", "base", "head")

LAUNCH = (
    "Every recorded launch was checked, and the first of each kernel timed where its code differs: "
    "times are medians of blocks, a change is the middle of the ratios within blocks."
)

Finding = Mapping[str, Any]


def timed(found: Iterable[Finding]) -> bool:
    """Whether any kernel's two sides were timed."""
    return any(finding["comparison"] and finding["comparison"]["candidate_ns"] for finding in found)


def comparison_of(finding: Finding) -> Comparison | None:
    """The contest of head against base; None where nothing was compared."""
    return decode(Comparison, finding["comparison"]) if finding["comparison"] else None


def change(comparison: Comparison | None, interval: bool = True, *, same: bool = False) -> str:
    """How the head's time compares, as :func:`r3bench.stats.ratio` says it; a dash where nothing was timed."""
    if comparison is None or not (comparison.speedup and comparison.low and comparison.high):
        return "-"
    untimed = comparison.decision in (Decision.IDENTICAL, Decision.REFUSED)
    return "-" if untimed else ratio(comparison, interval, same=same)


def evidence(comparison: Comparison) -> str:
    """The contest of head against base in one line; empty where nothing was timed, which the detail says."""
    said = change(comparison)
    return "" if said == "-" else words(comparison, said)


def row(finding: Finding, *, interval: bool = True) -> list[str]:
    """Kernel, verdict, change, base and head time."""
    contest = comparison_of(finding)
    times = (contest.baseline_ns, contest.candidate_ns) if contest is not None else (None, None)
    changed = change(contest, interval, same=finding["verdict"] == Decision.SAME.value)
    return [full_name(finding["kernel"]), finding["verdict"], changed, *map(duration, times)]


def shared_notes(found: Sequence[Finding]) -> list[str]:
    """What is noted of several kernels, said once with their names."""
    return [f"{', '.join(kernels)}: {note}" for note, kernels in _noted(found).items() if len(kernels) > 1]


def own_notes(finding: Finding, found: Sequence[Finding]) -> list[str]:
    """What is noted of one kernel alone."""
    noted = _noted(found)
    return [note for note in _notes(finding) if len(noted[note]) == 1]


def _noted(found: Sequence[Finding]) -> dict[str, list[str]]:
    kernels: dict[str, list[str]] = {}
    for finding in found:
        for note in _notes(finding):
            kernels.setdefault(note, []).append(full_name(finding["kernel"]))
    return kernels


def _notes(finding: Finding) -> Sequence[str]:
    return [*finding.get("notes", ()), *finding.get("missing", ())]


def told(found: Sequence[Finding]) -> Iterator[str]:
    """Lines below the terminal's table: of each kernel, then of several."""
    for finding in found:
        detail = [finding["detail"]] if finding["verdict"] != "identical" else []
        yield from (f"{full_name(finding['kernel'])}: {said}" for said in (*detail, *own_notes(finding, found)))
    yield from shared_notes(found)


def layouts(document: Mapping[str, Any]) -> Sequence[tuple[Sequence[Sequence[str]], Sequence[str]]]:
    """Rows and heads for the terminal, the fullest first; names without their application where that is too wide."""
    found = document["guard"]["kernels"]
    full, short = ([row(finding, interval=wanted) for finding in found] for wanted in (True, False))
    bare, short = ([[line[0].split("/", 1)[-1], *line[1:]] for line in lines] for lines in (full, short))
    return [(full, HEAD), (bare, HEAD), (short, HEAD), ([line[:3] for line in short], HEAD[:3])]


def markdown(document: Mapping[str, Any]) -> str:
    """The comment on a pull request: verdict, table, machine, how to reproduce; every kernel's evidence folded."""
    guard, found = document["guard"], document["guard"]["kernels"]
    title = begun(guard["sentence"])
    head = [marker(document), f"## {escape(title)}", "", *short_grid(HEAD, [row(f) for f in found]), ""]
    launch = f" {LAUNCH}" if timed(found) else ""
    head += [f"{_sides(guard)}{launch} {escape(where_line(document), 1000)}", ""]
    said = [f"- could not be guarded: {escape(error, 1000)}" for error in guard["errors"]]
    said += [f"- {escape(note, 2000)}" for note in shared_notes(found)]
    busy = disturbed([document["conditions"]]) if timed(found) else ""
    said += [f"- {escape(busy)}"] if busy else []
    head += [*said, ""] if said else []
    head += ["To reproduce:", "", command(guard["reproduce"])]
    notes = [own_notes(finding, found) for finding in found]
    sections = [
        "\n".join(folded(f"{full_name(f['kernel'])}: {f['verdict']}", _evidence(f, own)))
        for f, own in zip(found, notes, strict=True)
        if f["detail"] or own or f["comparison"] or static_rows(f)
    ]
    return bounded("\n".join(head), sections, "The evidence of the other kernels is in report.html.")


def _sides(guard: Mapping[str, Any]) -> str:
    base, head = (_side(guard[side]) for side in ("base", "head"))
    return f"{head} against {base}."


def _side(side: Mapping[str, Any]) -> str:
    commit = f" ({side['commit'][:12]})" if side.get("commit") else ""
    return escape(f"{side['name']}{commit}")


def _evidence(finding: Finding, notes: Sequence[str]) -> Iterator[str]:
    if finding["detail"]:
        yield f"{escape(finding['detail'], 2000)}"
    for note in notes:
        yield f"- {escape(note, 2000)}"
    contest = comparison_of(finding)
    if contest is not None and (said := evidence(contest)):
        yield f"- {escape(said)}"
    counts = static_rows(finding)
    if counts:
        yield ""
        yield grid(("code for", "what", "base", "head"), counts)


def static_rows(finding: Finding) -> list[tuple[str, str, str, str]]:
    """What of the compiled code differs between the two sides, by GPU: registers, spills, instructions by kind."""
    return [row for arch, sides in (finding.get("static") or {}).items() for row in _changed(arch, sides)]


def _changed(arch: str, sides: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    base, head = ({**side, **side.get("mix", {})} for side in (sides["base"], sides["head"]))
    for key in {**base, **head}:
        if key not in ("mix", "failed") and base.get(key) != head.get(key):
            yield arch, key.replace("_", " "), str(base.get(key, "-")), str(head.get(key, "-"))
