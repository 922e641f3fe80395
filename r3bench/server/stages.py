"""Between the stages of a request: what it waited for, when all of its builds have ended, whose turn it is then."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from threading import Lock
from typing import Any, NamedTuple

ON_DEVICE = ("load", "verify", "time")

TakesTime = Callable[[], AbstractContextManager[object]]

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
    """Whose turn it is at a device: one request verifies while the one before it is timed, or one has it alone."""

    def __init__(self) -> None:
        self._verifying, self._timed = Lock(), Lock()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._verifying, self._timed:
            yield

    @contextmanager
    def shared(self) -> Iterator[TakesTime]:
        """A turn to verify and, with what it gives, the next to be timed, while another request may verify."""
        with ExitStack() as verifying:
            verifying.enter_context(self._verifying)

            @contextmanager
            def timed() -> Iterator[None]:
                verifying.close()
                with self._timed:
                    yield

            yield timed


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
