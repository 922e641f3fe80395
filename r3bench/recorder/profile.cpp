#include "profile.h"

#include "driver.h"
#include "streams.h"
#include "system.h"

namespace r3 {

namespace {

// A ring of launches whose events may not have come yet.
const unsigned RING = 2048;

struct Timed {
    Handle begin, end;
    Handle context;
    Kernel *kernel;  // null where the place is free
};

Lock ring_lock;
Timed ring[RING];
unsigned next;

void collect(Timed &timed, bool wait) {
    const Driver &real = driver();
    if (!timed.kernel) return;
    if (wait ? real.cuEventSynchronize(timed.end) : real.cuEventQuery(timed.end)) return;
    float milliseconds = 0;
    if (!real.cuEventElapsedTime(&milliseconds, timed.begin, timed.end)) {
        timed.kernel->gpu_seconds += 1e-3 * static_cast<double>(milliseconds);
        timed.kernel->timed++;
    }
    timed.kernel = nullptr;
}

// A free place with two events of the current context.
Timed *place() {
    const Driver &real = driver();
    Timed &timed = ring[next];
    next = (next + 1) % RING;
    collect(timed, true);
    Handle context = nullptr;
    if (timed.kernel || real.cuCtxGetCurrent(&context)) return nullptr;
    if (timed.context != context) {
        if (real.cuEventCreate(&timed.begin, 0) || real.cuEventCreate(&timed.end, 0)) return nullptr;
        timed.context = context;
    }
    return &timed;
}

}  // namespace

Result launch_timed(Kernel &kernel, const Launch &launch) {
    if (any_capture()) return launch.pass(launch);
    Held held(ring_lock);
    Timed *timed = place();
    if (!timed || driver().cuEventRecord(timed->begin, launch.stream)) return launch.pass(launch);
    Result result = launch.pass(launch);
    if (result == SUCCESS && !driver().cuEventRecord(timed->end, launch.stream)) timed->kernel = &kernel;
    return result;
}

void profile_collect() {
    Held held(ring_lock);
    for (Timed &timed : ring) collect(timed, false);
}

void profile_renew() {
    ring_lock.renew();
    memset(static_cast<void *>(ring), 0, sizeof ring);
}

}  // namespace r3
