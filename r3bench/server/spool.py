"""Captures that came from elsewhere: sent once, file by file, and kept under an id by content."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from r3bench import store
from r3bench.errors import CaptureError
from r3bench.model import Capture
from r3bench.overrides import id_of, tolerance_path, tolerances_text

PART_BYTES = 1 << 22
_TOLERANCES = "tolerance.toml"
_ID = re.compile(r"[0-9a-f]{64}")


def parts(capture: Capture) -> Iterator[tuple[str, int, bytes]]:
    """The files of a capture in parts: name, where the part begins, and its bytes."""
    tolerances = tolerances_text(capture)
    if tolerances is not None:
        yield _TOLERANCES, 0, tolerances.encode(errors="surrogateescape")
    for name, at, part in store.parts(Path(capture.path), PART_BYTES):
        yield f"store/{name}", at, part


class Spool:
    """A folder of captures by id. What arrives is checked before it is used; nothing is written elsewhere."""

    def __init__(self, folder: Path, most_bytes: int = 1 << 38) -> None:
        self._folder = folder
        self._left = most_bytes
        self._captures: dict[str, Capture] = {}

    def capture(self, identity: str) -> Capture:
        """CaptureError where it is not here, or not as it was named."""
        if not self._has(identity):
            raise CaptureError("the server does not have this capture any more; ask again")
        return self._captures[identity]

    def know(self, identity: str, path: str) -> bool:
        """Whether the capture is here, or lies at ``path`` on this machine, where it is used as it is."""
        if path and not self._has(identity):
            with suppress(CaptureError):
                self._check(identity, store.open_capture(path))
        return self._has(identity)

    def _has(self, identity: str) -> bool:
        return identity in self._captures and id_of(self._captures[identity]) == identity

    def put(self, identity: str, name: str, at: int, part: bytes) -> None:
        """Write a part of a file of a capture that is arriving; one that is here, by whoever, stays as it is.

        CaptureError where that cannot be.
        """
        path = self._place(identity, name)
        if identity in self._captures:
            return
        self._left -= len(part)
        if self._left < 0:
            raise CaptureError("the server has no more room for captures: start it again")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb", closefd=True) as file:
                os.pwrite(file.fileno(), part, at)
        except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
            raise CaptureError(f"{name!r} is no name of a capture's file beside the others") from error
        except OSError as error:
            raise CaptureError(f"the server cannot keep the capture ({error.strerror}): check its space") from error

    def keep(self, identity: str) -> None:
        """Check all that has arrived, and have it from now on; what is damaged goes."""
        if identity in self._captures:
            return
        place = self._place(identity, "store/")
        try:
            self._check(identity, store.verify(place))
        except CaptureError:
            shutil.rmtree(place.parent, ignore_errors=True)
            raise

    def _check(self, identity: str, found: Capture) -> None:
        if id_of(found) != identity:
            raise CaptureError(f"{found.path} is not the capture that was announced: send it again")
        self._captures[identity] = found

    def _place(self, identity: str, name: str) -> Path:
        """Where a file of a capture goes, below the folder whatever it is called."""
        inside, _, rest = name.partition("/")
        leads_out = ".." in Path(rest).parts or Path(rest).is_absolute()
        if not _ID.fullmatch(identity) or inside not in ("store", _TOLERANCES) or leads_out:
            raise CaptureError(f"{name!r} is no name of a capture's file")
        top = self._folder / identity
        return top / "capture.zarr" / rest if inside == "store" else tolerance_path(top / "capture.zarr")
