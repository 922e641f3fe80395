"""What a search has used up, against what it may."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from time import monotonic

from r3bench.evolve.settings import Limits
from r3bench.model import Outcome

_OF_EVALUATIONS = frozenset(("seconds", "evaluations", "GPU minutes"))
_ON_THE_DEVICE = frozenset(("load", "verify", "time"))


class Budget:
    """Counts what all kernels of a run use up; what a resumed run takes from its ledger counts, too, but for time.

    Where ``people`` answer, only the time in which something is evaluated counts: they take theirs.
    """

    def __init__(self, limits: Limits, kernels: int = 1, *, people: bool = False) -> None:
        self._limits = limits
        self._shared = f", shared by {kernels} kernels," if kernels > 1 else ""
        self._under_way = int(not people)
        self._since, self._seconds = monotonic(), 0.0
        self.evaluations = 0
        self.tokens = 0
        self.dollars = 0.0
        self.gpu_seconds = 0.0

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """While this holds, time counts; any number at once."""
        if not self._under_way:
            self._since = monotonic()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way:
                self._seconds += monotonic() - self._since

    @property
    def seconds(self) -> float:
        return self._seconds + (monotonic() - self._since if self._under_way else 0.0)

    def evaluated(self, outcome: Outcome) -> None:
        self.evaluations += 1
        if outcome.target.device != "cpu":
            self.gpu_seconds += sum(seconds for stage, seconds in outcome.stages if stage in _ON_THE_DEVICE)

    def answered(self, tokens: int, dollars: float | None) -> None:
        self.tokens += tokens
        self.dollars += dollars or 0.0

    @property
    def share(self) -> float:
        """How much is used up of that limit on evaluations which ends first: from 0 to 1."""
        limits = (limit for limit in self._all() if limit[2] in _OF_EVALUATIONS)
        return max(min(used / limit, 1.0) if limit else 1.0 for used, limit, _ in limits)

    @property
    def used_up(self) -> str:
        """Which limit was reached, in a sentence; empty while none is."""
        return next(
            (
                f"the budget of {limit:g} {unit}{self._shared} was used up"
                for used, limit, unit in self._all()
                if used >= limit
            ),
            "",
        )

    def _all(self) -> Iterable[tuple[float, float, str]]:
        limits = self._limits
        return (
            (self.seconds, limits.seconds, "seconds"),
            (self.evaluations, limits.evaluations, "evaluations"),
            (self.tokens, limits.tokens, "tokens"),
            (self.dollars, limits.dollars, "dollars"),
            (self.gpu_seconds / 60, limits.gpu_minutes, "GPU minutes"),
        )
