"""The replay server: captures stay resident, builds run in parallel, one stage feeds the device.

A request goes through three stages, each with its own threads or processes: *prepare* (read the capture, write the
build request), *build* (the compiler's workers), *device* (load, verify, time). A GPU does one thing after the
other, for several requests: it does not wait for this process in between. Everything above replays
through :meth:`ReplayServer.submit` and :meth:`ReplayServer.compare`, which return futures at once.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from threading import Event, Lock
from time import perf_counter
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from r3bench import remix
from r3bench.calibration import rate_for
from r3bench.compare import buffers
from r3bench.devices import Device, open_device
from r3bench.errors import WorkerLost
from r3bench.levels import changed_values, examine
from r3bench.locks import Locks
from r3bench.measure import Terms
from r3bench.model import Capture, Level, Outcome, Status, Target, Variant, content_id
from r3bench.original import Original
from r3bench.overrides import Beside, beside
from r3bench.replay import (
    Builder,
    Material,
    Placement,
    build,
    compete,
    control,
    evaluate,
    leads,
    profile,
    read_material,
    tried,
    without_memory,
)
from r3bench.replay.failures import again, by_chance
from r3bench.server.requests import Timing
from r3bench.server.resident import Latest, Resident, TimingLock, host_room, timing_lock
from r3bench.server.stages import GivingWay, Turns, Waits, when_all
from r3bench.stats import Budget, Comparison, Decision, claims, confirmed
from r3bench.store import in_memory, on_disk, sources
from r3bench.toolchain import Built, Compiler
from r3bench.toolchain.cache import user_cache
from r3bench.windows import procedure_for

SWITCH_S = 5e-5
AT_DEVICE = 8  # requests at a device that has a queue: half of them here between two, the others there
REMEMBERED = 1024  # outcomes by their code, 8 KB each: a search of one text tries some hundred configurations
RECORDED = 64  # recorded kernels that are built or read already

_GIVING_WAY = GivingWay(SWITCH_S)

P = TypeVar("P")
T = TypeVar("T")

Run = Callable[[Material, Sequence[Future[Built]], Waits], T]
# What the device stage needs: the unit, the builds that were asked for, and last that of the recorded kernel.
Prepared = tuple[Material, list[Future[Built]]]
Contestant = tuple[Variant, Future[Built]]


class ReplayServer:
    """Replays variants of captures on one device; a context manager.

    ``device`` is a name for :func:`r3bench.devices.open_device` or a function that opens a device; it is opened when
    it is first needed. ``timeout_s`` bounds each launch, ``resident_bytes`` the memory of captures kept here and,
    separately, on the device (default: an eighth of this machine's, and the device's own room). ``cache`` is the folder
    in which builds are kept between runs.

    A future raises CaptureError or DeviceUnavailable where those stop the request; a candidate's failure is a value.
    """

    def __init__(
        self,
        device: str | Callable[[], Device] = "auto",
        compile_workers: int | None = None,
        timeout_s: float = 10.0,
        cache: Path | None = None,
        *,
        compiler: Builder | None = None,
        resident_bytes: int | None = None,
    ) -> None:
        self._open: Callable[[], Device] = (lambda: open_device(device)) if isinstance(device, str) else device
        self._compiler = compiler or Compiler(workers=compile_workers, cache=cache)
        self._timeout_s = timeout_s
        self._resident_bytes = resident_bytes
        self._folder = cache or user_cache()
        self._materials: Resident[Material] = Resident(resident_bytes or host_room())
        self._observed: Resident[Original] = Resident(resident_bytes or host_room())
        self._devices: list[Device] = []
        self._prepare_stage = ThreadPoolExecutor(1, thread_name_prefix="r3bench-prepare")
        self._device_stage: ThreadPoolExecutor | None = None
        self._turns = Turns()
        self._replaying = Locks()
        self._replayed: Latest[Outcome] = Latest(REMEMBERED)
        self._fastest: Latest[Sequence[float]] = Latest(REMEMBERED)
        self._originals: Latest[Future[Built]] = Latest(RECORDED)
        self._builds: set[Future[Built]] = set()
        self._builds_allowed = Event()
        self._builds_allowed.set()
        self._unfinished: set[Future[Any]] = set()
        self._guard = Lock()
        self._opening = Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- what is asked of it ----------------------------------------------------------------------------------------

    def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: Timing = "rank") -> Future[Outcome]:
        """Replay a variant on one unit; ``timing="none"`` only verifies it.

        ``once`` is ``rank``, but what was replayed so before is not replayed again: the same machine code in the same
        launch has the outcome that it had. Most configurations of a search give code that was seen. ``race`` is
        ``once``, cut off where the variant is surely slower than the fastest of the same text that this device timed.
        """

        def run(material: Material, builds: Sequence[Future[Built]], waits: Waits) -> Outcome:
            if timing == "none" or timing == "rank":
                found = self._evaluate(material, variant, builds, timing)
            else:
                found = self._once(material, variant, builds, races=timing == "race")
            return replace(found, stages=waits.added(found.stages))

        return self._request(capture, unit, (variant,), run)

    def _evaluate(
        self, material: Material, variant: Variant, builds: Sequence[Future[Built]], timing: Literal["none", "rank"],
        fastest: Sequence[float] = (), *, races: bool = False,
    ) -> Outcome:  # fmt: skip
        how: dict[str, Any] = {"fastest": fastest, "races": races, "timeout_s": self._timeout_s}
        found = self._tried(material, variant, builds[0], how) if timing == "rank" else None
        if found is not None and found.verdict.status is not Status.MISMATCH:
            return found
        with self._placed(material, builds[-1]) as placement:
            how |= {"timing": timing, "lock": self._timing, "compiler": self._compiler}
            alone = evaluate(placement, variant, builds[0], **how)
        # What differs is told in full by who has the device alone; what does not any more has differed once.
        return found if found is not None and alone.verdict.status is Status.MATCH else alone

    def _tried(
        self, material: Material, variant: Variant, built: Future[Built], how: Mapping[str, Any]
    ) -> Outcome | None:
        """What one request comes to, where the device has a queue and the unit is there."""
        if self.device.queue is None:
            return None
        with suppress(WorkerLost), self._turns.shared():
            placement = self._placements.at_hand(_key(material))
            if placement is not None:
                with self._timing():
                    return tried(placement, variant, built, **how)
        return None

    def _once(
        self, material: Material, variant: Variant, builds: Sequence[Future[Built]], *, races: bool
    ) -> Outcome:  # fmt: skip
        """The outcome of this code and launch, from before where there is one; runs in the device stage.

        One that was behind the fastest of its text holds for that text only, where it was cut off only in a race.
        """
        if builds[0].exception() is not None:
            return self._evaluate(material, variant, builds, "rank")
        built, unit = builds[0].result(), _key(material)
        text = unit, content_id(variant.files)
        key = unit, built.binary.sha256, remix.launch_for(material.unit, variant)
        with self._replaying.of(key):
            known = self._replayed.get(key) or self._replayed.get((key, text))
            if known is not None and (races or not _cut_off(known)):
                return replace(known, variant=content_id(variant), module=built.module, stages=built.stages)
            fastest = self._fastest.get(text) or ()
            found = self._evaluate(material, variant, builds, "rank", fastest, races=races)
            if found.verdict.status is Status.FAULT:  # perhaps by nobody's fault: its worker was lost
                return found
            behind = found.measurement is not None and not leads(found.measurement, fastest)
            self._replayed[(key, text) if behind else key] = found
            if found.measurement is not None and not behind:
                self._fastest[text] = found.measurement.samples_ns
            return found

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of verification that the device offers, the cheapest first."""
        return tuple(level for level in Level if level is not Level.SANITIZED or self.device.sanitizers)

    def verify(self, capture: Capture, variant: Variant, level: Level, unit: int = 0) -> Future[Outcome]:
        """Verify a variant on one unit at a level; see :func:`r3bench.levels.examine`."""

        def run(material: Material, builds: Sequence[Future[Built]], waits: Waits) -> Outcome:
            with self._placed(material, builds[-1]) as placement:
                return examine(placement, variant, level, self._compiler, timeout_s=self._timeout_s)

        return self._request(capture, unit, (variant,), run)

    def profile(self, capture: Capture, unit: int = 0) -> Future[dict[str, str]]:
        """What the device tells of the recorded kernel and of itself; see :func:`r3bench.replay.profile`."""

        def run(material: Material, builds: Sequence[Future[Built]], waits: Waits) -> dict[str, str]:
            with self._placed(material, builds[-1]) as placement:
                return profile(placement, builds[-1])

        return self._request(capture, unit, (), run)

    def compare(
        self,
        capture: Capture,
        unit: int,
        baseline: Variant,
        candidate: Variant,
        gate: float = 0.05,
        kernels: int = 1,
        looks: int = 3,
    ) -> Future[Comparison]:
        """Time a candidate against a baseline on one unit, the error budget being split over ``kernels``.

        Both are verified before and after. A claim is repeated on a fresh device, in a new process with new memory,
        that of being faster on other values, where the recorded kernel takes some: what that does not confirm is
        UNSTABLE. There the control is timed, too, two binaries of equal work; a claim that does not lie beyond what
        these seem apart is UNCLEAR.
        """
        budget = Budget(kernels=kernels, looks=looks)

        def run(material: Material, builds: Sequence[Future[Built]], waits: Waits) -> Comparison:
            arms = (baseline, builds[0]), (candidate, builds[1])
            terms = Terms(gate=gate, budget=budget, procedure=procedure_for(self.target, timeout_s=self._timeout_s))
            with self._placed(material, builds[-1]) as placement:
                first = compete(placement, *arms, terms, lock=self._quiet)
            if not claims(first):
                return self._calibrated(first)
            with self._fresh(material, builds[-1]) as placement:
                known = control(placement, baseline, self._compiler, terms, self._quiet)
                second = self._repeated(placement, arms, terms, first.decision)
                return self._calibrated(confirmed(first, second, known))

        return self._request(capture, unit, (baseline, candidate), run)

    def _repeated(
        self, placement: Placement, arms: tuple[Contestant, Contestant], terms: Terms, claim: Decision
    ) -> Comparison:
        """The contest once more, on other values where the candidate is to be faster: it may know the recorded ones."""
        how: dict[str, Any] = {"repetition": 1, "lock": self._quiet}
        changed = None
        if claim is Decision.FASTER:
            changed = changed_values(placement, self._compiler, timeout_s=self._timeout_s)
        if changed is None:
            return compete(placement, *arms, terms, **how)
        name, material = changed
        placement.release()
        found = compete(Placement(placement.device, material), *arms, terms, **how)
        return replace(found, conditions=(*found.conditions, ("values", name)))

    def _calibrated(self, found: Comparison) -> Comparison:
        """With what is known of this machine's false alarms at kernels of such a time."""
        rate = rate_for(self.device.name, found.baseline_ns) if found.baseline_ns is not None else None
        return replace(found, conditions=(*found.conditions, ("false_alarms", str(rate)))) if rate else found

    def compiled(self, capture: Capture, variant: Variant, target: Target, unit: int = 0) -> Future[Built]:
        """Build a variant for any target, this machine's or not; what was built does not run here."""

        def start() -> Future[Built]:
            written = beside(capture)
            key = key_of(capture, unit, written)
            material = self._materials.get(key, lambda: self._read(capture, unit, written))
            return build(material, variant, target, self._compiler)

        return self._enter(start, lambda built, result: when_all([built], lambda: self._settle(built, result)))

    @property
    def device(self) -> Device:
        """The device, opened on first use. DeviceUnavailable if it cannot be used here."""
        with self._opening:
            return self._devices[0] if self._devices else self._open_device()

    @property
    def target(self) -> Target:
        return self.device.target

    @property
    def name(self) -> str:
        return self.device.name

    @property
    def machine(self) -> str:
        """What tells machines apart: a GPU by its name and UUID, a processor by its name and the host's (hashed)."""
        if self.target.device != "cpu":
            return self.name
        host = hashlib.sha256(platform.node().encode()).hexdigest()[:8]
        return f"{self.conditions().get('processor', 'cpu')} {host}"

    @property
    def at_once(self) -> int:
        """Twice as many as can be compiled."""
        return 2 * len(os.sched_getaffinity(0))

    def conditions(self) -> dict[str, str]:
        return again(self.device.conditions)

    def close(self) -> None:
        """End at once: requests that have not ended are cancelled, processes are ended. Idempotent."""
        with self._guard:
            self._closed = True
            unfinished = list(self._unfinished)
            self._unfinished.clear()
        self._builds_allowed.set()
        for result in unfinished:
            if result.cancel():
                result.set_running_or_notify_cancel()
            else:
                result.set_exception(CancelledError("the replay server was closed"))
        self._prepare_stage.shutdown(wait=False, cancel_futures=True)
        if self._device_stage is not None:
            self._device_stage.shutdown(wait=False, cancel_futures=True)
        for device in list(self._devices):
            device.close()
        self._compiler.close()

    # -- from request to future -------------------------------------------------------------------------------------

    def _request(self, capture: Capture, unit: int, variants: Sequence[Variant], run: Run[T]) -> Future[T]:
        def go_on(prepared: Prepared, result: Future[T]) -> None:
            material, builds = prepared
            asked = perf_counter()

            def built() -> None:
                ended = perf_counter()
                waits = partial(Waits, ended - asked)
                self._enter_device_stage(result, lambda: run(material, builds, waits(perf_counter() - ended)))

            when_all(builds, built)

        return self._enter(lambda: self._prepare(capture, unit, variants), go_on)

    def _enter(self, prepare: Callable[[], P], go_on: Callable[[P, Future[T]], None]) -> Future[T]:
        """A request's result; ``prepare`` runs in the first stage, and ``go_on`` leads what it gives to the result."""
        result: Future[T] = Future()
        with self._guard:
            if self._closed:
                raise RuntimeError("the replay server is closed")
            self._unfinished.add(result)
            prepared = self._prepare_stage.submit(prepare)

        def when_prepared(done: Future[P]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._settle(done, result)
            else:
                go_on(done.result(), result)

        prepared.add_done_callback(when_prepared)
        return result

    def _prepare(self, capture: Capture, unit: int, variants: Sequence[Variant]) -> Prepared:
        written = beside(capture)
        key = key_of(capture, unit, written)
        original = self._originals.get(key)
        if original is None or (original.done() and by_chance(original.exception())):
            # It is built while memory is read, which takes longer.
            described = without_memory(capture, unit, sources(capture))
            original = self._originals[key] = self._build(described, Variant())
        material = self._materials.get(key, lambda: self._read(capture, unit, written))
        return material, [*(self._build(material, variant) for variant in variants), original]

    def _build(self, material: Material, variant: Variant) -> Future[Built]:
        target = self.target
        self._builds_allowed.wait()
        started = build(material, variant, target, self._compiler)
        with self._guard:
            self._builds.add(started)
        started.add_done_callback(self._forget)
        return started

    def _read(self, capture: Capture, unit: int, written: Beside) -> Material:
        """A unit in memory or, where that would be more than is allowed for all of them, in files of a disk."""
        nbytes = sum(held.nbytes for each in capture.units[unit : unit + 1] for held in buffers(each))
        large = 2 * nbytes > (self._resident_bytes or 4 * host_room())
        return read_material(capture, unit, on_disk(self._folder) if large else in_memory, written)

    def _forget(self, ended: Future[Built]) -> None:
        with self._guard:
            self._builds.discard(ended)

    def _enter_device_stage(self, result: Future[T], action: Callable[[], T]) -> None:
        threads = 1 if self.device.queue is None else AT_DEVICE
        with self._guard:
            if self._closed:
                return
            if self._device_stage is None:
                self._device_stage = ThreadPoolExecutor(threads, thread_name_prefix="r3bench-device")
            ran = self._device_stage.submit(lambda: self._run(action) if self._begins(result) else None)
        ran.add_done_callback(lambda done: self._settle(done, result))

    def _run(self, action: Callable[[], T]) -> T:
        """What an action of the device stage gives. Meanwhile no other thread of this process keeps its own long from
        going on where the clock of a window runs there; it costs a process of many threads a third of its time."""
        with _GIVING_WAY if self.device.queue is None else nullcontext():
            return again(action)

    def _begins(self, result: Future[Any]) -> bool:
        """Whether a result is still wanted; from now on it can no longer be cancelled by its owner."""
        with self._guard:
            wanted = result in self._unfinished and result.set_running_or_notify_cancel()
            if not wanted:
                self._unfinished.discard(result)
            return wanted

    def _settle(self, done: Future[Any], result: Future[Any]) -> None:
        """Hand on what a stage came to; whoever takes a result out of the unfinished ones sets it."""
        with self._guard:
            if result not in self._unfinished:
                return
            self._unfinished.discard(result)
            wanted = result.running() or result.set_running_or_notify_cancel()
        if not wanted or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            result.set_exception(error)
        else:
            result.set_result(done.result())

    # -- the device stage -------------------------------------------------------------------------------------------

    def _open_device(self) -> Device:
        device = again(self._open)
        with self._guard:
            self._devices.append(device)
            if not self._closed:
                return device
        device.close()
        raise CancelledError("the replay server was closed")

    @contextmanager
    def _placed(self, material: Material, original: Future[Built]) -> Iterator[Placement]:
        """The unit on the device, which nothing else uses meanwhile; what it grew by is made up for by giving back
        others."""
        key = _key(material)
        with self._turns.alone():
            placement = self._placements.get(key, lambda: self._place(self.device, material, original))
            placement.renew(original)
            yield placement
            self._placements.trim()

    @cached_property
    def _placements(self) -> Resident[Placement]:
        """Used by the device stage alone, and changed by who has the device alone."""
        return Resident(self._resident_bytes or self.device.room_bytes, drop=lambda placement: placement.release())

    def _place(self, device: Device, material: Material, original: Future[Built]) -> Placement:
        """A placement that measures the recorded kernel only where none before it did."""
        key = _key(material)
        return Placement(device, material, original, lambda measure: self._observed.get(key, measure))

    @contextmanager
    def _fresh(self, material: Material, original: Future[Built]) -> Iterator[Placement]:
        """The same unit on another instance of the device, which nothing else uses: new processes, new memory."""
        with self._turns.alone():
            device = self._open_device()
            try:
                yield self._place(device, material, original)
            finally:
                device.close()
                with self._guard:
                    self._devices.remove(device)

    @contextmanager
    def _timing(self) -> Iterator[None]:
        """Hold the lock of the device, whichever process has it; CancelledError if the server is closed meanwhile."""
        while not self._closed:
            if not self._lock.acquire(0.2):
                continue
            try:
                yield
            finally:
                self._lock.release()
            return
        raise CancelledError("the replay server was closed")

    @cached_property
    def _lock(self) -> TimingLock:
        return timing_lock(self.device.name)

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        """As :meth:`_timing`; on the CPU builds wait meanwhile, for they would run on the cores that are timed."""
        with self._timing():
            if self.target.device != "cpu":
                yield
                return
            self._builds_allowed.clear()
            try:
                with self._guard:
                    running = list(self._builds)
                wait(running)
                yield
            finally:
                self._builds_allowed.set()


def _cut_off(found: Outcome) -> bool:
    return found.measurement is not None and found.measurement.cut_ns is not None


def key_of(capture: Capture, unit: int, written: Beside | None = None) -> Hashable:
    """What names a unit while its capture and the tolerances ``written`` beside it (default: now) stay as they are."""
    return capture.path, (written or beside(capture)).identity, unit


def _key(material: Material) -> Hashable:
    """As :func:`key_of` when the material was read: what is replayed later is judged by what it was read with."""
    return material.capture.path, material.identity, material.unit.index
