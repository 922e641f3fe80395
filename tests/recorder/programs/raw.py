"""A CuPy program: one kernel of a RawKernel, one that a RawModule instantiates by name, a range of NVTX around both."""

import cupy

axpy = cupy.RawKernel(
    """
extern "C" __global__ void axpy(float* y, const float* x, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i];
}
""",
    "axpy",
)
module = cupy.RawModule(
    code="""
#include <cuda_fp16.h>
template <typename T, int N> __global__ void powers(T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  T product = 1;
  for (int k = 0; k < N; k++) product *= y[i] * FACTOR;
  y[i] = product;
}
""",
    options=("--std=c++17", "-DFACTOR=0.5"),
    name_expressions=("powers<double, 3>",),
)
n = 10_000
x, y, z = cupy.arange(n, dtype=cupy.float32), cupy.ones(n, dtype=cupy.float32), cupy.arange(n, dtype=cupy.float64)
for step in range(3):
    axpy((40,), (256,), (y, x, cupy.float32(step + 0.5), n))
module.get_function("powers<double, 3>")((79,), (128,), (z, n))
print(float(y.sum()), float(z.sum()))
