"""Bayesian optimization (TPE) of one source's configuration: one study in memory per source, nothing on disk.

Points already asked for are never returned twice; those that are out count as failures until they are told, so that
asks in parallel keep apart (a constant liar).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, log
from random import Random

import numpy as np

from r3bench.evolve.tpe import Estimator
from r3bench.space import Space, Value

Point = Mapping[str, Value]
Indices = tuple[int, ...]

_STARTUP = 5  # points chosen here, near what is known to work, before TPE takes over
_ATTEMPTS = 24  # to find a point not asked for yet


@dataclass(frozen=True, slots=True)
class Ask:
    """A point to try; hand it back to :meth:`Tuner.tell`."""

    point: dict[str, Value]
    indices: Indices


class Tuner:
    """Proposes points of a space and learns from their times.

    The default point (default pipeline, recorded launch) comes first, then what was suggested, then the point with
    every specialization on, then some near the best so far, and then TPE's. Several points may be out at once. Equal
    seeds, suggestions and answers in equal order give equal points.
    """

    def __init__(self, space: Space, seed: int) -> None:
        self._space = space
        self._random = Random(seed)
        self._estimator = Estimator([len(k.values) for k in space.knobs], [k.ordered for k in space.knobs], seed)
        self._losses: dict[Indices, float] = {}
        self._best: tuple[float, Ask] | None = None
        self._waiting: deque[Point] = deque((space.default, specialized(space)))

    @property
    def best(self) -> dict[str, Value] | None:
        """The fastest point told so far; None if none worked."""
        return dict(self._best[1].point) if self._best is not None else None

    def suggest(self, point: Point) -> None:
        """Try a point soon, such as the best of the source that this one was made from."""
        self._waiting.insert(0 if self._losses else 1, self._space.default | dict(point))

    def ask(self) -> Ask | None:
        """A point not asked for before; None where none was found, the space being small and used up."""
        for indices in self._proposals():
            if indices not in self._losses:
                self._losses[indices] = inf
                return Ask(self._point(indices), indices)
        return None

    def tell(self, ask: Ask, ns: float | None) -> None:
        """The nanoseconds per launch of a point; None where it failed in any way."""
        self._losses[ask.indices] = inf if ns is None else log(ns)
        if ns is not None and (self._best is None or ns < self._best[0]):
            self._best = ns, ask

    def _proposals(self) -> Iterable[Indices]:
        while self._waiting:
            yield self._indices(self._waiting.popleft())
        if len(self._losses) >= _STARTUP:
            points, losses = np.array(list(self._losses)), np.array(list(self._losses.values()))
            yield from map(tuple, self._estimator.propose(points, losses).tolist())
        for _ in range(_ATTEMPTS):
            yield self._neighbour()

    def _neighbour(self) -> Indices:
        """The best point with one to three knobs changed."""
        found = list(self._best[1].indices if self._best is not None else [0] * len(self._space.knobs))
        count = min(len(found), self._random.randint(1, 3))
        for place in self._random.sample(range(len(found)), count):
            found[place] = self._random.randrange(len(self._space.knobs[place].values))
        return tuple(found)

    def _indices(self, point: Point) -> Indices:
        return tuple(knob.values.index(point[knob.name]) for knob in self._space.knobs)

    def _point(self, indices: Indices) -> dict[str, Value]:
        return {knob.name: knob.values[i] for knob, i in zip(self._space.knobs, indices, strict=True)}


def specialized(space: Space) -> dict[str, Value]:
    """The default point with every specialization on, as far as the space has them."""
    chosen = {knob.name: knob.values[-1] for knob in space.knobs if knob.name.startswith("specialize.")}
    return space.default | chosen
