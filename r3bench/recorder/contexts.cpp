// The end of contexts and modules, and memory running short: what waits for the disk gets there before.
#include "background.h"
#include "driver.h"
#include "interpose.h"
#include "memory.h"
#include "own.h"
#include "pipeline.h"
#include "plan.h"
#include "recording.h"
#include "substitutes.h"
#include "system.h"
#include "timing.h"

namespace r3 {

// Contexts may come again under the same handle: nothing of ours in them is remembered.
static void context_ends() {
    if (!plan().active) return;
    wait_for_recording();
    background_wait();
    pipeline_close();
    own_kernels_renew();
    events_renew();
    substitutes_forget();
}

static Lock primary_lock;
static Map<uint64_t, Handle> primaries;  // contexts by device

static Result retained(Result result, const Handle *context, int device) {
    Held held(primary_lock);
    if (result == SUCCESS && context) primaries.at(uint64_t(device)) = *context;
    return result;
}

static Result primary_ended(Result result, int device, bool surely) {
    unsigned flags;
    int active = 0;
    if (result != SUCCESS) return result;
    if (!surely && (driver().cuDevicePrimaryCtxGetState(device, &flags, &active) || active)) return result;
    Held held(primary_lock);
    if (Handle *context = primaries.find(uint64_t(device))) memory_context_ended(*context);
    return result;
}

static void before_free_memory() {
    if (plan().active) background_wait();
}

}  // namespace r3

using r3::Handle;

R3_ENTRY(cuCtxDestroy_v2, (Handle context), (context), {
    r3::context_ends();
    r3::Result result = real_cuCtxDestroy_v2(context);
    if (result == r3::SUCCESS) r3::memory_context_ended(context);
    return result;
})

R3_ENTRY(cuDevicePrimaryCtxRelease_v2, (int device), (device), {
    r3::context_ends();
    return r3::primary_ended(real_cuDevicePrimaryCtxRelease_v2(device), device, false);
})

R3_ENTRY(cuDevicePrimaryCtxReset_v2, (int device), (device), {
    r3::context_ends();
    return r3::primary_ended(real_cuDevicePrimaryCtxReset_v2(device), device, true);
})

R3_ENTRY(cuDevicePrimaryCtxRetain, (Handle *context, int device), (context, device),
         { return r3::retained(real_cuDevicePrimaryCtxRetain(context, device), context, device); })

// Applications that take all that is free shall not find our memory missing.
R3_ENTRY(cuMemGetInfo_v2, (size_t * unused, size_t *whole), (unused, whole), {
    r3::before_free_memory();
    return real_cuMemGetInfo_v2(unused, whole);
})
