"""What a search has used up, against what it may."""

from __future__ import annotations

from collections.abc import Iterable
from time import monotonic

from r3bench.evolve.settings import Limits
from r3bench.model import Outcome

_OF_EVALUATIONS = frozenset(("seconds", "evaluations", "GPU minutes"))
_ON_THE_DEVICE = frozenset(("load", "verify", "time"))


class Budget:
    """Counts what all kernels of a run use up; what a resumed run takes from its ledger counts, too, but for time."""

    def __init__(self, limits: Limits, kernels: int = 1) -> None:
        self._limits = limits
        self._shared = f", shared by {kernels} kernels," if kernels > 1 else ""
        self._began = monotonic()
        self.evaluations = 0
        self.tokens = 0
        self.dollars = 0.0
        self.gpu_seconds = 0.0

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
            (monotonic() - self._began, limits.seconds, "seconds"),
            (self.evaluations, limits.evaluations, "evaluations"),
            (self.tokens, limits.tokens, "tokens"),
            (self.dollars, limits.dollars, "dollars"),
            (self.gpu_seconds / 60, limits.gpu_minutes, "GPU minutes"),
        )
