// Included before a source that uses CUDA's own headers: clang's wrapper of them, and what nvcc brings along beside it.
#pragma once

#include "__clang_cuda_runtime_wrapper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Before __NVCC__: these must take their branches for clang.
#if __has_include(<nv/target>)
#include <nv/target>
#endif
#if __has_include(<cuda/std/__cccl/compiler.h>)
#include <cuda/std/__cccl/compiler.h>
#endif
#define _CG_CLUSTER_INTRINSICS_AVAILABLE 1

// Applications ask for the compiler that they are built by.
#define __NVCC__ 1
#ifndef __CUDACC__
#define __CUDACC__ 1
#endif
#define __CUDACC_VER_MAJOR__ (CUDA_VERSION / 1000)
#define __CUDACC_VER_MINOR__ (CUDA_VERSION % 1000 / 10)
#define __CUDACC_VER_BUILD__ 0

#undef __managed__
#define __managed__ __device__
#ifndef __grid_constant__
#define __grid_constant__
#endif

// nvcc has min and max for host code, too, of numbers of one type and of two.
#include <type_traits>
#define R3_HOST_PICK(name, op)                                                                          \
    template <class A, class B, class C = typename std::common_type<A, B>::type>                        \
    __host__ inline typename std::enable_if<                                                            \
        std::is_arithmetic<A>::value && std::is_arithmetic<B>::value && !std::is_same<A, B>::value, C>::type \
    name(A a, B b) {                                                                                    \
        return C(a) op C(b) ? C(a) : C(b);                                                              \
    }                                                                                                   \
    R3_HOST_PICK_OF(name, op, int)                                                                      \
    R3_HOST_PICK_OF(name, op, unsigned)                                                                 \
    R3_HOST_PICK_OF(name, op, long)                                                                     \
    R3_HOST_PICK_OF(name, op, unsigned long)                                                            \
    R3_HOST_PICK_OF(name, op, long long)                                                                \
    R3_HOST_PICK_OF(name, op, unsigned long long)                                                       \
    R3_HOST_PICK_OF(name, op, float)                                                                    \
    R3_HOST_PICK_OF(name, op, double)
#define R3_HOST_PICK_OF(name, op, type) \
    __host__ inline type name(type a, type b) { return a op b ? a : b; }
R3_HOST_PICK(min, <)
R3_HOST_PICK(max, >)
#undef R3_HOST_PICK
#undef R3_HOST_PICK_OF

// Some applications tell clang from nvcc by it.
#undef __CUDA__
