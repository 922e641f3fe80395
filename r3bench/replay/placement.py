"""A recorded unit on a device: its memory, and what a launch on it must leave behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle

import numpy as np

from r3bench import store
from r3bench.compare import Tolerance, verdict_of
from r3bench.devices import Bytes, Device, Kernel, Memory, Tried, Windows
from r3bench.errors import CandidateFailure, CaptureError, LaunchError
from r3bench.model import Binary, Capture, LaunchConfig, ReplayUnit, Status, Verdict
from r3bench.original import MARGIN, Original, gross, observe, unexplained
from r3bench.overrides import Beside, beside, tolerances_for
from r3bench.parts import in_parts
from r3bench.perturb import NUDGES, nudged
from r3bench.replay.failures import by_chance
from r3bench.toolchain import Built
from r3bench.windows import Arm, Ring, classify, procedure_for


@dataclass(frozen=True, slots=True)
class Material:
    """What a unit is replayed from: memory before and expected after, by name; source texts by path; tolerances.

    ``identity`` is the capture's, with its tolerances, as they were when it was read; what is large is in a ``room``.
    """

    capture: Capture
    unit: ReplayUnit
    before: Mapping[str, Bytes]
    expected: Mapping[str, Bytes]
    texts: Mapping[str, str]
    tolerances: Mapping[str, Tolerance]
    identity: str = ""
    room: store.Room = store.in_memory

    @property
    def changed_bytes(self) -> int:
        """Bytes that a launch must change."""
        pairs = ((self.before[name], self.expected[name]) for name in self.unit.written)
        return sum(sum(in_parts(partial(_changed, *pair), pair[0].size)) for pair in pairs)

    @property
    def nbytes(self) -> int:
        """Bytes held; what ``expected`` shares with ``before`` counts once."""
        return sum({id(data): data.nbytes for data in (*self.before.values(), *self.expected.values())}.values())


def _changed(before: Bytes, after: Bytes, part: slice) -> int:
    return int(np.count_nonzero(before[part] != after[part]))


def read_material(
    capture: Capture, unit: int, room: store.Room = store.in_memory, written: Beside | None = None
) -> Material:
    """Read a unit from the store into a ``room``; tolerances are those ``written`` beside it (default: now).
    CaptureError if it has no such unit, is damaged, or has no room."""
    held, written = _unit(capture, unit), written or beside(capture)
    contents = store.contents(capture, unit, room)
    for data in (*contents.before.values(), *contents.after.values()):
        data.flags.writeable = False  # so that a device may keep it by reference, once for all clones
    expected = {**contents.before, **contents.after}
    tolerances = tolerances_for(capture, held, expected, written)
    texts = store.sources(capture)
    return Material(capture, held, contents.before, expected, texts, tolerances, written.identity, room)


def without_memory(capture: Capture, unit: int, texts: Mapping[str, str]) -> Material:
    """What of a unit a build needs. CaptureError if the capture has no such unit."""
    return Material(capture, _unit(capture, unit), {}, {}, texts, {})


def _unit(capture: Capture, unit: int) -> ReplayUnit:
    if not 0 <= unit < len(capture.units):
        raise CaptureError(f"{capture.path} has no unit {unit}; it has {len(capture.units)}, counted from 0.")
    return capture.units[unit]


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
        self._probes: list[Memory] = []  # what it is verified on, from its first verification on
        self.refused: set[str] = set()  # changed inputs that the recorded kernel does not take
        self.borne: set[str] = set()  # wild ones on which it stays in its buffers
        self.outgrown: set[str] = set()  # those that ask for more threads than were launched

    def renew(self, original: Future[Built]) -> None:
        """Another build of the recorded kernel, where it was not measured yet: one may fail by nobody's fault."""
        self._build = self._build and original

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
        self._release_probes()

    def check(self, memory: Memory) -> Verdict:
        """Judge a memory on which a kernel was launched once."""
        return self.device.compare(memory, self.material.expected, self.original.tolerances)

    def classify(self, arm: Arm, timeout_s: float) -> None:
        """Class the unit, once, with the recorded kernel; with this arm, which matches, where that does not do here."""
        if not self.classed:
            first = replace(arm, kernel=self._kernel, launch=self.material.unit.launch) if self._kernel else arm
            classify(first, self.ring, self.check, procedure_for(self.device.target, timeout_s=timeout_s))
            self.classed = True

    def verify(self, arm: Arm, timeout_s: float, orders: Sequence[str] = ()) -> Verdict:
        """Run an arm and judge all of memory, at two addresses in turn, with another poison at each in what the
        recorded kernel writes without reading it: once in each of ``orders``, by default in every order of threads that
        the device offers, twice in any case."""
        unit = self.material.unit
        if not unit.written:
            where = f"unit {unit.index} of {self.material.capture.name}"
            detail = (
                f"In {where} the recorded kernel changed nothing, so any kernel would match; record another launch."
            )
            return Verdict(status=Status.VACUOUS, detail=detail)
        offered = self.device.orders
        wanted = orders or (offered * 2)[: max(2, len(offered))]
        for memory, order in zip(cycle(self._memories(timeout_s)), wanted, strict=False):
            self.device.restore(memory)
            self.device.launch(arm.kernel, memory, arm.launch, timeout_s=timeout_s, order=order)
            verdict = self.check(memory)
            if verdict.status is not Status.MATCH:
                return _in_one_order(verdict, order, wanted[0]) if order != wanted[0] else verdict
        return verdict if orders else self._doubted(memory, timeout_s) or verdict

    def tried(self, binary: Binary, launch: LaunchConfig, windows: Windows, timeout_s: float) -> Tried | None:
        """Verify and time by one request to a device that has a queue; None where there is none, or not all for it."""
        if self.device.queue is None or not self._probes:
            return None
        judged_by = self.material.expected, self.original.tolerances
        return self.device.queue.tried(binary, self._probes[0], launch, windows, *judged_by, timeout_s=timeout_s)

    def _doubted(self, memory: Memory, timeout_s: float) -> Verdict | None:
        """A mismatch where much of what matches does so only by the size of other elements of its buffer, and the
        recorded kernel is not as sensitive there; see :func:`r3bench.original.unexplained`."""
        held, kernel = self.material, self._kernel
        wide = gross(held.unit, self.original.tolerances, held.tolerances)
        if kernel is None or not wide:
            return None
        found = self.device.compare(memory, held.expected, {**self.original.tolerances, **wide})
        if found.status is Status.MATCH:
            return None
        actual = self.device.download(memory)
        others = [self._nudged(kernel, seed, timeout_s) for seed in range(NUDGES)]
        told = tuple(
            each
            for each in found.differences
            if unexplained(held.unit, each.buffer, (held.expected, actual), others, wide[each.buffer])
        )
        return verdict_of(held.unit, told) if told else None

    def _nudged(self, kernel: Kernel, seed: int, timeout_s: float) -> Mapping[str, Bytes]:
        """What the recorded kernel leaves behind where its floats are off by little."""
        unit = self.material.unit
        memory = self.device.allocate(unit, nudged(unit, self.material.before, MARGIN, seed))
        try:
            self.device.launch(kernel, memory, unit.launch, timeout_s=timeout_s)
            return self.device.download(memory)
        finally:
            self.device.release(memory)

    def _memories(self, timeout_s: float) -> Sequence[Memory]:
        """The two memories that a verification runs on; one and the same where others may not do."""
        first = self._first()
        if self._build is not None:
            with suppress(CandidateFailure):
                self._observe(self.device.load(self._build.result().binary), timeout_s)
            if not by_chance(self._build.exception()):
                self._build = None
        return self._probes or (first, first)

    def _first(self) -> Memory:
        """The ring's first, which lies where the unit was recorded, if the device can place one there."""
        try:
            return self.ring.take(1)[0]
        except LaunchError as error:
            raise LaunchError(f"{self.material.capture.symbol} has no room on the device: {error}") from error

    def _observe(self, kernel: Kernel, timeout_s: float) -> None:
        """Measure the recorded kernel, and make the memories on which it passed its own verification."""
        held, kept = self.material, list[Memory]()

        def measure() -> Original:
            recorded = held.unit, held.before, held.expected, held.tolerances
            found = observe(self.device, kernel, *recorded, timeout_s, kept, held.room)
            if found is None:
                raise LaunchError("the recorded kernel does not leave behind here what was recorded")
            return found

        try:
            found = self._remember(measure)
            self.original, self._kernel = found, kernel
            self._allocate_probes()
        finally:
            while kept:
                self.device.release(kept.pop())

    def _allocate_probes(self) -> None:
        """Both, or none where the device has no room for them."""
        made = list[Memory]()
        with suppress(LaunchError), ExitStack() as undone:
            for before in self.original.probes:
                made.append(self.device.allocate(self.material.unit, before))
                undone.callback(self.device.release, made[-1])
            undone.pop_all()
            self._probes = made

    def _release_probes(self) -> None:
        while self._probes:
            self.device.release(self._probes.pop())


def _in_one_order(verdict: Verdict, order: str, matched: str) -> Verdict:
    """A verdict on threads in one order, where another order matches."""
    told = f"Threads ran in {order} order; in {matched} order it matches: a barrier may be missing."
    return replace(verdict, detail=f"{verdict.detail} {told}")
