"""The terminal's table."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate

from r3bench.ledger import KernelResult
from r3bench.report.documents import by_gain
from r3bench.report.words import duration, one_line, result_word, speedup

HEAD = ("kernel", "result", "patch alone", "with configuration", "baseline")


_NARROW = ("kernel", "result", "patch", "with config.", "baseline")


def table(kernels: Sequence[KernelResult], width: int = 100) -> str:
    """The terminal's table, largest gain first, no line longer than ``width`` characters.

    Where it is too narrow, first the intervals go, then long names are broken into lines.
    """
    ordered = by_gain(kernels)
    shared = len({k.kernel.split("/")[0] for k in kernels}) == 1
    full, short = ([row(k, shared=shared, intervals=wanted) for k in ordered] for wanted in (True, False))
    plain = [(full, HEAD, None), (full, _NARROW, None), (short, _NARROW, None)]
    broken = [(short, _NARROW, limit) for limit in (24, 16, 12, 9, 7)]
    for rows, head, limit in (*plain, *broken):
        text = str(tabulate(rows, headers=head, tablefmt="simple", maxcolwidths=limit, maxheadercolwidths=limit))
        if max(len(line) for line in text.splitlines()) <= width:
            break
    return text


def row(result: KernelResult, *, shared: bool = False, intervals: bool = True) -> list[str]:
    full = result.arm("patch and configuration") or result.arm("configuration")
    alone = result.arm("patch")
    name = result.kernel.split("/", 1)[-1] if shared else result.kernel
    speedups = [speedup(comparison, intervals) for comparison in (alone, full)]
    return [one_line(name), result_word(result), *speedups, duration(result.baseline_ns)]
