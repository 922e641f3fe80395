"""The address space of the GPU: ranges that are mapped, and which of them may be touched right now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

from cuda.bindings import driver as cuda

from r3bench.devices.cuda.driver import CudaError, attribute, call, try_call
from r3bench.devices.cuda.placement import GRANULE, Range

# Where ranges go that need no place of their own: address space costs nothing, and this much is never used up.
_ARENA_HINT = 1 << 44
_ARENA_BYTES = 1 << 42
# The driver puts small reservations where it likes, and larger ones where it is asked to.
_RESERVED_TOGETHER = 64 << 20


class Space:
    """Maps memory of one device. New ranges cannot be touched until :meth:`open` or :meth:`only` says so."""

    def __init__(self, device: int) -> None:
        self._properties = cuda.CUmemAllocationProp()
        self._properties.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        self._properties.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        self._properties.location.id = device
        minimum = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        if GRANULE % call(cuda.cuMemGetAllocationGranularity, self._properties, minimum):
            raise CudaError(801, "this device maps memory in other pieces than 2 MiB", "cuMemGetAllocationGranularity")
        self._rights = {usable: self._access(device, usable) for usable in (False, True)}
        self._arena = Range(*self._reserve_arena())
        self._next = self._arena.start
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._mapped: dict[int, Range] = {}
        self._reserved: dict[Range, int] = {}
        self._open: set[int] = set()
        self._always: set[int] = set()

    @staticmethod
    def _access(device: int, usable: bool) -> cuda.CUmemAccessDesc:
        rights = cuda.CUmemAccessDesc()
        rights.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        rights.location.id = device
        flags = cuda.CUmemAccess_flags
        rights.flags = flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if usable else flags.CU_MEM_ACCESS_FLAGS_PROT_NONE
        return rights

    @staticmethod
    def _reserve_arena() -> tuple[int, int]:
        start = int(call(cuda.cuMemAddressReserve, _ARENA_BYTES, GRANULE, _ARENA_HINT, 0))
        return start, start + _ARENA_BYTES

    # -- mapping --

    def map(self, nbytes: int, *, always: bool = False) -> Range:
        """So much memory (whole granules) anywhere; ``always``: it stays open whatever :meth:`only` is told."""
        start = self._free[nbytes].pop() if self._free[nbytes] else self._next
        if start + nbytes > self._arena.end:
            raise CudaError(2, "the address space kept for units is used up", "map")
        try:
            self._back(Range(start, start + nbytes))
        except CudaError:
            if start != self._next:
                self._free[nbytes].append(start)
            raise
        self._next = max(self._next, start + nbytes)
        if always:
            self._always.add(start)
            self.open([start])
        return self._mapped[start]

    def map_at(self, wanted: Range) -> bool:
        """Memory at these very addresses; False if they cannot be had."""
        if any(place.start < wanted.end and wanted.start < place.end for place in self._mapped.values()):
            return False
        around = self._reserve_around(wanted)
        if around is None:
            return False
        self._reserved[around] = self._reserved.get(around, 0) + 1
        try:
            self._back(wanted)
        except CudaError:
            self._leave(around)
            raise
        return True

    def _reserve_around(self, wanted: Range) -> Range | None:
        """A reservation that holds these addresses: one there is, or a new one."""
        for around in self._reserved:
            if around.start <= wanted.start and wanted.end <= around.end:
                return around
        step = _RESERVED_TOGETHER
        around = Range(wanted.start // step * step, -(-wanted.end // step) * step)
        start = try_call(cuda.cuMemAddressReserve, around.nbytes, GRANULE, around.start, 0)
        if start is not None and int(start) != around.start:
            call(cuda.cuMemAddressFree, start, around.nbytes)
            return None
        return around if start is not None else None

    def _leave(self, around: Range) -> None:
        self._reserved[around] -= 1
        if not self._reserved[around]:
            del self._reserved[around]
            call(cuda.cuMemAddressFree, around.start, around.nbytes)

    def _back(self, place: Range) -> None:
        """Put memory behind reserved addresses."""
        memory = call(cuda.cuMemCreate, place.nbytes, self._properties, 0)
        try:
            call(cuda.cuMemMap, place.start, place.nbytes, 0, memory, 0)
        finally:
            call(cuda.cuMemRelease, memory)  # the mapping keeps it
        self._mapped[place.start] = place

    def unmap(self, start: int) -> None:
        place = self._mapped.pop(start)
        self._open.discard(start)
        self._always.discard(start)
        call(cuda.cuCtxSynchronize)
        call(cuda.cuMemUnmap, start, place.nbytes)
        if self._arena.start <= start < self._arena.end:
            self._free[place.nbytes].append(start)
        else:
            self._leave(next(around for around in self._reserved if around.start <= start < around.end))

    # -- access --

    def open(self, starts: Iterable[int]) -> None:
        """Give access to these ranges too."""
        closed = set(starts) - self._open
        self._set(closed, True)
        self._open |= closed

    def only(self, starts: Iterable[int]) -> None:
        """Give access to these ranges, and take it from all others, once nothing runs that may still use them."""
        wanted = set(starts) | self._always
        if closed := self._open - wanted:
            call(cuda.cuCtxSynchronize)
            self._set(closed, False)
        self._open &= wanted
        self.open(wanted)

    def _set(self, starts: Iterable[int], usable: bool) -> None:
        for place in self._merged(starts):
            call(cuda.cuMemSetAccess, place.start, place.nbytes, [self._rights[usable]], 1)

    def _merged(self, starts: Iterable[int]) -> list[Range]:
        """Neighbours within the arena as one range: changing access costs the same for many as for one."""
        merged: list[Range] = []
        for place in sorted((self._mapped[start] for start in starts), key=lambda each: each.start):
            if merged and merged[-1].end == place.start and self._arena.start <= place.start < self._arena.end:
                merged[-1] = Range(merged[-1].start, place.end)
            else:
                merged.append(place)
        return merged


def evict_bytes(device: int) -> int:
    """Twice the second-level cache, in whole granules."""
    with suppress(CudaError):
        return -(-2 * attribute("L2_CACHE_SIZE", device) // GRANULE) * GRANULE
    return 128 << 20
