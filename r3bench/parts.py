"""Large arrays in parts, which several threads share: numpy gives the interpreter free while it works on one."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

THREADS = min(8, os.cpu_count() or 1)
PART = 1 << 21  # elements: a part takes much longer than handing it over

T = TypeVar("T")


def in_parts(work: Callable[[slice], T], size: int, step: int | None = None) -> list[T]:
    """What some work gives for each part of ``size`` elements, in order; a part has ``step`` of them, or ``PART``."""
    step = step or PART
    parts = [slice(at, min(at + step, size)) for at in range(0, size, step)]
    if len(parts) <= 1:
        return [work(each) for each in parts]
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(work, parts))
