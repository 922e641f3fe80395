"""Where the bytes of arrays are kept: in memory, or in files of a disk where memory is too small for them."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from r3bench.errors import CaptureError
from r3bench.store.shards import Bytes

Room = Callable[[int], Bytes]
"""Gives so many bytes, whatever is in them."""


def in_memory(nbytes: int) -> Bytes:
    return np.empty(nbytes, np.uint8)


SMALL_BYTES = 1 << 20  # what is in memory anyway


def on_disk(folder: Path) -> Room:
    """Bytes in files of a folder, which are gone with the last use of them: the system keeps as much of them in memory
    as it has no other use for. CaptureError where the disk has no room."""

    def room(nbytes: int) -> Bytes:
        if nbytes <= SMALL_BYTES:
            return in_memory(nbytes)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                os.posix_fallocate(file.fileno(), 0, nbytes)
                return np.frombuffer(mmap.mmap(file.fileno(), nbytes), np.uint8)
        except OSError as error:
            raise CaptureError(
                f"{nbytes} bytes of a capture that is larger than memory cannot be unpacked in {folder} "
                f"({error.strerror}): make room there, or set XDG_CACHE_HOME to a folder on a larger disk"
            ) from error

    return room
