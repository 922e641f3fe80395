#include "profile.h"

#include "coverage.h"
#include "driver.h"
#include "interpose.h"
#include "plan.h"
#include "streams.h"
#include "substitutes.h"
#include "system.h"
#include "timing.h"
#include "unit.h"

namespace r3 {

namespace {

// A ring of launches whose events may not have come yet.
const unsigned RING = 2048;

struct Timed {
    Handle begin, end;
    Handle context;
    double around;   // seconds that the events themselves take
    Kernel *kernel;  // null where the place is free
};

Lock ring_lock;
Timed ring[RING];
unsigned next;
bool at_end;  // asked to be called at the end of the program: before the driver, which came earlier

void collect(Timed &timed, bool wait) {
    const Driver &real = driver();
    if (!timed.kernel) return;
    if (wait ? real.cuEventSynchronize(timed.end) : real.cuEventQuery(timed.end)) return;
    double taken = seconds_between(timed.begin, timed.end);
    if (taken > 0) {
        timed.kernel->gpu_seconds += taken > timed.around ? taken - timed.around : 0;
        timed.kernel->timed++;
    }
    timed.kernel = nullptr;
}

Result passed(Kernel &kernel, const Launch &launch) {
    return kernel.substitute && !launch.in_graph ? launch_substituted(kernel, launch) : launch.pass(launch);
}

// Whether it can be recorded, asked at a kernel's first launch.
void ask(Kernel &kernel, const Launch &launch) {
    Unit *unit = Unit::create(kernel, launch, 0);
    if (Problem problem = unit->refused()) coverage_count(kernel, problem);
    destroy(unit);
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
        timed.context = context, timed.around = events_seconds();
    }
    return &timed;
}

}  // namespace

Result launch_timed(Kernel &kernel, const Launch &launch) {
    if (any_capture()) return passed(kernel, launch);
    if (kernel.launches == 1 && plan().most_per_kernel > 0) ask(kernel, launch);
    Held held(ring_lock);
    if (!at_end) at_end = !atexit(profile_collect);
    Timed *timed = place();
    if (!timed) return passed(kernel, launch);
    if (!kernel.timed) load_function(launch.function);
    keep_busy(launch.stream);
    if (driver().cuEventRecord(timed->begin, launch.stream)) return passed(kernel, launch);
    Result result = passed(kernel, launch);
    if (result == SUCCESS && !driver().cuEventRecord(timed->end, launch.stream)) timed->kernel = &kernel;
    return result;
}

void profile_collect() {
    Held held(ring_lock);
    for (Timed &timed : ring) collect(timed, false);
}

void profile_renew() { memset(static_cast<void *>(ring), 0, sizeof ring); }

// The application waited, or is about to end: what it launched before has its times by now.
static Result waited(Result result) {
    if (!plan().active) return result;
    coverage_waited();
    if (plan().profile && !any_capture()) profile_collect();
    return result;
}

}  // namespace r3

using r3::Address;
using r3::Handle;

R3_ENTRY(cuCtxSynchronize, (), (), { return r3::waited(real_cuCtxSynchronize()); })

R3_ENTRY(cuCtxSynchronize_v2, (Handle context), (context), { return r3::waited(real_cuCtxSynchronize_v2(context)); })

R3_ENTRY(cuStreamSynchronize, (Handle stream), (stream), { return r3::waited(real_cuStreamSynchronize(stream)); })

R3_ENTRY(cuStreamSynchronize_ptsz, (Handle stream), (stream),
         { return r3::waited(real_cuStreamSynchronize_ptsz(stream)); })

R3_ENTRY(cuEventSynchronize, (Handle event), (event), { return r3::waited(real_cuEventSynchronize(event)); })

R3_ENTRY(cuMemcpyDtoH_v2, (void *to, Address from, size_t nbytes), (to, from, nbytes),
         { return r3::waited(real_cuMemcpyDtoH_v2(to, from, nbytes)); })

R3_ENTRY(cuMemcpyDtoH_v2_ptds, (void *to, Address from, size_t nbytes), (to, from, nbytes),
         { return r3::waited(real_cuMemcpyDtoH_v2_ptds(to, from, nbytes)); })
