"""The address space of the GPU: what memory lies where, and what of it may be touched right now.

Units of one application were recorded at the same addresses. Their memory takes turns there: what is mapped gives way
to what is opened next, and keeps its contents meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from cuda.bindings import driver as cuda

from r3bench.devices.cuda.driver import CudaError, attribute, call, try_call
from r3bench.devices.cuda.placement import GRANULE, RESERVED_TOGETHER, Range, around

# Where ranges go that need no place of their own: address space costs nothing, and this much is never used up.
_ARENA_HINT = 1 << 44
_ARENA_BYTES = 1 << 42


class Right(IntEnum):
    """What a kernel may do with memory."""

    NONE = 0
    READ = 1
    WRITE = 2


@dataclass(eq=False, slots=True)
class Place:
    """Memory of the device or of the ``host``, in parts, and the addresses where it belongs, one part behind the other;
    ``mapped`` unless something else has them now. In ``room`` bytes from its start nothing else is ever placed."""

    range: Range
    parts: list[tuple[Range, Any]]
    room: int
    host: bool = False
    mapped: bool = False

    @property
    def start(self) -> int:
        return self.range.start


class Space:
    """Maps memory of one device. New ranges cannot be touched until :meth:`open` or :meth:`only` says so."""

    def __init__(self, device: int) -> None:
        kinds = cuda.CUmemLocationType
        self._properties = self._pinned(kinds.CU_MEM_LOCATION_TYPE_DEVICE, device)
        nearest = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID
        node = int(try_call(cuda.cuDeviceGetAttribute, nearest, device) or 0)  # older drivers know none, and say -1
        self._host = self._pinned(kinds.CU_MEM_LOCATION_TYPE_HOST_NUMA, max(0, node))
        minimum = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        if GRANULE % call(cuda.cuMemGetAllocationGranularity, self._properties, minimum):
            raise CudaError(801, "this device maps memory in other pieces than 2 MiB", "cuMemGetAllocationGranularity")
        self._rights = {right: self._access(device, right) for right in Right}
        self._arena = Range(*self._reserve_arena())
        self._next = self._arena.start
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        self._recorded: dict[Place, Range] = {}
        self._reserved: list[Range] = []
        self._open: dict[Place, Right] = {}
        self._always: set[Place] = set()

    @staticmethod
    def _pinned(kind: Any, number: int) -> cuda.CUmemAllocationProp:
        """Memory of the device, or of the host where the device reads it: so much slower."""
        made = cuda.CUmemAllocationProp()
        made.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        made.location.type, made.location.id = kind, number
        return made

    @staticmethod
    def _access(device: int, right: Right) -> cuda.CUmemAccessDesc:
        rights = cuda.CUmemAccessDesc()
        rights.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        rights.location.id = device
        name = {Right.NONE: "NONE", Right.READ: "READ", Right.WRITE: "READWRITE"}[right]
        rights.flags = getattr(cuda.CUmemAccess_flags, f"CU_MEM_ACCESS_FLAGS_PROT_{name}")
        return rights

    @staticmethod
    def _reserve_arena() -> tuple[int, int]:
        start = int(call(cuda.cuMemAddressReserve, _ARENA_BYTES, GRANULE, _ARENA_HINT, 0))
        return start, start + _ARENA_BYTES

    # -- places --

    def map(self, nbytes: int, *, room: int = 0, always: bool = False, host: bool = False) -> Place:
        """So much memory (whole granules) anywhere, of the ``host`` where that is asked for, which may grow to ``room``
        bytes; ``always``: it stays open whatever :meth:`only` is told."""
        room = max(room, nbytes)
        start = self._free[room].pop() if self._free[room] else self._next
        if start + room > self._arena.end:
            raise CudaError(2, "the address space kept for units is used up", "map")
        try:
            place = self._backed(Range(start, start + nbytes), room, host=host)
        except CudaError:
            if start != self._next:
                self._free[room].append(start)
            raise
        self._next = max(self._next, start + room)
        if always:
            self._always.add(place)
            self.open([place])
        return place

    def grow(self, place: Place, nbytes: int) -> None:
        """So much more memory of the device behind what a place has, within its room."""
        added = Range(place.range.end, place.range.end + nbytes)
        assert added.end <= place.start + place.room, "a place cannot grow beyond its room"
        place.parts.append((added, call(cuda.cuMemCreate, nbytes, self._properties, 0)))
        place.range = Range(place.start, added.end)
        if place.mapped:
            self._map(*place.parts[-1])
        if place in self._open:
            self._set(added, self._open[place])

    def map_at(self, wanted: Range) -> Place | None:
        """Memory for these very addresses, mapped when it is opened; None if they cannot be had."""
        whole = self.reserve(wanted)
        if whole is None:
            return None
        place = self._backed(wanted, wanted.nbytes)
        self._recorded[place] = whole
        return place

    def reserve(self, wanted: Range) -> Range | None:
        """A reservation that holds these addresses: one there is, or a new one."""
        for held in self._reserved:
            if held.start <= wanted.start and wanted.end <= held.end:
                return held
        for step in RESERVED_TOGETHER:
            whole = around(wanted, step)
            start = try_call(cuda.cuMemAddressReserve, whole.nbytes, GRANULE, whole.start, 0)
            if start is not None and int(start) == whole.start:
                self._reserved.append(whole)
                return whole
            if start is not None:
                call(cuda.cuMemAddressFree, start, whole.nbytes)
        return None

    def _backed(self, wanted: Range, room: int, *, host: bool = False) -> Place:
        memory = call(cuda.cuMemCreate, wanted.nbytes, self._host if host else self._properties, 0)
        return Place(wanted, [(wanted, memory)], room, host)

    def unmap(self, place: Place) -> None:
        """Give the memory back; what still runs is waited for."""
        self._take_away(place)
        self._always.discard(place)
        for _, memory in place.parts:
            call(cuda.cuMemRelease, memory)
        if place in self._recorded:
            self._leave(self._recorded.pop(place))
        else:
            self._free[place.room].append(place.start)

    def _leave(self, whole: Range) -> None:
        """Free a reservation that nothing needs any more."""
        if whole not in self._recorded.values():
            self._reserved.remove(whole)
            call(cuda.cuMemAddressFree, whole.start, whole.nbytes)

    def _take_away(self, place: Place) -> None:
        if place.mapped:
            call(cuda.cuCtxSynchronize)
            for part, _ in place.parts:
                call(cuda.cuMemUnmap, part.start, part.nbytes)
            place.mapped = False
            self._open.pop(place, None)

    def _bring(self, place: Place) -> None:
        """Map a place; what is mapped at its addresses gives way."""
        for other in self._recorded:
            if other.mapped and other.range.overlaps(place.range):
                self._take_away(other)
        for part, memory in place.parts:
            self._map(part, memory)
        place.mapped = True

    @staticmethod
    def _map(part: Range, memory: Any) -> None:
        call(cuda.cuMemMap, part.start, part.nbytes, 0, memory, 0)

    # -- access --

    def open(self, places: Iterable[Place], right: Right = Right.WRITE) -> None:
        """Give access to these places too; the host's memory is always given whole."""
        wanted = set(places)
        for place in wanted:
            if self._open.get(place, Right.NONE) < right:
                if not place.mapped:
                    self._bring(place)
                self._give(place, Right.WRITE if place.host else right)
        assert wanted <= self._open.keys(), "memory at the same addresses cannot be used at once"

    def only(self, places: Iterable[Place], wait: Callable[[], object], readable: Iterable[Place] = ()) -> None:
        """Give access to these places, to ``readable`` ones for reading alone, and take it from all others after a
        ``wait`` for what may still use them."""
        rights = dict.fromkeys(readable, Right.READ) | dict.fromkeys({*places, *self._always}, Right.WRITE)
        lowered = [place for place, right in self._open.items() if right > rights.get(place, Right.NONE)]
        if lowered:
            wait()
        for place in lowered:
            self._give(place, rights.get(place, Right.NONE))
        for place, right in rights.items():
            self.open([place], right)

    def _give(self, place: Place, right: Right) -> None:
        self._set(place.range, right)
        self._open[place] = right
        if right is Right.NONE:
            del self._open[place]

    def _set(self, mapped: Range, right: Right) -> None:
        call(cuda.cuMemSetAccess, mapped.start, mapped.nbytes, [self._rights[right]], 1)


def evict_bytes(device: int) -> int:
    """Twice the second-level cache, in whole granules."""
    with suppress(CudaError):
        return -(-2 * attribute("L2_CACHE_SIZE", device) // GRANULE) * GRANULE
    return 128 << 20
