"""Runs random kernels against the interpreter: ``python tests/benchmarks/fuzz.py --first 0 --count 10000 [--shrink]
[--checked]``, the latter in checked builds, which must find nothing.

Prints each seed whose program fails, with the smallest program that still does where asked; ends with 1 if any did.
Nothing is kept between runs: builds go to a folder that is removed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.generator import Generator
from tests.fuzz.launches import Bench
from tests.fuzz.program import Program
from tests.fuzz.shrink import shrunk

BATCH = 10
AT_ONCE = 20 * BATCH  # with one compiler and its devices


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no batch after so long")
    parser.add_argument("--shrink", action="store_true")
    parser.add_argument("--checked", action="store_true")
    asked = parser.parse_args()
    begin, done, wrong = time.monotonic(), 0, 0
    for first in range(asked.first, asked.first + asked.count, AT_ONCE):
        if time.monotonic() - begin > asked.seconds:
            break
        with tempfile.TemporaryDirectory() as cache:
            bench = Bench(Path(cache))
            try:
                for base in range(first, min(first + AT_ONCE, asked.first + asked.count), BATCH):
                    if time.monotonic() - begin > asked.seconds:
                        break
                    count = min(BATCH, asked.first + asked.count - base)
                    wrong += _batch(bench, range(base, base + count), asked)
                    done += count
            finally:
                bench.close()
        print(f"{done} programs, {wrong} wrong, {time.monotonic() - begin:.0f} s", flush=True)
    return int(wrong > 0)


def _batch(bench: Bench, seeds: range, asked: argparse.Namespace) -> int:
    programs = [Generator(seed).program() for seed in seeds]
    wrong = list(bench.failures(programs, checked=asked.checked))
    for failure in wrong:
        seed = next(seed for seed, each in zip(seeds, programs, strict=True) if each is failure.program)
        print(f"seed {seed}: {failure.what}", flush=True)
        if asked.shrink:
            smallest = shrunk(failure.program, lambda program: _fails(bench, program, asked.checked))
            print(smallest.text(), flush=True)
    return len(wrong)


def _fails(bench: Bench, program: Program, checked: bool) -> bool:
    return any(True for _ in bench.failures([program], checked=checked))


if __name__ == "__main__":
    sys.exit(main())
