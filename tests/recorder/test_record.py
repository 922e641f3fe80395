"""Unmodified programs under the recorder, against a driver of ours that has no GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from r3bench import store
from r3bench.cli import main
from tests.recorder.conftest import Build

WAYS = {
    "dlsym": (),
    "cuGetProcAddress": ("-DBY_PROC_ADDRESS", "-DPER_THREAD=0"),
    "per-thread streams": ("-DBY_PROC_ADDRESS", "-DPER_THREAD=1"),
}


@pytest.mark.parametrize("way", WAYS)
def test_launches_become_captures(way: str, program: Build, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    app = program("plain", *WAYS[way])
    assert main(["record", "--out", str(tmp_path / "captures"), "--launch", "0,2", "--", str(app)]) == 0
    assert capfd.readouterr().out.startswith("4.5\n")
    capture = store.open_capture(tmp_path / "captures/scale.zarr")
    assert (capture.symbol, capture.demangled) == ("_Z5scalePdPKddi", "scale")
    assert [unit.occurrence for unit in capture.units] == [0, 2]
    assert [(p.offset, p.size, p.kind) for p in capture.parameters] == [
        (0, 8, "pointer"), (8, 8, "pointer"), (16, 8, "scalar"), (24, 4, "scalar"),
    ]  # fmt: skip
    last = store.contents(capture, 1)
    before = last.before["arg0"].view(np.float64)
    assert np.array_equal(before, 2.0 * np.arange(1, 1001))
    assert np.array_equal(last.after["arg0"].view(np.float64), before + 2.5 * np.arange(1, 1001))
    assert set(last.after) == {"arg0"}
