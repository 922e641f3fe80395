"""Results by content id: in memory, bounded, and on disk, one file each, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

Entry = tuple[dict[str, Any], bytes]
_MEMORY_BYTES = 16 << 20  # of some hundred builds; the system has the files of others at hand
_DISK_BYTES = 1 << 30
_MOST_WAITING = 256  # entries that are not yet written


def user_cache() -> Path:
    """Where results of this user are kept: ``$XDG_CACHE_HOME/r3bench``, by default ``~/.cache/r3bench``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "r3bench"


class Cache:
    """Header and bytes by key. A damaged file counts as absent and is written anew; a full disk costs no result.

    Files are written in the background: nobody waits for them. Close it, or the last are missing; where a disk is far
    behind, what comes then is not written.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: OrderedDict[str, bytes] = OrderedDict()  # as in the files: objects would take ten times as much
        self._bytes = 0
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="r3bench-cache")
        self._room = threading.Semaphore(_MOST_WAITING)

    def get(self, key: str) -> Entry | None:
        with self._lock:
            content = self._memory.get(key)
            if content is not None:
                self._memory.move_to_end(key)
        if content is None:
            content = self._read(key)
            if content is None:
                return None
            self._keep(key, content)
        head, _, blob = content.partition(b"\n")
        return json.loads(head), blob

    def put(self, key: str, entry: Entry) -> None:
        content = json.dumps(entry[0]).encode() + b"\n" + entry[1]
        self._keep(key, content)
        if self._folder is not None and self._room.acquire(blocking=False):
            self._writer.submit(self._write, self._path(self._folder, key), content)

    def close(self) -> None:
        """Write what is left; delete the files that were used longest ago where the folder has grown too large."""
        self._writer.shutdown()
        if self._folder is None:
            return
        files = list(_files(self._folder))
        excess = sum(stat.st_size for stat, _ in files) - _DISK_BYTES
        for stat, path in sorted(files, key=lambda pair: pair[0].st_mtime):
            if excess <= 0:
                break
            with suppress(OSError):  # a folder that may only be read
                path.unlink(missing_ok=True)
                excess -= stat.st_size

    def _keep(self, key: str, content: bytes) -> None:
        with self._lock:
            self._bytes += len(content) - len(self._memory.pop(key, b""))
            self._memory[key] = content
            while self._bytes > _MEMORY_BYTES:
                self._bytes -= len(self._memory.popitem(last=False)[1])

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / key[:2] / key[2:]

    def _read(self, key: str) -> bytes | None:
        if self._folder is None:
            return None
        try:
            digest, _, content = self._path(self._folder, key).read_bytes().partition(b"\n")
        except OSError:
            return None
        return content if hashlib.sha256(content).hexdigest().encode() == digest else None

    def _write(self, path: Path, content: bytes) -> None:
        with suppress(OSError):
            try:
                handle, temporary = tempfile.mkstemp(dir=path.parent)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                handle, temporary = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
                Path(temporary).replace(path)
            finally:
                Path(temporary).unlink(missing_ok=True)  # where the disk is full
        self._room.release()


def _files(folder: Path) -> Iterator[tuple[os.stat_result, Path]]:
    """What is kept in a folder; another process may take a file away meanwhile."""
    for path in folder.glob("??/*"):
        with suppress(OSError):
            yield path.stat(), path
