"""A library's code in pages of 2 MB, in this process and in all that are forked from it.

LLVM is 80 MB of code and runs through all of it: to look up where its pages of 4 kB lie takes a tenth of its time. A
forked process moreover inherits no page of a file, but comes to each by a fault: a quarter of the time of its first
build. Memory that belongs to no file it inherits at once. Node.js moves its own code likewise.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from contextlib import suppress
from pathlib import Path

_OFFERED = Path("/sys/kernel/mm/transparent_hugepage")
_CODE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) r-xp \S+ \S+ \S+ +(/.*)")
_ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_MREMAP_MAYMOVE, _MREMAP_FIXED = 1, 2
_MADV_HUGEPAGE = 14


def move_code(library: Path) -> int:
    """Copy a loaded library's code to large pages and put these in its place; the bytes so moved.

    None where the system has no large pages or refuses. Nothing else may run that code meanwhile.
    """
    moved = 0
    with suppress(OSError):
        page = int((_OFFERED / "hpage_pmd_size").read_text())
        if "[never]" not in (_OFFERED / "enabled").read_text():
            for match in map(_CODE.fullmatch, Path("/proc/self/maps").read_text().splitlines()):
                if match and Path(match[3]) == library.resolve():
                    moved += _move(-(-int(match[1], 16) // page) * page, int(match[2], 16) // page * page, page)
    return moved


def _move(start: int, end: int, page: int) -> int:
    nbytes = end - start
    if nbytes <= 0:
        return 0
    room = _called("mmap", 0, nbytes + page, mmap.PROT_READ | mmap.PROT_WRITE, _ANONYMOUS, -1, 0)
    copy = -(-room // page) * page
    _called("madvise", copy, nbytes, _MADV_HUGEPAGE)
    ctypes.memmove(copy, start, nbytes)
    _called("mprotect", copy, nbytes, mmap.PROT_READ | mmap.PROT_EXEC)
    _called("mremap", copy, nbytes, nbytes, _MREMAP_MAYMOVE | _MREMAP_FIXED, start)
    return nbytes


def _called(name: str, *arguments: int) -> int:
    """What a call of the system returns; OSError where it fails."""
    call = ctypes.CDLL(None, use_errno=True)[name]
    call.restype = ctypes.c_ssize_t
    result = int(call(*map(ctypes.c_ssize_t, arguments)))
    if result == -1:
        raise OSError(ctypes.get_errno(), f"{name} failed")
    return result
