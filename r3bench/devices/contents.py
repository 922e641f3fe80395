"""What every back end does with a unit's recorded contents and pointers before and after they are on its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from r3bench.devices import Bytes
from r3bench.errors import CaptureError, LaunchError
from r3bench.model import Pointer, ReplayUnit

# The argument block is a buffer like others, under the name that Pointer.holder gives it.
ARGUMENTS = ""

Words = NDArray[np.uint64]


def kept(before: Mapping[str, Bytes], name: str, nbytes: int) -> Bytes:
    """Recorded contents, by reference if nobody can change them, so that clones of a unit share them."""
    if name not in before:
        raise CaptureError(f"the recorded contents of buffer {name} are missing")
    contents = before[name]
    if contents.dtype != np.uint8 or contents.size != nbytes:
        raise CaptureError(f"buffer {name} has {nbytes} bytes, its recorded contents {contents.nbytes}")
    flat = np.ascontiguousarray(contents).reshape(-1)
    return flat.copy() if np.shares_memory(flat, contents) and contents.flags.writeable else flat


def check_pointers(unit: ReplayUnit, contents: Mapping[str, Bytes]) -> None:
    """CaptureError for a pointer in or to a buffer that is not there, LaunchError for one outside its buffer."""
    for pointer in unit.pointers:
        for name in (pointer.holder, pointer.allocation):
            if name not in contents:
                raise CaptureError(f"unit {unit.index} has a pointer in or to {name!r}, which it does not hold")
        if pointer.offset < 0 or pointer.offset + 8 > contents[pointer.holder].size:
            raise LaunchError(_outside(unit, pointer, contents[pointer.holder].size))


def _outside(unit: ReplayUnit, pointer: Pointer, nbytes: int) -> str:
    holder = f"buffer {pointer.holder}" if pointer.holder else "the argument block"
    return f"unit {unit.index} has a pointer at byte {pointer.offset} of {holder}, which has {nbytes} bytes"


@dataclass(frozen=True, slots=True)
class Pointers:
    """The pointers in one buffer: where their bytes are (one row each), as recorded, and as this copy needs them."""

    places: NDArray[np.intp]
    recorded: Words
    real: Words

    @classmethod
    def within(cls, unit: ReplayUnit, holder: str, contents: Bytes, address: Callable[[str], int]) -> Pointers:
        """Those in ``holder``, whose recorded contents are given; ``address`` says where this copy has a buffer."""
        pointers = [pointer for pointer in unit.pointers if pointer.holder == holder]
        places = np.array([pointer.offset for pointer in pointers], np.intp)[:, None] + np.arange(8)
        recorded = np.ascontiguousarray(contents[places]).view(np.uint64).ravel()
        real = [address(pointer.allocation) + pointer.displacement for pointer in pointers]
        return cls(places, recorded, np.array(real, np.uint64))

    def as_recorded(self, data: Bytes, unit: ReplayUnit, address: Callable[[str], int]) -> Bytes:
        """A copy of ``data`` with pointers as the application saw them, also those that the kernel wrote itself."""
        copy = data.copy()
        words = np.ascontiguousarray(copy[self.places]).view(np.uint64).ravel()
        back = words.copy()
        for held in unit.allocations:
            start = address(held.name)
            inside = (words >= start) & (words <= start + held.nbytes)
            back[inside] = words[inside] - np.uint64(start) + np.uint64(held.address)
        copy[self.places] = np.where(words == self.real, self.recorded, back).view(np.uint8).reshape(-1, 8)
        return copy


@lru_cache(maxsize=1024)
def redzone_pattern(offset: int, nbytes: int) -> Bytes:
    """What lies beside a buffer, by its place in memory: large finite numbers in every float format, no two alike.

    A kernel that goes on past the end of one buffer into the next one's end writes something else than was there,
    whether it copies or computes; what it reads shows in any sum.
    """
    places = np.arange(offset, offset + nbytes, dtype=np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # SplitMix64 (Steele, Lea, Flood, 2014)
        places = (places ^ (places >> np.uint64(shift))) * np.uint64(factor)
    found = (places >> np.uint64(56)).astype(np.uint8) & np.uint8(0x8F) | np.uint8(0x50)
    found.flags.writeable = False
    return found
