"""Samples to an estimate, an interval and a decision. Pure and deterministic: equal data give an equal answer.

A contest of two arms gives one number per block, ``d = log(candidate / baseline)``. Its location is estimated by
Hodges and Lehmann (1963): the median of the Walsh averages ``(d[i] + d[j]) / 2``. The interval comes from the exact
null distribution of Wilcoxon's signed-rank statistic: it holds for any symmetric distribution, normal or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import exp, expm1, inf, isclose, log, log1p
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.model import Status, Verdict

MATCHED = Verdict(status=Status.MATCH)


@dataclass(frozen=True, slots=True)
class Predicted:
    """A number that nobody measured but that follows from measured ones. It is no ``float``, so that nothing takes it
    for a measured one, and it cannot be printed without saying so."""

    value: float

    def __format__(self, form: str) -> str:
        return f"predicted {self.value:{form}}"

    def __str__(self) -> str:
        return format(self)


class Decision(Enum):
    """What a contest of candidate against baseline says. Only FASTER and SLOWER are claims."""

    IDENTICAL = "identical"  # same machine code and same launch: nothing was timed
    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    UNCLEAR = "unclear"  # the interval still crosses a gate at the last look, or does not lie beyond the noise floor
    UNSTABLE = "unstable"  # a claim that a fresh process with fresh memory did not confirm
    REFUSED = "refused"  # an arm did not match what was recorded: it has no time


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Estimate and bounds of the log ratio, at the given confidence."""

    estimate: float
    low: float
    high: float
    confidence: float

    @property
    def smallest_effect(self) -> float:
        """The smallest effect that could have been seen: half the interval's width, as a fraction (0.01 is 1 %)."""
        half = (self.high - self.low) / 2
        return expm1(half) if half < inf else inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The probability of any wrong claim in a session, split evenly over its kernels and their looks."""

    error: float = 0.01
    kernels: int = 1
    looks: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.error < 1 or self.kernels < 1 or self.looks < 1:
            raise ValueError("an error budget needs an error between 0 and 1, one kernel and one look at least")

    @property
    def alpha(self) -> float:
        """The two-sided error of one look at one kernel."""
        return self.error / (self.kernels * self.looks)

    @property
    def schedule(self) -> tuple[int, ...]:
        """Blocks at each look: the first where the exact test can decide at all, then twice and four times as many."""
        first = fewest_blocks(self.alpha)
        return tuple(first << look for look in range(self.looks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One contest of candidate against baseline on one unit.

    ``speedup`` is baseline time over candidate time, with its interval ``low`` to ``high`` at ``confidence``; 1 for
    IDENTICAL and None for REFUSED, where ``refused`` names the arm and ``verdict`` says why. ``baseline_ns`` and
    ``candidate_ns`` are the medians of the blocks' times per launch, None where nothing was timed. ``smallest_effect``
    and ``gate`` are fractions. ``d`` holds every block's log(candidate / baseline), ``orders`` its order (``AB`` is
    baseline first) and the two ``samples`` every window's nanoseconds per launch, block by block. ``repeat`` is the
    second contest of a claim, in a fresh process: its numbers stand beside these. ``control`` is the baseline's source
    against another binary of equal work, on the same memory.
    """

    decision: Decision
    speedup: float | None
    low: float | None
    high: float | None
    confidence: float
    blocks: int
    baseline_ns: float | None
    candidate_ns: float | None
    smallest_effect: float
    gate: float
    d: tuple[float, ...] = ()
    orders: tuple[str, ...] = ()
    baseline_samples_ns: tuple[tuple[float, ...], ...] = ()
    candidate_samples_ns: tuple[tuple[float, ...], ...] = ()
    baseline_binary: str | None = None
    candidate_binary: str | None = None
    conditions: tuple[tuple[str, str], ...] = ()
    verdict: Verdict = MATCHED
    refused: str | None = None
    repeat: Comparison | None = None
    control: Comparison | None = None

    @property
    def noise_floor(self) -> float | None:
        """By what fraction two binaries of equal work seemed to differ; None where that was not measured."""
        found = self.control.speedup if self.control is not None and self.control.blocks else None
        return None if found is None else max(found, 1 / found) - 1

    @property
    def in_noise(self) -> bool:
        """Whether two contests claimed this, and two binaries of equal work seem as far apart."""
        return self.decision is Decision.UNCLEAR and self.repeat is not None and self.noise_floor is not None


# -- the exact signed-rank interval ---------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def signed_rank_counts(n: int) -> tuple[int, ...]:
    """How many of the 2**n sign patterns give each rank sum 0, 1, ... n(n+1)/2 of the positive values."""
    counts = [1]
    for rank in range(1, n + 1):
        shifted = [0] * rank + counts
        counts = [a + b for a, b in zip(counts + [0] * rank, shifted, strict=True)]
    return tuple(counts)


@lru_cache(maxsize=1024)
def outer_rank(n: int, alpha: float) -> int:
    """Which Walsh average, counted from either end, bounds an interval of error at most ``alpha``; 0 if none can."""
    allowed = Fraction(alpha) * 2**n / 2
    return sum(1 for total in accumulate(signed_rank_counts(n)) if total <= allowed)


def fewest_blocks(alpha: float) -> int:
    """The smallest number of blocks from which a two-sided error of ``alpha`` can be reached."""
    blocks = 1
    while Fraction(2, 2**blocks) > Fraction(alpha):
        blocks += 1
    return blocks


def walsh_averages(d: Sequence[float]) -> NDArray[np.float64]:
    """All n(n+1)/2 averages of two values, each value with itself too, in ascending order."""
    values = np.asarray(d, dtype=np.float64)
    first, second = np.triu_indices(values.size)
    return np.sort((values[first] + values[second]) / 2)


def signed_rank_interval(d: Sequence[float], alpha: float) -> Interval:
    """Hodges-Lehmann estimate and the exact interval of error at most ``alpha``; infinite if the blocks are too few."""
    if not d:
        raise ValueError("an interval needs at least one block")
    averages = walsh_averages(d)
    rank = outer_rank(len(d), alpha)
    low, high = (float(averages[rank - 1]), float(averages[-rank])) if rank else (-inf, inf)
    return Interval(estimate=float(np.median(averages)), low=low, high=high, confidence=1 - alpha)


# -- deciding -------------------------------------------------------------------------------------------------------


def decide(interval: Interval, gate: float) -> Decision | None:
    """FASTER, SLOWER or SAME if the whole interval is beyond a gate or between the two; None to take another look."""
    edge = log1p(gate)
    if interval.high < -edge:
        return Decision.FASTER
    if interval.low > edge:
        return Decision.SLOWER
    if -edge <= interval.low and interval.high <= edge:
        return Decision.SAME
    return None


def block_statistic(samples: Sequence[float]) -> float:
    """One block's time of one arm: its shortest window, for what disturbs a machine only makes windows longer.

    On a machine with three times as many busy processes as cores, the ratio of two equal arms varied half as much from
    block to block as it does with the 25th percentile, and a quarter as much as with the median.
    """
    return min(samples)


def surely_slower_than(rival: Sequence[float], margin: float) -> float:
    """The nanoseconds beyond which all of some samples are longer, by a margin, than every one of a rival's; infinite
    where it has none.

    For equal arms the m samples lie above all n of the rival's with probability 1 / C(m + n, n) even without a margin:
    1.8 % for 3 against 5. What disturbs the rival's samples makes the answer no; what disturbs these, before they are
    at an end, has to disturb them all.
    """
    return (1 + margin) * max(rival, default=inf)


def speedup_of(log_ratio: float) -> float:
    """Baseline time over candidate time for a value of log(candidate / baseline)."""
    return exp(-log_ratio)


def compared(
    baseline_ns: Sequence[Sequence[float]],
    candidate_ns: Sequence[Sequence[float]],
    orders: Sequence[str],
    gate: float,
    alpha: float,
) -> Comparison:
    """What the windows of both arms, block by block, say at an error of ``alpha``; UNCLEAR where that decides nothing.

    ValueError where there is no block, or not as many of each.
    """
    return Comparison(**_said_by(baseline_ns, candidate_ns, gate, 1 - alpha), orders=tuple(orders), gate=gate)


def _said_by(
    baseline_ns: Sequence[Sequence[float]], candidate_ns: Sequence[Sequence[float]], gate: float, confidence: float
) -> dict[str, Any]:
    """Every field of a comparison that follows from its samples."""
    pairs = [
        (block_statistic(ours), block_statistic(theirs)) for ours, theirs in zip(baseline_ns, candidate_ns, strict=True)
    ]
    d = tuple(log(candidate / baseline) for baseline, candidate in pairs)
    interval = signed_rank_interval(d, 1 - confidence)
    return {
        "decision": decide(interval, gate) or Decision.UNCLEAR,
        "speedup": speedup_of(interval.estimate),
        "low": speedup_of(interval.high),
        "high": speedup_of(interval.low),
        "confidence": confidence,
        "blocks": len(pairs),
        "baseline_ns": median(baseline for baseline, _ in pairs),
        "candidate_ns": median(candidate for _, candidate in pairs),
        "smallest_effect": interval.smallest_effect,
        "d": d,
        "baseline_samples_ns": tuple(map(tuple, baseline_ns)),
        "candidate_samples_ns": tuple(map(tuple, candidate_ns)),
    }


def contradiction(found: Comparison) -> str:
    """What of a comparison that was read from a file does not follow from its own samples; empty if all of it does."""
    for name, other in (("repetition", found.repeat), ("control", found.control)):
        if other is not None and (wrong := contradiction(other)):
            return f"its {name}: {wrong}"
    if found.decision in (Decision.IDENTICAL, Decision.REFUSED):
        return "" if found == _untimed(found) else "nothing was timed, but it says more"
    try:
        wanted = _said_by(found.baseline_samples_ns, found.candidate_samples_ns, found.gate, found.confidence)
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        return f"its samples are none ({error})"
    wanted["decision"] = _believed(wanted["decision"], found)
    wrong = next((name for name, value in wanted.items() if not _equal(value, getattr(found, name))), "")
    return f"its {wrong} does not follow from its samples" if wrong else ""


def _untimed(found: Comparison) -> Comparison:
    """What a contest without samples may say, beside what was said before and after it."""
    match = found.verdict.status is Status.MATCH
    arm = found.refused if found.refused in ("baseline", "candidate") and not match else ""
    same = found.decision is Decision.IDENTICAL
    plain = (
        identical(found.gate, found.baseline_binary or "") if same else refused(found.gate, arm or "", found.verdict)
    )
    return replace(plain, conditions=found.conditions, repeat=found.repeat, control=found.control)


def _believed(decision: Decision, found: Comparison) -> Decision:
    """What is left of a decision beside the repetition and the control: they take claims away, nothing else."""
    if decision not in (Decision.FASTER, Decision.SLOWER):
        return decision
    if found.repeat is not None and found.repeat.decision is not decision:
        return Decision.UNSTABLE
    edge = 1 + (found.noise_floor or 0.0)
    beyond = (found.low or 0.0) > edge or (found.high or inf) < 1 / edge
    return decision if beyond else Decision.UNCLEAR


def _equal(wanted: Any, found: Any) -> bool:
    """Whether two fields are the same but for rounding."""
    if isinstance(wanted, tuple):
        return len(wanted) == len(found) and all(map(_equal, wanted, found))
    return isclose(wanted, found, rel_tol=1e-9, abs_tol=1e-12) if isinstance(wanted, float) else bool(wanted == found)


def ratio(compared: Comparison, interval: bool = True, *, same: bool = False) -> str:
    """The ratio of times as people say it, never below 1: ``1.120x slower (1.090 to 1.150)``; of what is, or counts as,
    the ``same``: ``0.998x the time (0.990 to 1.006)``.

    Of a contest that was timed.
    """
    assert compared.speedup
    assert compared.low
    assert compared.high
    same |= compared.decision is Decision.SAME
    slower = compared.speedup < 1
    values = (compared.speedup, compared.low, compared.high)
    value, *bounds = (1 / v if slower or same else v for v in values)
    said = f"{value:.3f}x {'the time' if same else 'slower' if slower else 'faster'}"
    return f"{said} ({min(bounds):.3f} to {max(bounds):.3f})" if interval else said


def identical(gate: float, binary: str) -> Comparison:
    """The answer for two arms with the same machine code and the same launch."""
    return Comparison(
        decision=Decision.IDENTICAL,
        speedup=1.0,
        low=1.0,
        high=1.0,
        confidence=1.0,
        blocks=0,
        baseline_ns=None,
        candidate_ns=None,
        smallest_effect=0.0,
        gate=gate,
        baseline_binary=binary,
        candidate_binary=binary,
    )


def refused(gate: float, arm: str, verdict: Verdict) -> Comparison:
    """The answer when ``arm`` (``baseline`` or ``candidate``) did not do what was recorded."""
    return Comparison(
        decision=Decision.REFUSED,
        speedup=None,
        low=None,
        high=None,
        confidence=0.0,
        blocks=0,
        baseline_ns=None,
        candidate_ns=None,
        smallest_effect=inf,
        gate=gate,
        verdict=verdict,
        refused=arm,
    )


def claims(comparison: Comparison) -> bool:
    """Whether this says that one arm is faster: what must be repeated before it is believed."""
    return comparison.decision in (Decision.FASTER, Decision.SLOWER)


def confirmed(first: Comparison, repeat: Comparison, control: Comparison | None = None) -> Comparison:
    """A claim with its repetition and its control: itself if both contests agree and its interval lies beyond what two
    binaries of equal work seem apart; REFUSED if an arm failed meanwhile, UNSTABLE if the contests disagree, else
    UNCLEAR."""
    if repeat.decision is Decision.REFUSED:
        return replace(repeat, repeat=first, control=control)
    found = replace(first, repeat=repeat, control=control)
    return replace(found, decision=_believed(first.decision, found))
