"""The whole search against its ablations at equal numbers of evaluations.

On each kernel of some captures, on one device: ``full``, ``bo`` and ``llm``, with the rules as proposer or the answers
of an earlier run (``recorded:FILE``), each for so many evaluations. Then what ranks best in ``full`` stands against
what ranks best in each of the others by the full procedure. Asked for: never SLOWER. Name kernels to run some of them:
one takes about a minute on the CPU device. With ``--keep FOLDER`` everything is kept there at once, and a run that is
ended (or killed) goes on where it was when it is started again, with the same kernels or others; without searches left
to do it prints what is known.

    python -m tests.benchmarks.search_modes [--evaluations 60] [--device cuda] [--at-once 7] [--keep FOLDER]
        [--captures FOLDER] [--seconds 200] [kernel ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from math import inf
from pathlib import Path
from threading import Lock
from time import perf_counter

from tabulate import tabulate

from r3bench import store
from r3bench.evolve import MODES, Kernel, Limits, Search, Settings
from r3bench.evolve.propose import open_proposers
from r3bench.ledger import Ledger
from r3bench.ledger import SearchMode as Mode
from r3bench.model import Capture, Variant, content_id
from r3bench.nouns import decode, encode
from r3bench.report.words import duration
from r3bench.server import ReplayServer
from r3bench.stats import Comparison, Decision
from tests.benchmarks.machine import describe, judge

MODES_RUN: tuple[Mode, ...] = ("full", "bo", "llm")
HEADS = ("kernel", "against", "full", "other", "other / full", "decision")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What all kernels share: the device, how long each search is, who proposes, and where everything is kept."""

    server: ReplayServer
    evaluations: int
    proposer: str
    folder: Path
    ends: float
    contests: Ledger
    guard: Lock

    def rows(self, capture: Capture) -> list[list[str]]:
        """The contests of ``full`` with each other mode, as far as there is time for them."""
        found = {mode: self.best(capture, mode) for mode in MODES_RUN}
        others = ((mode, variant) for mode, variant in found.items() if mode != "full")
        return [
            row(capture, mode, self.contest(capture, variant, found["full"]))
            for mode, variant in others
            if perf_counter() < self.ends
        ]

    def best(self, capture: Capture, mode: Mode) -> Variant:
        """What ranks best after so many evaluations, or did in an earlier run."""
        kept = self.folder / f"{capture.symbol}-{mode}-{self.evaluations}.json"
        if not kept.exists():
            kept.write_text(json.dumps(encode(self._searched(capture, mode, kept.with_suffix(".jsonl")))))
        return decode(Variant, json.loads(kept.read_text()))

    def _searched(self, capture: Capture, mode: Mode, path: Path) -> Variant:
        most = self.evaluations if mode == "bo" else 0
        settings = Settings(
            search=mode, trials=max(MODES[mode].trials, most), iterations=10 * self.evaluations,
            limits=Limits(evaluations=self.evaluations),
        )  # fmt: skip
        with Ledger.open(path) as ledger:
            kernel = Kernel(capture=capture, ledger=ledger, working=lambda capture: None)
            search = Search([kernel], self.server, open_proposers(self.proposer), settings)
            search.explore()
            return search.best(capture) or Variant()

    def contest(self, capture: Capture, other: Variant, full: Variant) -> Comparison:
        key = content_id(capture.name, capture.content_hash, other, full, self.server.target)
        with self.guard:
            known = self.contests.comparison(key)
        if known is None:
            gate = 0.05 if self.server.target.device == "cpu" else 0.01
            known = self.server.compare(capture, 0, other, full, gate).result()
            with self.guard:
                self.contests.add_comparison(key, known, kernel=capture.name)
        return known


def row(capture: Capture, mode: Mode, told: Comparison) -> list[str]:
    interval = f" ({told.low:.3f} to {told.high:.3f})" if told.low is not None and told.high is not None else ""
    ratio = f"{told.speedup:.3f}{interval}" if told.speedup is not None else "-"
    return [capture.symbol, mode, duration(told.candidate_ns), duration(told.baseline_ns), ratio, told.decision.value]


def done(bench: Bench, captures: Sequence[Capture], at_once: int) -> Iterator[list[str]]:
    """All rows, each kernel's printed as soon as they are there."""
    with ThreadPoolExecutor(at_once) as threads:
        for kernel in as_completed(threads.submit(bench.rows, capture) for capture in captures):
            print(tabulate(kernel.result(), headers=HEADS), flush=True)
            yield from kernel.result()


def main(arguments: Sequence[str] | None = None) -> bool:
    parser = argparse.ArgumentParser()
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--proposer", default="rules")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--captures", type=Path, default=Path(__file__).parents[2] / "captures" / "miniweather")
    parser.add_argument("--keep", type=Path, help="a folder for ledgers, with which a later run goes on")
    parser.add_argument("--seconds", type=float, default=inf, help="begin no contest later")
    parser.add_argument("--at-once", type=int, default=1, help="kernels searched at once, where cores are many")
    parser.add_argument("kernels", nargs="*", help="all of the captures where none is named")
    chosen = parser.parse_args(arguments)
    print(describe())
    begin = perf_counter()
    captures = {c.symbol: c for c in map(store.open_capture, store.find([chosen.captures]))}
    with tempfile.TemporaryDirectory() as folder, ReplayServer(chosen.device, cache=Path(folder) / "cache") as server:
        kept = chosen.keep or Path(folder)
        with Ledger.open(kept / "contests.jsonl") as contests:
            bench = Bench(
                server=server, evaluations=chosen.evaluations, proposer=chosen.proposer, folder=kept,
                ends=begin + chosen.seconds, contests=contests, guard=Lock(),
            )  # fmt: skip
            rows = list(done(bench, [captures[name] for name in chosen.kernels or captures], chosen.at_once))
    print(tabulate(rows, headers=HEADS))
    print(f"{chosen.evaluations} evaluations each, proposer {chosen.proposer}, {perf_counter() - begin:.0f} s")
    print(describe())
    return judge("contests in which full is slower", sum(row[-1] == Decision.SLOWER.value for row in rows), 0, "")


if __name__ == "__main__":
    sys.exit(not main())
