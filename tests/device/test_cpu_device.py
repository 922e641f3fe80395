"""The CPU device on objects written by hand: values, guards, every way to crash, and what survives it."""

from __future__ import annotations

import gc
import importlib.util
import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from r3bench import sealing
from r3bench.devices import Device, open_device, survey
from r3bench.devices.cpu.device import CpuDevice
from r3bench.devices.cpu.elf import read_symbols
from r3bench.devices.cpu.process import ForkServer, Worker
from r3bench.devices.cpu.wire import Op
from r3bench.errors import CaptureError, DeviceFault, DeviceUnavailable, LaunchError, ReplayTimeout
from r3bench.model import Allocation, Binary, Dim3, Global, LaunchConfig, Pointer, ReplayUnit, Status

# What an object looks like to the device. `args` is the kernel's argument block, `b` the block's index.
PREAMBLE = """
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long u64;
struct launch { u32 grid[3], block[3], shared_bytes, reverse; };
struct args { float *x; float *y; float a; int n; };
#define FRAME(bytes) u64 r3_frame_bytes(const struct launch *launch) { return bytes; }
#define BLOCK(body) int r3_run_block(const u8 *raw, const struct launch *launch, const u32 *b, u8 *frame) { \\
  const struct args *args = (const void *)raw; body; return 0; }
#define THREADS for (u32 t = 0; t < launch->block[0]; t++)
"""
SAXPY = """
FRAME(0) BLOCK(THREADS {
  int i = b[0] * launch->block[0] + t;
  if (i < args->n) args->y[i] += args->a * args->x[i];
})
"""
HANG = "FRAME(0) BLOCK(for (volatile int forever = 1; forever;) {})"

Build = Callable[[str], Binary]
Floats = NDArray[np.float32]


def compile_object(folder: Path, text: str) -> bytes:
    spec = importlib.util.find_spec("ziglang")
    assert spec is not None
    assert spec.origin is not None
    source, output = folder / "kernel.c", folder / "kernel.o"
    source.write_text(PREAMBLE + text)
    command = [Path(spec.origin).with_name("zig"), "clang", "-c", "-O2", "-fPIC", "-ffreestanding", "-w", "-o", output]
    subprocess.run([*command, source], check=True, stdin=subprocess.DEVNULL)
    return output.read_bytes()


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """C text to a binary for this machine, compiled once."""
    folder = tmp_path_factory.mktemp("objects")
    with_target = open_device("cpu", threads=1)
    target = with_target.target
    with_target.close()

    @cache
    def built(text: str) -> Binary:
        return Binary(target=target, symbol="kernel", image=compile_object(folder, text), format="object")

    return built


@pytest.fixture(params=[1, 2], ids=["one thread", "two threads"])
def device(request: pytest.FixtureRequest) -> Iterator[CpuDevice]:
    opened = CpuDevice(threads=request.param)
    yield opened
    opened.close()


@pytest.fixture
def single() -> Iterator[CpuDevice]:
    opened = CpuDevice(threads=1)
    yield opened
    opened.close()


def unit_of(
    n: int = 1000, *, align: int = 16, a: float = 2.0, grid: Dim3 | None = None, **fields: Any
) -> tuple[ReplayUnit, dict[str, Any]]:
    """A unit with buffers x (0, 1, 2, ...) and y (all 1) of n floats, and the bytes it starts from."""
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=grid or (-(-n // 64), 1, 1), block=(64, 1, 1)),
        arguments=struct.pack("<QQfi", 0, 0, a, n),
        pointers=(Pointer(offset=0, allocation="x"), Pointer(offset=8, allocation="y")),
        allocations=tuple(
            Allocation(name=name, address=address, nbytes=4 * n, dtype="float32", shape=(n,), align=align)
            for name, address in (("x", 0x7F0000000000), ("y", 0x7F0000100000))
        ),
        written=("y",),
    )
    before = {"x": bytes_of(np.arange(n, dtype=np.float32)), "y": bytes_of(np.ones(n, np.float32))}
    return replace(unit, **fields), before


def bytes_of(values: NDArray[Any]) -> NDArray[np.uint8]:
    return values.reshape(-1).view(np.uint8)


def floats(device: Device, memory: Any, name: str = "y") -> Floats:
    return device.download(memory)[name].view(np.float32)


def run(device: Device, binary: Binary, unit: ReplayUnit, before: dict[str, Any], **options: Any) -> Any:
    memory = device.allocate(unit, before)
    device.launch(device.load(binary), memory, unit.launch, **options)
    return memory


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

COUNTER = """
int counter = 7; int *r3_slot_counter __asm__("r3_slot.counter") = &counter;
FRAME(0) BLOCK(args->y[0] = ++*r3_slot_counter)
"""


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


# -- guards ---------------------------------------------------------------------------------------------------------


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


# -- crashes --------------------------------------------------------------------------------------------------------


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
        from test_cpu_device import CpuDevice, Binary, unit_of
        device = CpuDevice(threads=2)
        unit, before = unit_of()
        image = Path(sys.argv[1]).read_bytes()
        hang = device.load(Binary(target=device.target, symbol="hang", image=image, format="object"))
        print(device._resources.worker.pid, flush=True)
        device.launch(hang, device.allocate(unit, before), unit.launch, timeout_s=600)
    """
    command = [sys.executable, "-c", textwrap.dedent(script), tmp_path / "hang.o"]
    here = Path(__file__)
    path = os.pathsep.join(map(str, (here.parent, here.parents[2])))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        server = parent_of(worker)
        assert parent_of(server) == parent.pid
        time.sleep(0.2)
        parent.kill()
    wait_for(lambda: not (running(worker) or running(server)))


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"


# -- what is refused ------------------------------------------------------------------------------------------------


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


# -- life -----------------------------------------------------------------------------------------------------------


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


# -- choosing a device ----------------------------------------------------------------------------------------------


def test_survey_names_every_kind_and_what_to_do() -> None:
    found = {status.name: status for status in survey()}
    assert list(found) == ["cuda", "hip", "cpu"]
    assert found["cpu"].usable
    assert not found["hip"].usable
    for status in found.values():
        assert status.detail
        assert status.usable or status.remedy


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hip", "device hip cannot be used: the HIP device is not part of this version"),
        ("abacus", "there is no device 'abacus'; choose auto, cuda, cpu\\."),
    ],
)
def test_devices_that_cannot_be_used(name: str, message: str) -> None:
    with pytest.raises(DeviceUnavailable, match=message):
        open_device(name)


@pytest.mark.skipif(survey()[0].usable, reason="a CUDA device is here, and auto takes it first")
def test_auto_is_the_best_usable() -> None:
    device = open_device("auto", threads=1)
    assert device.name == "cpu"
    device.close()


def test_symbols_of_an_object(build: Build) -> None:
    symbols = read_symbols(build(COUNTER).image)
    assert {"r3_run_block", "r3_frame_bytes", "counter", "r3_slot.counter"} == symbols.defined.keys()
    assert symbols.variables["counter"].nbytes == 4
    assert symbols.variables["counter"].writable
    assert "sinf" in read_symbols(build("float sinf(float); float f(float x) { return sinf(x); }").image).undefined
