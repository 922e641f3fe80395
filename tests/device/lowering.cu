// Kernels whose threads wait for each other in every way, and what surrounds that: test_lowering.py has the answers.
#include <cuda_runtime.h>

__constant__ float weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};
__device__ int counter = 5;
static __device__ float table[8];
struct Pair { int low; double high; };
struct Large { int n, v[100]; };
struct __attribute__((packed)) Packed { char c; int n; double d; };
struct Settings { double scale; int n; float w[3]; const float* x; };

__device__ int twice(int x) { return 2 * x; }
__device__ __noinline__ float at_barrier(float* s, int i, float v) {
  s[i] = v;
  __syncthreads();
  return s[blockDim.x - 1 - i];
}

extern "C" {

// -- barriers --

__global__ void trips(const int* rounds, int* out) {  // a loop whose number of barriers depends on the block
  extern __shared__ int s[];
  int t = threadIdx.x, n = rounds[blockIdx.x];
  s[t] = t;
  __syncthreads();
  for (int k = 0; k < n; ++k) {
    int v = s[(t + 1) % blockDim.x];
    __syncthreads();
    s[t] = v + k;
    __syncthreads();
  }
  out[blockIdx.x * blockDim.x + t] = s[t];
}

__global__ void cases(const int* which, int* out) {  // a switch that is uniform in a block, a barrier in each case
  __shared__ int s[128];
  int t = threadIdx.x, r = 0;
  switch (which[blockIdx.x]) {
    case 0: s[t] = t; __syncthreads(); r = s[127 - t]; break;
    case 1: s[t] = 3 * t; __syncthreads(); r = s[t ^ 1]; __syncthreads(); s[t] = r; __syncthreads(); r += s[t ^ 2]; break;
    case 2: r = -1; break;
    default: s[t] = 7; __syncthreads(); r = s[0];
  }
  out[blockIdx.x * 128 + t] = r;
}

__global__ void parted(int* out) {  // half of the threads use one barrier, the others another: both count
  __shared__ int s[64];
  int t = threadIdx.x, r;
  s[t] = t;
  if (t < 20) { __syncthreads(); r = s[63 - t]; } else { __syncthreads(); r = 100 + s[63 - t]; }
  __syncthreads();
  s[t] = r;
  __syncthreads();
  out[t] = s[(t + 5) & 63];
}

__global__ void leavers(const int* x, int* out, int n) {  // threads leave before, between and after barriers
  __shared__ int s[256];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = 0;
  if (i >= n) return;
  __syncthreads();
  s[t] = x[i];
  if (x[i] % 5 == 0) { out[i] = -5; return; }
  __syncthreads();
  int v = s[(t + 3) % blockDim.x];
  if (x[i] % 7 == 0) { out[i] = -7; return; }
  __syncthreads();
  out[i] = v;
}

__global__ void counted(const int* x, int* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int count = __syncthreads_count(x[i] > 2);
  int all = __syncthreads_and(x[i] > -100);
  int any = __syncthreads_or(x[i] == 3);
  if (x[i] < 0) return;
  out[i] = count * 100 + all * 10 + any + 1000 * __syncthreads_count(1);
}

__global__ void nested(float* out) {  // a barrier inside a device function, twice inlined
  __shared__ float s[96];
  float v = at_barrier(s, threadIdx.x, threadIdx.x * 0.5f);
  __syncthreads();
  out[threadIdx.x] = at_barrier(s, threadIdx.x, v + 1.0f);
}

__global__ void boxes(int* out) {  // three dimensions, and a static beside a dynamic array
  __shared__ int s[6][5][4];
  extern __shared__ int d[];
  int x = threadIdx.x, y = threadIdx.y, z = threadIdx.z;
  int t = x + blockDim.x * (y + blockDim.y * z);
  s[x][y][z] = t;
  d[t] = t * 10;
  __syncthreads();
  int b = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[b * 120 + t] = s[5 - x][4 - y][3 - z] + d[119 - t] + b * 10000;
}

__global__ void arrays(const float* x, float* out, int r) {  // a local array that lives across barriers, and changes
  __shared__ float s[64];
  float buffer[8];
  int t = threadIdx.x;
  for (int k = 0; k < 8; ++k) buffer[(k * r) & 7] = x[t * 8 + k];
  s[t] = buffer[r & 7];
  __syncthreads();
  buffer[(r + 1) & 7] += s[63 - t];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 8; ++k) sum = sum * 2 + buffer[(k + r) & 7];
  out[t] = sum;
}

__global__ void mixed_values(const double* x, double* out, long n, bool flag, short h) {  // every type across a barrier
  __shared__ double s[32];
  int t = threadIdx.x;
  double d = x[t] * 2;
  float f = (float)x[t] + 1;
  long l = n * t;
  short q = h + t;
  bool b = (x[t] > 0.5) != flag;
  signed char c = (signed char)(t - 16);
  const double* p = x + (t ^ 3);
  Pair pair = {t, x[t]};
  s[t] = d;
  __syncthreads();
  out[t] = s[31 - t] + f + l + q + (b ? 1000 : 0) + c + *p + pair.low + pair.high;
}

__global__ void two_teams(int* out) {  // each half of the block has a barrier of its own, used a different number of times
  __shared__ int s[128];
  int t = threadIdx.x, team = t / 64, n = team ? 3 : 5;
  s[t] = t;
  for (int k = 0; k < n; ++k) {
    __nvvm_barrier_sync_cnt(1 + team, 64);
    int v = s[team * 64 + ((t + 1) & 63)];
    __nvvm_barrier_sync_cnt(1 + team, 64);
    s[t] = v;
  }
  __syncthreads();
  out[t] = s[t] + 1000 * s[127 - t];
}

__global__ void stops(int* out) {  // some threads end in the middle of a function
  int t = threadIdx.x;
  out[t] = 1;
  if (t % 3 == 0) __nvvm_exit();
  out[t] = 1 + __syncthreads_count(1);
}

// -- warps --

__global__ void scan(const int* x, int* out, int n) {  // inclusive prefix sum of a block, also with a partial warp
  __shared__ int sums[32];
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  int v = i < n ? x[i] : 0;
  for (int d = 1; d < 32; d *= 2) { int u = __shfl_up_sync(~0u, v, d); if (lane >= d) v += u; }
  if (lane == 31) sums[w] = v;
  __syncthreads();
  int before = 0;
  for (int k = 0; k < w; ++k) before += sums[k];
  if (i < n) out[i] = v + before;
}

__global__ void shuffles(const int* x, int* out, float* fout, long long* lout) {
  int t = threadIdx.x;
  out[t] = __shfl_sync(~0u, x[t], 5);
  out[t + 64] = __shfl_sync(~0u, x[t], t * 7, 8);
  out[t + 128] = __shfl_up_sync(~0u, x[t], 3, 16);
  out[t + 192] = __shfl_down_sync(~0u, x[t], 3, 16);
  out[t + 256] = __shfl_xor_sync(~0u, x[t], 9);
  out[t + 320] = __shfl_xor_sync(~0u, x[t], 17, 16);
  fout[t] = __shfl_xor_sync(~0u, x[t] * 0.5f, 1);
  lout[t] = __shfl_down_sync(~0u, x[t] * 10000000000LL, 1);
}

__global__ void votes(const int* x, int* out) {
  int t = threadIdx.x;
  out[t] = __ballot_sync(~0u, x[t] & 1);
  out[t + 64] = __any_sync(~0u, x[t] > 90) + 2 * __all_sync(~0u, x[t] >= 0) + 4 * __all_sync(~0u, x[t] & 1);
  out[t + 128] = __match_any_sync(~0u, x[t] & 3);
  int same;
  out[t + 192] = __match_all_sync(~0u, t >> 5, &same) + same;
  out[t + 256] = __match_all_sync(~0u, x[t], &same) + 100 * same;
  out[t + 320] = __match_any_sync(~0u, (long long)(x[t] % 3) << 40);
}

__global__ void reductions(const int* x, int* out) {
  int t = threadIdx.x;
  out[t] = __reduce_add_sync(~0u, x[t]);
  out[t + 64] = __reduce_min_sync(~0u, x[t] - 50);
  out[t + 128] = __reduce_max_sync(~0u, x[t] - 50);
  out[t + 192] = __reduce_max_sync(~0u, (unsigned)(x[t] - 50));
  out[t + 256] = __reduce_and_sync(~0u, (unsigned)x[t] | 64);
  out[t + 320] = __reduce_or_sync(~0u, (unsigned)x[t]);
  out[t + 384] = __reduce_xor_sync(~0u, (unsigned)x[t]);
  out[t + 448] = __reduce_min_sync(~0u, (unsigned)(x[t] - 50));
}

__global__ void parted_warps(const int* x, int* out, int* total) {  // lanes part and meet again; who is active where
  int t = threadIdx.x, r = 0;
  if (x[t] & 1) {
    unsigned active = __activemask();
    r = __popc(__ballot_sync(active, x[t] > 50));
    int leader = __ffs(active) - 1, first = 0;
    if ((t & 31) == leader) first = atomicAdd(total, __popc(active));  // one atomic for all
    first = __shfl_sync(active, first, leader);
    r += 1000 * (first >= 0);
  }
  __syncwarp();
  out[t] = r + 100000 * __popc(__ballot_sync(~0u, r > 0));
}

__global__ void submasks(const int* x, int* out) {  // halves and quarters of a warp run collectives of their own
  int t = threadIdx.x, lane = t & 31;
  unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  int v = x[t];
  if (lane < 16) { for (int d = 8; d > 0; d /= 2) v += __shfl_xor_sync(half, v, d); }
  else { for (int k = 0; k < 3; ++k) v = __shfl_sync(half, v, 16 + ((lane + 1) & 15)); }
  unsigned quarter = 0xffu << (lane & 24);
  out[t] = v + 1000 * __reduce_add_sync(quarter, lane);
}

__global__ void uneven(const int* x, int* out) {  // lanes of a warp go round a loop a different number of times
  int t = threadIdx.x, n = x[t], sum = 0;
  for (int k = 0; k < n; ++k) {
    unsigned m = __activemask();
    sum += __popc(m & 1) + k;  // lane 0 goes round most often
    __syncwarp(m);
  }
  out[t] = sum + 1000 * __popc(__ballot_sync(~0u, 1));
}

__global__ void lanes(unsigned* out) {
  unsigned lane = threadIdx.x & 31;
  int t = threadIdx.x + blockDim.x * threadIdx.y;
  unsigned less = (1u << (t & 31)) - 1;
  out[t] = __popc(__ballot_sync(~0u, 1) & less) + (lane == (unsigned)(t & 31) ? 0 : 0);
}

__global__ void vote_and_barrier(const int* x, int* out) {  // warps that are differently far, then all meet
  __shared__ int s[8];
  int t = threadIdx.x, w = t >> 5;
  if (w & 1) for (int k = 0; k < w; ++k) if ((t & 31) == 0) s[w] = __popc(__activemask()) + k;
  if (!(w & 1) && (t & 31) == 0) s[w] = 10 * w;
  __syncthreads();
  int sum = 0;
  for (int k = 0; k < blockDim.x / 32; ++k) sum += s[k];
  out[t] = sum + __popc(__ballot_sync(~0u, x[t] > 0));
}

// -- what never completes, and what fails --

__global__ void stuck(int* out) { if (threadIdx.x < 40) __syncwarp(); else { __syncwarp(); __syncthreads(); } if (threadIdx.x >= 40) __syncwarp(0xffu << 24); else if (threadIdx.x < 39) __syncthreads(); else __shfl_sync(~0u, 1, 0); out[threadIdx.x] = 1; }
__global__ void wrong_mask(int* out) { out[threadIdx.x] = __ballot_sync(1u, 1); }
__global__ void traps(int* out, int n) { if (threadIdx.x == n) __trap(); out[threadIdx.x] = 1; }
__global__ void asserts(int* out, int n) { assert(threadIdx.x != n); out[threadIdx.x] = 1; }
__global__ void traps_later(int* out, int n) { __syncthreads(); if (threadIdx.x == n) __trap(); __syncthreads(); out[threadIdx.x] = 1; }

// -- memory --

__global__ void variables(float* out) {  // constant and device variables, also inside a constant expression
  int t = threadIdx.x;
  table[t & 7] = weights[t & 3] * 2;
  atomicAdd(&counter, 1);
  __syncthreads();
  out[t] = table[7 - (t & 7)] + weights[1];
}

__global__ void by_value(Settings p, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= p.n) return;
  float s = 0;
  for (int k = 0; k < 3; ++k) { int j = i + k - 1; if (j >= 0 && j < p.n) s += p.w[k] * p.x[j]; }
  y[i] = (float)p.scale * s;
}

__global__ void own_copy(Settings p, float* y) {  // every thread has a copy of its own to change
  int t = threadIdx.x;
  p.w[t % 3] += t;
  p.n -= t;
  __syncthreads();
  y[t] = p.w[0] * 10000 + p.w[1] * 100 + p.w[2] + p.n;
}

__global__ void large_struct(Large p, int* out) {  // read by constant and by computed index, before and behind a wait
  __shared__ int s[32];
  int t = threadIdx.x;
  s[t] = t < p.n ? p.v[t] : p.v[99];
  __syncthreads();
  out[t] = s[31 - t] + p.v[(t + p.n) % 100] + (t & 1 ? p.v[7] : 0);
}

__global__ void place_in_struct(Settings p, float* out) {  // a pointer into a struct waits at a barrier
  int t = threadIdx.x;
  const float* at = t & 1 ? p.w + t % 3 : p.x + t;
  __syncthreads();
  out[t] = *at;
}

__global__ void packed_struct(Packed p, double* out) {  // no field lies where its type likes it
  int t = threadIdx.x;
  if (t < p.n) out[t] = p.c + p.d * t;
}

__global__ void small_arguments(signed char a, bool b, short c, double d, unsigned char e, long f, float g, double* out) {
  out[threadIdx.x] = a + (b ? 100 : 0) + c + d + e + f + g + twice(threadIdx.x);
}

__global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(i, t); atomicSub(i + 1, t); atomicMin(i + 2, 50 - t); atomicMax(i + 3, t - 50);
  atomicAnd(u, ~(1u << (t & 31))); atomicOr(u + 1, 1u << (t & 31)); atomicXor(u + 2, t); atomicInc(u + 3, 9);
  atomicDec(u + 4, 9); atomicMax(u + 5, (unsigned)-t); atomicAdd_block(u + 6, 2u);
  atomicAdd(l, (unsigned long long)t << 33); atomicMax(l + 1, ~0ull - t);
  atomicAdd(f, 0.5f); atomicAdd(d, 0.25);
  for (unsigned long long seen = l[2], want; (want = atomicCAS(l + 2, seen, seen + 3)) != seen;) seen = want;
  atomicExch(i + 4, 77); atomicExch(f + 1, 1.5f);
}

__global__ void local_only(const int* x, int* out) {  // a local array and no barrier: threads must not share it
  int a[16], t = blockIdx.x * blockDim.x + threadIdx.x;
  for (int k = 0; k < 16; ++k) a[k] = x[(t + k) & 255];
  for (int k = 1; k < 16; ++k) { int v = a[k], j = k; while (j > 0 && a[j - 1] > v) { a[j] = a[j - 1]; --j; } a[j] = v; }
  out[t] = a[x[t] & 15];
}

__global__ void in_shared(int* out) {
  __shared__ int s[4];
  int local = 3;
  s[threadIdx.x & 3] = 1;
  out[threadIdx.x] = __isShared(&s[1]) + 2 * __isShared(out) + 4 * __isShared(&local);
}
}
