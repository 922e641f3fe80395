// The kernels of DeviceContract: each shows one thing that a device must do right.

struct List {
  double *data;
  long long length;
};

__device__ int contract_counter;
__constant__ double contract_table[4];

extern "C" __global__ void contract_add(double *x, double a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += a;
}

extern "C" __global__ void contract_double(const float *from, float *to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = 2.0f * from[i];
}

extern "C" __global__ void contract_count(double *out) {
  if (threadIdx.x == 0) {
    contract_counter += 1;
    out[0] = contract_table[2] * contract_counter;
  }
}

extern "C" __global__ void contract_follow(List *list) {
  for (int i = threadIdx.x; i < list->length; i += blockDim.x) list->data[i] *= 3.0;
}

extern "C" __global__ void contract_swap(double **pair) {
  if (threadIdx.x == 0) {
    double *first = pair[0];
    pair[0] = pair[1];
    pair[1] = first;
  }
}

// Every thread of every block writes its own place, so a wrong index or extent leaves a wrong or an unwritten word.
extern "C" __global__ void contract_geometry(int *out) {
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int threads = blockDim.x * blockDim.y * blockDim.z;
  int digits = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z;
  out[block * threads + thread] = digits + 1000 * (blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z);
}

extern "C" __global__ void contract_shared(int *out) {
  extern __shared__ int held[];
  int t = threadIdx.x, n = blockDim.x;
  held[t] = 100 * blockIdx.x + t;
  __syncthreads();
  out[blockIdx.x * n + t] = held[n - 1 - t];
}

// The last thread to run wins: a device with another order must show another winner.
extern "C" __global__ void contract_last(volatile int *out) { out[0] = threadIdx.x; }

extern "C" __global__ void contract_stray(double *x) { x[1ll << 40] = 1.0; }

extern "C" __global__ void contract_trap(double *x) {
  if (x[0] == x[0]) __trap();
}

extern "C" __global__ void contract_hang(volatile int *flag) {
  while (*flag == 0) {
  }
}

// Every step waits for the one before.
extern "C" __global__ void contract_spin(double *x, int n) {
  double value = x[0];
  for (int i = 0; i < n; i++) value = value * 0.999 + 1.0;
  x[0] = value;
}
