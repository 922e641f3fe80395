"""Which version of PTX to write: the newest that everything which reads it knows."""

from __future__ import annotations

from r3bench.devices.cuda import nvml
from r3bench.toolchain import assembler

# What LLVM 22 writes, and what is written where nobody who reads it is here (CUDA 12.3, drivers from 545 on).
_LLVM, _ELSEWHERE = 90, 83

# CUDA's first version that knows a version of PTX, newest first (PTX ISA 9.0, chapter "Release Notes").
_SINCE = (
    ((13, 0), 90),
    ((12, 9), 88),
    ((12, 8), 87),
    ((12, 7), 86),
    ((12, 5), 85),
    ((12, 4), 84),
    ((12, 3), 83),
    ((12, 2), 82),
    ((12, 1), 81),
    ((12, 0), 80),
)


def version(assemble: bool = True) -> int:
    """90 for PTX 9.0: the lowest of LLVM's, the driver's and, where it makes machine code of it, the assembler's."""
    readers = [_driver(), assembler.version() if assemble else None]
    return min(_LLVM, *(known(reader) for reader in readers if reader)) if any(readers) else _ELSEWHERE


def known(cuda: tuple[int, int]) -> int:
    """The newest version of PTX that this version of CUDA knows."""
    return next((ptx for since, ptx in _SINCE if cuda >= since), 78)


def _driver() -> tuple[int, int] | None:
    try:
        with nvml.opened() as library:
            return library.cuda()
    except OSError:
        return None
