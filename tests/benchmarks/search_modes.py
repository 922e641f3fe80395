"""The whole search against its ablations at equal numbers of evaluations.

On each kernel in captures/miniweather, on one device: ``full``, ``bo`` and ``llm``, with the rules as proposer or
the answers of an earlier run (``recorded:FILE``), each for so many evaluations. Then what ranks best in ``full`` stands
against what ranks best in each of the others, by the full procedure. Asked for: never SLOWER, on no kernel.

    python -m tests.benchmarks.search_modes [evaluations] [proposer] [cpu | cuda] [kernel ...]
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
HEADS = ("kernel", "against", "full ns", "other ns", "other / full", "decision")


def best(capture: Capture, server: ReplayServer, mode: Mode, evaluations: int, proposer: str) -> Variant:
    """What ranks best after so many evaluations."""
    settings = Settings(
        search=mode, trials=max(MODES[mode].trials, evaluations if mode == "bo" else 0),
        iterations=10 * evaluations, limits=Limits(evaluations=evaluations),
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.jsonl") as ledger:
        kernel = Kernel(capture=capture, ledger=ledger, working=lambda capture: None)
        search = Search([kernel], server, open_proposers(proposer), settings)
        search.explore()
        return search.best(capture) or Variant()


def compared(
    capture: Capture, evaluations: int, proposer: str, device: str, gate: float
) -> Iterator[tuple[Mode, Comparison]]:
    """Each other mode's contest with ``full``; every mode begins with an empty cache."""
    found = {}
    for mode in ("full", *OTHERS):
        with tempfile.TemporaryDirectory() as cache, ReplayServer(device, cache=Path(cache)) as server:
            found[mode] = best(capture, server, mode, evaluations, proposer)  # type: ignore[arg-type]
    with ReplayServer(device) as server:
        for mode in OTHERS:
            yield mode, server.compare(capture, 0, found[mode], found["full"], gate).result()


def row(capture: Capture, mode: Mode, comparison: Comparison) -> list[object]:
    times = [comparison.candidate_ns, comparison.baseline_ns]
    return [capture.symbol, mode, *times, comparison.speedup, comparison.decision.value]


def main(evaluations: str = "60", proposer: str = "rules", device: str = "cpu", *kernels: str) -> bool:
    print(describe())
    slower, begin = 0, perf_counter()
    for path in store.find([CAPTURES]):
        capture = store.open_capture(path)
        if capture.symbol in (kernels or [capture.symbol]):
            gate = 0.05 if device == "cpu" else 0.01
            rows = [row(capture, *found) for found in compared(capture, int(evaluations), proposer, device, gate)]
            slower += sum(each[-1] == Decision.SLOWER.value for each in rows)
            print(tabulate(rows, headers=HEADS, floatfmt=".3g"), flush=True)
    print(f"{evaluations} evaluations each, proposer {proposer}, {perf_counter() - begin:.0f} s; {describe()}")
    return judge("contests in which full is slower", slower, 0, "")


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
