"""The kernels of contract.cu as Python functions for FakeDevice: written out thread by thread where order matters."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from r3bench.errors import DeviceFault, ReplayTimeout
from r3bench.testing import FakeLaunch, Program


def add(run: FakeLaunch) -> None:
    n = min(int(run.argument(16, "i4")), run.launch.blocks * run.launch.threads_per_block)
    run.at(run.argument(0, "u8"), "f8")[:n] += run.argument(8, "f8")


def double(run: FakeLaunch) -> None:
    n = int(run.argument(16, "i4"))
    run.at(run.argument(8, "u8"), "f4")[:n] = 2 * run.at(run.argument(0, "u8"), "f4")[:n]


def count(run: FakeLaunch) -> None:
    run.array("contract_counter", "i4")[0] += 1
    product = run.array("contract_table", "f8")[2] * run.array("contract_counter", "i4")[0]
    run.at(run.argument(0, "u8"), "f8")[0] = product


def follow(run: FakeLaunch) -> None:
    data, length = run.at(run.argument(0, "u8"), "u8")[:2]
    run.at(data, "f8")[: int(length)] *= 3


def swap(run: FakeLaunch) -> None:
    pair = run.at(run.argument(0, "u8"), "u8")
    pair[:2] = pair[1::-1].copy()


def indices(extent: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    return ((x, y, z) for z in range(extent[2]) for y in range(extent[1]) for x in range(extent[0]))


def geometry(run: FakeLaunch) -> None:
    out = run.at(run.argument(0, "u8"), "i4")
    place = 0
    for x, y, z in indices(run.launch.grid):
        for i, j, k in indices(run.launch.block):
            out[place] = i + 10 * j + 100 * k + 1000 * (x + 10 * y + 100 * z)
            place += 1


def shared(run: FakeLaunch) -> None:
    n = run.launch.block[0]
    if run.launch.shared_bytes < 4 * n:
        raise DeviceFault("The kernel touched shared memory that it has not.")
    out = run.at(run.argument(0, "u8"), "i4")
    for x in range(run.launch.grid[0]):
        out[x * n : (x + 1) * n] = 100 * x + np.arange(n)[::-1]


def last(run: FakeLaunch) -> None:
    run.at(run.argument(0, "u8"), "i4")[0] = run.launch.block[0] - 1 if run.order == "forward" else 0


def stray(run: FakeLaunch) -> None:
    run.at(int(run.argument(0, "u8")) + (8 << 40), "f8")[0] = 1


def trap(run: FakeLaunch) -> None:
    raise DeviceFault("The kernel trapped.")


def hang(run: FakeLaunch) -> None:
    raise ReplayTimeout("The kernel did not end.")


def spin(run: FakeLaunch) -> None:
    x, n = run.at(run.argument(0, "u8"), "f8"), int(run.argument(8, "i4"))
    x[0] = 1000 + (x[0] - 1000) * 0.999**n


PROGRAMS = {
    "contract_add": Program(add),
    "contract_double": Program(double),
    "contract_count": Program(count),
    "contract_follow": Program(follow),
    "contract_swap": Program(swap),
    "contract_geometry": Program(geometry),
    "contract_shared": Program(shared),
    "contract_last": Program(last),
    "contract_stray": Program(stray),
    "contract_trap": Program(trap),
    "contract_hang": Program(hang),
    "contract_spin": Program(spin, nanoseconds=2e6),
}
