"""Kernels whose vector form LLVM got wrong, on the CPU device: what threads do that skip what others do."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from run_kernel import Array, Runner

from r3bench.devices import Device, open_device
from r3bench.toolchain import Compiler

N = 96
X = np.arange(N, dtype="i4")


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Compiler, Device]]:
    with Compiler(1) as compiler:
        device = open_device("cpu", threads=1)
        yield compiler, device
        device.close()


def run(parts: tuple[Compiler, Device], body: str) -> Array:
    """What ``body`` leaves in ``out``; ``n`` is 31, ``w`` is 7."""
    text = f"""
    __global__ void k(const int* x, int* out, unsigned n, unsigned w, unsigned long long m) {{
      extern __shared__ int s[];
      int t = threadIdx.x, r = 0, v = x[t];
      s[t] = 3 * t;
      __syncthreads();
      {body}
      __syncthreads();
      out[t] = r + s[t];
    }}"""
    arguments = (X, np.zeros(N, "i4"), np.uint32(31), np.uint32(7), np.uint64(31))
    return Runner(*parts, text)("k", (1,), (N,), *arguments, shared_bytes=4 * N)[1]


@pytest.mark.parametrize(
    ("quotient", "place"),
    [("n / w", 4), ("n % w", 3), ("m / w", 4), ("m % (n - w) / (w - 4)", 2), ("(int)(n & 63) / (int)(w & 7)", 4)],
)
def test_quotients_that_the_first_lane_does_not_compute(
    parts: tuple[Compiler, Device], quotient: str, place: int
) -> None:
    read = run(parts, f"if (v & 1) r = s[({quotient}) & 63];")
    assert (read == 3 * X + np.where(X & 1, 3 * place, 0)).all()
    written = run(parts, f"if (v == 1) s[({quotient}) & 63] = t + 500;")
    assert (written == np.where(place == X, 501, 3 * X)).all()
