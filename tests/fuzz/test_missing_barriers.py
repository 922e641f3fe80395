"""A kernel that lacks a barrier is told: the orders of threads do not all give the right result."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from r3bench.devices.cpu.wire import ORDERS
from tests.device.lowered import Kernel, compiled

HERE = Path(__file__).parent
THIRTEEN = ("matmul", "reduce_dyn", "hist_sh", "localarr")
BARRIER = "__syncthreads();"
Ints = NDArray[np.int32]


def _scanned(x: Ints) -> Ints:
    return np.cumsum(x, axis=1, dtype=np.int32)


def _smoothed(x: Ints) -> Ints:
    for _ in range(6):
        x = np.roll(x, -1, axis=1) + np.roll(x, 1, axis=1)
    return x


def _told_again(x: Ints) -> Ints:
    total = np.zeros((len(x), 1), np.int32)
    for k in range(4):
        total = 3 * total + x[:, 9 * k + 5 : 9 * k + 6]
    return np.repeat(total, 64, axis=1)


T = np.arange(64, dtype=np.int32)
RIGHT: dict[str, Callable[[Ints], Ints]] = {
    "mirror": lambda x: x[:, ::-1],
    "from_the_left": lambda x: np.where(T > 0, np.roll(x, 1, axis=1), -1),
    "from_the_right": lambda x: np.where(T < 63, np.roll(x, -1, axis=1), -1),
    "scan": _scanned,
    "two_buffers": _smoothed,
    "first_tells": lambda x: x[:, :1] + T,
    "last_tells": lambda x: x[:, 63:] + T,
    "tells_again": _told_again,
    "sort": lambda x: np.sort(x, axis=1)[:, ::-1],
    "positives": lambda x: np.repeat((x > 0).sum(axis=1, keepdims=True), 64, axis=1),
    "cases": lambda x: np.stack([np.roll(x[0], -5), x[1, T * 7 & 63] + 2]),
    "warps": lambda x: np.repeat(x.reshape(2, 2, 32).sum(axis=2) @ [[1], [-2]], 64, axis=1),
}


def _texts() -> dict[str, str]:
    """The kernels with barriers, by name, as text from ``__global__`` to the closing brace."""
    found = {}
    for file, wanted in (("barriers.cu", tuple(RIGHT)), ("../device/thirteen.cu", THIRTEEN)):
        text = (HERE / file).read_text()
        for name in wanted:
            match = re.search(rf"^__global__ void {name}\(.*?^}}", text, re.MULTILINE | re.DOTALL)
            assert match, name
            found[name] = match[0]
    return found


TEXTS = _texts()
MUTANTS = [(name, place) for name, text in TEXTS.items() for place in range(text.count(BARRIER))]


def _without(name: str, place: int) -> str:
    """The kernel without its barrier number ``place``, under the name ``<name>_<place>``."""
    parts = TEXTS[name].split(BARRIER)
    text = BARRIER.join([*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :]])
    return text.replace(f" {name}(", f" {name}_{place}(", 1)


@cache
def _source() -> str:
    head = '#define TS 16\n#define PLACE unsigned t = threadIdx.x, i = blockIdx.x * 64 + t\nextern "C" {\n'
    return compiled(head + "\n".join([*TEXTS.values(), *(_without(*mutant) for mutant in MUTANTS)]) + "\n}\n")


@cache
def _kernel(symbol: str) -> Kernel:
    return Kernel(_source(), symbol)


def _is_right(name: str, symbol: str, order: str) -> bool:
    random, kernel = np.random.default_rng(5), _kernel(symbol)
    if name in RIGHT:
        x, y = random.integers(-99, 99, (2, 64)).astype(np.int32), np.zeros((2, 64), np.int32)
        return kernel((2,), (64,), x, y, order=order) == 0 and bool((y == RIGHT[name](x)).all())
    n = 64
    if name == "matmul":
        a, b = (random.integers(-4, 5, (n, n)).astype(np.float32) for _ in range(2))
        c = np.zeros((n, n), np.float32)
        return kernel((4, 4), (16, 16), a, b, c, np.int32(n), order=order) == 0 and bool((c == a @ b).all())
    if name == "hist_sh":
        bytes_, counts = random.integers(0, 256, 3000).astype(np.uint8), np.zeros(256, np.int32)
        fine = kernel((2,), (128,), bytes_, counts, np.int32(3000), order=order) == 0
        return fine and bool((counts == np.bincount(bytes_, minlength=256)).all())
    values = random.integers(-9, 9, 256).astype(np.float32)
    out = np.zeros(256, np.float32)
    if name == "reduce_dyn":
        fine = kernel((1,), (128,), values, out, np.int32(256), shared_bytes=512, order=order) == 0
        return fine and bool(out[0] == values.sum())
    i, r = np.arange(256), 3
    fine = kernel((1,), (256,), values, out, np.int32(256), np.int32(r), order=order) == 0
    # buf[(k * 3) & 15] is x[i + k]: buf[3] holds k = 1, and so does what the next thread left.
    return fine and bool((out == values[(i + 1) % 256] + values[((i + 1) % 256 + 1) % 256]).all())


@pytest.mark.parametrize("name", TEXTS)
def test_kernels_are_right_in_every_order(name: str) -> None:
    assert [_is_right(name, name, order) for order in ORDERS] == [True] * len(ORDERS)


@pytest.mark.parametrize(("name", "place"), MUTANTS)
def test_a_missing_barrier_is_told(name: str, place: int) -> None:
    right = [_is_right(name, f"{name}_{place}", order) for order in ORDERS]
    assert not all(right)
