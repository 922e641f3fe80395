"""A unit's memory on the CPU device: its copy in the arena, its recorded contents, and the pointers between them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from r3bench.devices import Bytes
from r3bench.devices.contents import ARGUMENTS, Pointers, check_pointers, kept
from r3bench.devices.cpu.arena import Arena, Segment
from r3bench.devices.cpu.available import check_available
from r3bench.model import ReplayUnit

_ARGUMENT_ALIGN = 16
_GLOBAL_ALIGN = 64


class CpuMemory:
    """One copy of a unit's allocations, globals and argument block."""

    def __init__(self, arena: Arena, unit: ReplayUnit, before: Mapping[str, Bytes]) -> None:
        self.unit = unit
        check_available(sum(nbytes for _, nbytes, _ in _buffers(unit)), f"unit {unit.index}")
        self._contents = {name: kept(before, name, nbytes) for name, nbytes, _ in _buffers(unit)}
        self._contents[ARGUMENTS] = np.frombuffer(unit.arguments, np.uint8)
        check_pointers(unit, self._contents)
        self.segment: Segment = arena.allocate([(ARGUMENTS, len(unit.arguments), _ARGUMENT_ALIGN), *_buffers(unit)])
        self._pointers = {
            holder: Pointers.within(unit, holder, self._contents[holder], self.segment.address)
            for holder in {pointer.holder for pointer in unit.pointers}
        }
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
        return pointers.as_recorded(view, self.unit, self.segment.address)

    def names(self) -> list[str]:
        """Every allocation and global."""
        return [name for name in self._contents if name != ARGUMENTS]

    def global_addresses(self) -> dict[str, int]:
        return {held.symbol: self.segment.address(held.symbol) for held in self.unit.globals}


def _buffers(unit: ReplayUnit) -> list[tuple[str, int, int]]:
    """Name, size and alignment of everything in device memory."""
    allocations = [(held.name, held.nbytes, held.align) for held in unit.allocations]
    return allocations + [(held.symbol, held.nbytes, _GLOBAL_ALIGN) for held in unit.globals]
