"""Two threads of the CPU device against one, on the five of thirteen kernels that are light on memory bandwidth.

Printed for each kernel: the least of interleaved repetitions with either in milliseconds, how much faster two are, and
how much more than one two workers get done that know nothing of each other: what the machine's cores allow. Asked for
on an idle machine with two cores or more: 1.7 times at least.

The histogram in shared memory counts MORE times as many bytes as in cpu_speed: at the end its blocks add to one array,
and two threads that do wait for each other's lines of it. That takes as long whatever was counted, a tenth of the
millisecond that counting a megabyte takes two threads, and would be all that is seen.

    python -m tests.benchmarks.cpu_threads [repetitions]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
from tabulate import tabulate

from r3bench.devices import Device, open_device
from r3bench.toolchain import Compiler
from tests.benchmarks.cpu_speed import LAUNCHES, Case, cases, loaded
from tests.benchmarks.machine import describe

MORE = 16
KERNELS = ("matmul", "hist_sh", "collatz", "mathk", "localarr")
LEAST = 1.7


def sized() -> dict[str, Case]:
    """The launches."""
    found = cases()
    content, bins, count = found["hist_sh"].arguments
    found["hist_sh"] = replace(found["hist_sh"], arguments=(np.tile(content, MORE), bins, np.int32(count * MORE)))
    return found


def window(device: Device, compiler: Compiler, name: str, case: Case) -> Callable[[], float]:
    """A window of LAUNCHES, which gives its milliseconds per launch by the clock on the wall."""
    kernel, memory = loaded(device, compiler, name, case)
    return lambda: device.window(kernel, [memory] * LAUNCHES, case.launch) / 1e6 / LAUNCHES


def rows(repetitions: int) -> Iterator[tuple[str, float, float, float, float, str]]:
    devices, launches = [open_device("cpu", threads=count) for count in (1, 2, 1)], sized()
    with Compiler(1) as compiler, ThreadPoolExecutor(2) as pool:
        for name in KERNELS:
            alone, team, other = (window(device, compiler, name, launches[name]) for device in devices)
            taken = [(alone(), team(), max(pool.map(lambda run: run(), (alone, other)))) for _ in range(repetitions)]
            one, two, both = (min(column) for column in zip(*taken, strict=True))
            yield name, one, two, one / two, 2 * one / both, "" if one / two >= LEAST else "FAILS"
    for device in devices:
        device.close()


def main(repetitions: int = 20) -> bool:
    print(describe())
    found = list(rows(repetitions))
    print(tabulate(found, headers=["kernel", "one thread, ms", "two, ms", "faster", "two workers", ""], floatfmt=".2f"))
    print(describe())
    return not any(row[-1] for row in found)


if __name__ == "__main__":
    sys.exit(not main(*map(int, sys.argv[1:])))
