"""A lock for each key."""

from __future__ import annotations

from collections.abc import Hashable
from threading import Lock
from weakref import WeakValueDictionary


class Locks:
    """Locks by key, under which one thread makes what has it; each is gone when none needs it."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._held: WeakValueDictionary[Hashable, Lock] = WeakValueDictionary()

    def of(self, key: Hashable) -> Lock:
        with self._guard:
            return self._held.setdefault(key, Lock())
