"""Replays of recorded launches against their own epilogue, bit by bit, several times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from r3bench import store
from r3bench.compare import EXACT, buffers, differences
from r3bench.devices import Bytes, Device, Memory
from r3bench.errors import CandidateFailure
from r3bench.model import Capture, Difference, Source, Variant
from r3bench.replay import Builder, Material, build, read_material


@dataclass(frozen=True, slots=True)
class Noise:
    """A buffer that ``runs`` replays did not leave as recorded; the worst of them is ``difference``."""

    buffer: str
    runs: int
    difference: Difference


@dataclass(frozen=True, slots=True)
class Verified:
    """One unit after so many replays; ``exact`` of them left the recorded memory behind bit by bit.

    A ``vacuous`` unit was not changed by its launch, so that any kernel would match it.
    """

    unit: int
    runs: int
    exact: int
    noise: tuple[Noise, ...] = ()
    failure: str = ""
    vacuous: bool = False


def verify(capture: Capture, device: Device, compiler: Builder, runs: int) -> Iterator[Verified]:
    """Replay every unit: its recorded image where the device loads it, else its source through the default pipeline."""
    for unit in capture.units:
        try:
            yield _verified(read_material(capture, unit.index), device, compiler, runs)
        except CandidateFailure as failure:
            yield Verified(unit.index, runs, 0, failure=str(failure), vacuous=not unit.written)


def _verified(material: Material, device: Device, compiler: Builder, runs: int) -> Verified:
    replays, wrong, exact = Replays(material, device, compiler), dict[str, list[Difference]](), 0
    with replays.memory(material.before) as memory:
        for _ in range(runs):
            device.restore(memory)
            replays.launch(memory)
            found = device.compare(memory, material.expected, replays.exactly).differences
            exact += not found
            for difference in found:
                wrong.setdefault(difference.buffer, []).append(difference)
    noise = [Noise(name, len(all_), max(all_, key=lambda d: (d.error, d.count))) for name, all_ in wrong.items()]
    return Verified(material.unit.index, runs, exact, tuple(noise), vacuous=not material.unit.written)


class Replays:
    """Launches the recorded kernel of a unit on any memory of its shape; ``exactly``: no tolerance."""

    def __init__(self, material: Material, device: Device, compiler: Builder) -> None:
        self._unit, self._device = material.unit, device
        self._kernel = device.load(build(material, Variant(), device.target, compiler).result().binary)
        self.exactly = {buffer.name: EXACT for buffer in buffers(material.unit)}

    @contextmanager
    def memory(self, before: Mapping[str, Bytes]) -> Iterator[Memory]:
        memory = self._device.allocate(self._unit, before)
        try:
            yield memory
        finally:
            self._device.release(memory)

    def launch(self, memory: Memory) -> None:
        self._device.launch(self._kernel, memory, self._unit.launch)

    def __call__(self, before: Mapping[str, Bytes]) -> dict[str, Bytes]:
        """What a launch leaves in memory, by name; CandidateFailure where it does not end well."""
        with self.memory(before) as memory:
            self.launch(memory)
            return {name: np.array(data) for name, data in self._device.download(memory).items()}


def compared(one: Capture, other: Capture, memory: Sequence[tuple[Material, Material]]) -> Iterator[str]:
    """How two captures differ, a sentence each: kernel, launches, arguments, memory."""
    if one.symbol != other.symbol:
        yield f"different kernels: {one.demangled} of {one.application}, {other.demangled} of {other.application}"
        return
    for what in ("application", "parameters", "image_format", "recorded_on"):
        if getattr(one, what) != getattr(other, what):
            yield f"{what} differs"
    if one.source != other.source:
        yield f"source differs: {', '.join(_sources(one.source, other.source))}"
    if store.image(one) != store.image(other):
        yield "image differs"
    if len(one.units) != len(other.units):
        yield f"{len(one.units)} units against {len(other.units)}"
    for first, second in memory:
        yield from (f"unit {first.unit.index}: {line}" for line in _units(first, second))


def _sources(one: Source | None, other: Source | None) -> Iterator[str]:
    """What of two sources is not the same."""
    if one is None or other is None:
        yield f"only the {'second' if one is None else 'first'} has one"
        return
    names = {"root": "folder", "main": "file", "span": "lines of the kernel", "flags": "compiler flags"}
    for field, name in {**names, "linked": "linked units", "language": "language"}.items():
        if getattr(one, field) != getattr(other, field):
            yield name
    first, second = dict(one.files), dict(other.files)
    yield from (f"text of {file}" for file in sorted({*first, *second}) if first.get(file) != second.get(file))


def _units(first: Material, second: Material) -> Iterator[str]:
    for what in ("launch", "arguments", "pointers", "occurrence"):
        if getattr(first.unit, what) != getattr(second.unit, what):
            yield f"{what} differs"
    named = {buffer.name: buffer for buffer in buffers(first.unit)}
    for moment in ("before", "expected"):
        one, other = getattr(first, moment), getattr(second, moment)
        for name in sorted({*one, *other}):
            if name not in one or name not in other or one[name].size != other[name].size:
                yield f"{moment}, {name}: only in one, or of another size"
            elif found := differences(one[name], other[name], named[name], EXACT):
                yield f"{moment}, {name}: {found.count} of {found.elements} elements differ, by {found.error:g} at most"
