"""What the recorded kernel does on a device, measured once: how far its results spread, and what it writes.

It is run on the recorded input several times, in each order of threads and in memory at different addresses: what
differs then (sums by atomics, mostly) may differ in a candidate, too. Then it is run with the contents of each buffer
that it writes replaced by poison, twice: what comes back as poison it does not write; what comes back as recorded it
writes without reading it, and a candidate must do so as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.compare import (
    EXACT,
    Buffer,
    Runs,
    Tolerance,
    buffers,
    component,
    default_tolerance,
    deviation,
    elements,
    judge,
    largest,
)
from r3bench.devices import Bytes, Device, Kernel, Memory
from r3bench.errors import CandidateFailure
from r3bench.model import ReplayUnit, Status
from r3bench.parts import in_parts
from r3bench.store import Room, in_memory

RUNS = 4
# The largest of a few differences is not the largest there is.
MARGIN = 4.0
# Below this fraction of a buffer's largest element, differences are counted against that one.
_SMALL = 1e-3
# However far the recorded kernel spreads: beyond this fraction its result is not one.
MOST_NOISE = {"float64": 1e-6, "float32": 1e-3, "float16": 3e-2, "bfloat16": 5e-2}
# A difference so many times what an element's own size allows is a gross one, up to such a fraction of it; more of them
# than this share of a buffer are looked into.
_GROSS, _MOST_GROSS, _SHARE = 100.0, 0.5, 0.01
# Poison may make a kernel run longer, but not this much.
_LONGER, _LEAST_S = 100, 5.0
# Random values of a poison after which they begin again; a prime, so that no shape of an array hides it.
_PERIOD = 1_000_003


@dataclass(frozen=True, slots=True)
class Original:
    """How to judge a variant of a unit: a tolerance for each buffer, and memory before each of the runs.

    In ``probes`` what the recorded kernel writes without reading it is poison, another one in each. ``noisy`` names the
    buffers in which its own results differ by more than the tolerance of their type.
    """

    tolerances: Mapping[str, Tolerance]
    probes: tuple[Mapping[str, Bytes], Mapping[str, Bytes]]
    noisy: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes held by the probes."""
        return sum({id(data): data.nbytes for probe in self.probes for data in probe.values()}.values())


@dataclass(slots=True)
class _Run:
    """Runs the recorded kernel on memory with given contents."""

    device: Device
    kernel: Kernel
    unit: ReplayUnit
    timeout_s: float
    kept: list[Memory] | None = None

    def __call__(
        self, before: Mapping[str, Bytes], likely: Mapping[str, Bytes], order: str = "forward"
    ) -> Mapping[str, Bytes]:
        """What it leaves behind: ``likely`` itself where that is it to the bit, which a device tells sooner."""
        memory = self.device.allocate(self.unit, before)
        try:
            self.device.launch(self.kernel, memory, self.unit.launch, timeout_s=self.timeout_s, order=order)
            same = self.device.compare(memory, likely, dict.fromkeys(likely, EXACT)).status is Status.MATCH
            return likely if same else self.device.download(memory)
        finally:
            if self.kept is None:
                self.device.release(memory)
            else:
                self.kept.append(memory)


def observe(
    device: Device,
    kernel: Kernel,
    unit: ReplayUnit,
    before: Mapping[str, Bytes],
    expected: Mapping[str, Bytes],
    overrides: Mapping[str, Tolerance],
    timeout_s: float,
    kept: list[Memory] | None = None,
    room: Room = in_memory,
) -> Original | None:
    """Measure the recorded kernel on a unit; None where it does not leave behind what was recorded.

    ``overrides`` are the tolerances that were written beside the capture: they stand. CandidateFailure if it fails.
    Memories with other contents go to ``kept`` where the device has room, for the caller to release: while one is
    there, its contents need not be brought there again. ``room`` is for contents of poison.
    """
    run = _Run(device, kernel, unit, timeout_s)
    begin = perf_counter()
    results = [run(before, expected, order) for order in islice(cycle(device.orders), RUNS)]
    run.timeout_s = min(timeout_s, max(_LEAST_S, _LONGER * (perf_counter() - begin) / RUNS))
    tolerances = noise(unit, expected, results, overrides)
    if not _match(unit, expected, results, tolerances):
        return None
    noisy = tuple(tolerances.keys() - overrides.keys())
    taken = sum(data.nbytes for data in before.values()) * 4 * (1 + len(unit.written))  # two each, and their contents
    run.kept = kept if taken < device.room_bytes // 2 else None
    probes: tuple[dict[str, Bytes], dict[str, Bytes]] = (dict(before), dict(before))
    for written in _written(run, before, expected, results[0], room):
        name = written.buffer.name
        if written.whole:
            for probe, contents in zip(probes, written.contents, strict=True):
                probe[name] = contents
            continue
        held = tolerances.get(name, default_tolerance(written.buffer.dtype))
        tolerances[name] = replace(held, exact=Runs.of(unwritten(written)))
        chosen = write_only(written)
        for probe, poison in zip(probes, written.poison, strict=True):
            probe[name] = _frozen(np.where(chosen, poison, written.before))
    found = Original(tolerances, probes, noisy)
    return found if _passes(run, expected, found) else replace(found, probes=(before, before))


def _passes(run: _Run, expected: Mapping[str, Bytes], found: Original) -> bool:
    """Whether the recorded kernel itself stands the test that candidates are put to."""
    try:
        orders = cycle(run.device.orders)
        results = [run(before, expected, order) for before, order in zip(found.probes, orders, strict=False)]
    except CandidateFailure:
        return False
    return _match(run.unit, expected, results, found.tolerances)


def _match(
    unit: ReplayUnit,
    expected: Mapping[str, Bytes],
    results: Sequence[Mapping[str, Bytes]],
    tolerances: Mapping[str, Tolerance],
) -> bool:
    other = (result for result in results if result is not expected)
    return all(judge(unit, expected, result, tolerances).status is Status.MATCH for result in other)


# -- how far its results spread ---------------------------------------------------------------------------------------


def noise(
    unit: ReplayUnit,
    expected: Mapping[str, Bytes],
    results: Sequence[Mapping[str, Bytes]],
    overrides: Mapping[str, Tolerance],
) -> dict[str, Tolerance]:
    """The overrides, and a wider tolerance for each float buffer whose results spread further than its type's."""
    found = dict(overrides)
    for buffer in buffers(unit):
        floor = default_tolerance(buffer.dtype)
        given = overrides.get(buffer.name, floor)
        if buffer.name not in unit.written or floor.kind == "exact" or _limits(given) != _limits(floor):
            continue
        wanted, found_there = expected[buffer.name], [result[buffer.name] for result in results]
        other = [result for result in found_there if result is not wanted and not np.array_equal(wanted, result)]
        measured = _spread([deviation(wanted, result, buffer) for result in other])
        least_of, most = (floor.rtol, floor.scale), MOST_NOISE[component(buffer.dtype)]
        rtol, scale = (min(most, max(least, MARGIN * each)) for least, each in zip(least_of, measured, strict=True))
        if (rtol, scale) != least_of:
            found[buffer.name] = replace(given, rtol=rtol, scale=scale)
    return found


def _limits(tolerance: Tolerance) -> tuple[float, ...]:
    return tolerance.rtol, tolerance.scale, tolerance.atol, tolerance.ulp, float(tolerance.kind == "exact")


def _spread(found: list[tuple[NDArray[np.float64], NDArray[np.float64]]]) -> tuple[float, float]:
    """The largest difference, as a fraction of its element among the large ones, of the largest among the others."""
    rtol = scale = 0.0
    for error, size in found:
        top = float(size.max(initial=0.0))
        large = size > _SMALL * top
        rtol = max(rtol, float((error[large] / size[large]).max(initial=0.0)))
        scale = max(scale, float((error[~large] / top).max(initial=0.0)) if top else 0.0)
    return rtol, scale


# -- what only the size of others allows for --------------------------------------------------------------------------


def gross(unit: ReplayUnit, tolerances: Mapping[str, Tolerance], given: Collection[str]) -> dict[str, Tolerance]:
    """Tolerances that tell elements that are off by a hundred times what their own size allows, and pass by that of
    the largest in their buffer; nothing for bfloat16, and for buffers whose tolerance was ``given``."""
    found = {}
    for buffer in buffers(unit):
        held = tolerances.get(buffer.name, default_tolerance(buffer.dtype))
        if buffer.name in unit.written and buffer.name not in given and held.kind == "float":
            rtol = _GROSS * held.rtol
            if rtol <= _MOST_GROSS:
                found[buffer.name] = Tolerance(kind="float", rtol=rtol, exact=held.exact, ignore=held.ignore)
    return found


def unexplained(
    unit: ReplayUnit,
    name: str,
    pair: tuple[Mapping[str, Bytes], Mapping[str, Bytes]],
    nudged: Sequence[Mapping[str, Bytes]],
    tolerance: Tolerance,
) -> bool:
    """Whether more than a hundredth of a buffer's elements is off, between expected and actual, by more than a gross
    ``tolerance``, and by many times as much as the recorded kernel's own results where its inputs are off by about as
    much as results may be: no other order of operations does that. What such inputs do not move tells nothing."""
    buffer = next(each for each in buffers(unit) if each.name == name)
    expected = pair[0][name]
    error, size = deviation(expected, pair[1][name], buffer)
    moved = np.max([deviation(expected, each[name], buffer)[0] for each in nudged], axis=0)
    places = np.arange(size.size)
    counted = (size > 0) & ~tolerance.exact.hold(places) & ~tolerance.ignore.hold(places)
    found = counted & (error > tolerance.rtol * size) & (moved > 0) & (error > MARGIN * MARGIN * moved)
    return bool(np.count_nonzero(found) > _SHARE * np.count_nonzero(counted))


# -- what it writes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """One buffer as elements: before, as recorded after, what a run left, and two poisons with what became of them;
    ``contents`` are the poisons as bytes."""

    buffer: Buffer
    before: NDArray[Any]
    expected: NDArray[Any]
    result: NDArray[Any]
    poison: tuple[NDArray[Any], NDArray[Any]]
    left: tuple[NDArray[Any], NDArray[Any]]
    contents: tuple[Bytes, Bytes]

    @property
    def whole(self) -> bool:
        """Whether it writes all of it without reading it."""
        return all(left is self.result for left in self.left)


def unwritten(held: Written) -> NDArray[np.bool_]:
    """Elements that the recorded kernel does not write: they are as before, and come back as either poison."""
    poisoned = (held.poison[0] != held.before) | (held.poison[1] != held.before)
    came_back = (held.left[0] == held.poison[0]) & (held.left[1] == held.poison[1])
    return np.asarray((held.before == held.expected) & poisoned & came_back)


def write_only(held: Written) -> NDArray[np.bool_]:
    """Elements that it writes without reading them: whatever was there before, the result is the same."""
    poisoned = (held.poison[0] != held.result) | (held.poison[1] != held.result)
    return np.asarray(poisoned & (held.left[0] == held.result) & (held.left[1] == held.result))


def _written(
    run: _Run, before: Mapping[str, Bytes], expected: Mapping[str, Bytes], result: Mapping[str, Bytes], room: Room
) -> list[Written]:
    """Every written buffer whose contents can be replaced by poison: it holds no pointers, and the kernel bears it."""
    holders = {pointer.holder for pointer in run.unit.pointers}
    chance = np.random.default_rng(0)
    found = []
    for buffer in buffers(run.unit):
        name = buffer.name
        if name not in run.unit.written or name in holders:
            continue
        old, wanted, new = (elements(each[name], buffer) for each in (before, expected, result))
        poison = [_poison(expected[name], buffer, chance, room) for _ in range(2)]
        try:
            left = [run({**before, name: each}, result)[name] for each in poison]
        except CandidateFailure:
            continue  # it needs sensible numbers there: indices, bounds of loops
        one, other = (new if each is result[name] else elements(each, buffer) for each in left)
        first, second = (elements(each, buffer) for each in poison)
        found.append(Written(buffer, old, wanted, new, (first, second), (one, other), (poison[0], poison[1])))
    return found


def _poison(expected: Bytes, buffer: Buffer, chance: np.random.Generator, room: Room) -> Bytes:
    """Contents unlike any result, of a size that arithmetic on them shows: floats up to the buffer's largest."""
    dtype = component(buffer.dtype)
    if default_tolerance(dtype).kind == "exact" or buffer.nbytes % elements(expected, buffer).itemsize:
        return _repeated(
            chance.integers(0, 2 if dtype == "bool" else 256, min(buffer.nbytes, _PERIOD), np.uint8), buffer, room
        )
    size = largest(expected, buffer) or 1.0
    values = chance.uniform(-size, size, min(elements(expected, buffer).size, _PERIOD))
    if dtype == "bfloat16":
        return _repeated((values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), buffer, room)
    return _repeated(values.astype(dtype), buffer, room)


def _repeated(values: NDArray[Any], buffer: Buffer, room: Room) -> Bytes:
    """Contents of a buffer from random values: drawing as many takes longer than a launch on them."""
    once, data = values.view(np.uint8), room(buffer.nbytes)

    def fill(part: slice) -> None:
        data[part] = once[: part.stop - part.start]

    in_parts(fill, data.size, max(1, once.size))
    return _frozen(data)


def _frozen(values: NDArray[Any]) -> Bytes:
    data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    data.flags.writeable = False
    return data
