"""Files of results: whole or not at all, and a sentence where they cannot be written."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
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
def folder_of_this_process(prefix: str) -> Iterator[Path]:
    """A folder while this process has it, or one that it forked; those of processes that were killed are removed."""
    top = Path(tempfile.gettempdir())
    turn = top / f"r3bench-{os.getuid()}-{prefix}turn"
    turn.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as held:
        with alone(turn):  # so that none is seen before it is locked
            _remove_deserted(top, prefix)
            made = Path(held.enter_context(tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)))
            held.enter_context(alone(made))
        yield made


def _remove_deserted(top: Path, prefix: str) -> None:
    for left in top.glob(f"{prefix}*"):
        with suppress(OSError):  # a process has it, it is another user's, or it has just gone
            handle = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.getuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(handle)


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
