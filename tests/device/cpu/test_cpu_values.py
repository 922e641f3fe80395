"""The CPU device on objects written by hand: what launches leave in memory, globals and pointers included."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from r3bench.devices.cpu.device import CpuDevice
from r3bench.devices.cpu.elf import read_symbols
from r3bench.errors import LaunchError
from r3bench.model import Global, LaunchConfig, Pointer, Status
from tests.device.cpu_case import COUNTER, SAXPY, Build, bytes_of, floats, run, unit_of

# -- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 1000, 100_003])
def test_every_block_runs_once(device: CpuDevice, build: Build, n: int) -> None:
    unit, before = unit_of(n)
    memory = run(device, build(SAXPY), unit, before)
    np.testing.assert_array_equal(floats(device, memory), 1 + 2 * np.arange(n, dtype=np.float32))
    np.testing.assert_array_equal(floats(device, memory, "x"), np.arange(n))


def test_blocks_of_a_grid_in_three_dimensions(device: CpuDevice, build: Build) -> None:
    text = "FRAME(0) BLOCK(args->y[b[0] + 3 * (b[1] + 5 * b[2])] = b[0] + 10 * b[1] + 100 * b[2])"
    unit, before = unit_of(3 * 5 * 7, grid=(3, 5, 7))
    z, y, x = np.indices((7, 5, 3))
    np.testing.assert_array_equal(
        floats(device, run(device, build(text), unit, before)), (x + 10 * y + 100 * z).ravel()
    )


@pytest.mark.parametrize("count", [1, 5])
def test_a_window_runs_each_memory_once(device: CpuDevice, build: Build, count: int) -> None:
    unit, before = unit_of()
    kernel = device.load(build(SAXPY))
    memories = [device.allocate(unit, before) for _ in range(count)]
    for times in (1, 2):
        assert device.window(kernel, memories, unit.launch) > 0
        for memory in memories:
            np.testing.assert_array_equal(floats(device, memory), 1 + times * 2 * np.arange(1000, dtype=np.float32))
    device.restore(memories[0])
    np.testing.assert_array_equal(floats(device, memories[0]), np.ones(1000))


def test_reverse_order_reaches_blocks_and_object(single: CpuDevice, build: Build) -> None:
    text = "FRAME(0) BLOCK(int at = args->x[0]++; args->y[at] = b[0] + (launch->reverse ? 100 : 0))"
    unit, before = unit_of(8, grid=(8, 1, 1))
    forward = run(single, build(text), unit, before)
    reverse = run(single, build(text), unit, before, order="reverse")
    np.testing.assert_array_equal(floats(single, forward), np.arange(8))
    np.testing.assert_array_equal(floats(single, reverse), 100 + np.arange(8)[::-1])
    with CpuDeviceReversed() as device:
        kernel, memory = device.load(build(text)), device.allocate(unit, before)
        device.window(kernel, [memory], unit.launch)
        np.testing.assert_array_equal(floats(device, memory), 100 + np.arange(8)[::-1])
    with pytest.raises(ValueError, match="forward or reverse"):
        run(single, build(text), unit, before, order="shuffled")


class CpuDeviceReversed(CpuDevice):
    """A device that reverses every launch, as a context."""

    def __init__(self) -> None:
        super().__init__(threads=1, reverse=True)

    def __enter__(self) -> CpuDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def test_frames_are_poisoned_for_a_launch(device: CpuDevice, build: Build) -> None:
    """What an earlier block left in shared memory is gone, and uninitialized floats are NaN."""
    text = "FRAME(4096) BLOCK(args->y[b[0]] = ((float *)frame)[5]; ((float *)frame)[5] = 1)"
    unit, before = unit_of(64, grid=(64, 1, 1))
    assert np.isnan(floats(device, run(device, build(text), unit, before))).all()


def test_the_library_of_mathematics(single: CpuDevice, build: Build) -> None:
    text = """float sinf(float); double tgamma(double); void *memset(void *, int, u64);
    FRAME(0) BLOCK(args->y[0] = sinf(args->x[1]); args->y[1] = tgamma(5.0 + args->x[0]); memset(args->y + 2, 0, 4))"""
    y = floats(single, run(single, build(text), *unit_of(64)))
    np.testing.assert_allclose(y[:4], [np.sin(1.0), 24, 0, 1], rtol=1e-6)


def test_narrow_floats_round_as_numpy_does(single: CpuDevice, build: Build) -> None:
    """Double to half and float, float to bfloat16, half to float: all exponents, ties, subnormals, NaN, infinity."""
    text = """_Float16 __truncdfhf2(double); _Float16 __truncsfhf2(float); __bf16 __truncsfbf2(float);
    float __extendhfsf2(_Float16);
    FRAME(0) BLOCK(for (int i = 0; i < args->n; i++) {
      ((_Float16 *)args->y)[4 * i] = __truncdfhf2(args->x[i]);
      ((_Float16 *)args->y)[4 * i + 1] = __truncsfhf2(args->x[i]);
      ((__bf16 *)args->y)[4 * i + 2] = __truncsfbf2(args->x[i]); })"""
    bits = np.random.default_rng(7).integers(0, 2**32, 20_000, dtype=np.uint32)
    bits[:4000] = (bits[:4000] & 0x8000_0000) | 0x3300_0000 + (bits[:4000] & 0x1FFF_FFFF) % 0x1600_0000
    bits[4000:5000] &= 0xFFFF_F000
    bits[5000:5004] = 0x7F80_0000, 0xFF80_0000, 0x7FC0_0001, 0x477F_F000
    x = bits.view(np.float32)
    n = x.size
    unit, before = unit_of(2 * n)
    unit = replace(
        unit, arguments=struct.pack("<QQfi", 0, 0, 0.0, n), launch=LaunchConfig(grid=(1,) * 3, block=(1,) * 3)
    )
    memory = run(single, build(text), unit, {**before, "x": bytes_of(np.concatenate([x, x]))})
    got = single.download(memory)["y"].view(np.uint16).reshape(n, 4)
    with np.errstate(over="ignore", invalid="ignore"):
        half = x.astype(np.float16)
    nan = np.isnan(x)
    for column in (0, 1):
        np.testing.assert_array_equal(got[~nan, column], half.view(np.uint16)[~nan])
        assert np.isnan(got[nan, column].view(np.float16)).all()
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    np.testing.assert_array_equal(got[~nan, 2], rounded.astype(np.uint16)[~nan])


def test_half_widens_exactly(single: CpuDevice, build: Build) -> None:
    text = """float __extendhfsf2(_Float16);
    FRAME(0) BLOCK(for (int i = 0; i < 65536; i++) args->y[i] = __extendhfsf2(((_Float16 *)args->x)[i]))"""
    halves = np.arange(65536, dtype=np.uint16)
    unit, before = unit_of(65536, grid=(1, 1, 1))
    before["x"] = bytes_of(np.concatenate([halves, halves]))
    y = floats(single, run(single, build(text), unit, before))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(y, halves.view(np.float16).astype(np.float32))


# -- globals and pointers in memory ---------------------------------------------------------------------------------


def test_a_recorded_global_is_memory_of_the_unit(device: CpuDevice, build: Build) -> None:
    unit, before = unit_of(4, globals=(Global(symbol="counter", nbytes=4, dtype="int32"),), grid=(1, 1, 1))
    before["counter"] = bytes_of(np.array([41], np.int32))
    kernel, memories = device.load(build(COUNTER)), [device.allocate(unit, before) for _ in range(3)]
    device.window(kernel, memories, unit.launch)
    device.launch(kernel, memories[1], unit.launch)
    counts = [int(device.download(memory)["counter"].view(np.int32)[0]) for memory in memories]
    assert counts == [42, 43, 42]
    device.restore(memories[1])
    assert device.download(memories[1])["counter"].view(np.int32)[0] == 41
    assert device.compare(memories[1], before).status is Status.MATCH


def test_another_global_starts_from_its_initial_value_at_each_launch(device: CpuDevice, build: Build) -> None:
    unit, before = unit_of(4, grid=(1, 1, 1))
    kernel, memories = device.load(build(COUNTER)), [device.allocate(unit, before) for _ in range(3)]
    device.window(kernel, memories, unit.launch)
    device.launch(kernel, memories[0], unit.launch)
    assert [floats(device, memory)[0] for memory in memories] == [8, 8, 8]


def test_a_global_larger_than_recorded_is_refused(single: CpuDevice, build: Build) -> None:
    unit, before = unit_of(4, globals=(Global(symbol="counter", nbytes=2),))
    with pytest.raises(LaunchError, match="device variable counter of 4 bytes, but 2 were recorded"):
        run(single, build(COUNTER), unit, {**before, "counter": np.zeros(2, np.uint8)})


def test_pointers_inside_buffers(single: CpuDevice, build: Build) -> None:
    """A pointer that the kernel moves on comes back as the application would have seen it."""
    text = "FRAME(0) BLOCK(float **p = (float **)args->x; **p = 5; *p += 2)"
    unit, before = unit_of(64, grid=(1, 1, 1))
    unit = replace(unit, pointers=(*unit.pointers, Pointer(holder="x", offset=0, allocation="y", displacement=8)))
    before["x"][:8] = bytes_of(np.array([0x7F0000100008], np.uint64))
    memory = single.allocate(unit, before)
    np.testing.assert_array_equal(single.download(memory)["x"], before["x"])
    single.launch(single.load(build(text)), memory, unit.launch)
    after = single.download(memory)
    assert after["x"][:8].view(np.uint64)[0] == 0x7F0000100010
    np.testing.assert_array_equal(after["y"].view(np.float32)[:4], [1, 1, 5, 1])


def test_symbols_of_an_object(build: Build) -> None:
    symbols = read_symbols(build(COUNTER).image)
    assert {"r3_run_block", "r3_frame_bytes", "counter", "r3_slot.counter"} == symbols.defined.keys()
    assert symbols.variables["counter"].nbytes == 4
    assert symbols.variables["counter"].writable
    assert "sinf" in read_symbols(build("float sinf(float); float f(float x) { return sinf(x); }").image).undefined
