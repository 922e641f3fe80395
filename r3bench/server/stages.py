"""Between the stages of a request: what it waited for, when all of its builds have ended, whose turn it is then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from threading import Condition, Lock
from typing import Any, NamedTuple

ON_DEVICE = ("load", "verify", "time")

Stages = tuple[tuple[str, float], ...]


class Waits(NamedTuple):
    """How long a request took for its builds, and then waited for the device."""

    build_s: float
    device_s: float

    def added(self, stages: Stages) -> Stages:
        """The stages with what it waited for before each: ``queue build``, ``queue device``."""
        queued = max(0.0, self.build_s - sum(seconds for name, seconds in stages if not _on_device(name)))
        return (*stages, ("queue build", queued), ("queue device", self.device_s))


def _on_device(name: str) -> bool:
    return name in ON_DEVICE or ":" in name


def when_all(futures: Sequence[Future[Any]], then: Callable[[], None]) -> None:
    """Call ``then`` once, in the thread that ends the last of some futures."""
    ended = count(1)

    def one_ended(_: Future[Any]) -> None:
        if next(ended) == len(futures):
            then()

    for future in futures:
        future.add_done_callback(one_ended)


class Turns:
    """Whose turn it is at a device: several requests share it, or one has it alone."""

    def __init__(self) -> None:
        self._state = Condition()
        self._sharing, self._waiting, self._taken = 0, 0, False

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._state:
            self._waiting += 1
            self._state.wait_for(lambda: not (self._sharing or self._taken))
            self._waiting -= 1
            self._taken = True
        try:
            yield
        finally:
            with self._state:
                self._taken = False
                self._state.notify_all()

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Whoever waits for the device alone goes first."""
        with self._state:
            self._state.wait_for(lambda: not (self._taken or self._waiting))
            self._sharing += 1
        try:
            yield
        finally:
            with self._state:
                self._sharing -= 1
                self._state.notify_all()


class GivingWay:
    """While a thread is in this context, none keeps another from going on for longer than so many seconds."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s, self._before_s = interval_s, 0.0
        self._inside, self._guard = 0, Lock()

    def __enter__(self) -> None:
        with self._guard:
            if not self._inside:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(self._interval_s)
            self._inside += 1

    def __exit__(self, *error: object) -> None:
        with self._guard:
            self._inside -= 1
            if not self._inside:
                sys.setswitchinterval(self._before_s)
