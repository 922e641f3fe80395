"""Capture + variant + device -> outcome: build, restore, run, compare all memory, time the same bytes, compare again.

:func:`attempt` is the one place where a candidate's failure becomes a verdict. Everything else that can be raised
stops the run: it is not the candidate's fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from time import perf_counter
from typing import Literal, Protocol, TypeVar

import numpy as np

from r3bench import remix, store
from r3bench.compare import Tolerance, buffers, compared_shape, elements
from r3bench.devices import Bytes, Device, Kernel, Memory
from r3bench.errors import (
    BuildError,
    CandidateFailure,
    CaptureError,
    LaunchError,
    ReplayTimeout,
    Unsupported,
    WorkerLost,
)
from r3bench.measure import Terms, contest, rank
from r3bench.model import (
    Binary,
    Capture,
    Configuration,
    Difference,
    Measurement,
    Outcome,
    ReplayUnit,
    Status,
    Target,
    Variant,
    Verdict,
    content_id,
    facts_of,
)
from r3bench.original import Original, observe
from r3bench.overrides import tolerances_for
from r3bench.remix import BuildRequest
from r3bench.stats import Comparison, identical, refused
from r3bench.toolchain import Built
from r3bench.windows import Arm, ArmFailed, Procedure, Ring, classify, cold, procedure_for

_LOADED_BY = {"cubin": "cuda", "fatbin": "cuda", "ptx": "cuda", "hsaco": "hip"}

Timing = Literal["none", "rank"]
Lock = Callable[[], AbstractContextManager[object]]
T = TypeVar("T")


class Builder(Protocol):
    """What replay needs of a compiler; :class:`r3bench.toolchain.Compiler` is one."""

    def submit(self, request: BuildRequest) -> Future[Built]: ...

    def close(self) -> None: ...


# -- failures become verdicts ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """A verdict that is not a match, and the arm it belongs to (empty if only one was at work)."""

    verdict: Verdict
    arm: str = ""


def attempt(action: Callable[[], T], tries: int = 3) -> T | Failure:
    """What ``action`` gives, or the verdict on a candidate that failed in it; begun anew where a worker is lost."""
    try:
        return action()
    except WorkerLost as lost:
        # Whoever killed it, the candidate did not, unless it happens again and again.
        return attempt(action, tries - 1) if tries > 1 else Failure(Verdict(status=Status.FAULT, detail=str(lost)))
    except CandidateFailure as failure:
        return Failure(_verdict(failure))
    except ArmFailed as failed:
        cause = failed.failure
        return Failure(cause if isinstance(cause, Verdict) else _verdict(cause), failed.arm)


def _verdict(failure: CandidateFailure) -> Verdict:
    for kind, status in (
        (Unsupported, Status.UNSUPPORTED),
        (BuildError, Status.BUILD_FAILED),
        (LaunchError, Status.LAUNCH_FAILED),
        (ReplayTimeout, Status.TIMEOUT),
    ):
        if isinstance(failure, kind):
            return Verdict(status=status, detail=str(failure))
    return Verdict(status=Status.FAULT, detail=str(failure))


# -- a unit on a device ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Material:
    """What a unit is replayed from: memory before and expected after, by name; source texts by path; tolerances."""

    capture: Capture
    unit: ReplayUnit
    before: Mapping[str, Bytes]
    expected: Mapping[str, Bytes]
    texts: Mapping[str, str]
    tolerances: Mapping[str, Tolerance]

    @property
    def changed_bytes(self) -> int:
        """Bytes that a launch must change."""
        return sum(int(np.count_nonzero(self.before[name] != self.expected[name])) for name in self.unit.written)

    @property
    def nbytes(self) -> int:
        """Bytes held; what ``expected`` shares with ``before`` counts once."""
        return sum({id(data): data.nbytes for data in (*self.before.values(), *self.expected.values())}.values())


def read_material(capture: Capture, unit: int) -> Material:
    """Read a unit from the store. CaptureError if it has no such unit or is damaged."""
    if not 0 <= unit < len(capture.units):
        raise CaptureError(f"{capture.path} has no unit {unit}; it has {len(capture.units)}, counted from 0.")
    contents = store.contents(capture, unit)
    for data in (*contents.before.values(), *contents.after.values()):
        data.flags.writeable = False  # so that a device may keep it by reference, once for all clones
    held, expected = capture.units[unit], {**contents.before, **contents.after}
    tolerances = tolerances_for(capture, held, expected)
    return Material(capture, held, contents.before, expected, store.sources(capture), tolerances)


class Placement:
    """One unit on one device: a ring of clones, and what a launch on one of them must leave behind.

    ``original`` is the build of the recorded kernel, by which the first verification measures what may differ; without
    it, and where that kernel does not do here what was recorded, the tolerances of the types stand. ``remember`` gives
    what it measured from an earlier placement of the unit, or measures it.
    """

    def __init__(
        self,
        device: Device,
        material: Material,
        original: Future[Built] | None = None,
        remember: Callable[[Callable[[], Original]], Original] = lambda measure: measure(),
    ) -> None:
        self.device = device
        self.material = material
        self.ring = Ring(device, material.unit, material.before, material.changed_bytes)
        self.classed = device.target.device == "cpu"  # where every unit is measured in one way
        self._build, self._remember = original, remember
        self._kernel: Kernel | None = None
        self.original = Original(material.tolerances, (material.before, material.before))
        self._probes: list[Memory] = []
        self.refused: set[str] = set()  # changed inputs that the recorded kernel does not take

    @property
    def nbytes(self) -> int:
        """Bytes it takes on the device."""
        return self.ring.nbytes + len(self._probes) * self.ring.clone_bytes

    @property
    def spread(self) -> Iterator[tuple[str, str]]:
        """The conditions that name buffers with a wider tolerance, since the recorded kernel's own results spread."""
        for name in self.original.noisy:
            held = self.original.tolerances[name]
            yield f"tolerance of {name}", f"rtol {held.rtol:.1e}, scale {held.scale:.1e}: as far as its results spread"

    def release(self) -> None:
        self.ring.release()
        while self._probes:
            self.device.release(self._probes.pop())

    def check(self, memory: Memory) -> Verdict:
        """Judge a memory on which a kernel was launched once."""
        return self.device.compare(memory, self.material.expected, self.original.tolerances)

    def classify(self, arm: Arm, timeout_s: float) -> None:
        """Class the unit, once, with the recorded kernel; with this arm, which matches, where that does not do here."""
        if not self.classed:
            first = replace(arm, kernel=self._kernel, launch=self.material.unit.launch) if self._kernel else arm
            classify(first, self.ring, self.check, procedure_for(self.device.target, timeout_s=timeout_s))
            self.classed = True

    def verify(self, arm: Arm, timeout_s: float, *, quickly: bool = False) -> Verdict:
        """Run an arm and judge all of memory, at two addresses in turn, with another poison at each in what the
        recorded kernel writes without reading it: in every order of threads that the device offers, twice in any case.
        ``quickly`` once, in the second order where there is one: for a ranking, whose timed launches are made in the
        first and of which one is judged as well."""
        unit = self.material.unit
        if not unit.written:
            where = f"unit {unit.index} of {self.material.capture.name}"
            detail = (
                f"In {where} the recorded kernel changed nothing, so any kernel would match; record another launch."
            )
            return Verdict(status=Status.VACUOUS, detail=detail)
        orders = self.device.orders
        wanted = orders[:2][-1:] if quickly else (orders * 2)[: max(2, len(orders))]
        for memory, order in zip(cycle(self._memories(timeout_s)), wanted, strict=False):
            self.device.restore(memory)
            self.device.launch(arm.kernel, memory, arm.launch, timeout_s=timeout_s, order=order)
            verdict = self.check(memory)
            if verdict.status is not Status.MATCH:
                return verdict
        return verdict

    def _memories(self, timeout_s: float) -> Sequence[Memory]:
        """The two memories that a verification runs on; one and the same where others may not do."""
        first = self.ring.take(1)[0]  # it lies where the unit was recorded, if the device can place one there
        if self._build is not None:
            with suppress(CandidateFailure):
                self._observe(self.device.load(self._build.result().binary), timeout_s)
            self._build = None
        return self._probes or (first, first)

    def _observe(self, kernel: Kernel, timeout_s: float) -> None:
        """Measure the recorded kernel, and make the memories on which it passed its own verification."""
        held, kept = self.material, list[Memory]()

        def measure() -> Original:
            recorded = held.unit, held.before, held.expected, held.tolerances
            found = observe(self.device, kernel, *recorded, timeout_s, kept)
            if found is None:
                raise LaunchError("the recorded kernel does not leave behind here what was recorded")
            return found

        try:
            found = self._remember(measure)
            self._probes = [self.device.allocate(held.unit, before) for before in found.probes]
        finally:
            while kept:
                self.device.release(kept.pop())
        self.original, self._kernel = found, kernel


def refuse_other_parameters(built: Built, capture: Capture) -> None:
    """LaunchError for another number of parameters than was recorded, whether or not their bytes come to the same."""
    taken, recorded = facts_of(built.binary.facts).get("parameters"), len(capture.parameters)
    if taken is not None and recorded and taken != recorded:
        raise LaunchError(
            f"{capture.symbol} takes {taken} parameters where {recorded} were recorded: keep its signature"
        )


def refuse_hidden_state(built: Built, unit: ReplayUnit) -> None:
    """Unsupported for a device variable that the recording does not hold: a kernel could count its launches in it, and
    nothing here would show what it does from a later launch on."""
    recorded = {variable.symbol for variable in unit.globals}
    for variable in built.globals:
        if not variable.constant and variable.symbol not in recorded:
            raise Unsupported(
                f"the kernel keeps a device variable, {variable.symbol}, that was not recorded: "
                "use an argument's memory"
            )


def refuse_outside_reads(built: Built, material: Material) -> None:
    """Unsupported for a clock or a number of the launch that the recorded source does not name: a kernel could tell by
    it when it is timed, or work less from some launch on."""
    for name, _ in built.binary.facts:
        register = name.removeprefix("reads_")
        if register != name and not any(register in text for text in material.texts.values()):
            raise Unsupported(f"the kernel reads %{register}, which the recorded source does not: compute without it")


# -- one variant ----------------------------------------------------------------------------------------------------


UNTRIED = Verdict(status=Status.BUILD_FAILED, detail="Nothing was built yet.")


@dataclass(slots=True)
class Trial:
    """One variant on its way through a placement; what was learned of it stays when it fails."""

    placement: Placement
    variant: Variant
    name: str = "candidate"
    built: Built | None = None
    arm: Arm | None = None
    verdict: Verdict = UNTRIED
    measurement: Measurement | None = None
    stages: list[tuple[str, float]] = field(default_factory=list)

    @property
    def matches(self) -> bool:
        return self.verdict.status is Status.MATCH

    def verify(self, build: Future[Built], timeout_s: float, *, quickly: bool = False) -> None:
        """Load what was built, run it and judge it; see :meth:`Placement.verify`."""
        found = attempt(lambda: self._verify(build, timeout_s, quickly))
        self.verdict = found.verdict if isinstance(found, Failure) else found

    def _verify(self, build: Future[Built], timeout_s: float, quickly: bool) -> Verdict:
        self.built = build.result()
        self.stages = list(self.built.stages)
        refuse_other_parameters(self.built, self.placement.material.capture)
        refuse_hidden_state(self.built, self.placement.material.unit)
        refuse_outside_reads(self.built, self.placement.material)
        begin = perf_counter()
        kernel = self.placement.device.load(self.built.binary)
        self.arm = Arm(kernel, remix.launch_for(self.placement.material.unit, self.variant), self.name)
        loaded = perf_counter()
        verdict = self.placement.verify(self.arm, timeout_s, quickly=quickly)
        self.stages += [("load", loaded - begin), ("verify", perf_counter() - loaded)]
        return verdict

    def explain(self, build: Future[Built], timeout_s: float) -> None:
        """Replay what faulted in its checked build, and add to the verdict which access that stopped at."""
        found = attempt(lambda: self._replay_checked(build, timeout_s))
        if isinstance(found, Failure) and found.verdict.status is Status.FAULT:
            first, second = self.verdict.detail, found.verdict.detail
            detail = first if first == second else f"{first}; checked access by access: {second}"
            self.verdict = replace(self.verdict, detail=detail)

    def _replay_checked(self, build: Future[Built], timeout_s: float) -> None:
        device, memory = self.placement.device, self.placement.ring.take(1)[0]
        kernel = device.load(build.result().binary)
        for order in device.orders:
            device.restore(memory)
            launch = remix.launch_for(self.placement.material.unit, self.variant)
            device.launch(kernel, memory, launch, timeout_s=timeout_s, order=order)

    def name_writer(self, build: Future[Built], timeout_s: float) -> None:
        """Add to a mismatch who wrote the first element that differs, as its checked build tells."""
        first, *others = self.verdict.differences
        found = attempt(lambda: self._writer(build, first, timeout_s))
        if isinstance(found, str) and found:
            detail = f"{self.verdict.detail} Written by {found}."
            self.verdict = replace(self.verdict, detail=detail, differences=(replace(first, writer=found), *others))

    def _writer(self, build: Future[Built], difference: Difference, timeout_s: float) -> str:
        device, material = self.placement.device, self.placement.material
        held = next(each for each in buffers(material.unit) if each.name == difference.buffer)
        number = int(np.ravel_multi_index(difference.first, compared_shape(held)))
        place = held.name, number * elements(material.expected[held.name], held).itemsize
        kernel, memory = device.load(build.result().binary), self.placement.ring.take(1)[0]
        device.restore(memory)
        return device.writer(kernel, memory, remix.launch_for(material.unit, self.variant), place, timeout_s=timeout_s)

    def rank(self, procedure: Procedure, rival: Sequence[float] = ()) -> None:
        """Time the verified arm for a ranking; a candidate that fails meanwhile loses its match."""
        arm = self.arm
        assert arm is not None
        begin = perf_counter()

        def ranked() -> Measurement:
            self.placement.classify(arm, procedure.timeout_s)
            return rank(arm, self.placement.ring, self.placement.check, procedure, rival)

        found = attempt(ranked)
        if isinstance(found, Failure):
            self.verdict = found.verdict
        else:
            self.measurement = replace(found, conditions=(*found.conditions, *self.placement.spread))
        self.stages.append(("time", perf_counter() - begin))

    def outcome(self) -> Outcome:
        material = self.placement.material
        return Outcome(
            capture=material.capture.name,
            unit=material.unit.index,
            variant=content_id(self.variant),
            target=self.placement.device.target,
            verdict=self.verdict,
            measurement=self.measurement,
            module=self.built.module if self.built else None,
            binary=self.built.binary.sha256 if self.built else None,
            facts=self.arm.kernel.binary.facts if self.arm else self.built.binary.facts if self.built else (),
            stages=tuple(self.stages),
        )


def recorded_image(material: Material, target: Target) -> Built | None:
    """The image that the application itself ran; None where none was recorded, or none for this target."""
    if not image_loads(material.capture, target):
        return None
    begin = perf_counter()
    image = store.image(material.capture)
    assert image is not None
    assert material.capture.image_format is not None
    binary = Binary(target=target, symbol=material.capture.symbol, image=image, format=material.capture.image_format)
    return Built(binary=binary, module=f"image {binary.sha256}", stages=(("image", perf_counter() - begin),))


def image_loads(capture: Capture, target: Target) -> bool:
    """Whether a capture holds an image for this target: PTX and fat binaries are for any GPU, others for one kind."""
    if capture.image_format is None or target.device != _LOADED_BY[capture.image_format]:
        return False
    return capture.image_format in ("ptx", "fatbin") or dict(capture.recorded_on).get("arch") == target.arch


def _image(material: Material, variant: Variant, target: Target) -> Built | None:
    """Machine code that is there already: a variant's own, or for the recorded kernel the application's."""
    if variant.image is not None:
        binary = Binary(target=target, symbol=material.capture.symbol, image=variant.image, format="cubin")
        return Built(binary=binary, module=f"image {binary.sha256}")
    return None if variant.files or variant.configuration else recorded_image(material, target)


def build(
    material: Material,
    variant: Variant,
    target: Target,
    compiler: Builder,
    *,
    checked: bool = False,
    padded: bool = False,
) -> Future[Built]:
    """Start building a variant for a unit; a variant that cannot even be asked for fails in the future too.

    The recorded kernel is the application's own image, where one was recorded that the target can load. ``checked``
    asks for the build that checks every access, which only the CPU device runs, ``padded`` for another binary of equal
    work.
    """
    made = _image(material, variant, target)
    if made is not None:
        ready: Future[Built] = Future()
        ready.set_result(made)
        return ready
    try:
        request = remix.build_request(material.capture, material.texts, material.unit, variant, target)
        return compiler.submit(replace(request, checked=checked, padded=padded))
    except CandidateFailure as failure:
        failed: Future[Built] = Future()
        failed.set_exception(failure)
        return failed


def evaluate(
    placement: Placement,
    variant: Variant,
    built: Future[Built],
    *,
    timing: Timing = "rank",
    timeout_s: float = 10.0,
    lock: Lock = nullcontext,
    compiler: Builder | None = None,
    rival: Sequence[float] = (),
) -> Outcome:
    """Verify a variant, and rank it if it matches; ``lock`` is held while it is timed, and only then.

    The ranking is cut off where the variant is surely slower than a ``rival``, whose samples on this device are given.

    With a ``compiler``, a fault on the CPU device is replayed once in a checked build, which says where it was; so is a
    mismatch, unless it is one of a ranking.
    """
    trial = Trial(placement, variant)
    trial.verify(built, timeout_s, quickly=timing == "rank")
    if compiler and placement.device.target.device == "cpu":
        checked = partial(build, placement.material, variant, placement.device.target, compiler, checked=True)
        if trial.verdict.status is Status.FAULT:
            trial.explain(checked(), timeout_s)
        elif trial.verdict.status is Status.MISMATCH and timing == "none":
            trial.name_writer(checked(), timeout_s)
    if trial.matches and timing == "rank":
        with lock():
            trial.rank(procedure_for(placement.device.target, ranking=True, timeout_s=timeout_s), rival)
    return trial.outcome()


def profile(placement: Placement, built: Future[Built], timeout_s: float = 60.0) -> dict[str, str]:
    """What the device tells of a kernel and of itself, in words by name: its speed of writing, hardware counters."""
    memory = placement.ring.take(1)[0]
    gigabytes = float(f"{placement.device.write_speed() / 1e9:.2g}")
    found = {"memory bandwidth, writing": f"{gigabytes:g} GB/s"}
    with suppress(CandidateFailure):
        kernel = placement.device.load(built.result().binary)
        placement.device.restore(memory)
        launch = placement.material.unit.launch
        found |= placement.device.profile(kernel, memory, launch, timeout_s=timeout_s)
    return found


def replay(
    capture: Capture,
    variant: Variant,
    device: Device,
    compiler: Builder,
    *,
    unit: int = 0,
    timing: Timing = "rank",
    timeout_s: float = 10.0,
) -> Outcome:
    """Build a variant of a recorded kernel, run it on one recorded unit, check it and time it.

    ``timing`` is ``none`` or ``rank`` (a cheap measurement that orders candidates and claims nothing). A candidate's
    failure is the outcome's verdict; CaptureError and DeviceUnavailable are raised.
    """
    material = read_material(capture, unit)
    placement = Placement(device, material, build(material, Variant(), device.target, compiler))
    try:
        built = build(material, variant, device.target, compiler)
        return evaluate(placement, variant, built, timing=timing, timeout_s=timeout_s, compiler=compiler)
    finally:
        placement.release()


# -- two variants ---------------------------------------------------------------------------------------------------


def compete(
    placement: Placement,
    baseline: tuple[Variant, Future[Built]],
    candidate: tuple[Variant, Future[Built]],
    terms: Terms,
    *,
    repetition: int = 0,
    lock: Lock = nullcontext,
) -> Comparison:
    """Verify two variants and time them against each other; IDENTICAL code and launch are not timed.

    REFUSED if one of them does not match, before timing or after. Each ``repetition`` draws its own order of blocks.
    """
    arms = []
    for name, (variant, built) in (("baseline", baseline), ("candidate", candidate)):
        trial = Trial(placement, variant, name)
        trial.verify(built, terms.procedure.timeout_s)
        if trial.arm is None or not trial.matches:
            return refused(terms.gate, name, trial.verdict)
        arms.append(trial.arm)
    codes = [arm.kernel.binary.sha256 for arm in arms]
    if codes[0] == codes[1] and arms[0].launch == arms[1].launch:
        return identical(terms.gate, codes[0])
    seed = int(content_id(codes, repetition)[:8], 16)

    def timed() -> Comparison:
        placement.classify(arms[0], terms.procedure.timeout_s)
        return contest(arms[0], arms[1], placement.ring, placement.check, terms, seed)

    with lock():
        found = attempt(timed)
        if repetition and not isinstance(found, Failure):
            found = replace(found, conditions=(*found.conditions, *_other_cache(arms, placement, terms)))
        if not isinstance(found, Failure):
            found = replace(found, conditions=(*found.conditions, *placement.spread))
    return refused(terms.gate, found.arm, found.verdict) if isinstance(found, Failure) else found


def _other_cache(arms: Sequence[Arm], placement: Placement, terms: Terms) -> Iterator[tuple[str, str]]:
    """Times of a claim's arms with cold caches, where warm ones decided; a GPU's warm times are taken in a contest."""
    if placement.device.target.device == "cpu":
        for arm in arms:
            found = attempt(partial(cold, arm, placement.ring, terms.procedure.timeout_s))
            if not isinstance(found, Failure):
                yield f"cold_{arm.name}_ns", f"{found:.0f}"


def control(
    placement: Placement, baseline: Variant, compiler: Builder, terms: Terms, lock: Lock = nullcontext
) -> Comparison | None:
    """Time a baseline's source against another binary of equal work: what they seem to differ by is noise.

    One look, and nothing is claimed from it; None where the capture holds nothing to build both from.
    """
    material = placement.material
    source = material.capture.source
    if source is None or source.language == "ptx":
        return None
    plain = replace(baseline, configuration=baseline.configuration or Configuration())
    first, second = (
        build(material, plain, placement.device.target, compiler, padded=padded) for padded in (False, True)
    )
    once = replace(terms, budget=replace(terms.budget, kernels=1, looks=1))
    return compete(placement, (plain, first), (plain, second), once, lock=lock)
