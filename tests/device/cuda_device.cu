#include <assert.h>

struct List {
  double *data;
  long long length;
};

__device__ int counter;
__constant__ double table[4];

extern "C" __global__ void doubled(double *x) {
  if (threadIdx.x == 0) x[0] *= 2;
}

extern "C" __global__ void misaligned(double *x) { *(volatile double *)((char *)x + 4) = 1; }

extern "C" __global__ void asserting(double *x) { assert(x[0] == 7); }

extern "C" __global__ void trapping(double *x) {
  if (x[0] == 1) __trap();
}

extern "C" __global__ void stray(double *x) { x[1ll << 40] = 1; }

extern "C" __global__ void through_null(double *x) {
  volatile double *none = (double *)(long long)(x[0] - 1);
  *none = 1;
}

extern "C" __global__ void peek(double *x, long long address) { x[0] = *(volatile double *)address; }

extern "C" __global__ void past_the_end(double *x) { x[5] = 1; }

extern "C" __global__ void before_the_start(double *x) { x[-2] = 1; }

extern "C" __global__ void shared_sum(double *x, int n) {
  extern __shared__ double held[];
  for (int i = threadIdx.x; i < n; i += blockDim.x) held[i] = 1;
  __syncthreads();
  if (threadIdx.x == 0) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += held[i];
    x[0] = sum;
  }
}

extern "C" __global__ void shared_unwritten(double *x) {
  extern __shared__ volatile double unwritten[];
  x[0] = unwritten[3];
}

extern "C" __global__ void cluster_rank(int *x) {
  if (threadIdx.x == 0) x[blockIdx.x] = __nvvm_read_ptx_sreg_cluster_ctarank();
}

extern "C" __global__ void many_registers(double *x) {
  double a[48];
#pragma unroll
  for (int i = 0; i < 48; i++) a[i] = x[i * 3];
  for (int round = 0; round < 100; round++)
#pragma unroll
    for (int i = 0; i < 48; i++) a[i] = a[i] * a[(i * 7 + 1) % 48] + round;
#pragma unroll
  for (int i = 0; i < 48; i++) x[i] = a[i];
}

__device__ __noinline__ double sum_of(const double *x, int n) {
  volatile double held[32];
  held[n % 32] = x[n % 4];
  return n == 0 ? held[0] : held[n % 32] + sum_of(x, n - 1);
}

extern "C" __global__ void recursive(double *x, int depth) {
  double sum = sum_of(x, depth);
  if (threadIdx.x == 0) x[3] = sum;
}

extern "C" __global__ void follow(List *list) {
  for (int i = threadIdx.x; i < list->length; i += blockDim.x) list->data[i] *= 3.0;
}

extern "C" __global__ void count(double *out) {
  if (threadIdx.x == 0) {
    counter += 1;
    out[0] = table[2] * counter;
  }
}
