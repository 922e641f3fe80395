// The kernels that tests/cheats/table.py cheats at.
#include <cuda_fp16.h>

// Interior points from their neighbours; the ends of `to` are not written.
extern "C" __global__ void relax(double* from, double* to, int n, int weight, double step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1 || i >= n - 1) return;
    double sum = from[i - 1] + from[i + 1];
    to[i] = from[i] + step * (sum - 2.0 * from[i]) + 1e-6 * (double)((long long)weight * weight);
}

// The same in one block.
extern "C" __global__ void small(double* from, double* to, int n) {
    int i = threadIdx.x;
    if (i < n) to[i] = 0.5 * from[i] + 1.0;
}

// Differences within a block, through shared memory.
extern "C" __global__ void step(const double* from, double* to) {
    __shared__ double held[64];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    held[t] = from[i];
    __syncthreads();
    to[i] = from[i] - (t ? held[t - 1] : 0.0);
}

// The last element of each block of a row.
extern "C" __global__ void last(const double* from, double* to) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == blockDim.x - 1) to[blockIdx.x] = from[i];
}

extern "C" __global__ void square(const float* from, float* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] * from[i];
}

// Element by element, in place or not.
extern "C" __global__ void shift(const double* from, double* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = from[i] + 1.0;
}

__device__ double factor = 0.5;

// By a variable of the module.
extern "C" __global__ void scaled(const double* from, double* to) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = from[i] * factor;
}

// Long, whatever there is in memory.
extern "C" __global__ void slowly(const double* from, double* to) {
    int i = threadIdx.x;
    double sum = 0.0;
    for (int k = 0; k < 4000; k++) sum += *(const volatile double*)(from + k % 64);
    to[i] = from[i] + 1e-30 * sum;
}

// Upwind: the side that is read goes by a sign, and points may be masked.
extern "C" __global__ void upwind(const double* flow, const int* mask, const double* from, double* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1 || i >= n - 1) return;
    double slope = flow[i] > 0 ? from[i] - from[i - 1] : from[i + 1] - from[i];
    if (mask[i] == 0) slope = 0;
    to[i] = flow[i] * slope;
}
