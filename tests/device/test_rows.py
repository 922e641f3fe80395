"""Rows whose first test holds for an interval, plain updates of shared memory, threads that stay together."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from lowered import Kernel, compiled

from r3bench.devices.cpu.wire import ORDERS

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
__global__ void everywhere(unsigned *y, int n, int base) {
  atomicAdd(&y[0], threadIdx.x);
  unsigned old = atomicMax(&y[1], threadIdx.x * 7 % 32);
  if (threadIdx.x & 1) old += atomicSub(&y[2], 1);
  atomicAdd((float *)&y[3], 0.5f);
  atomicCAS(&y[4], 31u, old);
  atomicInc(&y[5], 20u);
}
__global__ void comb(unsigned *y, unsigned n, unsigned base) {
  unsigned i = base + threadIdx.x; if ((i & 7) == 3 && i < n) y[threadIdx.x] = i;
}
__global__ void one(unsigned *y, int n, int base) {
  if (base + (int)threadIdx.x == n) y[threadIdx.x] = n;
}
__global__ void eight(unsigned *y, int n, unsigned base) {
  unsigned i = base + threadIdx.x; if (i >> 3 == 2) y[threadIdx.x] = i;
}
__global__ void in_rows(unsigned *y, int n, int from) {
  __shared__ unsigned s[96], seven;
  int i = threadIdx.y * 24 + threadIdx.x;
  if (threadIdx.x == 5) seven = 7;
  s[i] = i;
  if (i < from || i >= n) return;
  __syncthreads();
  if ((threadIdx.x & 7) == 2) s[i] += 100;
  __syncthreads();
  y[i] = s[i] + seven - 7;
}
__global__ void there(unsigned *y, int n, int base) {
  __shared__ unsigned ones;
  if (threadIdx.x == 0) ones = 0;
  __syncthreads();
  if ((int)threadIdx.x < n) {
    unsigned odd = __ballot_sync(__activemask(), threadIdx.x & 1);
    if (threadIdx.x == 0) atomicAdd(&ones, __popc(odd));
    y[threadIdx.x] = odd;
  }
  __syncthreads();
  if (threadIdx.x == 31) y[threadIdx.x] = ones;
}
__global__ void repeated(unsigned *y, int n, int base) {
  __shared__ unsigned s[32];
  int i = threadIdx.x;
  s[i] = base;
  for (int k = 0; k < n; ++k) {
    __syncthreads();
    unsigned other = s[31 - i];
    __syncthreads();
    s[i] = other + i;
  }
  y[i] = s[i];
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
    "comb": (
        lambda n, base: ((base + THREADS) % 8 == 3) & ((base + THREADS) % 2**32 < n),
        [(2**32 - 1, 0), (20, 0), (40, 19), (20, 2**32 - 7), (0, 0)],
    ),
    "one": (lambda n, base: int32(base + THREADS) == n, [(5, 0), (31, 0), (32, 0), (-3, -9), (-(2**31), 2**31 - 2)]),
    "eight": (lambda n, base: (base + THREADS) % 2**32 // 8 == 2, [(0, 0), (0, 13), (0, 23), (0, 24), (0, 2**32 - 9)]),
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


def scalar_regions(text: str) -> set[str]:
    """The regions whose loop over threads is to get no vector form: all in which no loop may."""
    width = re.search(r'^(!\d+) = !\{!"llvm.loop.vectorize.width", i32 1\}', text, re.MULTILINE)
    assert width
    scalar = set(re.findall(rf"^(!\d+) = distinct .*{width[1]}\b", text, re.MULTILINE))
    regions = re.findall(r"^define internal i64 @r3\.region\.([\w.]+)\(.*?^}", text, re.MULTILINE | re.DOTALL)
    bodies = re.split(r"^define internal i64 @r3\.region\.[\w.]+\(", text, flags=re.MULTILINE)[1:]
    loops = {name: re.findall(r"!llvm\.loop (!\d+)", body) for name, body in zip(regions, bodies, strict=True)}
    return {name for name, found in loops.items() if found and scalar.issuperset(found)}


def test_regions_that_a_block_runs_once_beside_others_get_no_vector_form(ir: str) -> None:
    kernel = Kernel(ir, "repeated")
    assert scalar_regions(kernel.lowered.ir) == {"0"}
    y = np.zeros(32, np.uint32)
    assert kernel((1,), (32,), y, np.int32(3), np.int32(5)) == 0
    assert y.tolist() == [5 + 31 + i for i in range(32)]


def test_updates_of_shared_memory_are_plain(ir: str) -> None:
    kernel = Kernel(ir, "updates")
    assert "atomicrmw" not in kernel.lowered.ir
    assert scalar_regions(kernel.lowered.ir) == {"1"}  # where they are made
    for order in ("forward", "reverse"):
        y = np.zeros(4, np.uint32)
        assert kernel((1,), (32,), y, np.int32(0), np.int32(0), order=order) == 0
        assert y.tolist() == [496, 31, UNTOUCHED, 5]


@pytest.mark.parametrize(("n", "first"), [(96, 0), (40, 0), (24, 0), (72, 48), (96, 30), (96, 95), (0, 0)])
@pytest.mark.parametrize("order", ORDERS)
def test_rows_part_and_the_few_go_alone(ir: str, n: int, first: int, order: str) -> None:
    kernel, y = Kernel(ir, "in_rows"), np.full(96, UNTOUCHED, np.uint32)
    assert "i8 254" in kernel.lowered.ir  # behind what the few do
    assert kernel((1,), (24, 4), y, np.int32(n), np.int32(first), order=order) == 0
    threads = np.arange(96)
    right = np.where(threads % 24 % 8 == 2, threads + 100, threads)
    assert y.tolist() == np.where((threads >= first) & (threads < n), right, UNTOUCHED).tolist()


@pytest.mark.parametrize("n", [32, 20, 1])
@pytest.mark.parametrize("order", ORDERS)
def test_a_ballot_of_those_that_are_active_is_one_place(ir: str, n: int, order: str) -> None:
    kernel, y = Kernel(ir, "there"), np.zeros(32, np.uint32)
    assert "activemask" not in kernel.lowered.ir
    assert kernel((1,), (32,), y, np.int32(n), np.int32(0), order=order) == 0
    odd = 0xAAAAAAAA & ((1 << n) - 1)
    right = np.where(np.arange(32) < n, odd, 0)
    right[31] = odd.bit_count()
    assert y.tolist() == right.tolist()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_updates_of_other_memory_are_plain_where_one_thread_runs_all(ir: str, threads: int, order: str) -> None:
    kernel, y = Kernel(ir, "everywhere"), np.zeros(8, np.uint32)
    assert "atomicrmw" in kernel.lowered.ir
    assert kernel((3,), (32,), y, np.int32(0), np.int32(0), order=order, threads=threads) == 0
    assert y.tolist() == [3 * 496, 31, 2**32 - 48, int(np.float32(48).view(np.uint32)), 0, 96 % 21, 0, 0]
