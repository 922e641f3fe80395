// One kernel launch, whichever function of the driver it comes through.
#pragma once

#include "abi.h"

namespace r3 {

struct Kernel;

struct Launch {
    Handle function;
    Dim3 grid, block, cluster;
    unsigned shared_bytes;
    bool cooperative;
    Handle stream;  // the per-thread default stream by its own handle
    void **parameters, **extra;
    Result (*pass)(const Launch &);  // to the driver's function, with whatever this launch now says
    const LaunchConfig *config;      // of cuLaunchKernelEx
};

}  // namespace r3
