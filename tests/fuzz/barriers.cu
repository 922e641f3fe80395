// Kernels whose barriers are all needed: (const int* x, int* y) with blocks of 64 threads, x and y of one int per thread.
#define PLACE unsigned t = threadIdx.x, i = blockIdx.x * 64 + t

extern "C" {

__global__ void mirror(const int* x, int* y) {
  PLACE; __shared__ int s[64];
  s[t] = x[i];
  __syncthreads();
  y[i] = s[63 - t];
}

__global__ void from_the_left(const int* x, int* y) {
  PLACE; __shared__ int s[64];
  s[t] = x[i];
  __syncthreads();
  y[i] = t ? s[t - 1] : -1;
}

__global__ void from_the_right(const int* x, int* y) {
  PLACE; __shared__ int s[64];
  s[t] = x[i];
  __syncthreads();
  y[i] = t < 63 ? s[t + 1] : -1;
}

__global__ void scan(const int* x, int* y) {
  PLACE; __shared__ int s[64];
  s[t] = x[i];
  __syncthreads();
  for (unsigned d = 1; d < 64; d *= 2) {
    int v = t >= d ? s[t - d] : 0;
    __syncthreads();
    s[t] += v;
    __syncthreads();
  }
  y[i] = s[t];
}

__global__ void two_buffers(const int* x, int* y) {
  PLACE; __shared__ int s[2][64];
  s[0][t] = x[i];
  for (int k = 0; k < 6; ++k) {
    __syncthreads();
    s[(k + 1) & 1][t] = s[k & 1][(t + 1) & 63] + s[k & 1][(t + 63) & 63];
  }
  y[i] = s[0][t];
}

__global__ void first_tells(const int* x, int* y) {
  PLACE; __shared__ int told;
  if (t == 0) told = x[i];
  __syncthreads();
  y[i] = told + t;
}

__global__ void last_tells(const int* x, int* y) {
  PLACE; __shared__ int told;
  if (t == 63) told = x[i];
  __syncthreads();
  y[i] = told + t;
}

__global__ void tells_again(const int* x, int* y) {
  PLACE; __shared__ int told;
  int sum = 0;
  for (unsigned k = 0; k < 4; ++k) {
    if (t == 9 * k + 5) told = x[i];
    __syncthreads();
    sum = 3 * sum + told;
    __syncthreads();
  }
  y[i] = sum;
}

__global__ void sort(const int* x, int* y) {
  PLACE; __shared__ int s[64];
  s[t] = x[i];
  for (unsigned size = 2; size <= 64; size *= 2)
    for (unsigned stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      unsigned other = t ^ stride;
      if (other > t && (s[t] > s[other]) == !(t & size)) {
        int held = s[t];
        s[t] = s[other];
        s[other] = held;
      }
    }
  __syncthreads();
  y[i] = s[63 - t];
}

__global__ void positives(const int* x, int* y) {
  PLACE; __shared__ int count;
  if (t == 0) count = 0;
  __syncthreads();
  if (x[i] > 0) atomicAdd(&count, 1);
  __syncthreads();
  y[i] = count;
}

__global__ void cases(const int* x, int* y) {
  PLACE; __shared__ int s[64];
  s[t] = x[i];
  switch (blockIdx.x) {
    case 0:
      __syncthreads();
      y[i] = s[(t + 5) & 63];
      break;
    default:
      s[t] += 2;
      __syncthreads();
      y[i] = s[(t * 7) & 63];
  }
}

__global__ void warps(const int* x, int* y) {
  PLACE; __shared__ int s[2];
  int sum = __reduce_add_sync(~0u, x[i]);
  if ((t & 31) == 0) s[t / 32] = sum;
  __syncthreads();
  y[i] = s[0] - 2 * s[1];
}
}
