"""Files of results: whole or not at all, and a sentence where they cannot be written."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from r3bench.errors import FileError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises FileError where the system refuses to write ``path``: a full disk, a folder that may only be read."""
    try:
        yield
    except OSError as error:
        raise FileError(
            f"{path} cannot be written ({error.strerror}): make room there, or name another place"
        ) from error


def scratch(prefix: str) -> tempfile.TemporaryDirectory[str]:
    """A folder for temporary files, which goes when it is left. It can be made as long as this process lives: where the
    system's own folder for such has been cleared away meanwhile, that is made again."""
    os.makedirs(tempfile.gettempdir(), mode=0o700, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=prefix)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One process at a time for each folder; several where its file system has no locks for folders."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name and rename it; its folder is made. FileError where it cannot be written."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(handle, "wb") as file:
                file.write(text.encode(errors="replace"))  # a ledger's JSON can hold half a character
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
