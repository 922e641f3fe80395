"""A small store to damage or to replace, and the one error that must come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r3bench import store
from r3bench.errors import CaptureError
from r3bench.model import Allocation, Capture, LaunchConfig, Pointer, ReplayUnit, Source
from r3bench.store import UnitContents

SOURCE = Source(root="", main="k.cu", span=(1, 1), files=(("k.cu", store.text_sha256("text")),))


def write(path: Path, **changes: Any) -> Capture:
    a = Allocation(name="a", address=4096, nbytes=800, dtype="float64", shape=(10, 10), dims=("y", "x"))
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(32, 1, 1)),
        arguments=a.address.to_bytes(8, "little"),
        pointers=(Pointer(offset=0, allocation="a"),),
        allocations=(a, Allocation(name="b", address=8192, nbytes=64)),
    )
    unit = replace(unit, **{name: value for name, value in changes.items() if hasattr(unit, name)})
    capture = Capture(
        path="", application="demo", symbol="k", demangled="k", parameters=(), source=SOURCE, units=(unit,)
    )
    rest = {name: value for name, value in changes.items() if not hasattr(unit, name)}
    before = np.random.default_rng(0).integers(0, 255, 800, np.uint8)
    held = UnitContents({"a": before, "b": np.zeros(64, np.uint8)}, {"a": before[::-1].copy()})
    return store.write(path, replace(capture, **rest), [held], {"k.cu": "text"}, ir="; IR")


def complaint(act: Callable[[], object]) -> str:
    """The message of the CaptureError that must come: one line, with something to do in it."""
    with pytest.raises(CaptureError) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    assert ";" in message or ": " in message
    return message
