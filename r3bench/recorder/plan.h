// What the user asked for, read once from the file that R3BENCH_PLAN names: lines of a key, a space, a value.
#pragma once

#include <regex.h>

#include "containers.h"

namespace r3 {

struct Plan {
    bool active;       // there is a plan; without one every call is passed through
    bool profile;      // time every launch
    const char *folder;
    const char *region;  // the name of NVTX ranges whose time counts; null where nobody asked
    Vector<regex_t> kernels, excluded;
    Vector<long> launches;
    Vector<const char *> variables;  // names of device variables that packed images may have
    Vector<const char *> substitutes;  // descriptions, see substitutes.h
    Vector<long> ranks;              // of a parallel run; empty for all
    long every, skip, most_per_kernel;
    bool distinct;
    uint64_t most_bytes;
    double timeout_s;
};

extern const Plan *plan_read;  // null before anybody asked
const Plan &read_plan();

inline const Plan &plan() {
    const Plan *there = __atomic_load_n(&plan_read, __ATOMIC_ACQUIRE);
    return there ? *there : read_plan();
}

// Whether a kernel of this name is one that the user wants.
bool plan_wants(const char *kernel);

}  // namespace r3
