"""Windows: launches on a ring of clones of a unit's memory, and how many it takes for them to be long enough.

A *window* restores a ring of clones and then launches once on each, without pause: valid for kernels that update their
input, and no launch finds the previous one's results.

On a GPU a unit is classed first, with the original kernel. *Relocatable* is one that gives the same on copies at other
addresses: those make the ring. Where they do not, or are too large for two of them, each launch of a window is *apart*:
on memory restored just before, the caches flushed, and timed alone. *Idempotent* is one that gives the same on what it
left behind: it is launched in place, too, for a warm time beside the cold one, which no claim comes from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from time import perf_counter_ns
from typing import Any

from r3bench.devices import Bytes, Device, Kernel, Memory, Stops
from r3bench.errors import CandidateFailure, LaunchError
from r3bench.model import LaunchConfig, ReplayUnit, Status, Target, Verdict

Check = Callable[[Memory], Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """The numbers of the procedure: how long a window is, how many there are, how many clones and bytes its ring takes.

    Restoring a clone takes several times as long as a kernel of a few microseconds runs: for those, a window is shorter
    rather than mostly restoring. What starting it costs beyond the device's own correction then draws ratios towards 1.
    A ring takes at least ``cold_bytes``, so that no launch finds its data in the cache; with ``flush`` it may be small,
    for the caches are flushed before each window.
    """

    window_ns: float = 300_000.0
    clones: int = 64
    windows: int = 7
    warm_up_ns: float = 20_000_000.0
    ring_bytes: int = 1 << 28
    timeout_s: float = 10.0
    cold_bytes: int = 0
    flush: bool = False
    few: int = 3  # windows after which a ranking may be cut off
    spare: int = 0  # windows that a ranking takes beyond those where they are no longer than twice what is asked for
    margin: float = 0.05  # by which a ranking's windows lie apart from a rival's before it is cut off


CPU = Procedure()
# Ranks candidates inside a search; nothing is claimed from it.
# The shortest of its windows counts, and the first of them warm up; restoring clones is most of what one costs.
RANKING = replace(CPU, windows=5, warm_up_ns=0.0, clones=32)

# A GPU restores a ring as fast as it runs on it, by its own clock; its second-level cache holds 50 to 60 MB. A window
# of 500 us takes in so many copies that it matters to 0.2 % only where in memory they lie; one of 250 us, to 1.6 %.
GPU = Procedure(
    window_ns=500_000.0, clones=1024, warm_up_ns=150_000_000.0, ring_bytes=1 << 33, cold_bytes=120_000_000, margin=0.01
)
# Making a graph of a launch takes longer than the launch of a small kernel: a ranking has few in its windows, and these
# are as long as ranking needs. Once there is a graph, further short windows cost the host nothing: contenders, which
# are not cut off, have many.
GPU_RANKING = replace(
    GPU, window_ns=250_000.0, clones=64, few=8, windows=9, spare=20, warm_up_ns=1_000_000.0, cold_bytes=1, flush=True
)

# Memories of a window that a contest's candidate is launched on alone. One that is right there without computing on a
# twentieth of them only is met with by 96 % of the contests, and a claim takes two.
ALONE = 64

# Launches of a window that are timed one by one: each takes a restore and a request of its own.
APART = 16


def procedure_for(target: Target, *, ranking: bool = False, timeout_s: float = 10.0) -> Procedure:
    """The numbers for a kind of device, for a claim or for a ranking."""
    if target.device == "cpu":
        return replace(RANKING if ranking else CPU, timeout_s=timeout_s)
    return replace(GPU_RANKING if ranking else GPU, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class Arm:
    """A loaded binary, how it is launched, and which side it takes (``baseline``, ``candidate``)."""

    kernel: Kernel
    launch: LaunchConfig
    name: str = "candidate"


class ArmFailed(Exception):
    """An arm failed while it was timed, or left something else behind than what was recorded.

    ``failure`` is what the device raised, or the verdict that is not a match; :mod:`r3bench.replay` makes the answer.
    """

    def __init__(self, arm: str, failure: CandidateFailure | Verdict) -> None:
        super().__init__(f"the {arm} failed while it was timed")
        self.arm = arm
        self.failure = failure


class Ring:
    """Clones of one unit's memory on a device, made when they are first needed.

    ``written_bytes`` is how many bytes a launch must change on each. ``relocatable`` and ``idempotent`` are what
    :func:`classify` found of the unit; ``apart``: a window's launches are timed one by one, on the first memory.
    """

    def __init__(self, device: Device, unit: ReplayUnit, before: Mapping[str, Bytes], written_bytes: int = 0) -> None:
        self.device = device
        self.unit = unit
        self.written_bytes = written_bytes
        self.clone_bytes = max(1, sum(data.nbytes for data in before.values()))
        self.relocatable, self.idempotent, self.apart, self.flushed = True, False, False, False
        self.fitted = 1  # clones of the longest window so far, where the next arm's search for its own may go at once
        self._before = before
        self._memories: list[Memory] = []
        self._full = False

    @property
    def nbytes(self) -> int:
        """Bytes that the clones made so far take on the device."""
        return self.made * self.clone_bytes

    @property
    def made(self) -> int:
        """How many clones there are."""
        return len(self._memories)

    def most(self, procedure: Procedure) -> int:
        """How many clones there may be."""
        most = max(1, min(procedure.clones, procedure.ring_bytes // self.clone_bytes))
        return min(most, len(self._memories)) if self._full else most

    def take(self, count: int) -> Sequence[Memory]:
        """The first ``count`` clones, or as many as the device has room for; in them is what the last launch left."""
        while len(self._memories) < count and not self._full:
            try:
                self._memories.append(self.device.allocate(self.unit, self._before))
            except LaunchError:
                if not self._memories:
                    raise
                self._full = True
        return self._memories[:count]

    def release(self) -> None:
        while self._memories:
            self.device.release(self._memories.pop())


def windows(
    arm: Arm, ring: Ring, launches: int, times: int, timeout_s: float, stops: Stops = (), judged: Memory | None = None
) -> list[float]:
    """So many times: launch once on each of so many restored memories. Nanoseconds per launch, as in ``stops``; see
    :meth:`Device.windows`. ArmFailed if the arm does."""
    if ring.apart:
        times = min([times, *(count for count, _ in stops)])
        alone = _timed(arm, ring, ring.take(1), timeout_s, times * launches, flush=True)
        return [sum(alone[at : at + launches]) / launches for at in range(0, len(alone), launches)]
    whole = [(count, launches * ns) for count, ns in stops]
    how: dict[str, Any] = {"flush": ring.flushed, "stops": whole, "judged": judged}
    return [ns / launches for ns in _timed(arm, ring, ring.take(launches), timeout_s, times, **how)]


def window(arm: Arm, ring: Ring, launches: int, timeout_s: float) -> float:
    """One of :func:`windows`."""
    return windows(arm, ring, launches, 1, timeout_s)[0]


def _timed(
    arm: Arm, ring: Ring, memories: Sequence[Memory], timeout_s: float, times: int = 1, **how: Any
) -> list[float]:
    try:
        return ring.device.windows(arm.kernel, memories, arm.launch, times, timeout_s=timeout_s, **how)
    except CandidateFailure as failure:
        raise ArmFailed(arm.name, failure) from failure


def cold(arm: Arm, ring: Ring, timeout_s: float) -> float:
    """One launch with the caches flushed before it: nanoseconds of the shortest of three."""
    return min(_timed(arm, ring, ring.take(1), timeout_s, 3, flush=True))


def deciding_cache(ring: Ring, launches: int) -> str:
    """Whether a window's launches find their data in the caches: ``cold`` where it holds far more than they do."""
    holds_far_more = launches * ring.clone_bytes > 2 * ring.device.cache_bytes
    return "cold" if ring.apart or ring.flushed or holds_far_more else "warm"


def warm(arm: Arm, ring: Ring, launches: int, check: Check, procedure: Procedure) -> float:
    """Launch in place, on what the launch before left: nanoseconds per launch of the shortest of some windows."""
    (memory,) = ring.take(1)
    shortest = min(_timed(arm, ring, [memory] * launches, procedure.timeout_s, procedure.windows))
    _confirm(arm, memory, check)
    return shortest / launches


def confirm(arm: Arm, ring: Ring, launches: int, check: Check, chance: random.Random) -> None:
    """Judge the memory that one of a window's launches left behind; ArmFailed unless it matches."""
    _confirm(arm, chance.choice(in_window(ring, launches)), check)


def in_window(ring: Ring, launches: int) -> Sequence[Memory]:
    """The memories of a window."""
    return ring.take(1 if ring.apart else launches)


def confirm_alone(arm: Arm, ring: Ring, launches: int, check: Check, chance: random.Random, timeout_s: float) -> None:
    """Launch on many of a window's memories, each where no other can be touched; ArmFailed unless all match.

    A launch of a window finds the results of those before it beside its own memory, and may copy them.
    """
    memories = in_window(ring, launches)
    for memory in chance.sample(memories, min(ALONE, len(memories))):
        _timed(arm, ring, [memory], timeout_s)
        _confirm(arm, memory, check)


def _confirm(arm: Arm, memory: Memory, check: Check) -> None:
    verdict = check(memory)
    if verdict.status is not Status.MATCH:
        raise ArmFailed(arm.name, verdict)


def floor_ns(ring: Ring, launches: int) -> float:
    """What a launch takes at least: writing what must change to memory, but for what the caches may hold back.

    0 where a window fits in the caches. A device may write up to twice as fast as was measured of it.
    """
    through = ring.written_bytes * launches - ring.device.cache_bytes
    if ring.apart or through <= 0:
        return 0.0
    return through / (2 * ring.device.write_speed()) * 1e9 / launches


def refuse_too_fast(arm: Arm, ring: Ring, launches: int, samples: Iterable[float]) -> None:
    """ArmFailed for a time that is too good to be true."""
    least, shortest = floor_ns(ring, launches), min(samples)
    if shortest < least:
        detail = (
            f"a launch seemed to take {shortest:.0f} ns, but writing the {ring.written_bytes} bytes that it must "
            f"change takes {least:.0f} ns at least"
        )
        raise ArmFailed(arm.name, Verdict(status=Status.TOO_FAST, detail=detail))


def classify(arm: Arm, ring: Ring, check: Check, procedure: Procedure) -> None:
    """Find out, with the original kernel, what sort of unit this is; it has matched on the first memory."""
    first, *others = ring.take(min(3, ring.most(procedure)))

    def gives_the_same(memory: Memory, launches: int) -> bool:
        ring.device.restore(memory)
        try:
            for _ in range(launches):
                ring.device.launch(arm.kernel, memory, arm.launch, timeout_s=procedure.timeout_s)
        except CandidateFailure:
            return False
        return check(memory).status is Status.MATCH

    ring.relocatable = bool(others) and all(gives_the_same(memory, 1) for memory in others)
    ring.idempotent = gives_the_same(first, 2)


def enough(ring: Ring, procedure: Procedure, clones: int, launch_ns: float) -> int:
    """How many clones to go on with, where launches of a window of so many took so long; as many where it was long
    enough.

    A window of a single launch that is not far too long may have been disturbed: one of two tells.
    """
    most = APART if ring.apart else ring.most(procedure)
    taken = max(1.0, clones * launch_ns)
    if clones >= most or (taken >= procedure.window_ns and (clones > 1 or taken >= 8 * procedure.window_ns)):
        return clones
    # A short window is mostly the cost of starting it, so never trust one for more than a factor of eight.
    wanted = ceil(1.1 * clones * procedure.window_ns / taken)
    return min(most, max(clones + 1, min(8 * clones, wanted), ring.fitted))


def was_short(ring: Ring, procedure: Procedure, clones: int, launch_ns: float) -> bool:
    """Whether windows were far shorter than when they seemed long enough, which a disturbance made them; then
    :func:`fit` finds more launches."""
    if 2 * clones * launch_ns >= procedure.window_ns or ring.apart:
        return False
    ring.fitted = max(ring.fitted, enough(ring, procedure, clones, launch_ns))
    return ring.fitted > clones


def fit(
    arms: Sequence[Arm],
    ring: Ring,
    procedure: Procedure,
    known: Callable[[Arm, int], list[float]] | None = None,
) -> tuple[int, list[list[float]]]:
    """Warm up, and find how many launches make a window of the fastest arm long enough, or as long as memory allows.

    Also each arm's windows of that many launches, in nanoseconds per launch; ``known`` takes them where the number is.
    """

    def some(arm: Arm, clones: int) -> list[float]:
        # The least of three: a window that was disturbed must not pass for one that is long enough. Where the number
        # is known already, one will do: restoring many clones is most of what a short kernel's window costs.
        if not 1 < clones <= ring.fitted:
            return windows(arm, ring, clones, 3, procedure.timeout_s)
        return known(arm, clones) if known else windows(arm, ring, clones, 1, procedure.timeout_s)

    cold = max(2, ceil(procedure.cold_bytes / ring.clone_bytes)) if procedure.cold_bytes else 1
    clones, spent, begin = len(ring.take(min(ring.most(procedure), cold))), 0.0, perf_counter_ns()
    ring.apart = cold > 1 and (clones < 2 or not ring.relocatable)
    ring.flushed = procedure.flush
    clones = 1 if ring.apart else clones
    if ring.flushed and not ring.apart:  # a ranking goes at once to what sufficed for others of the unit
        clones = max(clones, min(ring.most(procedure), ring.fitted))
    while True:
        if not ring.apart:
            clones = len(ring.take(clones))
        times = [some(arm, clones) for arm in arms]
        spent += clones * sum(map(sum, times))
        if ring.apart or ring.flushed:  # what is restored and flushed in between keeps a GPU at work, and takes longer
            spent = max(spent, perf_counter_ns() - begin)
        if (more := enough(ring, procedure, clones, min(map(min, times)))) > clones:
            clones = more
        elif spent >= procedure.warm_up_ns:
            ring.fitted = max(ring.fitted, clones)
            return clones, times
