"""Between the stages of a request: what it waited for, and when all of its builds have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count
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
