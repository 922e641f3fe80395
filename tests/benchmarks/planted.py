"""What a search regains of a slow-down that was planted, and that it leaves alone what is best already.

The two kernels of tests/search are recorded on the CPU device and searched as ``--r3-evolve`` does, with its default
settings and a build cache of their own: ``slow_tendencies``, a copy of miniweather's x tendencies with redundant loads
and divisions, and ``copy_state``, one load and one store a thread. Printed: the speedup of what was promoted with its
interval (from the full contest, repeated in a fresh process), of the patch alone, and what the search took.

The figures asked for: at least 1.3x for the slow copy; no patch for the other.

    python -m tests.benchmarks.planted [seed]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from r3bench import worktree
from r3bench.evolve import Limits, Settings, evolve
from r3bench.evolve.propose import open_proposers
from r3bench.ledger import KernelResult, Ledger
from r3bench.model import Capture
from r3bench.server import ReplayServer
from tests.benchmarks.machine import describe, judge
from tests.search.planted import SLOW_SPEEDUP, record_best, record_slow


def searched(capture: Capture, folder: Path, seed: int) -> KernelResult:
    """The result of a whole search on one capture, whose kernel lies in ``folder``."""
    with (
        ReplayServer("cpu", cache=folder / "cache") as server,
        Ledger.open(folder / f"{capture.name}.jsonl") as ledger,
    ):
        settings = Settings(kernels=2, seed=seed, limits=Limits(seconds=20))
        tree, rules = worktree.Folder(folder), open_proposers("rules", seed=seed)
        (result,) = evolve([capture], server, settings, ledger, rules, working=lambda c: worktree.variant(c, tree))
    return result


def show(result: KernelResult) -> None:
    print(f"\n{result.kernel}: {result.status} ({result.detail})")
    print(f"  {result.evaluations} evaluations, {result.seconds:.0f} s")
    for arm in result.arms:
        found = arm.comparison
        if found.speedup is not None and found.low is not None and found.high is not None:
            print(f"  {arm.name}: {found.decision.value} {found.speedup:.2f}x ({found.low:.2f} to {found.high:.2f})")
    if result.after is not None:
        print(f"  patch: {result.rule}")


def main(seed: int = 0) -> bool:
    print(describe())
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        slow = searched(record_slow(folder), folder, seed)
        show(slow)
        best = searched(record_best(folder), folder, seed)
        show(best)
    print(describe())
    gains = [arm.comparison.speedup or 0.0 for arm in slow.arms if arm.comparison.decision.value == "faster"]
    regained = judge("speedup of the slow copy", max(gains, default=1.0), SLOW_SPEEDUP, "x", at_least=True)
    return judge("patches for what is best already:", float(best.after is not None), 0, "") and regained


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
