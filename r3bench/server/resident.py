"""What stays in memory between requests, and whose turn it is to time on a device."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from math import inf
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from r3bench.errors import DeviceUnavailable

_POLL_S = 0.005
_SHARED_S = 1.0  # that threads of one process share a lock between processes before others have their chance


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)
T = TypeVar("T")


class Latest(Generic[T]):
    """So many values by key: those that were set or asked for last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, T] = OrderedDict()
        self._guard = Lock()

    def get(self, key: Hashable) -> T | None:
        with self._guard:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def __setitem__(self, key: Hashable, value: T) -> None:
        with self._guard:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._most:
                self._values.popitem(last=False)


class Resident(Generic[S]):
    """What was used last stays, up to a number of bytes; what is dropped is given to ``drop``."""

    def __init__(self, limit_bytes: int, drop: Callable[[S], object] = lambda item: None) -> None:
        self._limit_bytes = limit_bytes
        self._drop = drop
        self._items: OrderedDict[Hashable, S] = OrderedDict()
        self._guard = Lock()  # between those who take what is at hand

    def get(self, key: Hashable, make: Callable[[], S]) -> S:
        """The item of this key, made if it is not there."""
        if key not in self._items:
            self._items[key] = make()
        self._items.move_to_end(key)
        self.trim()
        return self._items[key]

    def at_hand(self, key: Hashable) -> S | None:
        """The item of this key, if it is there and nothing has to go."""
        with self._guard:
            if key not in self._items or self._crowded():
                return None
            self._items.move_to_end(key)
            return self._items[key]

    def _crowded(self) -> bool:
        return len(self._items) > 1 and sum(item.nbytes for item in self._items.values()) > self._limit_bytes

    def trim(self) -> None:
        """Drop what was used longest ago until the rest fits; the last one used always stays."""
        while self._crowded():
            self._drop(self._items.popitem(last=False)[1])

    def clear(self) -> None:
        while self._items:
            self._drop(self._items.popitem()[1])


def host_room() -> int:
    """How many bytes of captures stay in this machine's memory: an eighth of it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8


class TimingLock:
    """A lock between processes, for each ranking: on a file that stays open, for opening one takes longer than locking.

    A context manager. Threads of one process share it, and now and then let others have it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._guard, self._users = Lock(), 0
        self._until_s = self._again_s = -inf
        self._open()

    def _open(self) -> None:
        """DeviceUnavailable where the folder of the file is gone, or nothing can be made there."""
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DeviceUnavailable(
                f"the device's lock {self.path} cannot be opened ({error.strerror}): make its folder, or set TMPDIR"
            ) from error
        self._close = weakref.finalize(self, os.close, self._fd)

    def acquire(self, timeout_s: float = inf) -> bool:
        """Whether it was had within so many seconds."""
        ends = monotonic() + timeout_s
        while not self._joins():
            if monotonic() > ends:
                return False
            sleep(_POLL_S)
        return True

    def _joins(self) -> bool:
        """Whether this process has it, and not for so long that others should have their chance."""
        with self._guard:
            now = monotonic()
            if self._users:
                joins = now < self._until_s
            elif joins := now >= self._again_s and self._locks():
                self._until_s = now + _SHARED_S
            self._users += joins
            return joins

    def _locks(self) -> bool:
        """Whether nobody else has it. A file that was deleted locks nobody out, and is made again."""
        if not os.fstat(self._fd).st_nlink:
            close = self._close
            self._open()
            close()
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        with self._guard:
            self._users -= 1
            if not self._users:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
                if monotonic() > self._until_s:
                    self._again_s = monotonic() + 2 * _POLL_S

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def timing_lock(device: str) -> TimingLock:
    """One lock per user and device of this machine: two processes never time on one device at once."""
    name = hashlib.sha256(device.encode()).hexdigest()[:16]
    return TimingLock(Path(tempfile.gettempdir()) / f"r3bench-{os.getuid()}-{name}.lock")
