"""The CPU device on objects written by hand: accesses out of bounds are told, alignment is kept."""

from __future__ import annotations

import pytest

from r3bench.devices.cpu.device import CpuDevice
from r3bench.errors import DeviceFault
from tests.device.cpu_case import Build, floats, run, unit_of


@pytest.mark.parametrize(
    ("text", "align", "message"),
    [
        ("args->y[1024] = 1", 16, r"wrote just past the end of buffer y \(4096 bytes\) \(SIGSEGV\)"),
        ("args->y[1034] = 1", 16, r"wrote 40 bytes past the end of buffer y"),
        ("args->y[0] = args->x[1024]", 16, r"(read|touched) just past the end of buffer x"),
        ("args->x[-1] = 1", 4096, r"wrote 3 bytes before the start of buffer x"),
        ("args->y[100000] = 1", 16, r"wrote 395904 bytes past the end of buffer y"),
        ("((float *)args)[6] = 0", 16, "wrote just past the end of the argument block"),
        ("*(volatile int *)0 = 1", 16, "through a null pointer"),
        ("*(volatile int *)0x123456789000 = 1", 16, "far from every buffer"),
        ("((volatile u8 *)frame)[1024] = 1", 16, "outside the block's shared memory"),
    ],
)  # fmt: skip
def test_out_of_bounds(single: CpuDevice, build: Build, text: str, align: int, message: str) -> None:
    unit, before = unit_of(1024, align=align, grid=(1, 1, 1))
    with pytest.raises(DeviceFault, match=message):
        run(single, build(f"FRAME(1024) BLOCK({text})"), unit, before)


def test_a_write_that_alignment_keeps_from_the_guard_page(single: CpuDevice, build: Build) -> None:
    unit, before = unit_of(1000, align=256, grid=(1, 1, 1))
    with pytest.raises(DeviceFault, match=r"kernel wrote just past the end of buffer y \(4000 bytes\)"):
        run(single, build("FRAME(0) BLOCK(args->y[1000] = 1)"), unit, before)
    with pytest.raises(DeviceFault, match=r"kernel wrote 3 bytes before the start of buffer x"):
        run(single, build("FRAME(0) BLOCK(args->x[-1] = 1)"), unit, before)
    y = floats(single, run(single, build("FRAME(0) BLOCK(args->y[0] = args->x[1000])"), unit, before))
    assert abs(y[0]) > 1e9
    with pytest.raises(DeviceFault, match=r"kernel wrote just past the end of buffer y \(4000 bytes\)"):
        run(single, build("FRAME(0) BLOCK(args->y[1000] = args->x[1000])"), unit, before)


def test_alignment_is_kept(single: CpuDevice, build: Build) -> None:
    text = """FRAME(0) BLOCK(args->y[0] = (u64)args->x % 65536; args->y[1] = (u64)args->y % 65536;
    args->y[2] = (u64)frame % 128)"""
    for align in (4, 256, 65536):
        y = floats(single, run(single, build(text), *unit_of(1001, align=align)))
        assert y[0] % align == y[1] % align == y[2] == 0
        assert align == 65536 or y[1] % 4096 + 4004 > 4096 - align


def test_threads_that_fault_at_the_same_time_do_not_hide_where(device: CpuDevice, build: Build) -> None:
    """One thread waits for the other, so that both are about to fault in the same microsecond."""
    text = """static _Atomic int there; FRAME(0) BLOCK(there++; for (int i = 0; i < 1000000 && there < 2; i++) {}
    args->y[1024 + 4096 * b[0]] = 1)"""
    unit, before = unit_of(1024, align=16, grid=(2, 1, 1))
    kernel, memory = device.load(build(text)), device.allocate(unit, before)
    for _ in range(20):
        with pytest.raises(DeviceFault, match=r"wrote (just|16384 bytes) past the end of buffer y \(4096 bytes\)"):
            device.launch(kernel, memory, unit.launch)
