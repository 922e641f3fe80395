"""Bayesian optimization (TPE) of one source's configuration: one study in memory per source, nothing on disk.

TPE ignores trials told as failed and goes on proposing what fails, so a failure is told as a finished trial that
violates a constraint. Points already asked for, and those that mean
the same, are answered from memory and never returned twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from math import log
from random import Random
from typing import Any

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import BaseDistribution, IntDistribution
from optuna.samplers._tpe.parzen_estimator import _ParzenEstimator

from r3bench.model import Configuration, LaunchRule
from r3bench.space import Space, Value

Point = Mapping[str, Value]

_STARTUP = 5  # points chosen here, near what is known to work, before TPE takes over
_BLOCKS = 3  # other blocks tried early: no knob of the launch matters more
_ATTEMPTS = 24  # to find a point not asked for yet
_CONSTRAINT = "the kernel matches"


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """A point to try, and what it means; hand it back to :meth:`Tuner.tell`."""

    point: dict[str, Value]
    meaning: tuple[Configuration, LaunchRule | None]
    trial: optuna.trial.Trial


class Tuner:
    """Proposes points of a space and learns from their times.

    The default point (default pipeline, recorded launch) comes first, then what was suggested, then the point with
    every specialization on, then that with some other blocks, then some near the best so far, and then TPE's. Several
    points may be out at once. Equal seeds, suggestions and answers in equal order give equal points.
    """

    def __init__(self, space: Space, seed: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._random = Random(seed)
        self._distributions: dict[str, BaseDistribution] = {
            knob.name: IntDistribution(0, len(knob.values) - 1) for knob in space.knobs
        }
        self._known: dict[tuple[Configuration, LaunchRule | None], float | None] = {}
        self._best: tuple[float, dict[str, Value]] | None = None
        self._waiting: deque[Point] = deque((space.default, specialized(space), *_other_blocks(space)))
        ordered = {knob.name for knob in space.knobs if knob.ordered}
        sampler = _Sampler(self._distributions, ordered, seed, _STARTUP)
        self._study = optuna.create_study(sampler=sampler, direction="minimize")

    @property
    def best(self) -> dict[str, Value] | None:
        """The fastest point told so far; None if none worked."""
        return dict(self._best[1]) if self._best is not None else None

    def suggest(self, point: Point) -> None:
        """Try a point soon, such as the best of the source that this one was made from, unless it was tried already."""
        whole = self._space.default | dict(point)
        if whole not in self._waiting and self._space.decode(whole) not in self._known:
            self._waiting.insert(0 if self._known else 1, whole)

    def ask(self) -> Ask | None:
        """A point not asked for before; None where none was found, the space being small and used up."""
        for attempt in range(_ATTEMPTS):
            if self._waiting:
                self._enqueue(self._waiting.popleft())
            elif len(self._known) < _STARTUP or attempt >= _ATTEMPTS // 2:
                self._enqueue(self._neighbour())
            trial = self._study.ask(self._distributions)
            written = trial.params  # a property that copies: read once
            point = {knob.name: knob.values[written[knob.name]] for knob in self._space.knobs}
            meaning = self._space.decode(point)
            if meaning not in self._known:
                self._known[meaning] = None
                return Ask(point, meaning, trial)
            self._report(trial, self._known[meaning])
        return None

    def tell(self, ask: Ask, ns: float | None, cut_ns: float | None = None) -> None:
        """The nanoseconds per launch of a point; None where it failed in any way, or where its timing was cut off at
        ``cut_ns``: such a point is learned from, but never the best."""
        self._known[ask.meaning] = known = ns if ns is not None else cut_ns
        self._report(ask.trial, known)
        if ns is not None and (self._best is None or ns < self._best[0]):
            self._best = ns, ask.point

    def _report(self, trial: optuna.trial.Trial, ns: float | None) -> None:
        trial.set_constraint(_CONSTRAINT, 1.0 if ns is None else 0.0)
        slowest = max((v for v in self._known.values() if v is not None), default=1.0)
        self._study.tell(trial, log(slowest if ns is None else ns))

    def _enqueue(self, point: Point) -> None:
        self._study.enqueue_trial({knob.name: knob.values.index(point[knob.name]) for knob in self._space.knobs})

    def _neighbour(self) -> dict[str, Value]:
        """The best point with one to three knobs changed."""
        point = self.best or self._space.default
        knobs = [knob for knob in self._space.knobs if self._space.matters(knob, point)]
        knobs = self._random.sample(knobs, min(len(knobs), self._random.randint(1, 3)))
        return point | {knob.name: self._random.choice(knob.values) for knob in knobs}


class _Sampler(optuna.samplers.TPESampler):
    """Optuna's TPE over a fixed set of knobs with a few values each.

    Looking for the parameters that all trials share would double the time of an ask, and estimating one parameter after
    the other would double it again.
    """

    def __init__(self, distributions: dict[str, BaseDistribution], ordered: set[str], seed: int, startup: int) -> None:
        super().__init__(seed=seed, n_startup_trials=startup, n_ei_candidates=24, constant_liar=True)
        self._fixed = {n: d for n, d in sorted(distributions.items()) if not d.single()}
        self._parzen_estimator_cls = partial(_Table, ordered=ordered)  # type: ignore[assignment]  # called only

    def infer_relative_search_space(
        self, study: optuna.study.Study, trial: optuna.trial.FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._fixed


_BANDWIDTH = 0.2  # of an ordered knob's range, for one observation
Columns = dict[str, NDArray[Any]]


class _Table(_ParzenEstimator):
    """The density of a set of trials over all knobs at once, as one table: component, knob, value -> probability.

    A mixture as in Optuna's own estimator: a component for each trial and a uniform one. A component of an unordered
    knob adds the trial's value to a uniform prior, that of an ordered knob a discrete Gaussian around it, whose width
    shrinks with the number of trials as in Falkner et al., "BOHB" (ICML 2018).
    """

    def __init__(
        self,
        observations: Columns,
        search_space: dict[str, IntDistribution],
        parameters: object,
        predetermined_weights: object = None,
        *,
        ordered: set[str],
    ) -> None:
        self._names = list(search_space)
        self._most = np.array([distribution.high for distribution in search_space.values()])
        values = np.arange(self._most.max() + 1)
        legal = values <= self._most[:, None]
        seen = np.array([observations[name] for name in self._names]).T.reshape(-1, len(self._names), 1)
        apart = np.abs(seen - values)
        width = np.maximum(_BANDWIDTH * self._most * max(len(seen), 1) ** (-1 / (4 + len(self._names))), 0.1)
        alike = np.isin(self._names, list(ordered))[:, None]
        near = np.where(alike, np.exp(-0.5 * (apart / width[:, None]) ** 2), apart == 0) * legal
        table = np.concatenate([near + legal / (len(seen) + 1), legal[None]])
        self._table = table / table.sum(axis=2, keepdims=True)

    def sample(self, rng: np.random.RandomState, size: int) -> Columns:
        components = rng.randint(len(self._table), size=size)
        passed = self._table[components].cumsum(axis=2) <= rng.random_sample((size, len(self._names), 1))
        chosen = np.minimum(passed.sum(axis=2), self._most)
        return dict(zip(self._names, chosen.T, strict=True))

    def log_pdf(self, samples_dict: Columns) -> NDArray[np.float64]:
        chosen = np.array([samples_dict[name] for name in self._names], dtype=np.intp).T
        found = np.log(self._table[:, np.arange(len(self._names)), chosen]).sum(axis=2)  # component, sample
        highest = found.max(axis=0)
        return np.asarray(highest + np.log(np.exp(found - highest).mean(axis=0)))


def _other_blocks(space: Space) -> list[Point]:
    """The specialized point with blocks from all over the list of those that the kernel may have."""
    found = [knob.values[1:] for knob in space.knobs if knob.name == "block"]
    return [
        specialized(space) | {"block": block} for blocks in found for block in blocks[:: -(-len(blocks) // _BLOCKS)]
    ]


def specialized(space: Space) -> dict[str, Value]:
    """The default point with every specialization on, as far as the space has them."""
    chosen = {knob.name: knob.values[-1] for knob in space.knobs if knob.name.startswith("specialize.")}
    return space.default | chosen
