"""The checked build: a wrong access is told with line, block, thread, array and index; a right one is let through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from r3bench.devices import Device, open_device
from r3bench.errors import DeviceFault, LaunchError
from r3bench.toolchain import Compiler
from tests.device.run_kernel import Runner

TEXT = """\
__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int counts[8];
struct P { int n; float c[3]; };
__device__ void put(int* a, int k, int v) {
  a[k] = v;
}
__global__ void fine(const float* x, float* y, P p) {
  __shared__ float s[64]; extern __shared__ double dyn[];
  int t = threadIdx.x, i = blockIdx.x * 64 + t, a[4];
  put(a, t & 3, i);
  s[t] = x[i]; dyn[t] = p.c[t % 3];
  atomicAdd(&counts[t & 7], 1);
  __syncthreads();
  y[i] = s[63 - t] + weights[t & 3] + (float)dyn[63 - t] + (a[t & 3] - i);
}
__global__ void past_the_end(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i + 1];
}
__global__ void before(float* y, int back) {
  int i = threadIdx.x;
  if (i == 5)
    y[i - back] = 1;
}
__global__ void shared_one(float* y) {
  __shared__ float first[8]; __shared__ float second[8];
  int t = threadIdx.x;
  second[t] = 1;
  __syncthreads();
  first[t + 1] = second[t];
  y[t] = second[t];
}
__global__ void dynamic(float* y) {
  extern __shared__ double dyn[];
  dyn[2 * threadIdx.x] = 1;
  y[threadIdx.x] = dyn[0];
}
__global__ void local(float* y, int n) {
  float a[4];
  for (int k = 0; k <= n; ++k) a[k] = k;
  y[threadIdx.x] = a[n & 1];
}
__global__ void constants(float* y, int n) { y[threadIdx.x] = weights[n + threadIdx.x]; }
__global__ void counters(int* y, int n) {
  atomicAdd(&y[threadIdx.x * n], 1);
}
__global__ void through(int* y, int n) { put(y, n + threadIdx.x, 1); }
__global__ void misaligned(float* y) { ((float4*)(y + threadIdx.x))->x = 1; }
__global__ void vectors(const float4* x, float* y) { y[threadIdx.x] = x[threadIdx.x].w; }
__global__ void structs(float* y, P p, int n) { y[threadIdx.x] = p.c[threadIdx.x + n]; }
__device__ float sum(const float* a, int n) {
  float s = 0;
  for (int k = 0; k < n; ++k)
    s += a[k];
  return s;
}
__global__ void half_written(float* y, int n) {
  __shared__ float a[8], b[8];
  int t = threadIdx.x;
  if (t < n) b[t] = t;
  a[t] = t;
  __syncthreads();
  y[t] = b[7 - t] + a[t];
}
__global__ void through_a_pointer(float* y, int n) {
  extern __shared__ float singles[];
  singles[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = sum(singles, n);
}
__global__ void counted_from(int* y, int n) {
  __shared__ int count;
  if (threadIdx.x < n) atomicAdd(&count, 1);
  y[threadIdx.x] = count;
}
__global__ void of_another_block(int* y, int n) {
  __shared__ int launches;
  if (blockIdx.x < n) launches = 1;
  y[blockIdx.x] = launches;
}
__global__ void divergent(int* y, int apart) {
  if (threadIdx.x / apart % 2) __syncthreads();
  y[threadIdx.x] = apart;
  __syncthreads();
}
__global__ void of_nothing(float* y, int n) {
  float a[8];
  for (int k = 0; k < n; ++k) a[k] = k;
  y[threadIdx.x] = a[n];
}
__global__ void by_a_constant(int* y, int n) {
  volatile long long held[2];
  y[threadIdx.x] = (int)held[1];
  held[n] = n;
}
"""
# Kernels that write shared memory in every way before they read it.
WRITTEN = """\
#include <cuda_fp16.h>
struct Padded { char kind; int value; };
struct Bits { unsigned low : 3, high : 29; };
__device__ void fill(float* to, float value) { *to = value; }
__global__ void structs_of_all(int* y) {
  __shared__ Padded all[32], copies[32]; __shared__ Bits bits[32];
  int t = threadIdx.x;
  all[t].kind = 1; all[t].value = t;
  bits[t].high = t; bits[t].low = 5;
  __syncthreads();
  Padded other = all[31 - t];
  copies[t] = other;
  y[t] = copies[t].value + other.kind + bits[t].high - bits[t].low;
}
__global__ void by_functions(int* y) {
  __shared__ float s[32], c[32], f[32], g[32]; __shared__ __half2 h[32]; __shared__ int e[32], copied[32];
  int t = threadIdx.x, words = t < 32;
  sincosf(0.0f, &s[t], &c[t]);
  frexpf(8.0f, &e[t]);
  fill(&f[t], t);
  h[t] = __floats2half2_rn(t, 1);
  h[t] += h[t];
  memcpy(&copied[t], &y[t], 4 * words);
  memset(&g[t], 0, 4 * words);
  __syncthreads();
  int u = 31 - t;
  y[t] = s[u] + c[u] + e[u] + f[u] + g[u] + __low2float(h[u]) + copied[u];
}
__device__ int changed(int* at) { return atomicOr(at, 0); }
__global__ void by_atomics(int* y) {
  __shared__ int lock, count; __shared__ unsigned long long wide[32];
  int t = threadIdx.x;
  atomicExch(&lock, 3);
  if (t == 0) count = 0;
  wide[t] = t;
  __syncthreads();
  atomicAdd(&count, 1);
  atomicMax(&wide[0], (unsigned long long)t);
  __syncthreads();
  y[t] = changed(&lock) + count + (int)wide[0];
}
__global__ void by_bytes(int* y) {
  extern __shared__ char raw[];
  int t = threadIdx.x, *numbers = (int*)raw; double* wide = (double*)(raw + 128);
  for (int k = 0; k < 4; ++k) raw[4 * t + k] = k == 0 ? t : 0;
  wide[t] = t;
  __syncthreads();
  y[t] = numbers[31 - t] + (int)wide[31 - t];
}
"""
LOCAL = """\
__device__ void set(int* a, int n) { for (int k = 0; k < n; ++k) a[k] = k; }
__global__ void local_arrays(int* y) {
  int t = threadIdx.x, a[8], b[8], c[4] = {1, 2, 3, 4}, d[8] = {}, e[8], sum = 0;
  Padded all[4], copies[4]; float4 vectors[2]; char raw[8];
  set(a, 8);
  int* chosen = t & 1 ? b : e;
  for (int k = 0; k < 8; ++k) chosen[k] = 1;
  all[t & 3].kind = 1; all[t & 3].value = t;
  copies[1] = all[t & 3];
  vectors[t & 1] = make_float4(1, 2, 3, 4);
  memcpy(&raw[4], &t, 4);
  for (int k = 0; k < 3; ++k) { int inner[4]; inner[k] = k; sum += inner[k]; }
  atomicAdd(&d[t & 7], 1);
  y[t] = a[t & 7] + chosen[7] + c[t & 3] + d[t & 7] + copies[1].value + (int)vectors[t & 1].w + *(int*)&raw[4] + sum;
}
"""
F4 = np.float32


@pytest.fixture(scope="module", params=[1, 2])
def run(request: pytest.FixtureRequest) -> Iterator[Runner]:
    compiler = Compiler(2)
    device: Device = open_device("cpu", threads=request.param)
    yield Runner(compiler, device, TEXT + WRITTEN + LOCAL, checked=True)
    device.close()
    compiler.close()


def floats(count: int) -> Any:
    return np.arange(count, dtype=F4)


P = np.array([(4, (7, 8, 9))], np.dtype([("n", "i4"), ("c", "f4", 3)])).tobytes()


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_what_is_allowed_runs_and_is_right(run: Runner, order: str) -> None:
    x, t = floats(128), np.arange(64)
    _, y = run("fine", (2,), (64,), x, np.zeros(128, F4), {"bytes": P}, shared_bytes=512, order=order)
    constant = np.array([1, 2, 3, 4])[t & 3] + np.array([7, 8, 9])[(63 - t) % 3]
    assert (y.reshape(2, 64) == x.reshape(2, 64)[:, ::-1] + constant).all()


def told(access: str, line: int, thread: int, rest: str, block: int = 0) -> str:
    return f"{access} at k.cu:{line}, block ({block}, 0, 0), thread ({thread}, 0, 0): {rest}"


INTS = np.zeros(8, np.int32)
# Blocks and threads, arguments, dynamic shared bytes; what is told.
WRONG: dict[str, tuple[int, int, tuple[Any, ...], int, str]] = {
    "past_the_end": (
        *(2, 32, (floats(64), floats(64)), 0),
        told("read 4 bytes", 18, 31, "index 64 of a0 (64 elements of float32)", 1),
    ),
    "before": (1, 8, (floats(8), 6), 0, told("wrote 4 bytes", 23, 5, "index -1 of a0 (8 elements of float32)")),
    "shared_one": (1, 8, (floats(8),), 0, told("wrote 4 bytes", 30, 7, "index 8 of first (8 elements of 4 bytes)")),
    "dynamic": (1, 8, (floats(8),), 64, told("wrote 8 bytes", 35, 4, "index 8 of dyn (8 elements of 8 bytes)")),
    "local": (1, 1, (floats(8), 4), 0, told("wrote 4 bytes", 40, 0, "index 4 of a (4 elements of 4 bytes)")),
    "constants": (1, 4, (floats(8), 1), 0, told("read 4 bytes", 43, 3, "index 4 of weights (4 elements")),
    "counters": (1, 3, (INTS, 4), 0, told("changed 4 bytes", 45, 2, "index 8 of a0 (8 elements of int32)")),
    "through": (1, 4, (INTS, 5), 0, told("wrote 4 bytes", 5, 3, "index 8 of a0 (8 elements of int32)")),
    "misaligned": (1, 4, (floats(8),), 0, told("wrote 4 bytes", 48, 1, "not aligned to 16 bytes, index 1 of a0")),
    "vectors": (1, 3, (floats(8), floats(8)), 0, told("read 4 bytes", 49, 2, "index 11 of a0 (8 elements")),
    "half_written": (
        *(1, 8, (floats(8), 7), 0),
        told("read 4 bytes", 63, 0, "index 7 of b (8 elements of 4 bytes), which its block has not written before"),
    ),
    "through_a_pointer": (
        *(1, 4, (floats(8), 5), 32),
        told("read 4 bytes", 54, 0, "index 4 of shared memory (8 elements of 4 bytes), which its block has not"),
    ),
    "counted_from": (
        *(1, 4, (INTS, 2), 0),
        told("changed 4 bytes", 73, 0, "index 0 of count (1 elements of 4 bytes), which its block has not written"),
    ),
    "of_another_block": (
        *(2, 1, (INTS, 1), 0),
        told("read 4 bytes", 79, 0, "index 0 of launches (1 elements of 4 bytes), which its block has not", 1),
    ),
    "of_nothing": (
        *(1, 1, (floats(8), 5), 0),
        told("read 4 bytes", 89, 0, "index 5 of a (8 elements of 4 bytes), which its block has not written before"),
    ),
    "by_a_constant": (
        *(1, 1, (INTS, 1), 0),
        told("read 8 bytes", 93, 0, "index 1 of held (2 elements of 8 bytes), which its block has not written before"),
    ),
    "structs": (1, 3, (floats(8), {"bytes": P}, 1), 0, told("read 4 bytes", 50, 2, "index 4 of p (4 elements")),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(run: Runner, name: str) -> None:
    blocks, threads, arguments, shared, words = WRONG[name]
    with pytest.raises(DeviceFault) as fault:
        run(name, (blocks,), (threads,), *arguments, shared_bytes=shared)
    assert words in str(fault.value)


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("name", ["structs_of_all", "by_functions", "by_atomics", "by_bytes"])
def test_shared_memory_that_was_written_in_any_way_may_be_read(run: Runner, name: str, order: str) -> None:
    t = np.arange(32, dtype=np.int32)
    right = {"structs_of_all": 27 + 0 * t, "by_functions": 12 + 3 * (31 - t), "by_atomics": 66 + 0 * t}
    (found,) = run(name, (1,), (32,), np.full(32, 7, np.int32), shared_bytes=384, order=order)
    assert (found == right.get(name, 2 * (31 - t))).all()


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_local_arrays_that_were_written_in_any_way_may_be_read(run: Runner, order: str) -> None:
    t = np.arange(32)
    (found,) = run("local_arrays", (1,), (32,), np.zeros(32, np.int32), order=order)
    assert (found == (t & 7) + 1 + 1 + (t & 3) + 1 + t + 4 + t + 3).all()


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_a_warp_that_waits_at_two_barriers_is_told(run: Runner, order: str) -> None:
    assert (run("divergent", (1,), (64,), np.zeros(64, np.int32), 32, order=order)[0] == 32).all()
    with pytest.raises(DeviceFault, match="divergent barrier: lanes of one warp wait at different calls"):
        run("divergent", (1,), (64,), np.zeros(64, np.int32), 1, order=order)


def test_a_source_cannot_ask_by_itself() -> None:
    """The function that checks exists for checked builds only."""
    text = 'extern "C" __device__ void __r3_check(long);\n__global__ void k(float* y) { __r3_check(1); }'
    with Compiler(1) as compiler:
        device = open_device("cpu", threads=1)
        with pytest.raises(LaunchError, match="calls __r3_check, which the CPU device does not provide"):
            Runner(compiler, device, text)("k", (1,), (1,), floats(1))
        device.close()
