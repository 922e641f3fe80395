// CUDA's keywords, integer names and the indices of a thread. Part of the device prelude (prelude.h).
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((device))  // one memory for all: a device variable
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__ __attribute__((grid_constant))
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __inline_hint__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __device_builtin__
#define __cudart_builtin__
#define CUDARTAPI
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 8
#define __CUDACC_VER_BUILD__ 0
#define CUDART_VERSION 12080
#define CUDA_VERSION 12080

// Host code of the same file is parsed too, so everything here may be called from both sides. Bodies cost the compiler
// far more than declarations: a function that is one instruction or one libdevice call is declared under that name.
#define R3_METHOD __host__ __device__ __attribute__((always_inline, nodebug))
#define R3_FN static __inline__ R3_METHOD
#define R3_PURE __host__ __device__ __attribute__((const, nothrow))
#define R3_IS(name) __asm__(name)

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
#ifndef NULL
#define NULL __null
#endif

namespace std {
using ::ptrdiff_t;
using ::size_t;
typedef decltype(nullptr) nullptr_t;
}  // namespace std

#include "vectors.h"

namespace r3 {
// An object without data whose members read special registers; converts like the uint3 or dim3 that CUDA has.
#define R3_INDEX(type, sreg)                                                                                 \
  struct type {                                                                                              \
    R3_MEMBER(sreg, x) R3_MEMBER(sreg, y) R3_MEMBER(sreg, z)                                                 \
    R3_METHOD operator uint3() const { return uint3{x, y, z}; }                                              \
    R3_METHOD operator dim3() const { return dim3(x, y, z); }                                                \
  };
#define R3_MEMBER(sreg, axis)                                                                                \
  __declspec(property(get = get_##axis)) unsigned axis;                                                      \
  R3_PURE static unsigned get_##axis() R3_IS("llvm.nvvm.read.ptx.sreg." #sreg "." #axis);
R3_INDEX(thread_index, tid)
R3_INDEX(block_index, ctaid)
R3_INDEX(block_size, ntid)
R3_INDEX(grid_size, nctaid)
#undef R3_INDEX
#undef R3_MEMBER
}  // namespace r3

extern const __device__ r3::thread_index threadIdx;
extern const __device__ r3::block_index blockIdx;
extern const __device__ r3::block_size blockDim;
extern const __device__ r3::grid_size gridDim;
static __device__ const int warpSize = 32;
