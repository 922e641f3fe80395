"""The whole search against its ablations at equal numbers of evaluations, and how many evaluations it makes a second.

On each kernel in captures/miniweather, on the CPU device: ``full``, ``bo`` and ``llm``, with the rules as proposer or
the answers of an earlier run (``recorded:FILE``), each for so many evaluations. Then what ranks best in ``full`` stands
against what ranks best in each of the others, by the full procedure. Asked for: never SLOWER, on no kernel; and 10
evaluations a second on kernels below 100 us.

    python -m tests.benchmarks.search_modes [evaluations] [proposer] [kernel ...]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from tabulate import tabulate

from r3bench import store
from r3bench.evolve import MODES, Kernel, Limits, Search, Settings
from r3bench.evolve.propose import open_proposers
from r3bench.evolve.settings import Search as Mode
from r3bench.ledger import Ledger
from r3bench.model import Capture, Variant
from r3bench.server import ReplayServer
from r3bench.stats import Comparison, Decision
from tests.benchmarks.machine import describe, judge

CAPTURES = Path(__file__).parents[2] / "captures" / "miniweather"
OTHERS: tuple[Mode, ...] = ("bo", "llm")
SMALL_NS = 100_000


def best(capture: Capture, server: ReplayServer, mode: Mode, evaluations: int, proposer: str) -> tuple[Variant, float]:
    """What ranks best after so many evaluations, and how many there were a second."""
    settings = Settings(
        search=mode, trials=max(MODES[mode].trials, evaluations if mode == "bo" else 0),
        iterations=10 * evaluations, limits=Limits(evaluations=evaluations),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.jsonl") as ledger:
        kernel = Kernel(capture=capture, ledger=ledger, working=lambda capture: None)
        search = Search([kernel], server, open_proposers(proposer), settings)
        begin = perf_counter()
        search.explore()
        return search.best(capture) or Variant(), evaluations / (perf_counter() - begin)


def compared(capture: Capture, evaluations: int, proposer: str) -> Iterator[tuple[Mode, Comparison, float]]:
    """Each other mode's contest with ``full``, and the rate of ``full``; every mode begins with an empty cache."""
    found = {}
    for mode in ("full", *OTHERS):
        with tempfile.TemporaryDirectory() as cache, ReplayServer("cpu", cache=Path(cache)) as server:
            found[mode] = best(capture, server, mode, evaluations, proposer)  # type: ignore[arg-type]
    with ReplayServer("cpu") as server:
        for mode in OTHERS:
            yield mode, server.compare(capture, 0, found[mode][0], found["full"][0]).result(), found["full"][1]


def row(capture: Capture, mode: Mode, comparison: Comparison, rate: float) -> list[object]:
    times = [comparison.candidate_ns, comparison.baseline_ns]
    return [capture.symbol, mode, *times, comparison.speedup, comparison.decision.value, rate]


def main(evaluations: str = "60", proposer: str = "rules", *kernels: str) -> bool:
    print(describe())
    rows: list[list[object]] = []
    slower, rates = 0, []
    for path in store.find([CAPTURES]):
        capture = store.open_capture(path)
        if kernels and capture.symbol not in kernels:
            continue
        for mode, comparison, rate in compared(capture, int(evaluations), proposer):
            rows.append(row(capture, mode, comparison, rate))
            slower += comparison.decision is Decision.SLOWER
            if (comparison.baseline_ns or 0.0) < SMALL_NS:
                rates.append(rate)
    print(f"{evaluations} evaluations each, proposer {proposer}")
    heads = ["kernel", "against", "full ns", "other ns", "other / full", "decision", "full, evaluations per s"]
    print(tabulate(rows, headers=heads, floatfmt=".3g"))
    print(describe())
    held = judge("kernels on which full is slower", slower, 0, "")
    return judge("least rate on small kernels", min(rates, default=0.0), 10, "per s", at_least=True) and held


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
