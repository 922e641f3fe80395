"""Kernels whose threads stay together: uniform loops and branches around barriers, loops with a stride of the block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from lowered import Kernel, compiled

TEXT = """
extern "C" {
__global__ void swapped(unsigned *y, int n, int m) {
  unsigned a = threadIdx.x, b = 1;
  for (int i = threadIdx.x; i < n; i += blockDim.x) { unsigned t = a; a = b; b = t + b + i; }
  y[threadIdx.x] = 31 * a + b;
}
__global__ void stopped(unsigned *y, int n, int m) {
  unsigned sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) { sum += i; if (sum > m) break; }
  y[threadIdx.x] = sum;
}
__global__ void turns(unsigned *y, int n, int m) {
  __shared__ unsigned s[48];
  unsigned sum = 0;
  for (int k = 0; k < n; k++) {
    s[threadIdx.x] = k + threadIdx.x;
    __syncthreads();
    sum = sum * 3 + s[(threadIdx.x + k) % 48];
    __syncthreads();
    if (k == m) break;
  }
  y[threadIdx.x] = sum;
}
__global__ void either(unsigned *y, int n, int m) {
  __shared__ unsigned s[48];
  unsigned v = m;
  if (n > 3) { s[threadIdx.x] = threadIdx.x; __syncthreads(); v += s[47 - threadIdx.x]; }
  else if (n > 0) { s[threadIdx.x] = 2 * threadIdx.x; __syncthreads(); v += s[(threadIdx.x + 1) % 48]; }
  y[threadIdx.x] = v;
}
__global__ void nested(unsigned *y, int n, int m) {
  __shared__ unsigned s[48];
  unsigned sum = 0, scale = 1;
  for (int k = 0; k < n; k++) {
    unsigned part = threadIdx.x;
    for (int i = threadIdx.x; i < m; i += blockDim.x) part = part * 5 + i * scale;
    s[threadIdx.x] = part;
    __syncthreads();
    sum += s[(threadIdx.x + 7) % 48];
    __syncthreads();
    scale = scale * 3 + k;
  }
  y[threadIdx.x] = sum + scale;
}
}
"""
THREADS = 48
BITS = 0xFFFFFFFF


def swapped(n: int, m: int) -> list[int]:
    found = []
    for thread in range(THREADS):
        a, b = thread, 1
        for i in range(thread, n, THREADS):
            a, b = b, a + b + i
        found.append(31 * a + b)
    return found


def stopped(n: int, m: int) -> list[int]:
    found = []
    for thread in range(THREADS):
        total = 0
        for i in range(thread, n, THREADS):
            total += i
            if total > m:
                break
        found.append(total)
    return found


def turns(n: int, m: int) -> list[int]:
    sums = [0] * THREADS
    for k in range(min(n, m + 1) if m >= 0 else n):
        sums = [3 * total + k + (thread + k) % THREADS for thread, total in enumerate(sums)]
    return sums


def either(n: int, m: int) -> list[int]:
    if n > 3:
        return [m + THREADS - 1 - thread for thread in range(THREADS)]
    return [m + (2 * ((thread + 1) % THREADS) if n > 0 else 0) for thread in range(THREADS)]


def nested(n: int, m: int) -> list[int]:
    sums, scale = [0] * THREADS, 1
    for k in range(n):
        parts = []
        for part in range(THREADS):
            thread = part
            for i in range(thread, m, THREADS):
                part = part * 5 + i * scale
            parts.append(part)
        sums = [total + parts[(thread + 7) % THREADS] for thread, total in enumerate(sums)]
        scale = scale * 3 + k
    return [total + scale for total in sums]


@pytest.fixture(scope="module")
def ir() -> str:
    return compiled(TEXT)


@pytest.mark.parametrize("right", [swapped, stopped, turns, either, nested])
def test_threads_that_stay_together(ir: str, right: Callable[[int, int], Sequence[int]]) -> None:
    kernel = Kernel(ir, right.__name__)
    assert "@r3.mixed" not in kernel.lowered.ir
    for n, m in ((0, 0), (1, 5), (3, 47), (5, 2), (100, 100), (48, 20)):
        for order in ("forward", "reverse"):
            y = np.zeros(THREADS, np.uint32)
            assert kernel((1,), (THREADS,), y, np.int32(n), np.int32(m), order=order) == 0
            assert y.tolist() == [value & BITS for value in right(n, m)], (n, m, order)


def test_steps_of_a_loop_go_over_all_threads(ir: str) -> None:
    """One thread's loop with a stride is cut at each pass; one that can end in two ways is not."""
    assert "@r3.each" in Kernel(ir, "swapped").lowered.ir
    assert "@r3.each" not in Kernel(ir, "stopped").lowered.ir
