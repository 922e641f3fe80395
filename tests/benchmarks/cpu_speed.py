"""Thirteen kernels on the CPU device with one thread against plain C++ loops at -O3 -march=native, in one run.

Printed for each kernel: the least of interleaved repetitions of both in milliseconds of processor time, and their
ratio, which a busy machine changes little. The loops are plain_loops.cpp, built by the clang of ziglang. Asked for: a
ratio of at most 2, for the histogram in shared memory of at most 4; that of the one in global memory is only reported.

    python -m tests.benchmarks.cpu_speed [repetitions [kernel ...]]
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import clock_gettime_ns, process_time_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from r3bench import frontend
from r3bench.devices import Device, Kernel, Memory, open_device
from r3bench.model import Allocation, Configuration, LaunchConfig, Pointer, ReplayUnit
from r3bench.remix import BuildRequest
from r3bench.space import UnitFacts
from r3bench.toolchain import Compiler
from tests.benchmarks.machine import describe

TEXT = (Path(__file__).parents[1] / "device" / "thirteen.cu").read_text()
LOOPS = Path(__file__).with_name("plain_loops.cpp")
LIMITS = {"hist_sh": 4.0, "hist": float("inf")}
MOST = 2.0
LAUNCHES = 4
"""So many in a row, so that waking the worker does not count."""
_PAGE = 1 << 32
Array = NDArray[Any]


@dataclass
class Case:
    """A kernel's launch and arguments: arrays for pointers; ``nested`` are arrays that a struct points to."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    arguments: tuple[Any, ...]
    shared_bytes: int = 0
    nested: dict[int, Array] = field(default_factory=dict)

    @property
    def launch(self) -> LaunchConfig:
        return LaunchConfig(grid=self.grid, block=self.block, shared_bytes=self.shared_bytes)


def cases() -> dict[str, Case]:
    random = np.random.default_rng(1)
    n, threads = 1 << 20, (256, 1, 1)
    all_of, some = (n // 256, 1, 1), (64, 1, 1)
    one, count = np.float32(0.5), np.int32(n)
    x, zeros = random.random(n, "f4"), np.zeros(n, "f4")
    u, side = random.random(n), np.int32(1024)
    a, b, c = random.random((3, 512, 512), "f4")
    bytes_, ints = random.integers(0, 256, n).astype("u1"), random.integers(-5, 6, n).astype("i4")
    starts, steps = np.arange(1 << 18, dtype="u4"), np.zeros(1 << 18, "i4")
    par = np.zeros((), [("a", "f8"), ("n", "i4"), ("w", "f4", 3), ("x", "u8")])
    par["a"], par["n"], par["w"] = 1.5, n, (0.25, 0.5, 0.125)
    bins = np.zeros(256, "i4")
    return {
        "saxpy": Case(all_of, threads, (count, one, x, zeros)),
        "stencil5": Case(all_of, threads, (u, np.zeros(n), count, np.float64(0.5))),
        "lap2d": Case((32, 128, 1), (32, 8, 1), (u, np.zeros(n), side, side, np.float64(0.5))),
        "matmul": Case((32, 32, 1), (16, 16, 1), (a, b, c, np.int32(512))),
        "reduce": Case(some, threads, (x, np.zeros(64, "f4"), count)),
        "reduce_dyn": Case(some, threads, (x, np.zeros(64, "f4"), count), 1024),
        "hist": Case(all_of, threads, (bytes_, bins, count)),
        "hist_sh": Case(some, threads, (bytes_, bins, count)),
        "collatz": Case((len(starts) // 256, 1, 1), threads, (starts, steps, np.int32(len(starts)))),
        "structk": Case(all_of, threads, (par, zeros), nested={24: x}),
        "mathk": Case(all_of, threads, (8 * x - 4, zeros, count)),
        "earlyexit": Case(all_of, threads, (ints, np.zeros(n, "i4"), count)),
        "localarr": Case(all_of, threads, (x, zeros, count, np.int32(3))),
    }


# -- both sides -----------------------------------------------------------------------------------------------------


def plain_loops(folder: Path) -> ctypes.CDLL:
    zig, compiled, library = str(frontend.find_compiler()), folder / "loops.o", folder / "loops.so"
    flags = ["-c", "-O3", "-march=native", "-fPIC", "-fno-sanitize=all", "-o", str(compiled)]
    subprocess.run([zig, "clang", *flags, str(LOOPS)], check=True)
    subprocess.run([zig, "ld.lld", "-shared", "-o", str(library), str(compiled)], check=True)
    ctypes.CDLL("libm.so.6", ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(library))


def plain_call(library: ctypes.CDLL, name: str, case: Case) -> Callable[[], None]:
    """A call of the loop on copies of the arguments."""
    held, passed = [], []
    for argument in case.arguments:
        if isinstance(argument, np.ndarray):
            copy = np.array(argument)
            for offset, array in case.nested.items() if copy.ndim == 0 else ():
                copy.reshape(1).view("u1")[offset : offset + 8].view("u8")[0] = array.ctypes.data
            held.append(copy)
            passed.append(ctypes.c_void_p(copy.ctypes.data))
        else:
            passed.append(np.ctypeslib.as_ctypes_type(argument.dtype)(argument.item()))
    function = library[name]

    def call(keep: object = held) -> None:
        for _ in range(LAUNCHES):
            function(*passed)

    return call


def unit(case: Case) -> tuple[ReplayUnit, dict[str, Array]]:
    block, pointers = bytearray(), list[Pointer]()
    arrays: list[Array] = []
    for argument in case.arguments:
        is_array = isinstance(argument, np.ndarray) and argument.ndim > 0
        raw = bytes(8) if is_array else argument.tobytes()
        block += bytes(-len(block) % min(len(raw), 8))
        places = {0: argument} if is_array else case.nested if len(raw) > 8 else {}
        for offset, array in places.items():
            pointers.append(Pointer(offset=len(block) + offset, allocation=f"a{len(arrays)}"))
            arrays.append(array)
        block += raw
    names = {f"a{k}": array for k, array in enumerate(arrays)}
    allocations = tuple(
        Allocation(name=name, address=_PAGE * (k + 1), nbytes=array.nbytes)
        for k, (name, array) in enumerate(names.items())
    )
    for pointer in pointers:
        block[pointer.offset : pointer.offset + 8] = (_PAGE * (int(pointer.allocation[1:]) + 1)).to_bytes(8, "little")
    found = ReplayUnit(
        index=0, launch=case.launch, arguments=bytes(block), pointers=tuple(pointers), allocations=allocations
    )
    return found, {name: array.reshape(-1).view("u1") for name, array in names.items()}


def loaded(device: Device, compiler: Compiler, name: str, case: Case) -> tuple[Kernel, Memory]:
    """The kernel in a worker, and its memory."""
    request = BuildRequest(
        files=(("k.cu", TEXT),), main="k.cu", flags=(), symbol=name, target=device.target,
        configuration=Configuration(), facts=UnitFacts(launch=case.launch),
    )  # fmt: skip
    kernel = device.load(compiler.submit(request).result().binary)
    memory = device.allocate(*unit(case))
    device.window(kernel, [memory], case.launch)  # now there is a worker with the kernel
    return kernel, memory


def device_call(device: Device, compiler: Compiler, name: str, case: Case) -> tuple[Callable[[], float], Memory]:
    """LAUNCHES of the kernel, which give their nanoseconds of the worker, and the memory they work on."""
    kernel, memory = loaded(device, compiler, name, case)

    def call() -> float:
        before = dict(_spent(os.getpid()))
        device.window(kernel, [memory] * LAUNCHES, case.launch)
        return sum(now - before[process] for process, now in _spent(os.getpid()) if process in before)

    return call, memory


def _spent(parent: int) -> Iterator[tuple[int, int]]:
    """Processor time, by number, of the processes that ``parent`` and its children started."""
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            with suppress(OSError):  # it has ended
                yield child, clock_gettime_ns(~child << 3 | 2)  # that clock's number in Linux
                yield from _spent(child)


# -- figures --------------------------------------------------------------------------------------------------------


def measured(device_side: Callable[[], float], plain_side: Callable[[], None], repetitions: int) -> tuple[float, float]:
    """Least milliseconds of one launch of each."""
    ours, plain = [], []
    for _ in range(repetitions):
        ours.append(device_side())
        start = process_time_ns()
        plain_side()
        plain.append(process_time_ns() - start)
    return min(ours) / 1e6 / LAUNCHES, min(plain) / 1e6 / LAUNCHES


def rows(repetitions: int, wanted: list[str]) -> Iterator[tuple[str, float, float, float, str]]:
    with tempfile.TemporaryDirectory() as folder, Compiler(1) as compiler:
        library = plain_loops(Path(folder))
        device = open_device("cpu", threads=1)
        for name, case in cases().items():
            if not wanted or name in wanted:
                launch, memory = device_call(device, compiler, name, case)
                ours, plain = measured(launch, plain_call(library, name, case), repetitions)
                device.release(memory)
                ratio = ours / plain
                yield name, ours, plain, ratio, "" if ratio <= LIMITS.get(name, MOST) else "FAILS"
        device.close()


def main(repetitions: int = 20, *wanted: str) -> bool:
    found = list(rows(repetitions, list(wanted)))
    headers = ["kernel", "device, ms", "loops, ms", "ratio", ""]
    print(describe())
    print(tabulate(found, headers=headers, floatfmt=".2f"))
    return not any(row[-1] for row in found)


if __name__ == "__main__":
    sys.exit(not main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, *sys.argv[2:]))
