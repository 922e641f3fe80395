#include "recording.h"

#include "background.h"
#include "coverage.h"
#include "driver.h"
#include "plan.h"
#include "streams.h"
#include "system.h"
#include "timing.h"

namespace r3 {

namespace {

const long TRIES = 3;  // of a kernel, each of which takes time
Lock recording;
bool busy;
__thread bool mine;

bool listed(long occurrence) {
    if (plan().launches.empty()) return true;
    for (long wanted : plan().launches)
        if (wanted == occurrence) return true;
    return false;
}

// Dimensions and scalars; words that lead into memory count as equal.
uint64_t shape_of(const Kernel &kernel, const Launch &launch) {
    uint64_t shape = mixed(launch.shared_bytes);
    const Dim3 dims[] = {launch.grid, launch.block, launch.cluster};
    for (const Dim3 &dim : dims) shape = mixed(mixed(mixed(shape ^ dim.x) + dim.y) ^ dim.z);
    Vector<unsigned char> bytes;
    if (read_arguments(kernel, launch, bytes)) return shape;
    for (const Parameter &parameter : kernel.parameters)
        for (size_t at = 0; at < parameter.nbytes; at += 8) {
            uint64_t word = 0;
            size_t rest = parameter.nbytes - at;
            memcpy(&word, &bytes[parameter.offset + at], rest < 8 ? rest : 8);
            Allocation held;
            shape = mixed(shape ^ (rest >= 8 && memory_find(word, held) ? 0 : word)) + at;
        }
    return shape;
}

// Two events around a launch on its own stream; the launch's seconds without theirs, or 0 where the driver refuses.
struct Stopwatch {
    Handle begin = nullptr, end = nullptr;

    explicit Stopwatch(Handle stream) {
        const Driver &real = driver();
        if (real.cuEventCreate(&begin, 0) || real.cuEventCreate(&end, 0)) return;
        real.cuEventRecord(begin, stream);
    }
    Waited stop(Handle stream) {
        if (!end || driver().cuEventRecord(end, stream)) return Waited::failed;
        return wait_for_event(end, plan().timeout_s);
    }
    double seconds() const {
        double found = seconds_between(begin, end) - events_seconds();
        return found > 0 ? found : 0;
    }
    ~Stopwatch() {
        if (begin) driver().cuEventDestroy_v2(begin);
        if (end) driver().cuEventDestroy_v2(end);
    }
};

Problem problem_of(Waited waited) {
    if (waited == Waited::timed_out) return "the device was busy for longer than the time-out";
    return waited == Waited::failed ? "the driver reported an error" : nullptr;
}

// What costs nothing to find out: it may be so for every launch of an application.
Problem unfit(Unit &unit) {
    if (any_capture()) return "a stream was being captured into a graph";
    if (recorded_bytes() >= plan().most_bytes) return "the recording is as large as was allowed";
    return unit.refused();
}

// A device that was busy for too long once is asked, and not waited for again.
Problem prologue(Unit &unit) {
    static bool too_busy;
    Waited waited = wait_for_all(too_busy ? 0 : plan().timeout_s);
    too_busy = too_busy || waited == Waited::timed_out;
    Problem problem = problem_of(waited);
    return problem ? problem : unit.before();
}

Result passed(const Launch &launch, Unit &unit, Problem &problem) {
    events_seconds();
    load_function(launch.function);
    keep_busy(launch.stream);
    Stopwatch watch(launch.stream);
    Result result = launch.pass(launch);
    if (result != SUCCESS) problem = "the launch itself failed";
    if (!problem) problem = problem_of(watch.stop(launch.stream));
    if (!problem) problem = unit.after(watch.seconds());
    return result;
}

// The launch itself goes on whatever happens to the recording of it.
Result record(Kernel &kernel, const Launch &launch, long occurrence) {
    if (__atomic_load_n(&kernel.failed, __ATOMIC_RELAXED) >= TRIES) {
        coverage_count(kernel, "recording it failed before");
        return launch.pass(launch);
    }
    Unit *unit = Unit::create(kernel, launch, occurrence);
    if (Problem problem = unfit(*unit)) {
        destroy(unit);
        coverage_failed(kernel, problem);
        return launch.pass(launch);
    }
    Problem problem = prologue(*unit);
    Result result = problem ? launch.pass(launch) : passed(launch, *unit, problem);
    if (!problem) {
        background_push(unit);
        return result;
    }
    destroy(unit);
    __atomic_add_fetch(&kernel.failed, 1, __ATOMIC_RELAXED);
    coverage_failed(kernel, problem);
    coverage_write(false);
    return result;
}

}  // namespace

bool launch_chosen(const Kernel &kernel, long occurrence) {
    const Plan &asked = plan();
    return kernel.recorded < asked.most_per_kernel && kernel.wanted && occurrence >= asked.skip &&
           listed(occurrence) && (occurrence - asked.skip) % asked.every == 0;
}

Result launch_recorded(Kernel &kernel, const Launch &launch, long occurrence) {
    if (!launch_chosen(kernel, occurrence)) {
        wait_for_recording();
        return launch.pass(launch);
    }
    if (!recording.acquire(plan().timeout_s)) {
        coverage_count(kernel, "another launch was being recorded");
        return launch.pass(launch);
    }
    __atomic_store_n(&busy, true, __ATOMIC_SEQ_CST);
    mine = true;
    bool *known = nullptr;
    if (plan().distinct && kernel_describe(kernel, launch.function))
        known = &kernel.shapes.at(shape_of(kernel, launch));
    bool again = !launch_chosen(kernel, occurrence) || (known && *known);
    if (known) *known = true;
    Result result = again ? launch.pass(launch) : record(kernel, launch, occurrence);
    mine = false;
    __atomic_store_n(&busy, false, __ATOMIC_SEQ_CST);
    recording.release();
    return result;
}

void wait_for_recording() {
    if (!__atomic_load_n(&busy, __ATOMIC_SEQ_CST) || mine) return;
    if (recording.acquire(plan().timeout_s)) recording.release();
}

void recording_renew() { busy = false; }

}  // namespace r3
