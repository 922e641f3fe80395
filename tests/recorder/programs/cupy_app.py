"""A CuPy application with a kernel of its own and one of CuPy's; prints a number."""

import cupy

saxpy = cupy.RawKernel(
    r"""
    extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += a * x[i];
    }
    """,
    "saxpy",
)
x, y = cupy.arange(5000, dtype=cupy.float32), cupy.ones(5000, cupy.float32)
for _ in range(3):
    saxpy((40,), (128,), (cupy.float32(0.5), x, y, cupy.int32(x.size)))
print(float(y.sum()))
