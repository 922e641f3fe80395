"""What is made of compute-sanitizer's answers, with a program in its place that gives them."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import numpy as np
import pytest

from r3bench.devices.cuda import sanitizer
from r3bench.devices.cuda.memory import CudaMemory, Recorded
from r3bench.errors import DeviceFault, LaunchError, ReplayTimeout
from r3bench.model import Allocation, Binary, LaunchConfig, Pointer, ReplayUnit, Target

LAUNCH = LaunchConfig(grid=(1, 1, 1), block=(32, 1, 1))
FOUND = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 8 bytes
=========     at relax+0x1c0
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f0 is out of bounds
========= ERROR SUMMARY: 1 error
"""


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    path = folder / "compute-sanitizer"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sanitizer, "find", lambda: path)


def run(tool: str = "memcheck", timeout_s: float = 60.0) -> None:
    unit = ReplayUnit(
        index=0,
        launch=LAUNCH,
        arguments=bytes(8),
        pointers=(Pointer(offset=0, allocation="x"),),
        allocations=(Allocation(name="x", address=1 << 40, nbytes=24, dtype="float64"),),
    )
    memory = CudaMemory(Recorded(unit, {"x": np.arange(3.0).view(np.uint8)}))
    binary = Binary(target=Target(device="cuda", arch="sm_90"), symbol="relax", image=b"code", format="cubin")
    sanitizer.run(tool, 1, binary, memory, LAUNCH, timeout_s)


def test_nothing_found_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep = f'printf "%s\\n" "$@" > {tmp_path}/asked; for at; do :; done; cp -r "$at" {tmp_path}/job'
    program(tmp_path, monkeypatch, keep)
    run()
    asked = (tmp_path / "asked").read_text().split("\n")
    assert asked[:2] == ["--tool", "memcheck"]
    assert "--padding" in asked
    job = json.loads((tmp_path / "job" / "job.json").read_text())
    assert (job["index"], job["symbol"], job["buffers"]) == (1, "relax", [["x", 24, False]])
    assert job["pointers"] == [["", 0, "x", 0]]
    assert (tmp_path / "job" / "image").read_bytes() == b"code"
    assert np.fromfile(tmp_path / "job" / "0").tolist() == [0.0, 1.0, 2.0]


def test_what_is_found_is_a_fault_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, f"cat <<'X'\n{FOUND}X\nexit 86")
    said = r"relax: Invalid __global__ write of size 8 bytes; at relax\+0x1c0; by thread"
    with pytest.raises(DeviceFault, match=said):
        run()


def test_a_sanitizer_that_does_not_run_is_no_fault_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, monkeypatch, "echo '========= Error: Device not supported'; exit 255")
    with pytest.raises(LaunchError, match="could not run relax"):
        run("racecheck")


def test_a_sanitizer_is_offered_where_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "find", lambda: None)
    assert sanitizer.tools(0) == ()
    program(tmp_path, monkeypatch, "echo '========= Error: Device not supported'; exit 255")
    assert sanitizer.tools(0) == ()
    program(tmp_path, monkeypatch, "exit 0")
    assert sanitizer.tools(0) == ("memcheck", "racecheck", "synccheck")


def test_what_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, f"(sleep 300; touch {tmp_path}/left) & sleep 300")
    begin = time.monotonic()
    with pytest.raises(ReplayTimeout, match="under compute-sanitizer"):
        run(timeout_s=0.3)
    assert time.monotonic() - begin < 200
