"""Copies of the baseline, each with other machine code for the same work, through the whole promotion: none may win.

A copy compares its loop's length with another constant, which never holds: an immediate operand is all that differs.
Identity cannot answer then, so that each copy is verified at every level and stands against the baseline as a finalist
of a search does, by the procedure of every claim. Printed: what became of them, the spread of their apparent speedups,
and the rate of false promotions that this many copies rule out at 95 % confidence. Asked for: no winner.

    python -m tests.benchmarks.aa_promotions [cpu or cuda] [copies] [seconds at most] [number of the first copy]
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from itertools import takewhile
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import numpy as np

from r3bench.calibration import upper_bound
from r3bench.evolve.evaluate import Evaluator
from r3bench.evolve.promote import Court, Finalist, Verdicts, promote
from r3bench.ledger import Ledger
from r3bench.model import Capture, Configuration, Variant
from r3bench.record import Session
from r3bench.server import ReplayServer
from tests.benchmarks.machine import describe, judge

TEXT = """
extern "C" __global__ void settle(const double* from, double* to, int count, int steps) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= count || steps == -CONSTANT) return;
    double a = from[n], x = a, y = 1.0;
    for (int s = 0; s < steps; s++) {
        x = 0.5 * x + a;
        y = 0.25 * y + a;
    }
    to[n] = x + y;
}
"""
# Elements and steps: some tens of microseconds on either device.
SIZES = {"cpu": (1 << 12, 200), "cuda": (1 << 17, 4000)}


def copy(number: int, text: str = TEXT) -> Variant:
    return Variant(files=(("settle.cu", text.replace("CONSTANT", str(1000 + number))),), configuration=Configuration())


def record(folder: Path, device: str) -> Capture:
    """The kernel with a held-out launch of half the size."""
    count, steps = SIZES[device]
    (folder / "settle.cu").write_text(TEXT.replace("CONSTANT", "999"))
    with Session("control", folder, device) as session:
        module = session.module("settle.cu")
        session.capture("settle", (0, 1))
        for size in (count, count // 2):
            held = session.array("from", np.random.default_rng(0).random(size)), session.array("to", np.zeros(size))
            session.launch(module, "settle", -(-size // 128), 128, (*held, size, steps))
        return session.save(folder)[0]


def main(device: str = "cpu", copies: int = 200, seconds: int = 3600, first: int = 0) -> bool:
    print(describe())
    gate = {"cpu": 0.05}.get(device, 0.01)
    begin = perf_counter()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        capture = record(folder, device)
        with ReplayServer(device) as server, Ledger.open(folder / "ledger.jsonl") as ledger:
            evaluator = Evaluator(capture, server, ledger)
            court = Court(evaluator=evaluator, baseline=Variant(), gate=gate, kernels=1, contests=1)
            numbers = takewhile(lambda _: perf_counter() - begin < seconds, range(first, first + copies))
            found = [_promoted(court, number) for number in numbers]
    decisions = Counter(each.promotions[-1].reason for each in found)
    for reason, count in decisions.most_common():
        print(f"  {count:4} {reason}")
    winners = sum(each.winner is not None for each in found)
    print(f"{len(found)} copies on {device} at gate {gate:.1%} in {perf_counter() - begin:.0f} s; {describe()}")
    print(f"false promotions are rarer than {upper_bound(winners, len(found)):.1%} (95 % confidence)")
    return judge("copies promoted", winners, 0, "")


def _promoted(court: Court, number: int) -> Verdicts:
    found = Verdicts()
    variant = copy(number)
    source: Any = SimpleNamespace(rule=f"copy {number}", description="", files=variant.files)
    promote(court, [Finalist(source=source, variant=variant, ns=1.0)], source, found)
    return found


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:2], *map(int, sys.argv[2:])))
