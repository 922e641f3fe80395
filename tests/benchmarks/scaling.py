"""A simulation of searches on 1, 8, 64 and 512 GPUs: how fast they are, what holds them up, how stale parents get.

    python -m tests.benchmarks.scaling [ledger.jsonl ...] [--minutes 3] [--cluster-ms 6.2]

Everything that takes time is a station with so many servers: answers of a model, each search's own process, Dask's
scheduler, processors, GPUs. An evaluation goes through them one after the other. What each takes is drawn from what was
measured: stages of builds and of the device from ledgers (without one, from ``stages_h200.json``, 60 evaluations on an
H200), milliseconds of Dask's client and scheduler an evaluation from ``tests.benchmarks.cluster``, of a search's
process from ``tests.benchmarks.ask_tell``. Answers take a log-normal time. Kernels draw parents, race and judge
with the search's own pools and pace; time is virtual. Children join the archive in the order drawn; the lag is how many
joined the same island since their parent was drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import selectors
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import log
from pathlib import Path
from random import Random
from statistics import mean
from typing import Any

from tabulate import tabulate

from r3bench.evolve.pools import Pace, Place, Pool
from r3bench.evolve.settings import Settings
from tests.benchmarks.machine import describe

MEASURED = Path(__file__).with_name("stages_h200.json")
ON_DEVICE = ("load", "verify", "time")
ASK_TELL_S = 0.0035
CLUSTER_S = 0.0062
CORES = 16  # a GPU
KERNELS = 7
SPREAD = 0.5  # of the logarithm of an answer's time
RUNGS = {2: 0.5, 6: 0.25}  # after so many trials, such a part of the texts goes on: ten trials each on average


# -- virtual time ---------------------------------------------------------------------------------------------------


class VirtualLoop(asyncio.SelectorEventLoop):
    """Where nobody has anything to do, the time is that of whoever sleeps least."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Impatient(self))

    def time(self) -> float:
        return self._now

    def pass_by(self, seconds: float) -> None:
        self._now += seconds


class _Impatient(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        self._loop.pass_by(timeout or 0.0)
        return super().select(0)


@dataclass(slots=True, eq=False)
class Station:
    """So many servers with one queue."""

    name: str
    servers: int
    busy_s: float = 0.0
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.pool = Pool(self.servers)

    async def serve(self, seconds: float) -> None:
        with await self.pool.enter((0.0, 0)):
            await self.work(seconds)

    async def work(self, seconds: float) -> None:
        """What a server does that is held already; the part of it that was done where the simulation ends before."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        try:
            await asyncio.sleep(seconds)
        finally:
            self.busy_s += loop.time() - begin

    def share(self, seconds: float) -> float:
        return self.busy_s / (self.servers * seconds)


# -- what was measured ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cost:
    """One evaluation: seconds of a processor, and of a device (0 where its code had been replayed before)."""

    build_s: float
    device_s: float


def costs(outcomes: Sequence[Mapping[str, float]]) -> list[Cost]:
    """From the seconds of each outcome's stages; what it waited for is no cost, and a part of a stage no other."""
    found = []
    for stages in outcomes:
        worked = {name: seconds for name, seconds in stages.items() if not name.startswith(("queue", "device:"))}
        device_s = sum(worked.pop(name, 0.0) for name in ON_DEVICE)
        found.append(Cost(sum(worked.values()), device_s))
    return found


def recorded(ledger: Path) -> Iterator[Mapping[str, float]]:
    """The stages of each outcome of a ledger, without the first, in which everything is opened."""
    records = (json.loads(line) for line in ledger.read_text().splitlines())
    outcomes = [record["outcome"] for record in records if record["kind"] == "outcome"]
    yield from (dict(outcome["stages"]) for outcome in outcomes[1:])


# -- one search -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is searched on: seconds of an answer (median), answers at once, kernels, processes of searches, and clusters
    that share the GPUs."""

    gpus: int
    answer_s: float
    answers: int
    kernels: int = KERNELS
    processes: int = 1
    clusters: int = 1


class World:
    """The stations of a case, and what came of it."""

    def __init__(self, case: Case, samples: Sequence[Cost], cluster_s: float) -> None:
        self.case, self.samples, self.cluster_s = case, samples, cluster_s
        self.random = Random(1)
        self.answers = Station("answers", case.answers)
        self.searches = [Station("search", 1) for _ in range(case.processes)]
        self.scheduler = Station("scheduler", case.clusters)
        self.cores = Station("processors", CORES * case.gpus)
        self.gpus = Station("GPUs", case.gpus)
        self.evaluating = Pool(_at_once(case))
        self.evaluations = self.children = 0
        self.lags: list[int] = []

    async def evaluate(self, kernel: int) -> None:
        cost = self.random.choice(self.samples)
        with await self.evaluating.enter((0.0, 0)):
            await self.searches[kernel % len(self.searches)].serve(ASK_TELL_S)
            await self.scheduler.serve(self.cluster_s)
            await self.cores.serve(cost.build_s)
            if cost.device_s:
                await self.gpus.serve(cost.device_s)
        self.evaluations += 1

    async def child(self, kernel: int, settings: Settings, place: Place) -> tuple[float, float]:
        """From the question to the last trial; the seconds of its answer and of its evaluations."""
        answer_s = self.random.lognormvariate(log(self.case.answer_s), SPREAD)
        with place:
            await self.answers.work(answer_s)
        begin = asyncio.get_running_loop().time()
        trials = 0
        for rung, share in (*RUNGS.items(), (settings.trials, 0.0)):
            for _ in range(trials, rung, settings.in_flight):
                at_once = min(settings.in_flight, rung - trials)
                await asyncio.gather(*(self.evaluate(kernel) for _ in range(at_once)))
                trials += at_once
            if self.random.random() >= share:
                break
        self.children += 1
        return answer_s, asyncio.get_running_loop().time() - begin

    async def search(self, kernel: int, settings: Settings) -> None:
        """One kernel's: children are drawn as far ahead as the pace says, and judged in order."""
        pace, under_way, joined = Pace(settings), deque[tuple[int, int, asyncio.Task[tuple[float, float]]]](), {}
        for step in range(1_000_000):
            while len(under_way) >= pace.ahead:
                island, seen, taken = under_way.popleft()
                pace.learn(*await taken)
                self.lags.append(joined.get(island, 0) - seen)
                joined[island] = joined.get(island, 0) + 1
            place = await self.answers.pool.enter((0.0, step))
            island = step % settings.islands
            child = asyncio.ensure_future(self.child(kernel, settings, place))
            under_way.append((island, joined.get(island, 0), child))

    async def run(self, seconds: float) -> None:
        settings = Settings(evaluating=_at_once(self.case), proposing=self.case.answers)
        searches = [asyncio.ensure_future(self.search(kernel, settings)) for kernel in range(self.case.kernels)]
        await asyncio.sleep(seconds)
        for search in searches:
            search.cancel()

    def row(self, seconds: float) -> list[object]:
        stations = [self.answers, max(self.searches, key=lambda s: s.busy_s), self.scheduler, self.cores, self.gpus]
        shares = {station.name: station.share(seconds) for station in stations}
        fullest = max(shares, key=lambda name: shares[name])
        case = self.case
        return [
            *(case.gpus, case.answer_s, case.answers, case.kernels, case.processes, case.clusters),
            self.evaluations / seconds,
            self.children / seconds,
            mean(self.lags) if self.lags else None,
            *(f"{share:.0%}" for share in shares.values()),
            fullest if shares[fullest] > 0.85 else "staleness",
        ]


def _at_once(case: Case) -> int:
    """As a cluster's ``at_once``: twice two for each replay worker and one for each processor that builds."""
    return max(Settings().evaluating, 2 * (2 + CORES) * case.gpus)


def simulated(case: Case, samples: Sequence[Cost], cluster_s: float, seconds: float) -> list[object]:
    loop = VirtualLoop()
    world = World(case, samples, cluster_s)
    try:
        loop.run_until_complete(world.run(seconds))
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
    return world.row(seconds)


HEAD = ("GPUs", "answer s", "answers", "kernels", "processes", "clusters", "eval/s", "texts/s", "lag")
SHARES = ("answers", "search", "scheduler", "processors", "GPUs busy", "held up by")
_WIDE_S = 40.0  # of virtual time where very much happens in it


def cases() -> Iterator[Case]:
    """As it comes; with as many answers as there are GPUs, a process for each kernel; with more to be searched; and as
    many searches of one GPU each."""
    for gpus, answer_s in product((1, 8, 64, 512), (0.01, 3.0, 30.0)):
        yield Case(gpus=gpus, answer_s=answer_s, answers=4)
        yield Case(gpus=gpus, answer_s=answer_s, answers=16 * gpus, processes=KERNELS)
    for gpus in (8, 64, 512):
        kernels, clusters = 2 * gpus, -(-gpus // 8)
        yield Case(gpus=gpus, answer_s=3.0, answers=16 * gpus, kernels=kernels, processes=kernels, clusters=clusters)
    yield Case(gpus=8, answer_s=3.0, answers=512, kernels=56, processes=56, clusters=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ledgers", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=3.0, help="of virtual time")
    parser.add_argument("--cluster-ms", type=float, default=1e3 * CLUSTER_S, help="of Dask's an evaluation")
    given = parser.parse_args()
    outcomes = [stages for ledger in given.ledgers for stages in recorded(ledger)]
    samples = costs(outcomes or json.loads(MEASURED.read_text()))
    print(describe())
    print(
        f"{len(samples)} evaluations: {1e3 * mean(c.build_s for c in samples):.0f} ms of a processor, "
        f"{1e3 * mean(c.device_s for c in samples):.0f} ms of a GPU; {given.cluster_ms:.1f} ms of Dask's"
    )
    wide = (_WIDE_S if case.kernels > KERNELS else 60 * given.minutes for case in cases())
    cluster_s = given.cluster_ms / 1e3
    rows = [simulated(case, samples, cluster_s, seconds) for case, seconds in zip(cases(), wide, strict=True)]
    print(tabulate(rows, headers=[*HEAD, *SHARES], floatfmt=".1f"))


if __name__ == "__main__":
    sys.exit(main())
