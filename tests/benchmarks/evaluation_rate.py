"""How many configurations of a known source one search can evaluate in a second on the CPU device.

For each kernel in captures/miniweather, configurations drawn at random from its search space are replayed on the first
unit, four out at once as in a search: optimized, emitted (unless another configuration gave the same module), loaded,
verified in both orders of threads, ranked. The source's IR is known, and no build is in the cache. Printed: the rate,
the median milliseconds of each stage, and for the timed stage how many launches a window has. Builds run beside the
device's stage, so that stages add up to more than the time between two answers. No figure is asked for.

    python -m tests.benchmarks.evaluation_rate [configurations] [kernel ...]
"""

from __future__ import annotations

import sys
import tempfile
from collections import deque
from concurrent.futures import Future
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

from tabulate import tabulate

from r3bench import remix, store
from r3bench.model import Capture, Outcome, Status, Variant
from r3bench.server import ReplayServer, Server
from r3bench.space import Space
from tests.benchmarks.machine import describe

CAPTURES = Path(__file__).parents[2] / "captures" / "miniweather"
IN_FLIGHT = 4
STAGES = ("specialize", "lower", "optimize", "emit", "cache", "load", "verify", "time")


def variants(capture: Capture, server: Server, count: int) -> list[Variant]:
    """Configurations drawn at random, each knob that is changed from its default with probability 1/4."""
    unit, random = capture.units[0], Random(1)
    blocks = remix.legal_blocks(capture, unit, store.sources(capture))
    space = Space.for_unit(capture, unit, server.target, blocks)
    found = []
    for _ in range(count):
        changed = {knob.name: random.choice(knob.values) for knob in space.knobs if random.random() < 0.25}
        configuration, launch = space.decode(changed)
        found.append(Variant(configuration=configuration, launch=launch))
    return found


def evaluated(capture: Capture, server: ReplayServer, wanted: list[Variant]) -> tuple[list[Outcome], float]:
    """Outcomes and the seconds for all of them."""
    server.submit(capture, Variant()).result()
    begin = perf_counter()
    waiting: deque[Future[Outcome]] = deque()
    outcomes: list[Outcome] = []
    for variant in wanted:
        waiting.append(server.submit(capture, variant))
        if len(waiting) >= IN_FLIGHT:
            outcomes.append(waiting.popleft().result())
    outcomes += [future.result() for future in waiting]
    return outcomes, perf_counter() - begin


def row(capture: Capture, outcomes: list[Outcome], seconds: float) -> list[object]:
    spent = {name: [1e3 * dict(o.stages)[name] for o in outcomes if name in dict(o.stages)] for name in STAGES}
    timed = [o.measurement for o in outcomes if o.measurement is not None]
    us = min((min(m.samples_ns) for m in timed), default=0.0) / 1e3
    clones = max((int(dict(m.conditions)["clones"]) for m in timed), default=0)
    matched = sum(o.verdict.status is Status.MATCH for o in outcomes)
    medians = [median(ms) if ms else 0.0 for ms in spent.values()]
    return [capture.name, f"{matched}/{len(outcomes)}", len(outcomes) / seconds, us, clones, *medians]


def main(count: str = "24", *kernels: str) -> bool:
    print(describe())
    rows = []
    for path in store.find([CAPTURES]):
        capture = store.open_capture(path)
        if not kernels or path.name.removesuffix(".zarr") in kernels:
            with tempfile.TemporaryDirectory() as cache, ReplayServer("cpu", cache=Path(cache)) as server:
                rows.append(row(capture, *evaluated(capture, server, variants(capture, server, int(count)))))
    print(tabulate(rows, headers=["kernel", "matched", "per s", "us", "clones", *STAGES], floatfmt=".1f"))
    print(describe())
    return True


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
