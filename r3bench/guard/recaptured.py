"""Two captures of a kernel whose parameters changed in between: do they hold the same results? Nothing is replayed."""

from __future__ import annotations

from r3bench import store
from r3bench.compare import EXACT, buffers, differences, tolerance_of, verdict_of
from r3bench.model import Capture, ReplayUnit, Status, Verdict
from r3bench.overrides import tolerances_for
from r3bench.stats import MATCHED


def differing(before: Capture, after: Capture) -> str:
    """How results differ between launches of one shape that began with equal contents; empty where none is known to.

    Buffers are compared by name. Launches that began with other contents tell nothing. CaptureError is raised.
    """
    pairs = [pair for pair in zip(before.units, after.units, strict=False) if pair[0].launch == pair[1].launch]
    found = (_verdict(before, after, one, other) for one, other in pairs)
    return next((verdict.detail for verdict in found if verdict.status is Status.MISMATCH), "")


def _verdict(before: Capture, after: Capture, one: ReplayUnit, other: ReplayUnit) -> Verdict:
    """The verdict on what a unit left behind by what another did, in the buffers that both hold."""
    old, new = store.contents(before, one.index), store.contents(after, other.index)
    held = [each for each in buffers(one) if each.name in new.before]
    shared = [each for each in held if old.before[each.name].size == new.before[each.name].size]
    if any(differences(old.before[each.name], new.before[each.name], each, EXACT) for each in shared):
        return MATCHED
    wanted, got = {**old.before, **old.after}, {**new.before, **new.after}
    given = tolerances_for(before, one, wanted)
    found = (differences(wanted[each.name], got[each.name], each, tolerance_of(one, each, given)) for each in shared)
    return verdict_of(one, tuple(each for each in found if each is not None))
