"""What ranks best of a search, timed again: the shortest of many noisy times is the luckiest one, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from r3bench.evolve.evaluate import Evaluator, nanoseconds
from r3bench.evolve.sources import RECORDED, Source
from r3bench.evolve.start import Start
from r3bench.model import Outcome, Variant

FINALISTS = 8  # texts that are timed again at first
MORE = 24  # texts after them, where those before fail verification
EACH = 3  # configurations of each text, beside the default one
_ROUNDS = 4  # of timing; after each of them the worse half leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A candidate that ranked well: its source, the whole variant, and its ranking time."""

    source: Source
    variant: Variant
    ns: float


def finalists(start: Start, sources: Mapping[str, Source], evaluator: Evaluator) -> Iterator[Finalist]:
    """The best of each text, the text as it is among them, timed again beside the baseline; best first.

    What does not rank ahead of the baseline is left out, and what is the baseline, instruction for instruction. More
    are timed where whoever asks goes on.
    """
    tuned = [source for source in sources.values() if source.best is not None and source.same_as is None]
    best = sorted(tuned, key=_ns)
    first = best[:FINALISTS] + [source for source in best[FINALISTS:] if source.rule == RECORDED]
    others = [source for source in best if source not in first]
    for some in (first, *(others[n : n + FINALISTS] for n in range(0, min(len(others), MORE), FINALISTS))):
        yield from _timed_again(start, some, evaluator)


def _timed_again(start: Start, sources: Sequence[Source], evaluator: Evaluator) -> list[Finalist]:
    """Sequential halving (Karnin, Koren and Somekh, "Almost optimal exploration in multi-armed bandits", ICML 2013):
    each round times those that are left beside the baseline, and what ranked before does not count."""
    left, gone = [replace(f, ns=inf) for source in sources for f in _best(source)], list[Finalist]()
    baselines = list[float]()
    for number in range(1, _ROUNDS + 1):
        baseline, *outcomes = _again(start, left, evaluator, number)
        known, same = nanoseconds(baseline), (baseline.binary, None)
        baselines += [known] if known is not None else []
        left = [
            replace(f, ns=min(f.ns, ns)) for outcome, f in zip(outcomes, left, strict=True)
            if (ns := nanoseconds(outcome)) is not None and (outcome.binary, f.variant.launch) != same
        ]  # fmt: skip
        left.sort(key=lambda finalist: finalist.ns)
        gone[:0] = left[ceil(len(left) / 2) :]
        left = left[: ceil(len(left) / 2)]
    best: dict[str, Finalist] = {}
    for finalist in (*left, *gone):
        best.setdefault(finalist.source.id, finalist)
    return [finalist for finalist in best.values() if finalist.ns < min(baselines, default=start.ns)]


def _again(start: Start, ranked: Sequence[Finalist], evaluator: Evaluator, number: int) -> list[Outcome]:
    """The baseline's outcome and those of the finalists in a round."""
    pending = [evaluator.submit(start.baseline, "baseline", again=number)]
    pending += [evaluator.submit(f.variant, f.source.rule, again=number) for f in ranked]
    return [evaluator.result(each) for each in pending]


def _best(source: Source) -> list[Finalist]:
    """The best few configurations of a text and the default one, each machine code once."""
    found: dict[object, Finalist] = {}
    timed = [(ns, ask, outcome.binary) for ask, outcome, ns in source.outcomes if ns is not None]
    ranked = sorted(timed, key=lambda one: one[0])
    for ns, ask, binary in [*timed[:1], *ranked]:
        variant = source.variant(ask)
        found.setdefault((binary, variant.launch), Finalist(source=source, variant=variant, ns=ns))
    return list(found.values())[: EACH + 1]


def _ns(source: Source) -> float:
    assert source.best is not None
    return source.best[1]
