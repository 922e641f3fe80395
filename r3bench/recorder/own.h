// Kernels of ours, in the application's contexts (own.cu).
#pragma once

#include "abi.h"

namespace r3 {

enum class Own { pages, busy };

// One of them in the current context; null where the driver does not take them, or cannot now.
Handle own_kernel(Own which);

void own_kernels_renew();  // in a child after fork, or where a context ended

}  // namespace r3
