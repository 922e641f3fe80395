"""The kinds of search that were run on the same kernels, side by side: at equal evaluations, and as each was set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from r3bench.ledger import KernelResult
from r3bench.report.words import claimed, duration, gain_from, grouped
from r3bench.symbols import short_name

HEAD = ("kernel", "search", "evaluations", "ranked best at equal evaluations", "ranked best", "claimed",
        "ranked gain from", "building", "on the device")  # fmt: skip
LEGEND = """\
*kinds of search*: *full*: texts from the archive, each of them tuned; *bo*: the recorded text, tuned; *llm*: texts \
under the default configuration; *rules*, *best-of-n*: see docs/search.md. A kernel's searches are compared after as \
many evaluations as the shortest of them made, and as they were set to run. *claimed* is the speedup of a contest."""


def about(result: KernelResult) -> dict[str, Any]:
    """What a document keeps of one search of a kernel, whichever kind it was."""
    seconds = {group: sum(took for _, took in stages) for group, stages in grouped(result.stages).items()}
    return {
        "evaluations": result.evaluations,
        "claimed": claimed(result) or None,
        "gain_from": gain_from(result),
        "building_s": round(seconds.get("building", 0.0), 3),
        "device_s": round(seconds.get("device", 0.0), 3),
    }


def rows(entries: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """A row for each kind of search of the kernels for which there were several; the full one first."""
    for entry in entries:
        searches, curves = entry.get("searches", {}), entry.get("convergence", {})
        if len(searches) > 1:
            equal = min((curve[-1][0] for curve in curves.values()), default=0)
            for name in sorted(searches, key=lambda name: (name != "full", name)):
                yield _row(short_name(entry["kernel"]), name, searches[name], curves.get(name, ()), equal)


def _row(kernel: str, name: str, search: Mapping[str, Any], curve: Sequence[Any], equal: int) -> tuple[str, ...]:
    return (
        kernel,
        name,
        str(curve[-1][0] if curve else search["evaluations"]),
        f"{duration(best_after(equal, curve))} after {equal}" if curve else "-",
        duration(curve[-1][2]) if curve else "-",
        f"{search['claimed']:.2f}x" if search["claimed"] else "-",
        search["gain_from"] or "-",
        f"{search['building_s']:.1f} s",
        f"{search['device_s']:.1f} s",
    )


def best_after(evaluations: int, curve: Sequence[Sequence[Any]]) -> float:
    """The best time after so many evaluations, or the first one there is."""
    return float([point[2] for point in curve if point[0] <= evaluations or point is curve[0]][-1])
