"""The inner search: trials of one source's configurations, several at once, and the race between sources for more."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import ceil

from r3bench.evolve.evaluate import about, nanoseconds
from r3bench.evolve.sources import Source
from r3bench.evolve.tuning import Ask
from r3bench.model import Outcome, Variant

Evaluate = Callable[[Variant, Source, bool], Awaitable[Outcome]]
"""Replays a variant of a source; whether it races: then it is cut off when the source's best is surely faster."""

RUNGS: Mapping[int, float] = {2: 0.5, 6: 0.25}
"""After so many trials, only such a part of the sources goes on (successive halving, one source after the other)."""
_FEW = 4  # sources before one is told to stop

Standing = Mapping[int, Sequence[float]]
"""For each rung, the best nanoseconds of every source that reached it."""


class Standings:
    """Where the sources of a kernel stood at each rung."""

    def __init__(self) -> None:
        self._best: defaultdict[int, list[float]] = defaultdict(list)

    def add(self, source: Source) -> None:
        for rung in RUNGS:
            if len(source.outcomes) >= rung:
                self._best[rung].append(_best(source, rung))

    def now(self) -> Standing:
        return {rung: tuple(times) for rung, times in self._best.items()}


def _best(source: Source, trials: int) -> float:
    return min((ns for _, _, ns in source.outcomes[:trials] if ns is not None), default=float("inf"))


def goes_on(source: Source, standing: Standing) -> bool:
    """Whether a source is among the part that gets more trials than it has had."""
    trials = len(source.outcomes)
    others = standing.get(trials, ())
    if trials not in RUNGS or len(others) < _FEW:
        return True
    return sum(time < _best(source, trials) for time in others) < ceil(RUNGS[trials] * len(others))


async def tune(
    source: Source, trials: int, evaluate: Evaluate, *, in_flight: int, enough: Callable[[], bool] = lambda: False
) -> None:  # fmt: skip
    """Bring a source to a number of trials, or until there is ``enough``.

    Several are out at once and told in the order asked, so that the search does not depend on which ends first.
    """
    waiting: deque[tuple[Ask, asyncio.Task[Outcome]]] = deque()
    try:
        while len(source.outcomes) + len(waiting) < trials and not enough():
            ask = source.tuner.ask()
            if ask is None:
                break
            evaluation = evaluate(source.variant(ask), source, source.best is not None)
            waiting.append((ask, asyncio.ensure_future(evaluation)))
            if len(waiting) >= in_flight:
                await _tell(source, *waiting.popleft())
        while waiting:
            await _tell(source, *waiting.popleft())
    finally:
        for _, task in waiting:
            task.cancel()


async def _tell(source: Source, ask: Ask, task: asyncio.Task[Outcome]) -> None:
    outcome = await task
    ns = nanoseconds(outcome)
    source.tuner.tell(ask, ns, about(outcome))
    source.outcomes.append((ask, outcome, ns))


async def race(
    source: Source, trials: int, evaluate: Evaluate, standing: Standing | None, *, in_flight: int,
    enough: Callable[[], bool] = lambda: False,
) -> None:  # fmt: skip
    """Tune a source as long as it stands well; to the end where there is no ``standing`` to look at."""
    for rung in [*(rung for rung in RUNGS if standing is not None and rung < trials), trials]:
        await tune(source, rung, evaluate, in_flight=in_flight, enough=enough)
        if standing is not None and not goes_on(source, standing):
            return
