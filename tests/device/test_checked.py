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
  y[t] = first[t];
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
__global__ void divergent(int* y, int apart) {
  if (threadIdx.x / apart % 2) __syncthreads();
  y[threadIdx.x] = apart;
  __syncthreads();
}
"""
F4 = np.float32


@pytest.fixture(scope="module", params=[1, 2])
def run(request: pytest.FixtureRequest) -> Iterator[Runner]:
    compiler = Compiler(2)
    device: Device = open_device("cpu", threads=request.param)
    yield Runner(compiler, device, TEXT, checked=True)
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
    "structs": (1, 3, (floats(8), {"bytes": P}, 1), 0, told("read 4 bytes", 50, 2, "index 4 of p (4 elements")),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told(run: Runner, name: str) -> None:
    blocks, threads, arguments, shared, words = WRONG[name]
    with pytest.raises(DeviceFault) as fault:
        run(name, (blocks,), (threads,), *arguments, shared_bytes=shared)
    assert words in str(fault.value)


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
