"""The whole search against its ablations at equal numbers of evaluations.

On each kernel of some captures, on one device: ``full``, ``bo`` and ``llm``, with the rules as proposer or the answers
of an earlier run (``recorded:FILE``), each for so many evaluations. Then what ranks best in ``full`` stands against
what ranks best in each of the others by the full procedure. Asked for: never SLOWER. Name kernels to run some of them:
one takes about a minute on the CPU device.

    python -m tests.benchmarks.search_modes [--evaluations 60] [--device cuda] [--at-once 7]
        [--captures FOLDER] [kernel ...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path
from time import perf_counter

from tabulate import tabulate

from r3bench import store
from r3bench.evolve import MODES, Kernel, Limits, Search, Settings
from r3bench.evolve.propose import open_proposers
from r3bench.ledger import Ledger
from r3bench.ledger import SearchMode as Mode
from r3bench.model import Capture, Variant
from r3bench.report.words import speedup
from r3bench.server import ReplayServer
from r3bench.stats import Decision
from tests.benchmarks.machine import describe, judge

MODES_RUN: tuple[Mode, ...] = ("full", "bo", "llm")
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


def rows(capture: Capture, server: ReplayServer, found: Mapping[Mode, Variant]) -> Iterator[list[object]]:
    """The contests of ``full`` with each other mode."""
    gate = 0.05 if server.target.device == "cpu" else 0.01
    for name, other in found.items():
        if name != "full":
            told = server.compare(capture, 0, other, found["full"], gate).result()
            decision = told.decision.value
            yield [capture.symbol, name, told.candidate_ns, told.baseline_ns, speedup(told), decision]


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = argparse.ArgumentParser()
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--proposer", default="rules")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--captures", type=Path, default=Path(__file__).parents[2] / "captures" / "miniweather")
    parser.add_argument("--seconds", type=float, default=inf, help="begin no contest later")
    parser.add_argument("--at-once", type=int, default=1, help="kernels searched at once, where cores are many")
    parser.add_argument("kernels", nargs="*", help="all of the captures where none is named")
    chosen = parser.parse_args(arguments)
    print(describe())
    slower, begin = 0, perf_counter()
    with tempfile.TemporaryDirectory() as cache, ReplayServer(chosen.device, cache=Path(cache)) as server:

        def searched(capture: Capture) -> dict[Mode, Variant]:
            return {mode: best(capture, server, mode, chosen.evaluations, chosen.proposer) for mode in MODES_RUN}

        captures = [store.open_capture(path) for path in store.find([chosen.captures])]
        captures = [c for c in captures if not chosen.kernels or c.symbol in chosen.kernels]
        with ThreadPoolExecutor(chosen.at_once) as threads:
            found = list(threads.map(searched, captures))
        print(f"searched in {perf_counter() - begin:.0f} s", flush=True)
        for capture, winners in zip(captures, found, strict=True):
            if perf_counter() - begin < chosen.seconds:
                made = list(rows(capture, server, winners))
                slower += sum(row[-1] == Decision.SLOWER.value for row in made)
                print(tabulate(made, headers=HEADS, floatfmt=".4g"), flush=True)
    print(f"{chosen.evaluations} evaluations each, proposer {chosen.proposer}, {perf_counter() - begin:.0f} s")
    print(describe())
    return judge("contests in which full is slower", slower, 0, "")


if __name__ == "__main__":
    sys.exit(not main())
