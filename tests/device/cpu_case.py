"""Objects written by hand, and units for them, for tests of the CPU device."""

from __future__ import annotations

import importlib.util
import struct
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.devices import Device
from r3bench.model import Allocation, Binary, Dim3, LaunchConfig, Pointer, ReplayUnit

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
COUNTER = """
int counter = 7; int *r3_slot_counter __asm__("r3_slot.counter") = &counter;
FRAME(0) BLOCK(args->y[0] = ++*r3_slot_counter)
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


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state not in "ZX"
