"""One variant on its way: built, verified, ranked; what it failed of is explained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Literal

import numpy as np

from r3bench import remix
from r3bench.compare import buffers, compared_shape, elements, verdict_of
from r3bench.devices import Device
from r3bench.errors import CandidateFailure
from r3bench.measure import first_windows, rank, ranked
from r3bench.model import (
    Binary,
    Capture,
    Difference,
    LaunchConfig,
    Measurement,
    Outcome,
    Status,
    Variant,
    Verdict,
    content_id,
)
from r3bench.replay.builds import Builder, build
from r3bench.replay.failures import Failure, attempt, blamed
from r3bench.replay.placement import Placement, read_material
from r3bench.replay.refusals import refuse_hidden_state, refuse_other_parameters, refuse_outside_reads
from r3bench.stats import block_statistic
from r3bench.toolchain import Built
from r3bench.windows import Arm, Procedure, procedure_for

Timing = Literal["none", "rank"]
Lock = Callable[[], AbstractContextManager[object]]

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
    _before: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self._before = dict(self.placement.device.spent)

    @property
    def matches(self) -> bool:
        return self.verdict.status is Status.MATCH

    def verify(self, build: Future[Built], timeout_s: float, orders: Sequence[str] = ()) -> None:
        """Load what was built, run it and judge it; see :meth:`Placement.verify`."""
        found = attempt(lambda: self._verify(build, timeout_s, orders))
        self.verdict = found.verdict if isinstance(found, Failure) else found

    def _verify(self, build: Future[Built], timeout_s: float, orders: Sequence[str]) -> Verdict:
        binary, launch = self._take(build)
        begin = perf_counter()
        self.arm = Arm(self.placement.device.load(binary), launch, self.name)
        loaded = perf_counter()
        verdict = self.placement.verify(self.arm, timeout_s, orders)
        self.stages += [("load", loaded - begin), ("verify", perf_counter() - loaded)]
        return verdict

    def _take(self, build: Future[Built]) -> tuple[Binary, LaunchConfig]:
        """What was built, unless it may not be run, and how it is launched."""
        material = self.placement.material
        self.built = build.result()
        self.stages = list(self.built.stages)
        refuse_other_parameters(self.built, material.capture)
        refuse_hidden_state(self.built, material.unit)
        refuse_outside_reads(self.built, material)
        return self.built.binary, remix.launch_for(material.unit, self.variant)

    def verify_and_rank(self, build: Future[Built], procedure: Procedure, rival: Sequence[float]) -> bool:
        """Both by one request to the device; whether nothing more is to be done."""
        binary, launch = self._take(build)
        placement = self.placement
        windows = first_windows(binary, placement.ring, procedure, rival) if placement.classed else None
        found = placement.tried(binary, launch, windows, procedure.timeout_s) if windows else None
        if windows is None or found is None:
            return False
        self.arm = Arm(found.kernel, launch, self.name)
        self.verdict = verdict_of(placement.material.unit, found.differences)
        self.stages += zip(("load", "verify", "time"), found.seconds, strict=True)
        if not self.matches:
            return True
        clones = len(windows.memories)
        measured = ranked(self.arm, placement.ring, procedure, found.windows_ns, clones, rival)
        self.measurement = measured and self._told(measured)
        return measured is not None

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

        def measured() -> Measurement:
            self.placement.classify(arm, procedure.timeout_s)
            return rank(arm, self.placement.ring, self.placement.check, procedure, rival)

        found = attempt(measured)
        if isinstance(found, Failure):
            self.verdict = found.verdict
        else:
            self.measurement = self._told(found)
        self.stages.append(("time", perf_counter() - begin))

    def _told(self, found: Measurement) -> Measurement:
        """A measurement with what is particular of the unit."""
        return replace(found, conditions=(*found.conditions, *self.placement.spread))

    def verify_in_order(self, order: str, timeout_s: float) -> None:
        """Run what was ranked in another order of threads; unless it matches, its time is dropped."""
        arm, begin = self.arm, perf_counter()
        assert arm is not None
        found = attempt(lambda: self.placement.verify(arm, timeout_s, (order,)))
        self.verdict = found.verdict if isinstance(found, Failure) else found
        if not self.matches:
            self.measurement = None
        took = perf_counter() - begin
        self.stages = [(name, spent + took if name == "verify" else spent) for name, spent in self.stages]

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
            stages=(*self.stages, *self._parts()),
        )

    def _parts(self) -> Iterator[tuple[str, float]]:
        """What the device spent its stages on; a colon tells a part from a stage."""
        for name, seconds in self.placement.device.spent.items():
            if (spent := seconds - self._before.get(name, 0.0)) > 0:
                yield f"device: {name}", spent


def leads(measured: Measurement, fastest: Sequence[float]) -> bool:
    """Whether a ranking that was not cut off is ahead of the samples of the fastest so far, or the first."""
    return measured.cut_ns is None and (not fastest or block_statistic(measured.samples_ns) < block_statistic(fastest))


def evaluate(
    placement: Placement,
    variant: Variant,
    built: Future[Built],
    *,
    timing: Timing = "rank",
    timeout_s: float = 10.0,
    lock: Lock = nullcontext,
    compiler: Builder | None = None,
    fastest: Sequence[float] = (),
    races: bool = False,
) -> Outcome:
    """Verify a variant, and rank it if it matches; ``lock`` is held while it is timed, and only then.

    ``fastest`` holds the samples of the best that was timed of the same text on this device. What ranks ahead of them
    is verified in the second order of threads, too: no text has a best time without it, and what is slower, which
    nothing comes of, need not wait for it. A ranking that ``races`` is cut off where the variant is surely slower.

    With a ``compiler``, a fault on the CPU device is replayed once in a checked build, which says where it was; so is a
    mismatch, unless it is one of a ranking.
    """
    trial, orders = Trial(placement, variant), placement.device.orders
    trial.verify(built, timeout_s, orders[:1] if timing == "rank" else ())
    if compiler and placement.device.target.device == "cpu":
        checked = partial(build, placement.material, variant, placement.device.target, compiler, checked=True)
        if trial.verdict.status is Status.FAULT:
            trial.explain(checked(), timeout_s)
        elif trial.verdict.status is Status.MISMATCH and timing == "none":
            trial.name_writer(checked(), timeout_s)
    if trial.matches and timing == "rank":
        with lock():
            procedure = procedure_for(placement.device.target, ranking=True, timeout_s=timeout_s)
            trial.rank(procedure, fastest if races else ())
        if trial.measurement is not None and leads(trial.measurement, fastest):
            for order in orders[1:2]:
                trial.verify_in_order(order, timeout_s)
    return trial.outcome()


def tried(
    placement: Placement,
    variant: Variant,
    built: Future[Built],
    *,
    timeout_s: float = 10.0,
    fastest: Sequence[float] = (),
    races: bool = False,
) -> Outcome | None:
    """As :func:`evaluate` for a ranking, by one request to a device with a queue: several threads may do so at once.

    None where more is to be done than that. Of a mismatch only what the device itself saw is told. WorkerLost where
    what another thread asked for ended the device's worker.
    """
    trial = Trial(placement, variant)
    procedure = procedure_for(placement.device.target, ranking=True, timeout_s=timeout_s)
    found = blamed(lambda: trial.verify_and_rank(built, procedure, fastest if races else ()))
    if isinstance(found, Failure):
        trial.verdict, trial.measurement = found.verdict, None
    return trial.outcome() if found else None


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
