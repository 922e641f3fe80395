"""What threads share is kept once, and loops with a stride of the block go over all threads in each pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from lowered import Kernel, compiled

from r3bench.devices.cpu.wire import ORDERS

TEXT = """
extern "C" {
__global__ void first_ones(unsigned *y, int n, int m) {
  if (threadIdx.x >= m) return;
  unsigned sum = 1;
  for (int i = threadIdx.x; i < n; i += blockDim.x)
    if (i % 3) sum += i; else sum *= 5;
  y[threadIdx.x] = sum;
}
__global__ void down(unsigned *y, int n, int m) {
  __shared__ unsigned s[48];
  unsigned sum = 0;
  for (long i = n - 1 - (int)threadIdx.x; i >= 0; i -= 64) sum = sum * 7 + i;
  s[threadIdx.x] = sum;
  __syncthreads();
  y[threadIdx.x] = s[(threadIdx.x + 1) % 48];
}
__global__ void apart(unsigned *y, int n, int m) {
  __shared__ unsigned s[48];
  unsigned v = m;
  for (int k = 0; k < n; k++) {
    if (threadIdx.x < 20) { s[threadIdx.x] = k; __syncwarp(0xfffff); v += s[(threadIdx.x + 1) % 20] * k; }
    __syncthreads();
  }
  y[threadIdx.x] = v;
}
__global__ void leaving(unsigned *y, int n, int m) {
  __shared__ unsigned s[48];
  unsigned v = m, scale = 1;
  for (int k = 0; k < n; k++) {
    if (threadIdx.x == 47 - k) break;
    s[threadIdx.x] = k + threadIdx.x;
    __syncthreads();
    v = v * 3 + s[threadIdx.x / 2] * scale;
    __syncthreads();
    scale = scale * 5 + k;
  }
  y[threadIdx.x] = v + scale;
}
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


def first_ones(n: int, m: int) -> list[int]:
    found = []
    for thread in range(THREADS):
        total = 1
        for i in range(thread, n, THREADS):
            total = total + i if i % 3 else total * 5
        found.append(total if thread < m else 0)
    return found


def down(n: int, m: int) -> list[int]:
    sums = []
    for thread in range(THREADS):
        total = 0
        for i in range(n - 1 - thread, -1, -64):
            total = total * 7 + i
        sums.append(total)
    return sums[1:] + sums[:1]


def apart(n: int, m: int) -> list[int]:
    return [m + (sum(k * k for k in range(n)) if thread < 20 else 0) for thread in range(THREADS)]


def leaving(n: int, m: int) -> list[int]:
    """Threads go at different passes, with what they shared until then; thread t / 2 goes after thread t."""
    found = []
    for thread in range(THREADS):
        v, scale = m, 1
        for k in range(min(n, 47 - thread)):
            v = v * 3 + (k + thread // 2) * scale
            scale = scale * 5 + k
        found.append(v + scale)
    return found


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


@pytest.mark.parametrize("right", [swapped, stopped, turns, either, nested, first_ones, down, apart, leaving])
def test_every_order_gives_the_right_values(ir: str, right: Callable[[int, int], Sequence[int]]) -> None:
    kernel = Kernel(ir, right.__name__)
    for n, m in ((0, 0), (1, 5), (3, 47), (5, 2), (100, 100), (48, 20), (96, 48)):
        for order in ORDERS:
            y = np.zeros(THREADS, np.uint32)
            assert kernel((1,), (THREADS,), y, np.int32(n), np.int32(m), order=order) == 0
            assert y.tolist() == [value & BITS for value in right(n, m)], (n, m, order)


def steps(kernel: Kernel) -> int:
    """At how many places each pass of a loop begins: the table's operations are its last bytes."""
    return re.findall(r"i8 (\d+)[,\]]", kernel.lowered.ir).count("255")


def test_loops_with_a_stride_are_cut(ir: str) -> None:
    assert {name: steps(Kernel(ir, name)) for name in ("swapped", "turns", "nested", "first_ones", "down")} == {
        "swapped": 1,
        "turns": 0,
        "nested": 1,
        "first_ones": 1,
        "down": 1,
    }


def test_a_counter_of_all_threads_is_kept_once(ir: str) -> None:
    """The loop's counter is read in front of the loop over threads, not for each of them."""
    assert "getelementptr i8, ptr %r3.in" in Kernel(ir, "turns").lowered.ir
    assert "getelementptr i8, ptr %r3.in" not in Kernel(ir, "either").lowered.ir


WALKS = """
extern "C" {
__global__ void columns(const unsigned *x, unsigned *y, int n, int m) {
  unsigned sum = m;
  for (int k = 0; k < n; k++) sum = sum * 3 + x[k * 48 + threadIdx.x];
  y[threadIdx.x] = sum;
}
__global__ void few(const unsigned *x, unsigned *y, int n, int m) {
  unsigned sum = m;
  for (int k = 0; k < 5; k++) sum = sum * 3 + x[k * 48 + threadIdx.x];
  y[threadIdx.x] = sum;
}
__global__ void rows(const unsigned *x, unsigned *y, int n, int m) {
  unsigned sum = m;
  for (int k = 0; k < n; k++) sum = sum * 3 + x[threadIdx.x * 5 + k];
  y[threadIdx.x] = sum;
}
__global__ void until(const unsigned *x, unsigned *y, int n, int m) {
  unsigned sum = m;
  for (int k = 0; k < n && k < threadIdx.x; k++) sum = sum * 3 + x[k * 48 + threadIdx.x];
  y[threadIdx.x] = sum;
}
}
"""


@pytest.mark.parametrize(("name", "cut"), [("columns", 1), ("few", 0), ("rows", 0), ("until", 0)])
def test_loops_in_which_neighbours_read_side_by_side(name: str, cut: int) -> None:
    """Cut if all threads leave it together, after a number of passes that is not fixed."""
    kernel = Kernel(compiled(WALKS), name)
    assert steps(kernel) == cut
    x = np.random.default_rng(4).integers(0, 1000, (5, THREADS), dtype=np.uint32)
    for order in ORDERS:
        y = np.zeros(THREADS, np.uint32)
        assert kernel((1,), (THREADS,), x, y, np.int32(5), np.int32(7), order=order) == 0
        right = np.full(THREADS, 7, np.uint32)
        for k in range(5):
            read = x.reshape(-1)[np.arange(THREADS) * 5 + k] if name == "rows" else x[k]
            right = np.where((name != "until") | (k < np.arange(THREADS)), right * np.uint32(3) + read, right)
        assert (y == right).all()
