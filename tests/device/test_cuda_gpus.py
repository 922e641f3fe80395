"""Several GPUs in one machine: each worker of pytest takes one of those that CUDA_VISIBLE_DEVICES leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.miniweather.driver import TOP
from r3bench.devices import open_device
from r3bench.devices.cuda import nvml
from r3bench.server.resident import timing_lock

pytestmark = pytest.mark.gpu

NAME = "from r3bench.devices import open_device; device = open_device('cuda'); print(device.name); device.close()"


@pytest.fixture(scope="module")
def gpus() -> list[str]:
    """The names of the devices, by index."""
    with nvml.opened() as library:
        count = len(library.names())
    if count < 2 or "CUDA_VISIBLE_DEVICES" in os.environ:
        pytest.skip("this takes two GPUs or more, none of them hidden")
    names = []
    for index in range(count):
        device = open_device("cuda", index=index)
        names.append(device.name)
        device.close()
    return names


def python(*arguments: str, **environment: str) -> str:
    """What a Python of its own prints, which takes itself for no worker of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=TOP, env={**kept, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_gpu_is_another_and_has_a_lock_of_its_own(gpus: list[str]) -> None:
    assert len(set(gpus)) == len(gpus)
    assert len({timing_lock(name).path for name in gpus}) == len(gpus)


def test_hidden_gpus_are_not_taken(gpus: list[str]) -> None:
    last = len(gpus) - 1
    assert python("-c", NAME, CUDA_VISIBLE_DEVICES=str(last)).strip() == gpus[last]
    uuid = gpus[last].rsplit(" ", 1)[1]
    assert python("-c", NAME, CUDA_VISIBLE_DEVICES=uuid, PYTEST_XDIST_WORKER="gw3").strip() == gpus[last]


def test_workers_spread_over_the_gpus(gpus: list[str]) -> None:
    for number in range(len(gpus) + 1):
        assert python("-c", NAME, PYTEST_XDIST_WORKER=f"gw{number}").strip() == gpus[number % len(gpus)]


def test_pytest_times_on_every_gpu(gpus: list[str], tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    found = tmp_path / "timings.json"
    workers = ("-n", str(2 * len(gpus)))
    python(
        *("-m", "pytest", "captures/miniweather", "-k", "timing", *workers, "-p", "no:cacheprovider"),
        *("--r3-device", "cuda", f"--benchmark-json={found}"),
    )
    timings = json.loads(found.read_text())["benchmarks"]
    assert {timing["extra_info"]["device"] for timing in timings} == set(gpus)
