"""The CPU device on objects written by hand: every way to crash, and what survives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r3bench.devices.cpu.device import CpuDevice
from r3bench.devices.cpu.process import Worker
from r3bench.devices.cpu.wire import Op
from r3bench.errors import DeviceFault, ReplayTimeout
from tests.device.cpu_case import HANG, SAXPY, Build, floats, running, unit_of


def test_waking_its_threads_is_not_taken_from_a_window(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    request, (unit, before) = CpuDevice._request, unit_of()
    with_threads = CpuDevice(threads=2)

    def slowly(device: CpuDevice, worker: Worker, op: Op, *rest: Any) -> Any:
        asked.append(op)
        if op is Op.GATHER:
            time.sleep(0.3)
        return request(device, worker, op, *rest)

    asked: list[Op] = []
    monkeypatch.setattr(CpuDevice, "_request", slowly)
    try:
        kernel, memory = with_threads.load(build(SAXPY)), with_threads.allocate(unit, before)
        with_threads.window(kernel, [memory], unit.launch)
        assert asked[-2:] == [Op.PING, Op.GATHER], "threads are awake when the window begins"
        assert with_threads._round_trip_ns < 0.3e9
    finally:
        with_threads.close()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("__builtin_trap()", DeviceFault, "SIG(ILL|TRAP)"),
        ("args->y[0] = args->n / (args->n - 64)", DeviceFault, "SIGFPE.*division by zero"),
        ("volatile u8 big[200000000]; for (int i = 0; i < args->n; i++) big[i * 3000000] = i", DeviceFault, "SIGSEGV"),
        ("return 1", DeviceFault, r"deadlocked: .*, in block \(0, 0, 0\)"),
        ("if (b[0] == 3) return 2", DeviceFault, r"failed an assertion, in block \(3, 0, 0\)"),
        ("return 3", DeviceFault, "trapped, in block"),
        ("return 77", DeviceFault, "trapped, in block"),
        ("for (volatile int forever = 1; forever;) {}", ReplayTimeout, "did not end within 0.3 s"),
    ],
)
def test_a_failed_launch_leaves_every_handle_valid(
    device: CpuDevice, build: Build, text: str, error: type[Exception], message: str
) -> None:
    unit, before = unit_of(64, grid=(5, 1, 1))
    good_unit, good_before = unit_of()
    timeout_s = 0.3 if error is ReplayTimeout else 60.0
    kernel, memory = device.load(build(SAXPY)), device.allocate(good_unit, good_before)
    bad = device.load(build(f"FRAME(0) BLOCK({text})"))
    with pytest.raises(error, match=message):
        device.launch(bad, device.allocate(unit, before), unit.launch, timeout_s=timeout_s)
    device.launch(kernel, memory, good_unit.launch)
    np.testing.assert_array_equal(floats(device, memory), 1 + 2 * np.arange(1000, dtype=np.float32))
    with pytest.raises(error, match=message):
        device.window(bad, [device.allocate(unit, before)], unit.launch, timeout_s=timeout_s)


def test_a_replacement_is_forked_by_the_server_there_is(single: CpuDevice, build: Build) -> None:
    """Which takes a hundredth of the time that starting another would."""
    unit, before = unit_of()
    kernel, memory = single.load(build(SAXPY)), single.allocate(unit, before)
    hang, workers = single.load(build(HANG)), []
    for _ in range(3):
        with pytest.raises(ReplayTimeout):
            single.launch(hang, memory, unit.launch, timeout_s=0.02)
        single.launch(kernel, memory, unit.launch)
        worker = single._resources.worker
        assert worker is not None
        workers.append((worker.pid, parent_of(worker.pid)))
    pids, parents = map(set, zip(*workers, strict=True))
    assert (len(pids), len(parents)) == (3, 1)


@pytest.mark.parametrize("victim", ["worker", "server"])
def test_processes_killed_between_launches_are_replaced(device: CpuDevice, build: Build, victim: str) -> None:
    unit, before = unit_of()
    kernel, memory = device.load(build(SAXPY)), device.allocate(unit, before)
    device.launch(kernel, memory, unit.launch)
    worker = device._resources.worker
    assert worker is not None
    os.kill(worker.pid if victim == "worker" else parent_of(worker.pid), signal.SIGKILL)
    wait_for(lambda: not worker.alive())
    device.launch(kernel, memory, unit.launch)
    np.testing.assert_array_equal(floats(device, memory), 1 + 4 * np.arange(1000, dtype=np.float32))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


def test_no_process_outlives_a_killed_parent(build: Build, tmp_path: Path) -> None:
    """Not even a worker in an endless loop, when the parent has no chance to clean up."""
    (tmp_path / "hang.o").write_bytes(build(HANG).image)
    script = """
        import sys, threading
        from pathlib import Path
        from r3bench.devices.cpu.device import CpuDevice
        from r3bench.model import Binary
        from tests.device.cpu_case import unit_of
        device = CpuDevice(threads=2)
        unit, before = unit_of()
        image = Path(sys.argv[1]).read_bytes()
        hang = device.load(Binary(target=device.target, symbol="hang", image=image, format="object"))
        print(device._resources.worker.pid, flush=True)
        device.launch(hang, device.allocate(unit, before), unit.launch, timeout_s=600)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), tmp_path / "hang.o"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        server = parent_of(worker)
        assert parent_of(server) == parent.pid
        time.sleep(0.2)
        parent.kill()
    wait_for(lambda: not (running(worker) or running(server)))
