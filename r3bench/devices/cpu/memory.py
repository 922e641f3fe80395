"""A unit's memory on the CPU device: its copy in the arena, its recorded contents, and the pointers between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from r3bench.devices import Bytes
from r3bench.devices.cpu.arena import Arena, Segment
from r3bench.devices.cpu.available import check_available
from r3bench.errors import CaptureError, LaunchError
from r3bench.model import Pointer, ReplayUnit

# The argument block is a buffer like others, under the name that Pointer.holder gives it.
ARGUMENTS = ""
_ARGUMENT_ALIGN = 16
_GLOBAL_ALIGN = 64

Words = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Pointers:
    """The pointers in one buffer: where their bytes are (one row each), as recorded, and as a worker needs them."""

    places: NDArray[np.intp]
    recorded: Words
    real: Words


class CpuMemory:
    """One copy of a unit's allocations, globals and argument block."""

    def __init__(self, arena: Arena, unit: ReplayUnit, before: Mapping[str, Bytes]) -> None:
        self.unit = unit
        check_available(sum(nbytes for _, nbytes, _ in _buffers(unit)), f"unit {unit.index}")
        self._contents = {name: _kept(before, name, nbytes) for name, nbytes, _ in _buffers(unit)}
        self._contents[ARGUMENTS] = np.frombuffer(unit.arguments, np.uint8)
        self._check_pointers()
        self.segment: Segment = arena.allocate([(ARGUMENTS, len(unit.arguments), _ARGUMENT_ALIGN), *_buffers(unit)])
        self._pointers = {holder: self._pointers_in(holder) for holder in {p.holder for p in unit.pointers}}
        self.restore()

    def restore(self) -> None:
        """Bring back every byte, the argument block and what lies beside the buffers included."""
        for name, contents in self._contents.items():
            view = self.segment.views[name]
            view[:] = contents
            if pointers := self._pointers.get(name):
                view[pointers.places] = pointers.real.view(np.uint8).reshape(-1, 8)
        self.segment.fill_redzones()

    def bytes_of(self, name: str) -> Bytes:
        """A buffer as it is now, pointers as the application saw them: a view, or a copy if it holds pointers."""
        view = self.segment.views[name]
        pointers = self._pointers.get(name)
        if pointers is None:
            return view
        copy = view.copy()
        words = np.ascontiguousarray(copy[pointers.places]).view(np.uint64).ravel()
        back = np.where(words == pointers.real, pointers.recorded, self._as_recorded(words))
        copy[pointers.places] = back.view(np.uint8).reshape(-1, 8)
        return copy

    def names(self) -> list[str]:
        """Every allocation and global."""
        return [name for name in self._contents if name != ARGUMENTS]

    def global_addresses(self) -> dict[str, int]:
        return {held.symbol: self.segment.address(held.symbol) for held in self.unit.globals}

    def _as_recorded(self, words: Words) -> Words:
        """Pointers that the kernel wrote itself: into an allocation, they become what the application would see."""
        back = words.copy()
        for held in self.unit.allocations:
            start = self.segment.address(held.name)
            inside = (words >= start) & (words <= start + held.nbytes)
            back[inside] = words[inside] - np.uint64(start) + np.uint64(held.address)
        return back

    def _pointers_in(self, holder: str) -> _Pointers:
        pointers = [pointer for pointer in self.unit.pointers if pointer.holder == holder]
        offsets = np.array([pointer.offset for pointer in pointers], np.intp)
        places = offsets[:, None] + np.arange(8)
        recorded = np.ascontiguousarray(self._contents[holder][places]).view(np.uint64).ravel()
        real = [self.segment.address(pointer.allocation) + pointer.displacement for pointer in pointers]
        return _Pointers(places, recorded, np.array(real, np.uint64))

    def _check_pointers(self) -> None:
        for pointer in self.unit.pointers:
            for name in (pointer.holder, pointer.allocation):
                if name not in self._contents:
                    raise CaptureError(
                        f"unit {self.unit.index} has a pointer in or to {name!r}, which it does not hold"
                    )
            if pointer.offset < 0 or pointer.offset + 8 > self._contents[pointer.holder].size:
                raise LaunchError(_outside(self.unit, pointer, self._contents[pointer.holder].size))


def _outside(unit: ReplayUnit, pointer: Pointer, nbytes: int) -> str:
    holder = f"buffer {pointer.holder}" if pointer.holder else "the argument block"
    return f"unit {unit.index} has a pointer at byte {pointer.offset} of {holder}, which has {nbytes} bytes"


def _buffers(unit: ReplayUnit) -> list[tuple[str, int, int]]:
    """Name, size and alignment of everything in device memory."""
    allocations = [(held.name, held.nbytes, held.align) for held in unit.allocations]
    return allocations + [(held.symbol, held.nbytes, _GLOBAL_ALIGN) for held in unit.globals]


def _kept(before: Mapping[str, Bytes], name: str, nbytes: int) -> Bytes:
    """Recorded contents, by reference if nobody can change them, so that clones of a unit share them."""
    if name not in before:
        raise CaptureError(f"the recorded contents of buffer {name} are missing")
    contents = before[name]
    if contents.dtype != np.uint8 or contents.size != nbytes:
        raise CaptureError(f"buffer {name} has {nbytes} bytes, its recorded contents {contents.nbytes}")
    flat = np.ascontiguousarray(contents).reshape(-1)
    return flat.copy() if np.shares_memory(flat, contents) and contents.flags.writeable else flat
