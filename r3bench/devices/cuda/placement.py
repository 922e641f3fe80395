"""Where the buffers of a unit go in the GPU's address space. Pure.

A copy of a unit lies where it was recorded, in whole granules of mapped memory, or packed together anywhere else. The
bytes beside each buffer, as far as they are mapped, are a redzone that a launch must leave alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

GRANULE = 2 << 20
REDZONE = 4096
# The driver puts small reservations where it likes, and larger ones where it is asked to. The larger, the more units
# find room in one; the smaller, the less is in the way.
RESERVED_TOGETHER = (1 << 30, 64 << 20)
# Copies of a unit share pieces of memory that grow to this size: giving and taking access costs 35 us a piece, large or
# small.
SLAB = 256 << 20
# So do recorded contents of several units, what was before and what is expected, in pieces of this size at least.
VAULT = 32 << 20
# Copies keep a buffer's address modulo this, so that one packed copy of its contents fits all of them.
ALIGN = 256


@dataclass(frozen=True, slots=True)
class Buffer:
    """A buffer to be placed; ``address`` is where it was recorded, None for a variable of the module."""

    name: str
    address: int | None
    nbytes: int
    align: int = ALIGN


@dataclass(frozen=True, slots=True)
class Range:
    """Addresses from ``start`` up to ``end``."""

    start: int
    end: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start

    def overlaps(self, other: Range) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets of buffers by name within so many bytes."""

    offsets: dict[str, int]
    nbytes: int


def slots(nbytes: int, made: int) -> int:
    """How many more copies of so many bytes to make room for, when there is room for so many: as many again, none
    reaching over the end of a piece."""
    most = max(1, SLAB // nbytes)
    return min(max(1, made), most - made % most)


def gap(within: Range, taken: Iterable[Range], nbytes: int) -> Range | None:
    """The first part of a range, so large, that nothing there has."""
    start = within.start
    for each in sorted(taken, key=lambda each: each.start):
        if each.start - start >= nbytes:
            break
        start = max(start, each.end)
    return Range(start, start + nbytes) if start + nbytes <= within.end else None


def recorded_ranges(buffers: Iterable[Buffer]) -> list[Range]:
    """The granules that hold the buffers where they were recorded; neighbours are one range."""
    ranges: list[Range] = []
    for buffer in sorted((b for b in buffers if b.address is not None and b.nbytes), key=lambda b: b.address or 0):
        start, end = _down(buffer.address or 0, GRANULE), _up((buffer.address or 0) + buffer.nbytes, GRANULE)
        if ranges and start <= ranges[-1].end:
            ranges[-1] = Range(ranges[-1].start, max(end, ranges[-1].end))
        else:
            ranges.append(Range(start, end))
    return ranges


def around(wanted: Range, step: int) -> Range:
    """The range in whole steps that holds another."""
    return Range(_down(wanted.start, step), _up(wanted.end, step))


def relocated(buffers: Sequence[Buffer]) -> Layout:
    """The buffers packed, a redzone between them; the last ends where the granules end, as far as alignment allows."""
    offsets: dict[str, int] = {}
    cursor = REDZONE
    for buffer in buffers:
        step = _step(buffer)
        offsets[buffer.name] = _congruent(cursor, buffer.address or 0, step)
        cursor = offsets[buffer.name] + buffer.nbytes + REDZONE
    used = cursor - REDZONE
    shift = _down(_up(used, GRANULE) - used, max(map(_step, buffers), default=ALIGN))
    return Layout({name: offset + shift for name, offset in offsets.items()}, max(GRANULE, _up(used, GRANULE)))


def packed(buffers: Iterable[Buffer]) -> Layout:
    """Contents of buffers one after the other, each congruent to its address, so that both copy in vectors."""
    offsets: dict[str, int] = {}
    cursor = 0
    for buffer in buffers:
        offsets[buffer.name] = _congruent(cursor, buffer.address or 0, ALIGN)
        cursor = offsets[buffer.name] + buffer.nbytes
    return Layout(offsets, max(GRANULE, _up(cursor, GRANULE)))


def redzones(ranges: Iterable[Range], placed: Iterable[Range]) -> list[Range]:
    """What is mapped beside the buffers, up to a redzone's length on each side of each."""
    buffers = sorted((each for each in placed if each.nbytes), key=lambda each: each.start)
    return [zone for mapped in ranges for zone in _zones(mapped, buffers) if zone.nbytes]


def _zones(mapped: Range, buffers: Sequence[Range]) -> Iterator[Range]:
    inside = [each for each in buffers if mapped.start <= each.start < mapped.end]
    cursor, behind = mapped.start, False
    for buffer in inside:
        yield from _gap(Range(cursor, buffer.start), behind, True)
        cursor, behind = max(cursor, buffer.end), True
    yield from _gap(Range(cursor, mapped.end), behind, False)


def _gap(gap: Range, behind: bool, before: bool) -> Iterator[Range]:
    """The parts of a gap next to a buffer: the one it is behind, the one it is before."""
    if behind and before and gap.nbytes <= 2 * REDZONE:
        yield gap
        return
    if behind:
        yield Range(gap.start, min(gap.end, gap.start + REDZONE))
    if before:
        yield Range(max(gap.start, gap.end - REDZONE), gap.end)


def _step(buffer: Buffer) -> int:
    return min(GRANULE, max(ALIGN, buffer.align))


def _congruent(cursor: int, address: int, step: int) -> int:
    """The first place from ``cursor`` on that is ``address`` modulo ``step``."""
    return cursor + (address - cursor) % step


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _down(value: int, step: int) -> int:
    return value // step * step
