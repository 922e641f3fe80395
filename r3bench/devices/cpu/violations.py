"""The checked build from outside: which buffers a launch may touch, and what the access did that it was stopped for.

Both lie in the first page of the arena behind the fault record, laid out as driver.c has it.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from r3bench.devices.cpu.memory import CpuMemory
from r3bench.devices.cpu.wire import ARENA, ARENA_BYTES, FRAMES, FRAMES_BYTES
from r3bench.errors import LaunchError

_OFFSET = 64
# state, what is wrong, address, bytes, base, extent, thread, block, text; then the limits of arena and
# frames, the address to watch, and how many buffers follow
_RECORD = struct.Struct("<II4Q3I3I160s")
_KNOWN = struct.Struct("<6Q")
_BUFFERS = _OFFSET + _RECORD.size + _KNOWN.size
MOST_BUFFERS = (mmap.PAGESIZE - _BUFFERS) // 16
_VIOLATION, _NOTED, _WRITTEN = 1, 2, 3
_UNWRITTEN = 1


@dataclass(frozen=True, slots=True)
class Violation:
    """An access that was not allowed. ``base`` is 0 unless the array is known, then of ``extent`` bytes; ``wrong`` is
    0 outside of it, 1 where nothing was written before, otherwise the alignment that was missed."""

    address: int
    nbytes: int
    base: int
    extent: int
    wrong: int
    thread: tuple[int, int, int]
    block: tuple[int, int, int]
    access: str
    place: str
    array: str


def list_buffers(page: mmap.mmap, memories: Sequence[CpuMemory], watched: int = 0) -> None:
    """Tell the checks where the launch's buffers are, and the address whose writer is to be noted.

    LaunchError if they are too many to be listed.
    """
    spans = [(held.segment.base, span) for held in memories for span in held.segment.spans.values()]
    if len(spans) > MOST_BUFFERS:
        raise LaunchError(f"a checked build knows at most {MOST_BUFFERS} buffers, not {len(spans)}")
    page[_OFFSET:_BUFFERS] = bytes(_BUFFERS - _OFFSET)
    limits = (ARENA, ARENA + ARENA_BYTES, FRAMES, FRAMES + FRAMES_BYTES, watched, len(spans))
    _KNOWN.pack_into(page, _OFFSET + _RECORD.size, *limits)
    for number, (base, span) in enumerate(spans):
        struct.pack_into("<2Q", page, _BUFFERS + 16 * number, base + span.start, base + span.end)


def found(page: mmap.mmap, fault: int) -> Violation | None:
    """The access that ended the worker, or the one that was let through and led to a ``fault`` at its address."""
    state, noted = _noted(page)
    let_through = state == _NOTED and noted.address <= fault < noted.address + noted.nbytes
    return noted if state == _VIOLATION or let_through else None


def writer(page: mmap.mmap) -> str:
    """Which block and thread wrote the watched byte last, and where in the source; empty if none did."""
    state, noted = _noted(page)
    if state != _WRITTEN:
        return ""
    return f"block {noted.block}, thread {noted.thread} at {noted.place or 'an unknown line'}"


def _noted(page: mmap.mmap) -> tuple[int, Violation]:
    state, wrong, address, nbytes, base, extent, *rest = _RECORD.unpack_from(page, _OFFSET)
    access, place, array = (*rest[6].split(b"\0", 1)[0].decode("utf-8", "replace").split("|"), "", "", "")[:3]
    thread, block = (rest[0], rest[1], rest[2]), (rest[3], rest[4], rest[5])
    return state, Violation(address, nbytes, base, extent, wrong, thread, block, access, place, array)


def told(kernel: str, violation: Violation, memories: Sequence[CpuMemory]) -> str:
    """The sentence for a person: what was accessed, by whom, from which line."""
    where = _in_array(violation) if violation.base else _in_buffer(violation, memories)
    how = f"not aligned to {violation.wrong} bytes, " if violation.wrong > _UNWRITTEN else ""
    end = ", which its block has not written before" if violation.wrong == _UNWRITTEN else ""
    size = f"{violation.nbytes} byte{'s' if violation.nbytes > 1 else ''}"
    who = f"block {violation.block}, thread {violation.thread}"
    did = f"{violation.access or 'touched'} {size} at {violation.place or 'an unknown line'}"
    return f"{kernel} {did}, {who}: {how}{where}{end}"


def _in_array(violation: Violation) -> str:
    offset = violation.address - violation.base
    index, elements = offset // violation.nbytes, violation.extent // violation.nbytes
    return f"index {index} of {violation.array or 'shared memory'} ({elements} elements of {violation.nbytes} bytes)"


def _in_buffer(violation: Violation, memories: Sequence[CpuMemory]) -> str:
    spans = [
        (_distance(violation.address - held.segment.base, span.start, span.end), held, span.name)
        for held in memories
        for span in held.segment.spans.values()
    ]
    distance, held, name = min(spans, key=lambda each: each[0])
    if distance > 1 << 32:
        return f"address {violation.address:#x}, far from every buffer"
    dtype, shape = _type(held, name)
    span = held.segment.spans[name]
    offset = violation.address - held.segment.base - span.start
    size, count = np.dtype(dtype).itemsize, span.nbytes // np.dtype(dtype).itemsize
    index = f"index {offset // size}"
    if 0 <= offset < span.nbytes and len(shape) > 1 and prod(shape) == count:
        index = f"index {tuple(int(i) for i in np.unravel_index(offset // size, shape))}"
    return f"{index} of {name or 'the argument block'} ({count} elements of {dtype})"


def _distance(offset: int, start: int, end: int) -> int:
    return max(start - offset, offset - end + 1, 0)


def _type(held: CpuMemory, name: str) -> tuple[str, tuple[int, ...]]:
    for allocation in held.unit.allocations:
        if allocation.name == name:
            return allocation.dtype, allocation.shape
    for variable in held.unit.globals:
        if variable.symbol == name:
            return variable.dtype, variable.shape
    return "uint8", ()
