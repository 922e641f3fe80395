"""Verification beyond one recorded launch: changed inputs with the recorded kernel as oracle, and sanitizers.

Both judge a variant on a placement that holds a recorded unit. A changed input makes a unit of its own: the memory
that the recorded kernel leaves behind there, on this device, is what is expected of the variant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from time import perf_counter

from r3bench import perturb, remix
from r3bench.compare import NOWHERE, Tolerance, buffers, equal, judge, non_finite
from r3bench.devices import Bytes, Memory, open_device
from r3bench.errors import DeviceUnavailable
from r3bench.model import Level, Outcome, ReplayUnit, Status, Variant, Verdict
from r3bench.original import MARGIN, noise
from r3bench.perturb import Input
from r3bench.replay import Builder, Failure, Material, Placement, Trial, attempt, build
from r3bench.windows import Arm

# A changed input may make a kernel run longer, but not this much.
_LONGER, _LEAST_S = 100, 5.0
# How much longer a launch may take with every access checked.
_CHECKED = 30
_ORDERS, _BUILDS = "other orders of threads, on a CPU", "checked builds, on a CPU"
# Of a unit that is replayed there whole, that has every access of it checked, and that has so of some of its blocks.
_ORDERED_BYTES, _CHECKED_BYTES, _SAMPLED_BYTES = 64 << 20, 4 << 20, 1 << 30
_MOST_BLOCKS = (2**31 - 1, 65_535, 65_535)  # of a grid, along each axis

Found = tuple[Verdict | None, list[str], list[str]]
"""A verdict that is no match, or None; what was run; what was left out, and why."""


def examine(
    placement: Placement, variant: Variant, level: Level, compiler: Builder, *, timeout_s: float = 10.0
) -> Outcome:
    """Verify a variant at a level. SEEN and HELD_OUT are the unit as it was recorded.

    The verdict carries the level; that of a match says what was run.
    """
    ways = {Level.PERTURBED: _perturbed, Level.SANITIZED: _sanitized}
    way = ways.get(level, _verified)
    found = attempt(lambda: way(placement, variant, compiler, timeout_s))
    trial = Trial(placement, variant, verdict=found.verdict) if isinstance(found, Failure) else found
    trial.verdict = replace(trial.verdict, level=level)
    return trial.outcome()


def _verified(placement: Placement, variant: Variant, compiler: Builder, timeout_s: float) -> Trial:
    trial = Trial(placement, variant)
    trial.verify(build(placement.material, variant, placement.device.target, compiler), timeout_s)
    return trial


# -- changed inputs ---------------------------------------------------------------------------------------------------


def _perturbed(placement: Placement, variant: Variant, compiler: Builder, timeout_s: float) -> Trial:
    """The trial on the first changed input that does not match, or one on the unit itself that says what was run."""
    trial = _verified(placement, variant, compiler, timeout_s)
    names: list[str] = []
    discarded = 0
    held = placement.material
    inputs = perturb.inputs(held.capture.parameters, held.unit, held.before, refused=placement.refused)
    for changed, material in _oracle(placement, inputs, compiler, timeout_s) if trial.matches else ():
        if material is None:
            discarded += 1
            continue
        other = Placement(placement.device, material)
        try:
            found = _verified(other, variant, compiler, timeout_s)
        finally:
            other.release()
        if found.matches:
            names.append(changed.name)
        elif _leads_out(placement, material, changed, compiler, timeout_s):
            placement.refused.add(changed.name)
            discarded += 1
        elif _outgrows(placement, material, changed, compiler, timeout_s):
            placement.outgrown.add(changed.name)
            discarded += 1
        else:
            found.verdict = replace(found.verdict, detail=f"with {changed.name}: {found.verdict.detail}")
            return found
    if trial.matches:
        trial.verdict = replace(trial.verdict, detail=_ran(names, discarded))
    return trial


def _ran(names: list[str], discarded: int) -> str:
    left = f"; {discarded} others were left out, for the recorded kernel does not take them" if discarded else ""
    return f"{len(names)} changed inputs ({', '.join(names)}){left}" if names else f"no changed input{left}"


def changed_values(placement: Placement, compiler: Builder, *, timeout_s: float = 10.0) -> tuple[str, Material] | None:
    """The unit with other values in its memory, and how they were changed, for timing what was timed on the recorded
    ones; None where the recorded kernel takes none such."""
    material = placement.material
    inputs = perturb.values(material.unit, material.before)
    found = attempt(lambda: list(islice(_taken(placement, inputs, compiler, timeout_s), 1)))
    return None if isinstance(found, Failure) or not found else found[0]


def _taken(
    placement: Placement, inputs: Iterator[Input], compiler: Builder, timeout_s: float
) -> Iterator[tuple[str, Material]]:
    recorded = build(placement.material, Variant(), placement.device.target, compiler)
    Trial(placement, Variant()).verify(recorded, timeout_s)  # measures how far its results spread
    for changed, material in _oracle(placement, inputs, compiler, timeout_s):
        if material is not None:
            yield changed.name, material


def _oracle(
    placement: Placement, inputs: Iterator[Input], compiler: Builder, timeout_s: float
) -> Iterator[tuple[Input, Material | None]]:
    """Every changed input with its unit; None where the recorded kernel fails on it, its result turns non-finite, or a
    wild one leads it out of its buffers or to numbers that cancel beyond use."""
    material, device = placement.material, placement.device
    kernel = device.load(build(material, Variant(), device.target, compiler).result().binary)
    oracle = _Oracle(placement, Arm(kernel, material.unit.launch), timeout_s)
    begin = perf_counter()
    recorded = oracle.epilogue(material.unit, material.before)
    oracle.timeout_s = min(timeout_s, max(_LEAST_S, _LONGER * (perf_counter() - begin)))
    material = replace(material, tolerances=_inexact(placement))
    for changed in inputs:
        found = None
        if recorded is not None and changed.name not in placement.refused:
            after = attempt(partial(oracle.epilogue, changed.unit, changed.before))
            usable = after is not None and not isinstance(after, Failure)
            found = _material(material, changed, after, recorded) if usable else None  # type: ignore[arg-type]
            if found is not None and changed.wild:
                tame = attempt(partial(_tamed, placement, oracle, found, changed, compiler))
                found = None if isinstance(tame, Failure) else tame
        if found is None:  # it may have cost the device its process: once is enough
            placement.refused.add(changed.name)
        yield changed, found


@dataclass(slots=True)
class _Oracle:
    """The recorded kernel, run on whatever memory it is given."""

    placement: Placement
    arm: Arm
    timeout_s: float

    def epilogue(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> dict[str, Bytes] | None:
        """What it leaves behind; None where that depends on the order of threads by more than may pass."""
        device = self.placement.device
        memory = device.allocate(unit, before)
        try:
            after = self._run(memory, before)
            for order in device.orders[1:] or device.orders:
                device.restore(memory)
                device.launch(self.arm.kernel, memory, self.arm.launch, timeout_s=self.timeout_s, order=order)
                if device.compare(memory, after, _inexact(self.placement)).status is not Status.MATCH:
                    return None
            return after
        finally:
            device.release(memory)

    def left(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> dict[str, Bytes]:
        """What it leaves behind in the first order of threads."""
        memory = self.placement.device.allocate(unit, before)
        try:
            return self._run(memory, before)
        finally:
            self.placement.device.release(memory)

    def _run(self, memory: Memory, before: Mapping[str, Bytes]) -> dict[str, Bytes]:
        self.placement.device.launch(self.arm.kernel, memory, self.arm.launch, timeout_s=self.timeout_s)
        return {name: _same(before[name], now) for name, now in self.placement.device.download(memory).items()}


def _material(
    material: Material, changed: Input, after: Mapping[str, Bytes], recorded: Mapping[str, Bytes]
) -> Material | None:
    """The unit that a changed input and its result make; None where that holds numbers no longer finite, or nothing."""
    expected: dict[str, Bytes] = {}
    for buffer in buffers(changed.unit):
        before, now = changed.before[buffer.name], after[buffer.name]
        if before is now:
            continue
        if (non_finite(now, buffer) & ~non_finite(before, buffer) & ~non_finite(recorded[buffer.name], buffer)).any():
            return None
        now.flags.writeable = False
        expected[buffer.name] = now
    if not expected:
        return None
    unit = replace(changed.unit, written=tuple(expected))
    return replace(material, unit=unit, before=changed.before, expected={**changed.before, **expected})


def _tamed(
    placement: Placement, oracle: _Oracle, material: Material, changed: Input, compiler: Builder
) -> Material | None:
    """A wild input's unit, with the tolerance that the recorded kernel's conditioning asks for there: what its results
    are off by where its inputs are off by a part of what results may be. None where that is beyond use, and where it
    accesses anything but its buffers, which an honest variant need not do alike."""
    if not _bears(placement, oracle, material, changed, compiler):
        return None
    unit, expected = material.unit, material.expected
    inputs = (perturb.nudged(unit, material.before, MARGIN, seed) for seed in range(perturb.NUDGES))
    results = [
        {**expected, **{name: left[name] for name in unit.written}} for left in map(partial(oracle.left, unit), inputs)
    ]
    tolerances = dict(material.tolerances)
    for name, each in noise(unit, expected, results, {}).items():
        held = tolerances.get(name, each)
        tolerances[name] = replace(held, rtol=max(held.rtol, each.rtol), scale=max(held.scale, each.scale))
    usable = all(judge(unit, expected, result, tolerances).status is Status.MATCH for result in results)
    return replace(material, tolerances=tolerances) if usable else None


def _bears(placement: Placement, oracle: _Oracle, material: Material, changed: Input, compiler: Builder) -> bool:
    """Whether the recorded kernel stays in its buffers. On a GPU, where a look takes seconds, only one at what may be
    indices is taken."""
    if changed.name in placement.borne or not (changed.indices or placement.device.target.device == "cpu"):
        return True
    if _looked_at(placement, material, compiler, oracle.timeout_s) is not Status.MATCH:
        return False
    placement.borne.add(changed.name)
    return True


def _leads_out(placement: Placement, material: Material, changed: Input, compiler: Builder, timeout_s: float) -> bool:
    """Whether a changed input, a larger count say, leads the recorded kernel out of the buffers that it stays in where
    it was recorded: what another does there tells nothing. Looked at only where one does something else."""
    if changed.name in placement.borne:
        return False
    looked = partial(_looked_at, placement, compiler=compiler, timeout_s=timeout_s)
    return looked(material) is Status.FAULT and looked(placement.material) is Status.MATCH


def _outgrows(placement: Placement, material: Material, changed: Input, compiler: Builder, timeout_s: float) -> bool:
    """Whether a changed input asks for more threads than were launched: it is their number alone that keeps the
    recorded kernel in its buffers there, where more of them would do no harm on what was recorded.

    An application launches as many as its sizes ask for: that a thread which does the work of several does more than
    the recorded ones tells nothing. Looked at only where a variant does something else.
    """
    if changed.name in placement.outgrown:
        return True
    looked = partial(_looked_at, placement, compiler=compiler, timeout_s=timeout_s)
    return looked(_wider(material)) is Status.FAULT and looked(_wider(placement.material)) is Status.MATCH


def _wider(material: Material) -> Material:
    """The unit launched with twice as many blocks along every axis that has several threads."""
    launch = material.unit.launch
    x, y, z = (n if n * b == 1 else 2 * n for n, b in zip(launch.grid, launch.block, strict=True))
    grid = min(x, _MOST_BLOCKS[0]), min(y, _MOST_BLOCKS[1]), min(z, _MOST_BLOCKS[2])
    return replace(material, unit=replace(material.unit, launch=replace(launch, grid=grid)))


def _looked_at(placement: Placement, material: Material, compiler: Builder, timeout_s: float) -> Status:
    """What the first of the device's sanitizers says of the recorded kernel on a unit."""
    unit = Placement(placement.device, material)
    try:
        found = _under(Trial(unit, Variant()), placement.device.sanitizers[:1], compiler, timeout_s * _CHECKED)
    finally:
        unit.release()
    return next((verdict.status for verdict in found.values()), Status.MATCH)


def _same(before: Bytes, now: Bytes) -> Bytes:
    """What is there now: the very array that was there before, if it is equal, which a device may hold already."""
    return before if equal(before, now) else now


def _inexact(placement: Placement) -> dict[str, Tolerance]:
    """The tolerances of a placement, without what it knows of single elements: another input may write others."""
    return {name: replace(each, exact=NOWHERE) for name, each in placement.original.tolerances.items()}


# -- sanitizers -------------------------------------------------------------------------------------------------------


def _sanitized(placement: Placement, variant: Variant, compiler: Builder, timeout_s: float) -> Trial:
    """The trial whose verdict is that of a run under each of the device's sanitizers, a GPU's on a CPU, too."""
    trial = Trial(placement, variant)
    accused, ran, left_out = _checked(trial, compiler, timeout_s)
    if accused is None and placement.device.target.device != "cpu":
        accused, also, why = _on_a_cpu(trial, compiler, timeout_s)
        ran, left_out = [*ran, *also], [*left_out, *why]
    detail = "; ".join((", ".join(ran) or "none", *left_out))
    trial.verdict = accused or Verdict(status=Status.MATCH, detail=detail)
    return trial


def _checked(trial: Trial, compiler: Builder, timeout_s: float, every: int = 1) -> Found:
    """What the device's sanitizers find, each in a run of one in so many blocks.

    What the recorded kernel itself does not pass is left out, and said: it tells nothing of a variant.
    """
    placement, sanitizers = trial.placement, trial.placement.device.sanitizers
    found = _under(trial, sanitizers, compiler, timeout_s * _CHECKED, every)
    failed = tuple(each for each in sanitizers if found[each].status is not Status.MATCH)
    recorded = _under(Trial(placement, Variant()), failed, compiler, timeout_s * _CHECKED, every)
    accused = next((found[each] for each in failed if recorded[each].status is Status.MATCH), None)
    left_out = [f"{s} was left out, for the recorded kernel fails it: {recorded[s].detail}" for s in failed]
    return accused, [each for each in sanitizers if each not in failed], left_out


def _on_a_cpu(trial: Trial, compiler: Builder, timeout_s: float) -> Found:
    """What the CPU device says of a GPU's candidate, whose threads it can run in other orders: a GPU runs them in its
    own, and no sanitizer sees a race in global memory. Its checked builds tell reads of shared memory that nothing was
    written to; of a large unit they run some of the blocks.

    It accuses of a mismatch or a fault where the recorded kernel has none there.
    """
    material = trial.placement.material
    if material.capture.source is None or material.capture.source.language != "cuda":
        return _left_out("there is no CUDA C++ source")
    if material.nbytes > _SAMPLED_BYTES:
        return _left_out("the unit is too large")
    try:
        device = open_device("cpu")
    except DeviceUnavailable as error:
        return _left_out(str(error))
    with closing(device):
        there = Placement(device, material)
        there.original = trial.placement.original
        accused, ran, left_out = _in_other_orders(there, trial.variant, compiler, timeout_s)
        if accused is not None:
            return accused, ran, left_out
        every = -(-material.nbytes // _CHECKED_BYTES)
        limit_s = timeout_s if every == 1 else timeout_s / 10  # a block may wait for one that is left out
        found = attempt(lambda: _checked(Trial(there, trial.variant), compiler, limit_s, every))
    blocks = f"{_BUILDS}, of one block in {every}" if every > 1 else _BUILDS
    if isinstance(found, Failure):
        return None, ran, [*left_out, f"{blocks} were left out: {found.verdict.detail}"]
    accused, passed, why = found
    if accused is not None and accused.status is Status.FAULT:
        return replace(accused, detail=f"{blocks}: {accused.detail}"), ran, left_out
    if accused is not None:
        why = [f"{blocks} were left out: {accused.status.value}, {accused.detail}"]
    return None, [*ran, *([blocks] if passed else [])], [*left_out, *why]


def _in_other_orders(there: Placement, variant: Variant, compiler: Builder, timeout_s: float) -> Found:
    def verdict(each: Variant) -> Verdict:
        return attempt(lambda: _verified(there, each, compiler, timeout_s)).verdict

    if there.material.nbytes > _ORDERED_BYTES:
        return _left_out("the unit is too large")
    found = verdict(variant)
    if found.status is Status.MATCH:
        return None, [_ORDERS], []
    recorded = verdict(Variant())
    if recorded.status is Status.MATCH and found.status in (Status.MISMATCH, Status.FAULT):
        return replace(found, detail=f"{_ORDERS}: {found.detail}"), [], []
    why = found if recorded.status is Status.MATCH else recorded
    return _left_out(f"{why.status.value}, {why.detail}")


def _left_out(why: str) -> Found:
    return None, [], [f"{_ORDERS} were left out: {why}"]


def _under(
    trial: Trial, sanitizers: Sequence[str], compiler: Builder, timeout_s: float, every: int = 1
) -> dict[str, Verdict]:
    """The verdicts on a trial's variant, run once under each sanitizer: on a GPU, where each is a process of its own,
    under all at once."""
    if not sanitizers:
        return {}
    made = attempt(lambda: _made(trial, compiler))
    at_once = 1 if trial.placement.device.target.device == "cpu" else len(sanitizers)
    with ThreadPoolExecutor(at_once) as threads:
        found = threads.map(lambda each: _watched(trial, made, each, timeout_s, every), sanitizers)
        return dict(zip(sanitizers, found, strict=True))


def _made(trial: Trial, compiler: Builder) -> Memory:
    """Build and load a trial's variant; a memory to run it on."""
    placement, device = trial.placement, trial.placement.device
    checked = device.target.device == "cpu"
    trial.built = build(placement.material, trial.variant, device.target, compiler, checked=checked).result()
    trial.arm = Arm(device.load(trial.built.binary), remix.launch_for(placement.material.unit, trial.variant))
    return placement.ring.take(1)[0]


def _watched(trial: Trial, made: Memory | Failure, sanitizer: str, timeout_s: float, every: int) -> Verdict:
    """The verdict of one sanitizer."""

    def run(memory: Memory) -> None:
        device, arm = trial.placement.device, trial.arm
        assert arm is not None
        device.restore(memory)
        device.sanitize(arm.kernel, memory, arm.launch, sanitizer, timeout_s=timeout_s, every=every)

    found = made if isinstance(made, Failure) else attempt(partial(run, made))
    if isinstance(found, Failure):
        return replace(found.verdict, detail=f"{sanitizer}: {found.verdict.detail}")
    return Verdict(status=Status.MATCH)
