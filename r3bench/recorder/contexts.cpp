// The end of contexts and modules, and memory running short: what waits for the disk gets there before.
#include "background.h"
#include "interpose.h"
#include "own.h"
#include "pipeline.h"
#include "plan.h"
#include "recording.h"
#include "substitutes.h"

namespace r3 {

// Contexts may come again under the same handle: nothing of ours in them is remembered.
static void context_ends() {
    if (!plan().active) return;
    wait_for_recording();
    background_wait();
    pipeline_close();
    own_kernels_renew();
    substitutes_forget();
}

static void before_free_memory() {
    if (plan().active) background_wait();
}

}  // namespace r3

using r3::Handle;

R3_ENTRY(cuCtxDestroy_v2, (Handle context), (context), {
    r3::context_ends();
    return real_cuCtxDestroy_v2(context);
})

R3_ENTRY(cuDevicePrimaryCtxRelease_v2, (int device), (device), {
    r3::context_ends();
    return real_cuDevicePrimaryCtxRelease_v2(device);
})

R3_ENTRY(cuDevicePrimaryCtxReset_v2, (int device), (device), {
    r3::context_ends();
    return real_cuDevicePrimaryCtxReset_v2(device);
})

// Applications that take all that is free shall not find our memory missing.
R3_ENTRY(cuMemGetInfo_v2, (size_t * unused, size_t *whole), (unused, whole), {
    r3::before_free_memory();
    return real_cuMemGetInfo_v2(unused, whole);
})
