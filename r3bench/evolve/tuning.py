"""Bayesian optimization (TPE) of one source's configuration: one study in memory per source, nothing on disk.

TPE ignores trials told as failed and goes on proposing what fails, so a failure is told as a finished trial that
violates a constraint. Points already asked for are answered from memory and never returned twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from random import Random

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from r3bench.space import Knob, Space, Value

Point = Mapping[str, Value]

_STARTUP = 5  # points chosen here, near what is known to work, before TPE takes over
_ATTEMPTS = 24  # to find a point not asked for yet
_CONSTRAINT = "the kernel matches"


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A point to try; hand it back to :meth:`Tuner.tell`."""

    point: dict[str, Value]
    trial: optuna.trial.Trial


class Tuner:
    """Proposes points of a space and learns from their times.

    The default point (default pipeline, recorded launch) comes first, then what was suggested, then the point with
    every specialization on, then some near the best so far, and then TPE's. Several points may be out at once. Equal
    seeds, suggestions and answers in equal order give equal points.
    """

    def __init__(self, space: Space, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._random = Random(seed)
        self._distributions = {knob.name: _distribution(knob) for knob in space.knobs}
        self._known: dict[tuple[Value, ...], float | None] = {}
        self._best: tuple[float, dict[str, Value]] | None = None
        self._waiting: deque[Point] = deque((space.default, specialized(space)))
        sampler = _Sampler(self._distributions, seed, _STARTUP)
        self._study = optuna.create_study(sampler=sampler, direction="minimize")

    @property
    def best(self) -> dict[str, Value] | None:
        """The fastest point told so far; None if none worked."""
        return dict(self._best[1]) if self._best is not None else None

    def suggest(self, point: Point) -> None:
        """Try a point soon, such as the best of the source that this one was made from."""
        self._waiting.insert(0 if self._known else 1, self._space.default | dict(point))

    def ask(self) -> Ask | None:
        """A point not asked for before; None where none was found, the space being small and used up."""
        for attempt in range(_ATTEMPTS):
            if self._waiting:
                self._enqueue(self._waiting.popleft())
            elif len(self._known) < _STARTUP or attempt >= _ATTEMPTS // 2:
                self._enqueue(self._neighbour())
            trial = self._study.ask(self._distributions)
            written = trial.params  # a property that copies: read once
            point = {knob.name: _value(knob, written[knob.name]) for knob in self._space.knobs}
            if self._key(point) not in self._known:
                self._known[self._key(point)] = None
                return Ask(point, trial)
            self._report(trial, self._known[self._key(point)])
        return None

    def tell(self, ask: Ask, ns: float | None) -> None:
        """The nanoseconds per launch of a point; None where it failed in any way."""
        self._known[self._key(ask.point)] = ns
        self._report(ask.trial, ns)
        if ns is not None and (self._best is None or ns < self._best[0]):
            self._best = ns, ask.point

    def _report(self, trial: optuna.trial.Trial, ns: float | None) -> None:
        trial.set_constraint(_CONSTRAINT, 1.0 if ns is None else 0.0)
        slowest = max((v for v in self._known.values() if v is not None), default=1.0)
        self._study.tell(trial, log(slowest if ns is None else ns))

    def _enqueue(self, point: Point) -> None:
        written = {knob.name: _written(knob, point[knob.name]) for knob in self._space.knobs}
        self._study.enqueue_trial(written)

    def _neighbour(self) -> dict[str, Value]:
        """The best point with one to three knobs changed."""
        point = self.best or self._space.default
        knobs = self._random.sample(self._space.knobs, min(len(self._space.knobs), self._random.randint(1, 3)))
        return point | {knob.name: self._random.choice(knob.values) for knob in knobs}

    def _key(self, point: Point) -> tuple[Value, ...]:
        return tuple(point[knob.name] for knob in self._space.knobs)


class _Sampler(optuna.samplers.TPESampler):
    """TPE over a fixed set of parameters: looking for those that all trials share would double the time of an ask."""

    def __init__(self, distributions: dict[str, BaseDistribution], seed: int, startup: int) -> None:
        super().__init__(seed=seed, n_startup_trials=startup, n_ei_candidates=12, constant_liar=True)
        self._fixed = {name: d for name, d in sorted(distributions.items()) if not d.single()}

    def infer_relative_search_space(
        self, study: optuna.study.Study, trial: optuna.trial.FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._fixed


def specialized(space: Space) -> dict[str, Value]:
    """The default point with every specialization on, as far as the space has them."""
    chosen = {knob.name: knob.values[-1] for knob in space.knobs if knob.name.startswith("specialize.")}
    return space.default | chosen


def _distribution(knob: Knob) -> BaseDistribution:
    if knob.ordered:
        return IntDistribution(0, len(knob.values) - 1)
    return CategoricalDistribution(knob.values)


def _value(knob: Knob, written: Value) -> Value:
    return knob.values[int(written)] if knob.ordered else written


def _written(knob: Knob, value: Value) -> Value:
    return knob.values.index(value) if knob.ordered else value
