#include "timing.h"

#include "driver.h"
#include "own.h"
#include "streams.h"
#include "system.h"

namespace r3 {

namespace {

const unsigned ROUNDS = 9, FURTHER = 8;
const double LONGEST_S = 1;  // a device that is busy for so long is not waited for

struct InContext {
    Handle context;
    double seconds;
};

Lock measuring;
Vector<InContext> measured;

void busy(Handle kernel, Handle stream, uint64_t nanoseconds) {
    void *parameters[] = {&nanoseconds};
    driver().cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

// Seconds between two events around so many kernels that do nothing, queued behind one that takes its time; or -1.
double around(unsigned kernels, Handle kernel, Handle stream, const Handle (&events)[2]) {
    const Driver &real = driver();
    busy(kernel, stream, 100000);
    if (real.cuEventRecord(events[0], stream)) return -1;
    for (unsigned i = 0; i < kernels; i++) busy(kernel, stream, 0);
    if (real.cuEventRecord(events[1], stream) || wait_for_event(events[1], LONGEST_S) != Waited::done) return -1;
    return seconds_between(events[0], events[1]);
}

// One kernel between two events against what each further one takes, the least of several tries.
double measure(Handle kernel, Handle stream, const Handle (&events)[2]) {
    double one = 1, several = 1;
    for (unsigned round = 0; round < ROUNDS; round++) {
        double alone = around(1, kernel, stream, events), more = around(1 + FURTHER, kernel, stream, events);
        if (alone < 0 || more < 0) return 0;
        one = alone < one ? alone : one, several = more < several ? more : several;
    }
    double each = (several - one) / FURTHER;
    return each > 0 && one > each ? one - each : 0;
}

double measure() {
    const Driver &real = driver();
    const unsigned non_blocking = 1;
    Handle kernel = own_kernel(Own::busy), stream = nullptr, events[2] = {};
    if (!kernel || real.cuStreamCreate(&stream, non_blocking)) return 0;
    bool made = !real.cuEventCreate(&events[0], 0) && !real.cuEventCreate(&events[1], 0);
    double found = made ? measure(kernel, stream, events) : 0;
    for (Handle event : events)
        if (event) real.cuEventDestroy_v2(event);
    real.cuStreamDestroy_v2(stream);
    return found;
}

}  // namespace

void events_renew() { measured.clear(); }

double seconds_between(Handle begin, Handle end) {
    float milliseconds = 0;
    return driver().cuEventElapsedTime(&milliseconds, begin, end) ? 0 : 1e-3 * static_cast<double>(milliseconds);
}

void keep_busy(Handle stream) {
    if (Handle kernel = own_kernel(Own::busy)) busy(kernel, stream, 20000);
}

double events_seconds() {
    Handle context = nullptr;
    if (driver().cuCtxGetCurrent(&context)) return 0;
    Held held(measuring);
    for (const InContext &each : measured)
        if (each.context == context) return each.seconds;
    if (any_capture()) return 0;
    measured.push({context, measure()});
    return measured.back().seconds;
}

void load_function(Handle function) {
    const Driver &real = driver();
    Handle plain = function;
    if (real.cuKernelGetFunction && real.cuKernelGetFunction(&plain, function)) plain = function;
    if (real.cuFuncLoad) real.cuFuncLoad(plain);
}

}  // namespace r3
