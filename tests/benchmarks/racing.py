"""What cutting off saves: the same configurations timed to the end, and in a race.

    python -m tests.benchmarks.racing [configurations] [device] [kernel ...]

For each kernel of captures/miniweather, configurations drawn at random are replayed by two servers in turns of ten, so
that both meet the same machine: one times each to the end, one cuts off what is surely slower than the best. Printed:
milliseconds of timing for each configuration, the ratio, the share cut off, and the time of what the race found best
over that of what was found best otherwise, both timed again in turns. No figure is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tabulate import tabulate

from r3bench import store
from r3bench.evolve.evaluate import nanoseconds
from r3bench.model import Capture, Outcome, Variant
from r3bench.server import ReplayServer
from r3bench.server.requests import Timing
from tests.benchmarks.evaluation_rate import CAPTURES, variants
from tests.benchmarks.machine import describe

TURN = 10
AGAIN = 5


def outcomes(server: ReplayServer, capture: Capture, wanted: Sequence[Variant], timing: Timing) -> list[Outcome]:
    return [future.result() for future in [server.submit(capture, each, timing=timing) for each in wanted]]


def timed_ms(found: Sequence[Outcome]) -> float:
    """Of those that were replayed, and not answered from before."""
    spent = [dict(outcome.stages)["time"] for outcome in found if "time" in dict(outcome.stages)]
    return 1e3 * sum(spent) / max(1, len(spent))


def row(capture: Capture, device: str, count: int) -> list[object]:
    whole, raced = list[Outcome](), list[Outcome]()
    with ReplayServer(device) as one, ReplayServer(device) as other:
        wanted = variants(capture, one, count)
        for server, timing in ((one, "once"), (other, "race")):
            server.submit(capture, Variant(), timing=timing).result()
        for first in range(0, count, TURN):
            whole += outcomes(one, capture, wanted[first : first + TURN], "once")
            raced += outcomes(other, capture, wanted[first : first + TURN], "race")
        best = [wanted[min(range(count), key=lambda at: _ns(found[at]))] for found in (whole, raced)]
        again = [[_ns(found) for found in outcomes(one, capture, best, "rank")] for _ in range(AGAIN)]
    plain_ns, raced_ns = map(min, zip(*again, strict=True))
    cut = sum(outcome.measurement is not None and outcome.measurement.cut_ns is not None for outcome in raced)
    plain_ms, raced_ms = timed_ms(whole), timed_ms(raced)
    return [capture.name, plain_ms, raced_ms, plain_ms / raced_ms, f"{cut / count:.0%}", raced_ns / plain_ns]


def _ns(outcome: Outcome) -> float:
    return nanoseconds(outcome) or float("inf")


def main(count: str = "40", device: str = "cpu", *kernels: str) -> None:
    print(describe())
    captures = [store.open_capture(path) for path in store.find([CAPTURES])]
    chosen = [capture for capture in captures if not kernels or capture.symbol in kernels]
    head = ("kernel", "whole ms", "race ms", "ratio", "cut off", "best")
    print(tabulate([row(capture, device, int(count)) for capture in chosen], headers=head, floatfmt=".2f"))
    print(describe())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
