"""Rows whose first test holds for an interval, plain updates of shared memory, threads that stay together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from lowered import Kernel, compiled

TEXT = """
extern "C" {
__global__ void less(unsigned *y, int n, int base) {
  int i = base + threadIdx.x; if (i < n) y[threadIdx.x] = i;
}
__global__ void inside(unsigned *y, int n, int base) {
  int i = base + blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 2 || i >= n - 2) return;
  y[threadIdx.x] = i;
}
__global__ void unsigned_(unsigned *y, unsigned n, unsigned base) {
  unsigned i = base + threadIdx.x; if (i <= n) y[threadIdx.x] = i;
}
__global__ void wide(unsigned *y, long long n, int base) {
  long long i = (long long)(base + (int)threadIdx.x); if (i > n) y[threadIdx.x] = i;
}
__global__ void from_the_end(unsigned *y, int n, int base) {
  int i = base - threadIdx.x; if (i < n) y[threadIdx.x] = i;
}
__global__ void updates(unsigned *y, int n, int base) {
  __shared__ unsigned s[4];
  if (threadIdx.x < 4) s[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&s[0], threadIdx.x);
  atomicMax(&s[1], threadIdx.x * 7 % 32);
  unsigned old = atomicOr(&s[2], 1u << threadIdx.x);
  if (__popc(old) == 31) atomicExch(&s[3], 5);
  __syncthreads();
  if (threadIdx.x < 4) y[threadIdx.x] = s[threadIdx.x];
}
}
"""
UNTOUCHED = 0xFFFFFFFF
THREADS = np.arange(32, dtype=np.int64)


@pytest.fixture(scope="module")
def ir() -> str:
    return compiled(TEXT)


def int32(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int64).astype(np.uint32).view(np.int32).astype(np.int64)


CASES: dict[str, tuple[Callable[[int, int], np.ndarray], list[tuple[int, int]]]] = {
    "less": (lambda n, base: int32(base + THREADS) < n, [(5, 0), (0, 0), (40, 0), (-3, -9), (7, 2**31 - 9)]),
    "inside": (lambda n, b: (b + THREADS >= 2) & (b + THREADS < n - 2), [(40, 0), (40, 10), (3, 0), (20, -5), (-9, 0)]),
    "unsigned_": (lambda n, base: (base + THREADS) % 2**32 <= n, [(5, 0), (5, 2**32 - 4), (2**32 - 2, 2**32 - 20)]),
    "wide": (lambda n, base: base + THREADS > n, [(5, 0), (-1, 0), (100, 0), (2**31 + 5, 0), (-(2**40), -50)]),
    "from_the_end": (lambda n, base: int32(base - THREADS) < n, [(5, 10), (50, 10), (-90, 10)]),
}


@pytest.mark.parametrize("name", CASES)
def test_first_test(ir: str, name: str) -> None:
    holds, launches = CASES[name]
    kernel = Kernel(ir, name)
    for n, base in launches:
        for order in ("forward", "reverse"):
            y = np.full(32, UNTOUCHED, np.uint32)
            bound = np.int64(n) if name == "wide" else np.int64(n).astype(np.uint32)
            assert kernel((1,), (32,), y, bound, np.int64(base).astype(np.uint32), order=order) == 0
            sign = -1 if name == "from_the_end" else 1
            right = np.where(holds(n, base), (base + sign * THREADS) % 2**32, UNTOUCHED)
            assert y.tolist() == right.tolist(), (n, base, order)


def test_updates_of_shared_memory_are_plain(ir: str) -> None:
    kernel = Kernel(ir, "updates")
    assert "atomicrmw" not in kernel.lowered.ir
    for order in ("forward", "reverse"):
        y = np.zeros(4, np.uint32)
        assert kernel((1,), (32,), y, np.int32(0), np.int32(0), order=order) == 0
        assert y.tolist() == [496, 31, UNTOUCHED, 5]
