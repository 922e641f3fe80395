"""What the CPU device refuses: launches, binaries and contents that do not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from r3bench.devices.cpu.device import CpuDevice
from r3bench.errors import CaptureError, LaunchError
from r3bench.model import Allocation, LaunchConfig, Pointer
from tests.device.cpu_case import SAXPY, Build, run, unit_of


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        (LaunchConfig(grid=(1, 1, 1), block=(1024, 2, 1)), "2048 threads per block: the limit is 1024"),
        (LaunchConfig(grid=(1, 1, 1), block=(1, 1, 65)), r"block \(1, 1, 65\)"),
        (LaunchConfig(grid=(1, 0, 1), block=(1, 1, 1)), r"grid \(1, 0, 1\)"),
        (LaunchConfig(grid=(1, 65536, 1), block=(1, 1, 1)), r"grid \(1, 65536, 1\)"),
        (LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=232449), "the limit is 232448 together"),
        (LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=-1), "-1 of dynamic shared memory"),
        (LaunchConfig(grid=(2, 1, 1), block=(1, 1, 1), cluster=(2, 1, 1)), "clusters"),
    ],
)
def test_launches_a_gpu_would_refuse(single: CpuDevice, build: Build, launch: LaunchConfig, message: str) -> None:
    unit, before = unit_of()
    with pytest.raises(LaunchError, match=message):
        single.launch(single.load(build(SAXPY)), single.allocate(unit, before), launch)


def test_binaries_that_do_not_fit(single: CpuDevice, build: Build) -> None:
    good = build(SAXPY)
    for binary, message in (
        (replace(good, format="ptx"), "the CPU device loads objects"),
        (replace(good, target=replace(good.target, arch="i486")), "object code for cpu i486"),
        (replace(good, image=b"not an object"), "damaged object file"),
        (replace(good, image=good.image[:-100]), "damaged object file"),
        (replace(good, image=good.image[:18] + b"\x08\0" + good.image[20:]), "another machine"),
        (build("int getpid(void); FRAME(0) BLOCK(args->y[0] = getpid())"), "calls getpid, which the CPU device"),
        (build("int other;"), "does not define r3_frame_bytes, r3_run_block"),
    ):
        with pytest.raises(LaunchError, match=message):
            single.load(binary)
    assert single.load(good).binary is good


def test_arguments_of_another_size(single: CpuDevice, build: Build) -> None:
    unit, before = unit_of()
    with pytest.raises(LaunchError, match="takes 32 bytes of arguments, but the unit has 24"):
        run(single, replace(build(SAXPY), facts=(("argument_bytes", 32),)), unit, before)
    with pytest.raises(LaunchError, match="pointer at byte 8 of the argument block, which has 12 bytes"):
        single.allocate(replace(unit, arguments=bytes(12)), before)


def test_more_memory_than_there_is(single: CpuDevice, build: Build) -> None:
    unit, before = unit_of()
    huge = Allocation(name="huge", address=0, nbytes=1 << 42)
    with pytest.raises(LaunchError, match="out of memory: unit 0 needs 4398046519104 bytes"):
        single.allocate(replace(unit, allocations=(*unit.allocations, huge)), before)
    with pytest.raises(LaunchError, match="needs more memory for a block"):
        run(single, build("FRAME(1UL << 43) BLOCK()"), unit, before)
    run(single, build(SAXPY), unit, before)


def test_contents_that_do_not_fit_the_unit(single: CpuDevice) -> None:
    unit, before = unit_of()
    with pytest.raises(CaptureError, match="contents of buffer y are missing"):
        single.allocate(unit, {"x": before["x"]})
    with pytest.raises(CaptureError, match="buffer y has 4000 bytes, its recorded contents 8"):
        single.allocate(unit, {**before, "y": before["y"][:8]})
    with pytest.raises(CaptureError, match="pointer in or to 'z'"):
        single.allocate(replace(unit, pointers=(Pointer(offset=0, allocation="z"),)), before)
