// Included before a source that uses CUDA's own headers: clang's wrapper of them, and what nvcc brings along beside it.
#pragma once

#include "__clang_cuda_runtime_wrapper.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if __has_include(<nv/target>)
#include <nv/target>  // before __NVCC__: it must take its branch for clang
#endif

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
