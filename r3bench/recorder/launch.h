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
    bool in_graph = false;           // it runs when its graph does
    Handle graph = nullptr;          // that holds this launch alone
};

// The default stream of a thread by its own handle.
inline Handle per_thread(Handle stream) { return stream ? stream : PER_THREAD_STREAM; }

}  // namespace r3
