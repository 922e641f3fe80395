"""PTX to machine code with NVIDIA's nvJitLink, the library that has ptxas in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any


@cache
def version() -> tuple[int, int] | None:
    """Of the library (of cuda-bindings and nvidia-nvjitlink); None where it is not here."""
    try:
        major, minor = _library().version()
    except (ImportError, RuntimeError):  # no bindings, or no library for them
        return None
    return int(major), int(minor)


def link(ptx: bytes, arch: str, flags: Sequence[str]) -> tuple[bytes | None, str]:
    """Machine code, None where it is refused, and what was said; ``flags`` are those of ptxas."""
    library = _library()
    options = [f"-arch={arch}", "-verbose", *(f"-Xptxas={flag}" for flag in flags)]
    handle = library.create(len(options), options)
    made = None
    try:
        library.add_data(handle, library.InputType.PTX, ptx, len(ptx), "kernel.ptx")
        library.complete(handle)
        made = _read(library.get_linked_cubin_size, library.get_linked_cubin, handle)
    except library.nvJitLinkError:
        return None, _read(library.get_error_log_size, library.get_error_log, handle).decode("utf-8", "replace")
    else:
        return made, _read(library.get_info_log_size, library.get_info_log, handle).decode("utf-8", "replace")
    finally:
        library.destroy(handle)


def _read(size: Callable[[Any], int], read: Callable[[Any, bytearray], object], handle: Any) -> bytes:
    data = bytearray(size(handle))
    if data:
        read(handle, data)
    return bytes(data)


def _library() -> ModuleType:
    from cuda.bindings import nvjitlink

    found: ModuleType = nvjitlink
    return found
