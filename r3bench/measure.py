"""The timing procedure: blocks of windows in random order, looks until the interval decides.

A *block* is some windows of both arms in turn, which goes first being drawn at random: what disturbs the machine for a
while meets both. The shortest window of each stands for it, since whatever else runs can only make a window longer.
After each block the memory that one of an arm's last timed launches left behind, drawn at random, is compared with what
was recorded. In the end the candidate is launched once more on the memories of its windows, each alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log

from r3bench.devices import Device, Windows
from r3bench.model import Binary, Measurement
from r3bench.stats import (
    Budget,
    Comparison,
    Interval,
    block_statistic,
    compared,
    decide,
    signed_rank_interval,
    surely_slower_than,
)
from r3bench.windows import (
    CPU,
    RANKING,
    Arm,
    Check,
    Procedure,
    Ring,
    confirm,
    confirm_alone,
    deciding_cache,
    enough,
    fit,
    in_window,
    refuse_too_fast,
    warm,
    was_short,
    window,
    windows,
)

# A kernel shorter than this on a GPU is mostly the launch.
LAUNCH_BOUND_NS = 5_000.0
# One shorter than this has at least this gate there.
SHORT_NS, SHORT_GATE = 10_000.0, 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a contest is decided by: the gate as a fraction, the error budget, and how to measure."""

    gate: float
    budget: Budget
    procedure: Procedure = CPU


def rank(
    arm: Arm, ring: Ring, check: Check, procedure: Procedure = RANKING, rival: Sequence[float] = ()
) -> Measurement:
    """A cheap measurement of one verified arm. ArmFailed if it did not do while timed what it did before.

    ``rival`` holds the samples of what is to be beaten, timed on the same device. An arm that is surely slower is cut
    off after a few windows.
    """
    clones, samples = _ranked(arm, ring, procedure, rival)
    if was_short(ring, procedure, clones, min(samples)):
        clones, samples = _ranked(arm, ring, procedure, rival)
    confirm(arm, ring, clones, check, _drawn(arm.kernel.binary))
    return _ranking(arm, ring, procedure, clones, samples, rival)


def first_windows(binary: Binary, ring: Ring, procedure: Procedure, rival: Sequence[float]) -> Windows | None:
    """The windows that :func:`rank` begins with, where others of the unit were ranked and there are as many clones."""
    clones = min(ring.most(procedure), ring.fitted)
    if ring.apart or not 1 < clones <= ring.made:
        return None
    ring.flushed = procedure.flush
    memories = ring.take(clones)
    *stops, (most, _) = _stops(ring, procedure, clones, rival)
    whole = [(count, clones * ns) for count, ns in stops if ns < inf]
    return Windows(memories, most, ring.flushed, whole, _drawn(binary).choice(memories))


def ranked(
    arm: Arm, ring: Ring, procedure: Procedure, windows_ns: Sequence[float], clones: int, rival: Sequence[float]
) -> Measurement | None:
    """What :func:`rank` makes of the windows that it begins with, of so many clones, whose memories matched; None where
    it would take longer ones. ArmFailed for a time that is too good to be true."""
    samples = [ns / clones for ns in windows_ns]
    if enough(ring, procedure, clones, min(samples)) > clones:
        return None
    return _ranking(arm, ring, procedure, clones, samples, rival)


def _ranking(
    arm: Arm, ring: Ring, procedure: Procedure, clones: int, samples: Sequence[float], rival: Sequence[float]
) -> Measurement:
    refuse_too_fast(arm, ring, clones, samples)
    conditions = {"procedure": "rank", "clones": str(clones), **ring.device.conditions()}
    conditions |= _method(ring, clones) | _launch_bound(ring.device, min(samples))
    return Measurement(
        samples_ns=tuple(samples),
        binary=arm.kernel.binary.sha256,
        conditions=tuple(sorted(conditions.items())),
        cut_ns=max(rival) if len(samples) < procedure.windows else None,
    )


def _ranked(arm: Arm, ring: Ring, procedure: Procedure, rival: Sequence[float]) -> tuple[int, list[float]]:
    """How many clones a ranking's windows take, and these windows."""

    def more(arm: Arm, clones: int, samples: Sequence[float] = ()) -> list[float]:
        """Windows beyond those there are: few of an arm that is surely slower, fewer where they are long."""
        stops = _stops(ring, procedure, clones, rival)
        done, most, least = len(samples), stops[-1][0], min(samples, default=inf)
        if any(count <= done and least > ns for count, ns in stops):
            return []
        left = [(count - done, ns) for count, ns in stops if count > done and ns < least]
        judged = _drawn(arm.kernel.binary).choice(in_window(ring, clones))
        return windows(arm, ring, clones, most - done, procedure.timeout_s, left, judged)

    clones, (samples,) = fit([arm], ring, procedure, more)
    while found := more(arm, clones, samples):
        samples += found
    return clones, samples


def _stops(ring: Ring, procedure: Procedure, clones: int, rival: Sequence[float]) -> Sequence[tuple[int, float]]:
    """After how many windows a ranking ends, if each launch took longer than so many nanoseconds; in any case after the
    last."""
    slower = surely_slower_than(rival, procedure.margin)
    long = 0.0 if ring.apart else 2 * procedure.window_ns / clones
    few, most = min(procedure.few, procedure.windows), procedure.windows + procedure.spare
    return (few, slower), (procedure.windows, long), (most, 0.0)


def _drawn(binary: Binary) -> random.Random:
    """Chance by which the launch of a ranking that is judged is drawn."""
    return random.Random(binary.sha256)


def _widened(terms: Terms, device: Device, ns: float) -> Terms:
    """A gate that a short kernel's time on a GPU can carry: between identical functions it may differ by 1.7 %."""
    short = device.target.device != "cpu" and ns < SHORT_NS
    return replace(terms, gate=max(terms.gate, SHORT_GATE)) if short else terms


def _method(ring: Ring, clones: int) -> dict[str, str]:
    """The conditions that say how windows were made: which cache decides, and what is particular on a GPU."""
    cache = {"cache": f"{deciding_cache(ring, clones)}, which decides"}
    if ring.device.target.device == "cpu":
        return cache
    kinds = [kind for kind, holds in (("relocatable", ring.relocatable), ("idempotent", ring.idempotent)) if holds]
    launches = "apart, on restored memory with caches flushed" if ring.apart else "on copies, each used once"
    return {**cache, "unit": ", ".join(kinds) or "neither relocatable nor idempotent", "launches": launches}


def _memory_roof(ring: Ring) -> dict[str, str]:
    """The conditions that say how long a launch writes at least where nothing stays in caches."""
    if not ring.written_bytes:
        return {}
    return {"written_bytes": str(ring.written_bytes), "write_speed": f"{ring.device.write_speed():.4g}"}


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
    clones, _ = fit([baseline, candidate], ring, terms.procedure)
    before = ring.device.conditions() | _method(ring, clones)
    blocks: list[Block] = []
    said: list[dict[str, str]] = []
    chance = random.Random(seed)
    for order in orders(terms.budget.schedule, seed):
        blocks.append(_block(order, arms, ring, clones, check, terms.procedure, chance))
        terms = _widened(terms, ring.device, min(blocks[0].baseline_ns))
        said.append(ring.device.conditions())
        if len(blocks) in terms.budget.schedule and decide(_interval(blocks, terms), terms.gate):
            break
    confirm_alone(candidate, ring, clones, check, chance, terms.procedure.timeout_s)
    refuse_too_fast(baseline, ring, clones, (ns for block in blocks for ns in block.baseline_ns))
    refuse_too_fast(candidate, ring, clones, (ns for block in blocks for ns in block.candidate_ns))
    before |= _memory_roof(ring)
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
    baseline, candidate = ([getattr(block, name) for block in blocks] for name in ("baseline_ns", "candidate_ns"))
    return compared(baseline, candidate, [block.order for block in blocks], terms.gate, terms.budget.alpha)


def _conditions(
    before: Mapping[str, str], after: Mapping[str, str], seed: int, clones: int
) -> tuple[tuple[str, str], ...]:
    """What the device said before timing, what had changed afterwards, and how to draw the same order again."""
    changed = {f"{name} afterwards": value for name, value in after.items() if before.get(name) != value}
    return tuple(sorted({**before, **changed, "seed": str(seed), "clones": str(clones)}.items()))
