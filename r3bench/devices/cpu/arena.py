"""Where the bytes of units lie: a file that the device and its workers share, each buffer against a guard page.

The device maps a memory's part of the file in one piece; a worker maps only the pages that hold data, so that what lies
between buffers faults. A buffer ends as close to the next unmapped page as its alignment allows; the bytes that this
leaves over in its first and last page hold a pattern that is checked after a launch.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from r3bench.devices.contents import redzone_pattern
from r3bench.devices.cpu.wire import ARENA, ARENA_BYTES, FAULT
from r3bench.errors import DeviceUnavailable, LaunchError

PAGE = mmap.PAGESIZE
# Large enough that a row or a plane too far still lands in it; address space costs nothing.
GUARD = 1 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2


@dataclass(frozen=True, slots=True)
class Span:
    """A buffer's place: offsets in bytes within its memory's part of the arena."""

    name: str
    start: int
    nbytes: int
    first_page: int
    end_page: int

    @property
    def end(self) -> int:
        return self.start + self.nbytes


def plan(buffers: Iterable[tuple[str, int, int]]) -> tuple[tuple[Span, ...], int]:
    """Places for buffers (name, size, alignment), and the address space they need together."""
    spans = []
    cursor = GUARD
    for name, nbytes, align in buffers:
        span = _place(name, nbytes, max(1, align), cursor)
        spans.append(span)
        cursor = span.end_page + GUARD
    return tuple(spans), cursor


def _place(name: str, nbytes: int, align: int, cursor: int) -> Span:
    """The first place from ``cursor`` (a page) on that ends as close to the end of a page as ``align`` allows."""
    padded = _up(nbytes, align)
    start = _up(cursor, align) if align >= PAGE else _up(cursor + padded, PAGE) - padded
    return Span(name, start, nbytes, start // PAGE * PAGE if nbytes else start, _up(start + nbytes, PAGE))


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


class Segment:
    """One memory's part of the arena, mapped in this process; ``base`` is its first address in a worker."""

    def __init__(self, arena: Arena, offset: int, spans: tuple[Span, ...], nbytes: int) -> None:
        self.offset = offset
        self.base = ARENA + offset
        self.nbytes = nbytes
        self.spans = {span.name: span for span in spans}
        whole = np.frombuffer(mmap.mmap(arena.fd, nbytes, offset=offset), np.uint8)
        self.views = {span.name: whole[span.start : span.end] for span in spans}
        self._redzones = [
            (first, whole[first:end], redzone_pattern(first, end - first))
            for span in spans
            for first, end in ((span.first_page, span.start), (span.end, span.end_page))
            if first < end
        ]

    @property
    def pages(self) -> list[tuple[int, int]]:
        """Address and size of what a worker maps."""
        spans = self.spans.values()
        return [(self.base + s.first_page, s.end_page - s.first_page) for s in spans if s.nbytes]

    def address(self, name: str) -> int:
        """Where a worker sees a buffer."""
        return self.base + self.spans[name].start

    def fill_redzones(self) -> None:
        for _, zone, pattern in self._redzones:
            zone[:] = pattern

    def damage(self) -> int | None:
        """Address of the first byte beside a buffer that something wrote to."""
        for first, zone, pattern in self._redzones:
            if not np.array_equal(zone, pattern):
                return self.base + first + int(np.flatnonzero(zone != pattern)[0])
        return None


class Arena:
    """The shared file; its first page is the fault record."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("r3bench-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        _lengthen(self.fd, PAGE)
        # A worker that made the file shorter would end this process, which reads it.
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        self._fault = mmap.mmap(self.fd, PAGE)
        self._next = _up(PAGE, GUARD)
        self._free: dict[int, list[int]] = {}

    def allocate(self, buffers: Iterable[tuple[str, int, int]]) -> Segment:
        """Room for the buffers, with pages that exist; LaunchError if they cannot be had."""
        spans, nbytes = plan(buffers)
        nbytes = _up(nbytes, GUARD)
        offset = self._take(nbytes)
        try:
            for span in spans:
                if span.nbytes:
                    os.posix_fallocate(self.fd, offset + span.first_page, span.end_page - span.first_page)
            return Segment(self, offset, spans, nbytes)
        except OSError as error:
            self._give(offset, nbytes)
            raise LaunchError(f"out of memory: {error.strerror or error} for {nbytes} bytes") from error

    def release(self, segment: Segment) -> None:
        self._give(segment.offset, segment.nbytes)

    def _take(self, nbytes: int) -> int:
        if free := self._free.get(nbytes):
            return free.pop()
        if self._next + nbytes > ARENA_BYTES:
            raise LaunchError(f"out of memory: {nbytes} bytes are more than the address space kept for units")
        _lengthen(self.fd, self._next + nbytes)  # no longer than needed: a worker could fill what lies between buffers
        self._next += nbytes
        return self._next - nbytes

    def _give(self, offset: int, nbytes: int) -> None:
        _punch_hole(self.fd, offset, nbytes)
        self._free.setdefault(nbytes, []).append(offset)

    def clear_fault(self) -> None:
        FAULT.pack_into(self._fault, 0, 0, 0, 0)

    def fault(self) -> tuple[int, int, int]:
        """Access (1 read, 2 write, 0 unknown), signal (0: none was caught) and address."""
        access, signal, address = FAULT.unpack_from(self._fault)
        return access, signal, address

    @property
    def page(self) -> mmap.mmap:
        """The first page: the fault record, and behind it what a checked build and this process tell each other."""
        return self._fault

    def close(self) -> None:
        self._fault.close()
        os.close(self.fd)


def _lengthen(fd: int, nbytes: int) -> None:
    """DeviceUnavailable where the user's limits do not allow it."""
    try:
        os.ftruncate(fd, nbytes)
    except OSError as error:
        raise DeviceUnavailable(
            f"the CPU device needs a file of {nbytes} bytes in memory ({error.strerror}): raise the limit on the "
            "size of files (ulimit -f)"
        ) from error


def _punch_hole(fd: int, offset: int, nbytes: int) -> None:
    """Give pages of the file back to the system; they read as zeros again."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_long(offset), ctypes.c_long(nbytes)):
        raise OSError(ctypes.get_errno(), "the arena's pages cannot be given back")
