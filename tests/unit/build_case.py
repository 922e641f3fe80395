"""Sources, and requests for builds of them."""

from __future__ import annotations

import struct

from r3bench.model import Configuration, LaunchConfig, Parameter, Target
from r3bench.toolchain import BuildRequest, Built, Compiler, UnitFacts

CUDA = Target(device="cuda", arch="sm_90")

SAXPY = """
struct P { float w[4]; int n; };
__device__ float weight(const P& p, int i) { return p.w[i & 3]; }
extern "C" __global__ void saxpy(int n, float a, const float* x, float* y, P p) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i] * weight(p, i);
}
"""
OF_ITS_OWN = SAXPY.replace("a * x[i]", "a * x[i] + 3.0f")  # which no other test builds
FACTS = UnitFacts(
    launch=LaunchConfig(grid=(7, 1, 1), block=(128, 1, 1)),
    scalars=(("n", struct.pack("<i", 1000)), ("a", struct.pack("<f", 2.5))),
    disjoint=True,
    alignments=(("x", 256), ("y", 256)),
    parameters=(
        Parameter(name="n", offset=0, size=4, kind="scalar", dtype="int32"),
        Parameter(name="a", offset=4, size=4, kind="scalar", dtype="float32"),
        Parameter(name="x", offset=8, size=8, kind="pointer", dtype="float32", const=True),
        Parameter(name="y", offset=16, size=8, kind="pointer", dtype="float32"),
        Parameter(name="p", offset=24, size=20, kind="struct"),
    ),
)
SHARING = """
__device__ float table[8]; __constant__ float scale;
extern "C" __global__ void k(float* y) {
    __shared__ float held[32];
    held[threadIdx.x] = y[threadIdx.x] * scale;
    __syncthreads();
    y[threadIdx.x] = held[31 - threadIdx.x] + table[threadIdx.x & 7];
}
"""


def request(
    text: str = SAXPY, symbol: str = "saxpy", target: Target = CUDA, configuration: Configuration | None = None
) -> BuildRequest:
    return BuildRequest(
        files=(("k.cu", text),),
        main="k.cu",
        flags=(),
        symbol=symbol,
        target=target,
        configuration=configuration or Configuration(),
        facts=FACTS,
    )


def build(compiler: Compiler, *args: object, **kwargs: object) -> Built:
    return compiler.submit(request(*args, **kwargs)).result()  # type: ignore[arg-type]
