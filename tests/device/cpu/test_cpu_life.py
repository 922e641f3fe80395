"""What the CPU device holds, and gives back: memory, kernels, workers."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from r3bench import sealing
from r3bench.devices.cpu.device import CpuDevice
from r3bench.devices.cpu.process import ForkServer
from r3bench.errors import DeviceUnavailable
from r3bench.model import Global
from tests.device.cpu_case import COUNTER, HANG, SAXPY, Build, bytes_of, floats, run, running, unit_of


def test_contents_are_the_devices_own(single: CpuDevice) -> None:
    unit, before = unit_of()
    memory = single.allocate(unit, before)
    before["y"][:] = 0
    single.restore(memory)
    np.testing.assert_array_equal(floats(single, memory), np.ones(1000))


def test_released_memory_is_given_back_and_unusable(single: CpuDevice, build: Build) -> None:
    unit, before = unit_of(250_000)
    kernel = single.load(build(SAXPY))
    held = lambda: os.stat(single._resources.arena.fd).st_blocks * 512  # noqa: E731
    empty = held()
    for _ in range(3):
        memory = single.allocate(unit, before)
        single.launch(kernel, memory, unit.launch)
        assert held() >= empty + 2_000_000
        single.release(memory)
        assert held() <= empty + 100_000
    with pytest.raises(ValueError, match="released"):
        single.restore(memory)


def test_kernels_nobody_holds_are_unloaded(single: CpuDevice, build: Build) -> None:
    unit, before = unit_of()
    kept, memory = single.load(build(SAXPY)), single.allocate(unit, before)
    for _ in range(10):
        single.launch(single.load(build(SAXPY)), memory, unit.launch)
    gc.collect()
    single.launch(kept, memory, unit.launch)
    worker = single._resources.worker
    assert worker is not None
    assert worker.kernels == {0}


def test_a_worker_that_has_run_a_kernel_links_no_other(single: CpuDevice, build: Build) -> None:
    """It is sealed; the next one links both, so that two kernels in turn need no third."""
    unit, before = unit_of()
    memory = single.allocate(unit, before)
    used = []
    first = single.load(build(SAXPY))
    single.launch(first, memory, unit.launch)
    used.append(single._resources.worker)
    second = single.load(build(SAXPY + "/* another */"))
    for kernel in (second, first, second):
        single.restore(memory)
        single.launch(kernel, memory, unit.launch)
        np.testing.assert_array_equal(floats(single, memory), 1 + 2 * np.arange(1000, dtype=np.float32))
        used.append(single._resources.worker)
    assert len(set(map(id, used))) == 2
    assert single.conditions()["seal"] == sealing.state()


def test_close_ends_the_worker_and_may_be_repeated(build: Build) -> None:
    device = CpuDevice(threads=2)
    unit, before = unit_of()
    kernel, memory = device.load(build(SAXPY)), device.allocate(unit, before)
    worker = device._resources.worker
    assert worker is not None
    device.close()
    device.close()
    assert not running(worker.pid)
    with pytest.raises(ValueError, match="closed"):
        device.launch(kernel, memory, unit.launch)


def test_a_forgotten_device_gives_everything_back() -> None:
    device = CpuDevice(threads=1)
    worker = device._resources.worker
    assert worker is not None
    del device
    gc.collect()
    assert not running(worker.pid)


def test_two_devices_at_once(single: CpuDevice, device: CpuDevice, build: Build) -> None:
    unit, before = unit_of()
    memories = [(each, run(each, build(SAXPY), unit, before)) for each in (single, device)]
    for each, memory in memories:
        np.testing.assert_array_equal(floats(each, memory), 1 + 2 * np.arange(1000, dtype=np.float32))
    with pytest.raises(ValueError, match="belongs to another device"):
        single.download(memories[1][1])
    with pytest.raises(ValueError, match="another device"):
        single.launch(device.load(build(SAXPY)), memories[0][1], unit.launch)


def test_a_unit_of_many_buffers_is_described_in_parts(
    single: CpuDevice, build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("r3bench.devices.cpu.device._PART", 1)
    unit, before = unit_of(4, globals=(Global(symbol="counter", nbytes=4), Global(symbol="other", nbytes=4)))
    before |= {"counter": bytes_of(np.array([1], np.int32)), "other": np.zeros(4, np.uint8)}
    memory = run(single, build(COUNTER), unit, before)
    assert single.download(memory)["counter"].view(np.int32)[0] == 2


def test_an_interrupted_launch_confuses_no_later_one(single: CpuDevice, build: Build) -> None:
    """The answer that was not waited for must not be taken for another's."""
    unit, before = unit_of()
    kernel, memory = single.load(build(SAXPY)), single.allocate(unit, before)
    hang = single.load(build(HANG))
    usual = signal.signal(signal.SIGALRM, signal.default_int_handler)

    def interrupted() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        single.launch(hang, memory, unit.launch)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    signal.signal(signal.SIGALRM, usual)
    single.launch(kernel, memory, unit.launch)
    np.testing.assert_array_equal(floats(single, memory), 1 + 2 * np.arange(1000, dtype=np.float32))


def test_a_server_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DeviceUnavailable, match="fork server did not start: it ended with exit code 1"):
        ForkServer()
    monkeypatch.undo()
    (tmp_path / "llvmlite.py").write_text("raise ImportError('there is no LLVM')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    monkeypatch.setattr("r3bench.devices.cpu.process._environment", lambda: {"PYTHONPATH": path})
    with pytest.raises(DeviceUnavailable, match="did not start: ImportError: there is no LLVM; r3bench doctor"):
        ForkServer()


def test_evict_and_conditions(device: CpuDevice, build: Build) -> None:
    unit, before = unit_of()
    memory = run(device, build(SAXPY), unit, before)
    device.evict()
    np.testing.assert_array_equal(floats(device, memory), 1 + 2 * np.arange(1000, dtype=np.float32))
    conditions = device.conditions()
    assert conditions["threads"] == str(device.threads)
    assert conditions["time"].startswith("CPU time")
    assert {"processor", "arch", "load"} <= conditions.keys()
