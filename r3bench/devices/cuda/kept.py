"""Addresses that nothing else in a new process may take until the GPU's memory is reserved at them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from r3bench.devices.cuda.placement import RESERVED_TOGETHER, Range, around

_NO_ACCESS = 0
# Private, anonymous, without swap, only here: mmap(2).
_FLAGS = 0x02 | 0x20 | 0x4000 | 0x100000


class Kept:
    """Ranges around these, empty and without access, as far as nothing is there yet."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._library = ctypes.CDLL(None)
        self._library.mmap.restype = ctypes.c_void_p
        wanted = {around(each, RESERVED_TOGETHER[-1]) for each in ranges}
        self._held = [each for each in wanted if self._mapped(each)]

    def _mapped(self, wanted: Range) -> bool:
        place, nbytes = ctypes.c_void_p(wanted.start), ctypes.c_size_t(wanted.nbytes)
        found = self._library.mmap(place, nbytes, _NO_ACCESS, _FLAGS, -1, ctypes.c_long(0))
        if found not in (wanted.start or None, ctypes.c_void_p(-1).value):  # an old kernel takes the place for a hint
            self._library.munmap(ctypes.c_void_p(found), nbytes)
        return bool(found == (wanted.start or None))

    def give_up(self) -> None:
        """Leave them to whoever comes next; idempotent."""
        while self._held:
            held = self._held.pop()
            self._library.munmap(ctypes.c_void_p(held.start), ctypes.c_size_t(held.nbytes))
