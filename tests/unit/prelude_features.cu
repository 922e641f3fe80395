// One section per feature of the prelude; each is a source of its own, after the line of arrays below.
#define ARRAYS float *f, double *d, int *i, unsigned *u, long long *l, unsigned long long *ul, short *s, unsigned char *c

//// indices
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  i[t] = blockIdx.x + blockIdx.y * gridDim.z + threadIdx.z + blockDim.y + warpSize;
}

//// indices as dim3
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  dim3 b = blockDim;
  uint3 j = threadIdx;
  const auto& q = blockIdx;
  i[t] = b.x + j.y + q.z;
}

//// dim3
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  dim3 b(2);
  dim3 e;
  i[t] = b.x + b.y + e.z + dim3(make_uint3(1, 2, 3)).z;
}

//// vectors
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  float4 v = make_float4(1, 2, 3, f[t]);
  double2 w{d[0], 2};
  uchar4 q = make_uchar4(1, 2, 3, c[t]);
  ((float4*)f)[t] = v;
  d[t] = w.x + q.w + sizeof(longlong2);
}

//// static shared
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  __shared__ float a[8][33];
  a[0][t] = f[t];
  __syncthreads();
  f[t] = a[0][31 - t];
}

//// dynamic shared
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  extern __shared__ double a[];
  a[t] = d[t];
  __syncthreads();
  d[t] = a[31 - t];
}

//// constant
__constant__ float table[4] = {1, 2, 3, 4};
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  f[t] = table[t & 3];
}

//// device variable
__device__ int count;
__managed__ int shared_count;
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  atomicAdd(&count, 1);
  i[t] = count;
}

//// launch bounds
__global__ void __launch_bounds__(128) a(int* i) { i[0] = 1; }
__global__ __launch_bounds__(64, 4) void b(int* i) { i[0] = 2; }

//// inlining
__forceinline__ __device__ float g(float x) { return 2 * x; }
static __device__ __noinline__ float h(float x) { return 3 * x; }
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  f[t] = g(f[t]) + h(f[t]);
}

//// restrict
__global__ void k(const float* __restrict__ a, float* __restrict b) { b[0] = a[0]; }

//// barriers
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  i[t] = __syncthreads_count(t & 1) + __syncthreads_and(t) + __syncthreads_or(t);
  __syncwarp();
}

//// fences
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  f[t] = 1;
  __threadfence();
  __threadfence_block();
  __threadfence_system();
  f[t] += 1;
}

//// votes
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  u[t] = __ballot_sync(~0u, t & 1) + __all_sync(~0u, t) + __any_sync(~0u, t) + __activemask();
}

//// match
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  int p;
  u[t] = __match_any_sync(~0u, t & 3) + __match_all_sync(~0u, l[t], &p) + p;
}

//// reduce
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  i[t] = __reduce_add_sync(~0u, i[t]) + __reduce_min_sync(~0u, i[t]) + __reduce_max_sync(~0u, i[t]);
  u[t] = __reduce_max_sync(~0u, u[t]) + __reduce_and_sync(~0u, u[t]) + __reduce_or_sync(~0u, u[t]) +
      __reduce_xor_sync(~0u, u[t]);
}

//// cache hints
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  f[t] = __ldg(f + t) + __ldcg(f) + __ldca(f) + __ldcs(f) + __ldcv(f);
  __stcg(d, 1.0);
  __stcs(i, 1);
  float4 v = __ldg((const float4*)f);
  d[t] = v.w;
  __stwt(u, 1u);
  __stwb(f, 2.0f);
}

//// clocks
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  l[t] = clock64() + clock();
  ul[t] = __globaltimer();
  __nanosleep(10);
}

//// assert
#include <cassert>
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  assert(t < 32 && f);
}

//// printf
#include <cstdio>
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  printf("%d %f\n", t, f[t]);
}

//// trap
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  if (t > 32) __trap();
}

//// limits
#include <float.h>
#include <climits>
#include <limits>
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  f[t] = FLT_MAX;
  d[t] = DBL_EPSILON;
  i[t] = INT_MAX - CHAR_BIT;
  ul[t] = ULLONG_MAX;
  f[1] = std::numeric_limits<float>::infinity();
  s[t] = std::numeric_limits<short>::min();
}

//// constants
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  f[t] = M_PI * INFINITY;
  d[t] = NAN + HUGE_VAL + M_SQRT1_2;
}

//// integer types
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  uint64_t a = 1;
  int8_t b = -1;
  size_t n = sizeof(ptrdiff_t);
  i[t] = a + b + n + sizeof(uintptr_t);
}

//// integers
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  i[t] = __popc(u[t]) + __clz(i[t]) + __ffs(i[t]) + __mulhi(i[0], i[1]) + __mul24(i[0], i[1]) + __hadd(1, 2) +
      __rhadd(1, 2) + __dp4a(i[0], i[1], i[2]) + __popcll(ul[t]) + __clzll(l[t]) + __ffsll(l[t]);
  u[t] = __brev(u[0]) + __byte_perm(u[0], u[1], 0x3210) + __umulhi(u[0], u[1]) + __umul24(u[0], u[1]) +
      __sad(i[0], i[1], u[0]) + __usad(u[0], u[1], 2) + __funnelshift_l(u[0], u[1], 3) + __uhadd(1u, 2u) +
      __funnelshift_r(u[0], u[1], 3) + __funnelshift_lc(u[0], u[1], 40) + __dp4a(u[0], u[1], u[2]);
  ul[t] = __brevll(ul[0]) + __umul64hi(ul[0], ul[1]) + __mul64hi(l[0], l[1]);
}

//// casts
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  i[t] = __float2int_rn(f[0]) + __double2int_rd(d[0]) + __float_as_int(f[0]) + __double2hiint(d[0]);
  u[t] = __float2uint_rz(f[0]) + __float_as_uint(f[1]) + __double2uint_ru(d[0]);
  l[t] = __double_as_longlong(d[0]);
  f[t] = __int_as_float(i[0]) + __int2float_rz(i[1]) + __double2float_rn(d[1]) + __ull2float_ru(ul[0]);
  d[t] = __hiloint2double(i[0], i[1]) + __longlong_as_double(l[0]) + __ll2double_rn(l[1]) +
      __int2double_rn(i[2]);
}

//// mixed min and max
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  i[t] = min(i[0], 3) + max(i[0], i[1]);
  u[t] = min(blockDim.x, 32) + max(u[0], i[0]);
  l[t] = max(l[0], 1);
  f[t] = min(f[0], 1.0f) + std::max(f[0], f[1]);
  d[t] = max(f[0], d[0]) + std::min(d[0], d[1]) + fminf(f[0], 1);
  ul[t] = min(ul[0], sizeof(int)) + umin(1u, 2u) + llmax(1, 2);
  static_assert(min(2, 3) == 2);
}

//// overloads
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  f[t] = sqrt(f[0]) + exp(f[0]) + pow(f[0], f[1]) + std::sqrt(f[0]) + std::abs(f[0]) + fabs(f[0]) +
      std::floor(f[0]);
  d[t] = sqrt(d[0]) + exp(2) + pow(f[0], 2) + pow(d[0], f[1]) + sqrt(i[0]) + std::pow(2, d[0]) + log(u[0]) +
      cos(l[0]);
  i[t] = abs(i[0]) + isnan(f[0]) + isinf(d[0]) + std::isfinite(f[0]) + signbit(d[0]);
  l[t] = llabs(l[0]) + lrint(d[0]);
  static_assert(sizeof(sqrt(1.0f)) == 4 && sizeof(pow(1.0f, 2)) == 8 && sizeof(min(1.0f, 2.0)) == 8);
}

//// fast intrinsics
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  f[t] = __expf(f[0]) + __logf(f[0]) + __sinf(f[0]) + __cosf(f[0]) + __powf(f[0], f[1]) + __fdividef(f[0], f[1])
      + __frcp_rn(f[0]) + __fsqrt_rn(f[0]) + __fmaf_rn(f[0], f[1], f[2]) + __fadd_rz(f[0], f[1]) +
      __saturatef(f[0]);
  d[t] = __dadd_rn(d[0], d[1]) + __dmul_rn(d[0], d[1]) + __ddiv_rn(d[0], d[1]) + __dsqrt_rd(d[0]) + __fma_rn(1,
      2, 3);
  __sincosf(f[0], f + 1, f + 2);
}

//// math with outputs
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  int e;
  d[t] = frexp(d[0], &e) + modf(d[1], d + 2) + remquo(d[3], d[4], &e) + ldexp(d[5], 3) + scalbn(f[0], 2) + e;
  sincos(d[0], d + 1, d + 2);
  sincosf(f[0], f + 1, f + 2);
  sincospi(d[0], d + 1, d + 2);
  f[t] = frexpf(f[0], &e) + norm3df(1, 2, 3) + jnf(2, f[0]) + ilogbf(f[0]) + normf(3, f) + nextafterf(f[0],
      f[1]);
}

//// templates
template <class T> __global__ void k(T* x) { x[threadIdx.x] += T(1); }
template __global__ void k<double>(double*);

//// structs
struct P { double a; float w[3]; const float* x; };
__global__ void k(P p, float* y) { y[0] = p.w[1] * p.x[0] + p.a; }

//// host code
__global__ void scale(float* x, float a, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; x[i] = a * x[i]; }
#include <cuda_runtime.h>
int main() {
  float* x;
  cudaMalloc(&x, 8);
  scale<<<dim3(1), 2>>>(x, 1, 2);
  cudaDeviceSynchronize();
  fprintf(stderr, "%s\n", cudaGetErrorString(cudaGetLastError()));
  return sqrt(4.0) > 1;
}

//// device variable types
struct S { float a[3]; int n; };
__constant__ S s;
__global__ void k(float* y) { y[0] = s.a[s.n]; }

//// atomics float
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  f[1] = atomicAdd(f, 1.5f) + atomicExch(f, 2.0f);
  d[1] = atomicAdd(d, 1.5) + atomicAdd_block(d, 2);
}

//// atomics counting
__global__ void k(ARRAYS) {
  int t = threadIdx.x;
  u[1] = atomicInc(u, 7u) + atomicDec(u, 7u);
  unsigned short* h = (unsigned short*)s;
  atomicCAS(h, 1, 2);
}

//// half
#include <cuda_fp16.h>
__global__ void k(half* h, half2* p, float* f) {
  __shared__ half s[32];
  s[threadIdx.x] = h[threadIdx.x];
  h[0] = h[1] * h[2] + h[3] - h[4] / h[5];
  h[6] = -__hfma(h[1], h[2], h[3]);
  h[7] += __hmax(h[1], h[2]);
  h[8] = hexp(h[1]);
  h[9] = f[2];
  h[10] = half(1);
  h[11] = 2.0;
  if (h[1] < h[2] && __hgt(h[1], h[3])) h[12] = hsqrt(h[1]);
  h[13] = __habs(s[0]) + __hneg(s[1]);
  h[14] = __ldg(h + 1);
  h[15] = __hmul_rn(h[0], h[1]) + __hadd_sat(h[2], h[3]);
  p[0] = __hadd2(p[1], p[2]);
  p[1] += p[2];
  p[3] = __hfma2(p[0], p[1], p[2]);
  p[4] = __hmul2(p[0], p[1]);
  p[5] = half2(h[0], h[1]);
  f[0] = h[1];
  f[1] = float(h[2]) * 2.0f;
  f[3] = __low2float(p[0]) + __high2float(p[1]);
  atomicAdd(h, h[1]);
  atomicAdd(p, p[1]);
  h[1] = __float2half(f[0]);
  h[2] = __int2half_rn(3);
  h[3] = __high2half(__half2half2(h[0]));
  p[0] = __floats2half2_rn(1, 2);
  f[1] = __half2float(h[1]);
  f[2] = __half22float2(p[0]).y;
  f[3] = __half2int_rz(h[2]) + __half_as_ushort(h[3]);
}

//// bfloat16
#include <cuda_bf16.h>
__global__ void k(__nv_bfloat16* h, __nv_bfloat162* p, float* f) {
  __shared__ __nv_bfloat16 s[32];
  s[threadIdx.x] = h[threadIdx.x];
  h[0] = h[1] * h[2] + h[3] - h[4] / h[5];
  h[6] = -__hfma(h[1], h[2], h[3]);
  h[7] += __hmax(h[1], h[2]);
  h[8] = hexp(h[1]);
  h[9] = f[2];
  h[10] = __nv_bfloat16(1);
  h[11] = 2.0;
  if (h[1] < h[2] && __hgt(h[1], h[3])) h[12] = hsqrt(h[1]);
  h[13] = __habs(s[0]) + __hneg(s[1]);
  h[14] = __ldg(h + 1);
  h[15] = __hmul_rn(h[0], h[1]) + __hadd_sat(h[2], h[3]);
  p[0] = __hadd2(p[1], p[2]);
  p[1] += p[2];
  p[3] = __hfma2(p[0], p[1], p[2]);
  p[4] = __hsub2(p[0], p[1]);
  p[5] = __nv_bfloat162(h[0], h[1]);
  f[0] = h[1];
  f[1] = float(h[2]) * 2.0f;
  f[3] = __low2float(p[0]) + __high2float(p[1]);
  atomicAdd(h, h[1]);
  atomicAdd(p, p[1]);
  h[1] = __float2bfloat16(f[0]);
  h[2] = __high2bfloat16(__bfloat162bfloat162(h[0]));
  p[0] = __floats2bfloat162_rn(1, 2);
  f[1] = __bfloat162float(h[1]);
  f[2] = __bfloat1622float2(p[0]).x;
  f[3] = __bfloat16_as_ushort(h[3]);
}
