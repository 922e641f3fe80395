"""What a search is told: how it searches, how large it may grow, and what it may use up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from r3bench.ledger import SearchMode


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to search: whether texts are proposed at all, whether from what was found before, how each is tuned."""

    words: str
    proposes: bool = True
    selects: bool = True
    trials: int = 30


MODES: Mapping[SearchMode, Mode] = {
    "full": Mode(words="texts from the archive, each of them tuned"),
    "rules": Mode(words="the same with rewriting rules in place of a model"),
    "llm": Mode(words="texts from the archive under the default configuration", trials=1),
    "best-of-n": Mode(words="texts made from the recorded one only, each of them tuned", selects=False),
    "bo": Mode(words="the recorded text, tuned", proposes=False, trials=200),
}
"""The whole search and what remains of it when a part is left out, for comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a search may use up, over all its kernels, before promotion.

    Wall time, configurations evaluated, tokens that models read and wrote, what they cost, and the minutes in which a
    GPU was busy with it.
    """

    seconds: float = inf
    evaluations: float = inf
    tokens: float = inf
    dollars: float = inf
    gpu_minutes: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to search.

    Up to ``iterations`` texts are proposed for each kernel and kept on ``islands`` of ``population`` elites, whose best
    migrate every ``migrate`` steps; ``axes`` span the archive. Each text gets ``trials`` configurations; in a ``race``
    only the best quarter of the texts gets a second, further ones are for the best three, as long as they gain more
    than new texts do, and a configuration is timed to the end only while it may be faster than the best of its text. At
    most ``stale`` programs join an island between the drawing of a parent and the judgement of its child. ``in_flight``
    configurations of a text are out at once, ``evaluating`` of all kernels, and ``proposing`` answers are awaited.
    ``fast_math`` lets configurations change results within the tolerance; so many ``slots`` for passes let the search
    make pipelines itself; ``profile`` tells whoever proposes the device's bandwidth and, where they can be had, the
    recorded kernel's hardware counters. Up to ``contests`` candidates of a kernel stand against the baseline, with this
    ``gate``; ``kernels`` is how many the session searches: they share its error budget.
    """

    search: SearchMode = "full"
    iterations: int = 200
    trials: int = 30
    race: bool = True
    islands: int = 4
    population: int = 20
    migrate: int = 20
    axes: tuple[str, ...] = ("instructions", "distance")
    stale: int = 5
    in_flight: int = 4
    evaluating: int = 4
    proposing: int = 4
    fast_math: bool = False
    slots: int = 0
    profile: bool = False
    limits: Limits = Limits()
    contests: int = 3
    gate: float = 0.05
    kernels: int = 1
    seed: int = 0

    @property
    def mode(self) -> Mode:
        return MODES[self.search]
