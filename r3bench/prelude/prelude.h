// Device prelude: what CUDA C++ offers a kernel, declared anew from CUDA's documentation, without a CUDA toolkit.
// Included before every source. Functions become LLVM intrinsics, or calls of libdevice by its names (__nv_*).
#pragma once

#include "keywords.h"
#include "threads.h"
#include "atomics.h"
#include "integers.h"
#include "math.h"
#include "memory.h"
#include "host.h"
