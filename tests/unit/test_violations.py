"""What a checked build is told about a launch's buffers."""

from __future__ import annotations

import mmap
from types import SimpleNamespace
from typing import Any

import pytest

from r3bench.devices.cpu.violations import MOST_BUFFERS, list_buffers
from r3bench.errors import LaunchError


def memory(buffers: int) -> Any:
    spans = {f"b{n}": SimpleNamespace(start=16 * n, end=16 * n + 8) for n in range(buffers)}
    return SimpleNamespace(segment=SimpleNamespace(base=4096, spans=spans))


def test_more_buffers_than_can_be_listed_are_the_launchs_failure() -> None:
    with mmap.mmap(-1, 2 * mmap.PAGESIZE) as page:
        list_buffers(page, [memory(MOST_BUFFERS)])
        with pytest.raises(LaunchError, match=f"at most {MOST_BUFFERS} buffers, not {MOST_BUFFERS + 1}"):
            list_buffers(page, [memory(MOST_BUFFERS), memory(1)])
