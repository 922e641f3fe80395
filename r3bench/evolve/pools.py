"""The two pools that all kernels of a run share: places to propose in, and places to evaluate in."""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import Self

from r3bench.evolve.settings import Settings

Rank = tuple[float, int]
"""Who comes first: the smaller; the kernel's promise (negated), then the step within it."""


class Place:
    """One place of a pool. It may be left more than once; only the first time counts."""

    def __init__(self, pool: Pool) -> None:
        self._pool: Pool | None = pool

    def leave(self) -> None:
        if self._pool is not None:
            self._pool.hand_on()
            self._pool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()


class Pool:
    """So many places; one that becomes free goes to whoever waits with the lowest rank, the first of equals."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[Rank, int, asyncio.Future[None]]] = []
        self._order = count()

    async def enter(self, rank: Rank) -> Place:
        if self._free:
            self._free -= 1
            return Place(self)
        turn = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (rank, next(self._order), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.hand_on()  # its turn had come already
            raise
        return Place(self)

    def hand_on(self) -> None:
        """Give a place that became free to the next one waiting."""
        while self._waiting:
            turn = heappop(self._waiting)[2]
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Pace:
    """How many children of a kernel are under way at once, so that the slower of the two pools always has work.

    Both times are those on record, so that a run that is repeated from its ledger keeps the same pace.
    """

    def __init__(self, settings: Settings) -> None:
        self._most = settings.stale * settings.islands
        self._evaluated = 1 + ceil(settings.evaluating / settings.in_flight)
        self._proposing = self._evaluating = 0.0

    @property
    def ahead(self) -> int:
        """One more than fill the places, and as many as are proposed while one is evaluated (at least one), as far as
        staleness allows."""
        ratio = self._proposing / self._evaluating if self._evaluating else 1.0
        return max(1, min(self._most, self._evaluated + max(1, ceil(ratio))))

    def learn(self, proposing_s: float, evaluating_s: float) -> None:
        """What the last child took: the seconds of its answers and those of its evaluations."""
        self._proposing += (proposing_s - self._proposing) / 4
        self._evaluating += (evaluating_s - self._evaluating) / 4
