"""The terminal's table of a document: as wide as it may be, no wider."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tabulate import tabulate

from r3bench.ledger import KernelResult
from r3bench.report import guards
from r3bench.report.documents import Document, result_of
from r3bench.report.words import baseline_time, one_line, result_word, speedup

HEAD = ("kernel", "result", "patch alone", "with configuration", "baseline")
_NARROW = ("kernel", "result", "patch", "with config.", "baseline")

Layout = tuple[Sequence[Sequence[str]], Sequence[str]]


def table(document: Document, width: int = 100) -> str:
    """A search's kernels, largest gain first, or a guard's, worst first; no line longer than ``width`` characters.

    Where it is too narrow, first the intervals go, then long names are broken into lines.
    """
    if document["kind"] == "guard":
        return _fitted(guards.layouts(document), width)
    kernels = [result_of(entry) for entry in document["kernels"]]
    full, short = ([row(kernel, intervals=wanted) for kernel in kernels] for wanted in (True, False))
    return _fitted([(full, HEAD), (full, _NARROW), (short, _NARROW)], width)


def _fitted(layouts: Sequence[Layout], width: int) -> str:
    """The first layout that fits; the last one broken into lines where none does."""
    last_rows, last_head = layouts[-1]
    broken = [(last_rows, last_head, limit) for limit in (24, 16, 12, 9, 7)]
    for rows, head, limit in (*((rows, head, None) for rows, head in layouts), *broken):
        text = str(tabulate(_safe(rows), headers=head, tablefmt="simple", maxcolwidths=limit, maxheadercolwidths=limit))
        if max(len(line) for line in text.splitlines()) <= width:
            break
    return text


def _safe(rows: Iterable[Sequence[str]]) -> list[list[str]]:
    return [[one_line(cell) for cell in row] for row in rows]


def row(result: KernelResult, *, intervals: bool = True) -> list[str]:
    """Kernel, result, the two speedups, the baseline's time."""
    full = result.arm("patch and configuration") or result.arm("configuration")
    speedups = [speedup(comparison, intervals) for comparison in (result.arm("patch"), full)]
    return [result.kernel.split("/", 1)[-1], result_word(result), *speedups, baseline_time(result)]
