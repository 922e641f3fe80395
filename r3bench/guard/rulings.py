"""From a contest of head against base to a ruling. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import log

from r3bench.stats import Comparison, Decision, Interval, decide, ratio


class Ruling(Enum):
    """What the guard says of one kernel. SLOWER, WRONG and RERECORDED fail, if nothing else is asked for."""

    IDENTICAL = "identical"  # same machine code: nothing was timed
    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    UNCLEAR = "unclear"  # the machine is too noisy to tell, or a fresh process did not confirm it
    INVALID = "invalid"  # no answer: throttled, another process on the GPU, nothing that this device can replay
    WRONG = "wrong"  # head does not build, or does not leave the recorded memory behind
    RERECORDED = "rerecorded"  # head matches its own capture and not the base's: are its new results meant?
    NEW = "new"  # the base has no such kernel; head is right
    DELETED = "deleted"  # head has no such kernel any more
    CHANGED = "changed"  # other parameters or another capture: the base cannot be compared


UNMEASURED = frozenset({Ruling.INVALID, Ruling.DELETED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What counts as slower: more than this fraction, and more than so many nanoseconds a launch."""

    relative: float = 0.05
    absolute_ns: float = 0.0


_RULINGS = {
    Decision.IDENTICAL: Ruling.IDENTICAL,
    Decision.FASTER: Ruling.FASTER,
    Decision.SAME: Ruling.SAME,
    Decision.SLOWER: Ruling.SLOWER,
    Decision.UNCLEAR: Ruling.UNCLEAR,
    Decision.UNSTABLE: Ruling.UNCLEAR,
}


def rule(compared: Comparison, gate: Gate) -> tuple[Ruling, str]:
    """A ruling and a sentence on a contest of head against base."""
    if compared.decision is Decision.REFUSED:
        ruling = Ruling.WRONG if compared.refused == "candidate" else Ruling.CHANGED
        side = "head" if compared.refused == "candidate" else "the base"
        return ruling, f"{side} failed while it was timed: {compared.verdict.status.value}: {compared.verdict.detail}"
    if compared.decision is Decision.IDENTICAL:
        return Ruling.IDENTICAL, "the same machine code, nothing was timed"
    disturbed = _disturbed(dict(compared.conditions))
    if disturbed:
        return Ruling.INVALID, disturbed
    ruling = _RULINGS[compared.decision]
    if ruling in (Ruling.SLOWER, Ruling.FASTER):
        assert compared.baseline_ns is not None
        ruling = _at(compared, gate.absolute_ns / compared.baseline_ns, ruling)
    return ruling, _sentence(compared, gate, ruling)


def _disturbed(conditions: Mapping[str, str]) -> str:
    """Why a GPU's times of this job say nothing; empty where nothing disturbed them."""
    throttled = conditions.get("throttled_blocks", "0")
    if not throttled.startswith("0"):
        return f"the GPU was throttled ({conditions.get('throttle', 'unknown reason')}) in {throttled} blocks"
    others = max(int(conditions.get(name, "0")) for name in ("other_processes", "other_processes afterwards"))
    return f"{others} other process{'es' * (others > 1)} used the GPU" if others else ""


def _at(compared: Comparison, wider: float, ruling: Ruling) -> Ruling:
    """The ruling at another gate where that is the wider one; it can only take claims away."""
    assert compared.low is not None
    assert compared.high is not None
    if wider <= compared.gate:
        return ruling
    interval = Interval(estimate=0.0, low=-log(compared.high), high=-log(compared.low), confidence=compared.confidence)
    return _RULINGS[decide(interval, wider) or Decision.UNCLEAR]


def _sentence(compared: Comparison, gate: Gate, ruling: Ruling) -> str:
    times = f"{ratio(compared, same=ruling is Ruling.SAME)}, from {compared.blocks} blocks"
    if compared.decision is Decision.UNSTABLE:
        return f"a second contest in a fresh process did not confirm it: {times}"
    if compared.in_noise:
        return _too_noisy(f"two binaries of equal work seem {compared.noise_floor:.1%} apart", compared)
    if ruling is Ruling.UNCLEAR and compared.smallest_effect > compared.gate:
        return _too_noisy(f"effects below {compared.smallest_effect:.1%} cannot be seen", compared)
    if ruling is Ruling.UNCLEAR:
        return f"the interval crosses the gate of {compared.gate:.1%}: {times}"
    if ruling.value != compared.decision.value:
        return f"{times}: not more than {gate.absolute_ns:g} ns a launch"
    return times


def _too_noisy(why: str, compared: Comparison) -> str:
    return f"the machine is too noisy to tell ({why}, the gate is {compared.gate:.1%}): {ratio(compared)}"
