"""Smaller or harmless copies of a capture: what the kernel neither reads nor writes dropped, data replaced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from r3bench import store
from r3bench.compare import buffers
from r3bench.devices import Bytes, Device
from r3bench.errors import CandidateFailure, CaptureError
from r3bench.model import Capture, ReplayUnit
from r3bench.record.verification import Replays
from r3bench.replay import Builder, Material, read_material
from r3bench.store import UnitContents

PAGE = 4096
_POISON = 0xA5


# -- shrink -----------------------------------------------------------------------------------------------------------


def shrink(capture: Capture, path: Path, device: Device, compiler: Builder) -> Capture:
    """A copy whose memory that no replay shows to matter is zeros, or gone where nothing leads there.

    A range matters if the launch wrote it, holds pointers, or if poisoning it changes what the launch leaves elsewhere.
    """
    _refuse_itself(capture, path)
    kept = [_shrunk(read_material(capture, unit.index), device, compiler) for unit in capture.units]
    return _written(capture, path, kept)


def _shrunk(material: Material, device: Device, compiler: Builder) -> tuple[ReplayUnit, UnitContents]:
    unit = material.unit
    replays = Replays(material, device, compiler)
    before = {name: np.array(data) for name, data in material.before.items()}
    for name, data in before.items():
        for start, end in _unread(name, material, replays):
            data[start:end] = 0
    left = replays(before)
    if not _repeats(left, before, material):
        raise CaptureError(
            f"unit {unit.index} of {material.capture.path} is not repeated without what seemed unused: keep it whole"
        )
    led_to = {pointer.allocation for pointer in unit.pointers}
    gone = {a.name for a in unit.allocations if a.name not in led_to and not before[a.name].any()} - set(unit.written)
    smaller = replace(
        unit,
        allocations=tuple(a for a in unit.allocations if a.name not in gone),
        pointers=tuple(p for p in unit.pointers if p.holder not in gone),
    )
    kept = {name: data for name, data in before.items() if name not in gone}
    return smaller, UnitContents(kept, {name: left[name] for name in unit.written})


def _repeats(left: Mapping[str, Bytes], before: Mapping[str, Bytes], material: Material) -> bool:
    """Whether a launch on smaller memory changed what it changed when recorded, to the same, and nothing else."""
    for name, data in left.items():
        changed = material.before[name] != material.expected[name]
        wanted = np.where(changed, material.expected[name], before[name])
        if not np.array_equal(data, wanted):
            return False
    return True


def _unread(name: str, material: Material, replays: Replays) -> Iterator[tuple[int, int]]:
    """Ranges of whole pages of a buffer, untouched by the launch, that it does not read: halved until that is clear."""
    before, after = material.before[name], material.expected[name]
    pages = -(-before.size // PAGE)
    held = {p.offset // PAGE for p in material.unit.pointers if p.holder == name}
    touched = {int(at) // PAGE for at in np.flatnonzero(before != after)} | held
    waiting = [(0, pages)]
    while waiting:
        first, end = waiting.pop()
        fixed = [page for page in range(first, end) if page in touched]
        if not fixed and _ignored(name, first * PAGE, end * PAGE, material, replays):
            yield first * PAGE, end * PAGE
        elif end - first > 1:
            middle = (first + end) // 2
            waiting += [(first, middle), (middle, end)]


def _ignored(name: str, start: int, end: int, material: Material, replays: Replays) -> bool:
    """Whether the launch leaves the same everywhere else when this range holds other bytes."""
    poisoned = np.array(material.before[name])
    poisoned[start:end] ^= _POISON
    try:
        left = replays({**material.before, name: poisoned})
    except CandidateFailure:
        return False
    wanted = {**material.expected, name: np.array(material.expected[name])}
    wanted[name][start:end] = poisoned[start:end]
    return all(np.array_equal(left[other], data) for other, data in wanted.items())


# -- redact -----------------------------------------------------------------------------------------------------------


def redact(capture: Capture, path: Path, device: Device, compiler: Builder, seed: int = 0) -> Capture:
    """A copy with other numbers: floats are drawn anew between the least and the largest of their buffer.

    Integers and pointers stay, since they may be indices. What the launch leaves is recorded anew, from the recorded
    image or source. Command, folder and machine go. CaptureError where the kernel does not run on the new numbers.
    """
    _refuse_itself(capture, path)
    kept = [_redacted(read_material(capture, unit.index), device, compiler, seed) for unit in capture.units]
    source = replace(capture.source, root="") if capture.source else None
    arch = tuple(pair for pair in capture.recorded_on if pair[0] in ("arch", "device"))
    return _written(replace(capture, command=(), source=source, recorded_on=arch), path, kept)


def _redacted(material: Material, device: Device, compiler: Builder, seed: int) -> tuple[ReplayUnit, UnitContents]:
    unit, random = material.unit, np.random.default_rng(seed)
    before = {name: np.array(data) for name, data in material.before.items()}
    pointers = {pointer.holder for pointer in unit.pointers}
    for buffer in buffers(unit):
        if buffer.dtype in ("float32", "float64") and buffer.name not in pointers:
            _draw(before[buffer.name].view(buffer.dtype), random)
    try:
        return unit, UnitContents(before, Replays(material, device, compiler)(before))
    except CandidateFailure as failure:
        where = f"unit {unit.index} of {material.capture.path}"
        raise CaptureError(f"{where} does not run on other numbers ({failure}): share it as it is") from failure


def _draw(values: np.ndarray[tuple[int, ...], np.dtype[np.floating]], random: np.random.Generator) -> None:
    finite = values[np.isfinite(values)]
    if finite.size and finite.min() < finite.max():
        values[:] = random.uniform(finite.min(), finite.max(), values.shape)


def _refuse_itself(capture: Capture, path: Path) -> None:
    whole, copy = Path(capture.path).resolve(), path.resolve()
    if whole == copy or whole in copy.parents:
        raise CaptureError(f"{path} is, or lies in, the capture itself, which would be lost: choose another place")


def _written(capture: Capture, path: Path, kept: list[tuple[ReplayUnit, UnitContents]]) -> Capture:
    units = tuple(unit for unit, _ in kept)
    texts: Mapping[str, str] = store.sources(capture)
    image, ir = store.image(capture), store.ir(capture)
    contents = (held for _, held in kept)
    return store.write(path, replace(capture, units=units), contents, texts, ir=ir, image=image)


def nbytes(contents: Mapping[str, Bytes]) -> int:
    """Bytes that are not zero, by whole pages."""
    return sum(_filled(data) for data in contents.values())


def _filled(data: Bytes) -> int:
    whole = np.concatenate([data, np.zeros(-data.size % PAGE, np.uint8)]).reshape(-1, PAGE)
    return int(whole.any(axis=1).sum()) * PAGE
