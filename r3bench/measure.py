"""The timing procedure: windows on rings of clones, blocks in random order, looks until the interval decides.

A *window* restores a ring of clones of the unit's memory and then launches once on each, without pause: valid for
kernels that update their input, and no launch finds the previous one's results. A *block* is some windows of both arms
in turn, which goes first being drawn at random: what disturbs the machine for a while meets both. The shortest window
of each stands for it, since whatever else runs can only make a window longer. After each block the memory that one of
an arm's last timed launches left behind, drawn at random, is compared with what was recorded.

On a GPU a unit is classed first, with the original kernel. *Relocatable* is one that gives the same on copies at other
addresses: those make the ring. Where they do not, or are too large for two of them, each launch of a window is *apart*:
on memory restored just before, the caches flushed, and timed alone. *Idempotent* is one that gives the same on what it
left behind: it is launched in place, too, for a warm time beside the cold one, which no claim comes from.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, log
from statistics import median

from r3bench.devices import Bytes, Device, Kernel, Memory
from r3bench.errors import CandidateFailure, LaunchError
from r3bench.model import LaunchConfig, Measurement, ReplayUnit, Status, Target, Verdict
from r3bench.stats import (
    Budget,
    Comparison,
    Decision,
    Interval,
    block_statistic,
    decide,
    signed_rank_interval,
    speedup_of,
)

Check = Callable[[Memory], Verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Procedure:
    """The numbers of the procedure: how long a window is, how many there are, how many clones and bytes its ring takes.

    Restoring a clone takes several times as long as a kernel of a few microseconds runs: for those, a window is shorter
    rather than mostly restoring. What starting it costs beyond the device's own correction then draws ratios towards 1.
    A ring takes at least ``cold_bytes``, so that no launch finds its data in the cache.
    """

    window_ns: float = 300_000.0
    clones: int = 64
    windows: int = 7
    warm_up_ns: float = 20_000_000.0
    ring_bytes: int = 1 << 28
    timeout_s: float = 10.0
    cold_bytes: int = 0


# Ranks candidates inside a search; nothing is claimed from it.
RANKING = Procedure(windows=5, warm_up_ns=1_000_000.0)

# A GPU restores a ring as fast as it runs on it, by its own clock; its second-level cache holds 50 to 60 MB. A window
# of 500 us takes in so many copies that it matters to 0.2 % only where in memory they lie; one of 250 us, to 1.6 %.
GPU = Procedure(window_ns=500_000.0, clones=1024, warm_up_ns=150_000_000.0, ring_bytes=1 << 33, cold_bytes=120_000_000)
GPU_RANKING = replace(GPU, windows=5, warm_up_ns=1_000_000.0)

# Launches of a window that are timed one by one: each takes a restore and a request of its own.
APART = 16

# A kernel shorter than this on a GPU is mostly the launch.
LAUNCH_BOUND_NS = 5_000.0
# One shorter than this has at least this gate there.
SHORT_NS, SHORT_GATE = 10_000.0, 0.03


def procedure_for(target: Target, *, ranking: bool = False, timeout_s: float = 10.0) -> Procedure:
    """The numbers for a kind of device, for a claim or for a ranking."""
    if target.device == "cpu":
        return replace(RANKING if ranking else Procedure(), timeout_s=timeout_s)
    return replace(GPU_RANKING if ranking else GPU, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a contest is decided by: the gate as a fraction, the error budget, and how to measure."""

    gate: float
    budget: Budget
    procedure: Procedure = Procedure()


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
        self.relocatable, self.idempotent, self.apart = True, False, False
        self.fitted = 1  # clones of the longest window so far, where the next arm's search for its own may go at once
        self._before = before
        self._memories: list[Memory] = []
        self._full = False

    @property
    def clone_bytes(self) -> int:
        return max(1, sum(data.nbytes for data in self._before.values()))

    @property
    def nbytes(self) -> int:
        """Bytes that the clones made so far take on the device."""
        return len(self._memories) * self.clone_bytes

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


def window(arm: Arm, ring: Ring, launches: int, timeout_s: float) -> float:
    """Launch once on each of so many restored memories: nanoseconds per launch. ArmFailed if the arm does."""
    if ring.apart:
        return sum(_timed(arm, ring, ring.take(1), timeout_s, evict=True) for _ in range(launches)) / launches
    return _timed(arm, ring, ring.take(launches), timeout_s) / launches


def _timed(arm: Arm, ring: Ring, memories: Sequence[Memory], timeout_s: float, *, evict: bool = False) -> float:
    for memory in dict.fromkeys(memories):
        ring.device.restore(memory)
    if evict:
        ring.device.evict()
    try:
        return ring.device.window(arm.kernel, memories, arm.launch, timeout_s=timeout_s)
    except CandidateFailure as failure:
        raise ArmFailed(arm.name, failure) from failure


def warm(arm: Arm, ring: Ring, launches: int, check: Check, procedure: Procedure) -> float:
    """Launch in place, on what the launch before left: nanoseconds per launch of the shortest of some windows."""
    (memory,) = ring.take(1)
    shortest = min(_timed(arm, ring, [memory] * launches, procedure.timeout_s) for _ in range(procedure.windows))
    _confirm(arm, memory, check)
    return shortest / launches


def confirm(arm: Arm, ring: Ring, launches: int, check: Check, chance: random.Random) -> None:
    """Judge the memory that one of a window's launches left behind; ArmFailed unless it matches."""
    _confirm(arm, chance.choice(ring.take(1 if ring.apart else launches)), check)


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


def fit(arms: Sequence[Arm], ring: Ring, procedure: Procedure) -> int:
    """Warm up, and find how many launches make a window of the fastest arm long enough, or as long as memory allows."""
    cold = max(2, ceil(procedure.cold_bytes / ring.clone_bytes)) if procedure.cold_bytes else 1
    clones, spent = len(ring.take(min(ring.most(procedure), cold))), 0.0
    ring.apart = cold > 1 and (clones < 2 or not ring.relocatable)
    clones = 1 if ring.apart else clones
    while True:
        if not ring.apart:
            clones = len(ring.take(clones))
        most = APART if ring.apart else ring.most(procedure)
        # The least of three: a window that was disturbed must not pass for one that is long enough. Where the number
        # is known already, one will do: restoring many clones is most of what a short kernel's window costs.
        tries = 1 if 1 < clones == ring.fitted else 3
        times = [[window(arm, ring, clones, procedure.timeout_s) for _ in range(tries)] for arm in arms]
        spent += clones * sum(map(sum, times))
        shortest = max(1.0, clones * min(map(min, times)))
        if shortest < procedure.window_ns and clones < most:
            # A short window is mostly the cost of starting it, so never trust one for more than a factor of eight.
            enough = ceil(1.1 * clones * procedure.window_ns / shortest)
            clones = min(most, max(clones + 1, min(8 * clones, enough), ring.fitted))
        elif spent >= procedure.warm_up_ns:
            ring.fitted = max(ring.fitted, clones)
            return clones


def rank(arm: Arm, ring: Ring, check: Check, procedure: Procedure = RANKING) -> Measurement:
    """A cheap measurement of one verified arm. ArmFailed if it did not do while timed what it did before."""
    clones = fit([arm], ring, procedure)
    samples = tuple(window(arm, ring, clones, procedure.timeout_s) for _ in range(procedure.windows))
    confirm(arm, ring, clones, check, random.Random(arm.kernel.binary.sha256))
    refuse_too_fast(arm, ring, clones, samples)
    conditions = {"procedure": "rank", "clones": str(clones), **ring.device.conditions()}
    conditions |= _method(ring) | _launch_bound(ring.device, min(samples))
    return Measurement(
        samples_ns=samples, binary=arm.kernel.binary.sha256, conditions=tuple(sorted(conditions.items()))
    )


def _widened(terms: Terms, device: Device, ns: float) -> Terms:
    """A gate that a short kernel's time on a GPU can carry: between identical functions it may differ by 1.7 %."""
    short = device.target.device != "cpu" and ns < SHORT_NS
    return replace(terms, gate=max(terms.gate, SHORT_GATE)) if short else terms


def _method(ring: Ring) -> dict[str, str]:
    """The conditions that say how a GPU's windows were made."""
    if ring.device.target.device == "cpu":
        return {}
    kinds = [kind for kind, holds in (("relocatable", ring.relocatable), ("idempotent", ring.idempotent)) if holds]
    launches = "apart, on restored memory with caches flushed" if ring.apart else "on copies, each used once"
    return {"unit": ", ".join(kinds) or "neither relocatable nor idempotent", "launches": launches}


def _launch_bound(device: Device, ns: float) -> dict[str, str]:
    """The condition of a kernel so short on a GPU that its time says little about its code."""
    short = device.target.device != "cpu" and ns < LAUNCH_BOUND_NS
    return {"launch_bound": f"shorter than {LAUNCH_BOUND_NS / 1000:g} us"} if short else {}


# -- a contest of two arms ------------------------------------------------------------------------------------------


def orders(schedule: Sequence[int], seed: int) -> Iterator[str]:
    """``AB`` (baseline first) or ``BA`` for each block: random, and as balanced as can be at every look."""
    chance = random.Random(seed)
    done = ahead = 0
    for look in schedule:
        count = look - done
        # An odd look leaves one order ahead; the next look starts with the other.
        first = (count - ahead) // 2 if ahead else count // 2 + (count % 2 and chance.randrange(2))
        drawn = ["AB"] * first + ["BA"] * (count - first)
        ahead += 2 * first - count
        done = look
        chance.shuffle(drawn)
        yield from drawn


@dataclass(frozen=True, slots=True)
class Block:
    """One block: its order and each arm's windows in nanoseconds per launch."""

    order: str
    baseline_ns: tuple[float, ...]
    candidate_ns: tuple[float, ...]

    @property
    def d(self) -> float:
        return log(block_statistic(self.candidate_ns) / block_statistic(self.baseline_ns))


def contest(baseline: Arm, candidate: Arm, ring: Ring, check: Check, terms: Terms, seed: int) -> Comparison:
    """Time two verified arms against each other until a look decides; UNCLEAR if none does.

    ``check`` judges a memory after exactly one launch. ``seed`` gives the order of blocks and is kept in the
    conditions with the number of clones. ArmFailed if an arm does not do while timed what it did before.
    """
    arms = {"A": baseline, "B": candidate}
    clones = fit([baseline, candidate], ring, terms.procedure)
    before = ring.device.conditions() | _method(ring)
    blocks: list[Block] = []
    said: list[dict[str, str]] = []
    chance = random.Random(seed)
    for order in orders(terms.budget.schedule, seed):
        blocks.append(_block(order, arms, ring, clones, check, terms.procedure, chance))
        terms = _widened(terms, ring.device, min(blocks[0].baseline_ns))
        said.append(ring.device.conditions())
        if len(blocks) in terms.budget.schedule and decide(_interval(blocks, terms), terms.gate):
            break
    refuse_too_fast(baseline, ring, clones, (ns for block in blocks for ns in block.baseline_ns))
    refuse_too_fast(candidate, ring, clones, (ns for block in blocks for ns in block.candidate_ns))
    before |= _launch_bound(ring.device, min(min(block.baseline_ns + block.candidate_ns) for block in blocks))
    if ring.idempotent:
        for name, arm in (("baseline", baseline), ("candidate", candidate)):
            before[f"warm_{name}_ns"] = f"{warm(arm, ring, clones, check, terms.procedure):.0f}"
    return replace(
        _comparison(blocks, terms),
        conditions=_conditions(before | _by_block(said), {**before, **said[-1]}, seed, clones),
        baseline_binary=baseline.kernel.binary.sha256,
        candidate_binary=candidate.kernel.binary.sha256,
    )


def _by_block(said: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What a GPU said after each block of its clock, and of what slowed it down."""
    texts = {name: [each[name] for each in said if name in each] for name in ("clock_mhz", "throttle")}
    found = {f"{name} by block": ", ".join(values) for name, values in texts.items() if values}
    if texts["throttle"]:
        found["throttled_blocks"] = f"{sum(text != 'none' for text in texts['throttle'])} of {len(said)}"
    return found


def rounds(order: str, count: int) -> list[str]:
    """The order of the arms in each round of a block, turned around from one to the next: neither arm always follows
    the other, whose launches may leave the machine slower than they found it."""
    return [order if number % 2 == 0 else order[::-1] for number in range(count)]


def _block(
    order: str,
    arms: Mapping[str, Arm],
    ring: Ring,
    clones: int,
    check: Check,
    procedure: Procedure,
    chance: random.Random,
) -> Block:
    """Windows of both arms in turn; each arm is confirmed by its last one."""
    samples: dict[str, list[float]] = {"A": [], "B": []}
    for number, sides in enumerate(rounds(order, procedure.windows), 1):
        for side in sides:
            samples[side].append(window(arms[side], ring, clones, procedure.timeout_s))
            if number == procedure.windows:
                confirm(arms[side], ring, clones, check, chance)
    return Block(order, tuple(samples["A"]), tuple(samples["B"]))


def _interval(blocks: Sequence[Block], terms: Terms) -> Interval:
    return signed_rank_interval([block.d for block in blocks], terms.budget.alpha)


def _comparison(blocks: Sequence[Block], terms: Terms) -> Comparison:
    interval = _interval(blocks, terms)
    return Comparison(
        decision=decide(interval, terms.gate) or Decision.UNCLEAR,
        speedup=speedup_of(interval.estimate),
        low=speedup_of(interval.high),
        high=speedup_of(interval.low),
        confidence=interval.confidence,
        blocks=len(blocks),
        baseline_ns=median(block_statistic(block.baseline_ns) for block in blocks),
        candidate_ns=median(block_statistic(block.candidate_ns) for block in blocks),
        smallest_effect=interval.smallest_effect,
        gate=terms.gate,
        d=tuple(block.d for block in blocks),
        orders=tuple(block.order for block in blocks),
        baseline_samples_ns=tuple(block.baseline_ns for block in blocks),
        candidate_samples_ns=tuple(block.candidate_ns for block in blocks),
    )


def _conditions(
    before: Mapping[str, str], after: Mapping[str, str], seed: int, clones: int
) -> tuple[tuple[str, str], ...]:
    """What the device said before timing, what had changed afterwards, and how to draw the same order again."""
    changed = {f"{name} afterwards": value for name, value in after.items() if before.get(name) != value}
    return tuple(sorted({**before, **changed, "seed": str(seed), "clones": str(clones)}.items()))
