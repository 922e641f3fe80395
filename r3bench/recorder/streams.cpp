#include "streams.h"

#include "containers.h"
#include "driver.h"
#include "interpose.h"
#include "launch.h"
#include "recording.h"
#include "system.h"

namespace r3 {

namespace {

Lock table_lock;
Vector<Handle> streams;
long captures;

void remember(Handle stream) {
    Held held(table_lock);
    streams.push(stream);
}

void forget(Handle stream) {
    Held held(table_lock);
    for (size_t i = 0; i < streams.size(); i++)
        if (streams[i] == stream) return streams.erase(i);
}

void count_captures(long change) { __atomic_add_fetch(&captures, change, __ATOMIC_SEQ_CST); }

template <class F>
Waited wait_until(double timeout_s, F &&query) {
    double until = seconds() + timeout_s;
    for (unsigned pause_us = 1;; pause_us = pause_us < 500 ? 2 * pause_us : pause_us) {
        Result result = query();
        if (result != NOT_READY) return result == SUCCESS ? Waited::done : Waited::failed;
        if (seconds() > until) return Waited::timed_out;
        sleep_us(pause_us);
    }
}

Result query_all() {
    const Driver &real = driver();
    Result result = real.cuStreamQuery(nullptr);
    if (result == SUCCESS) result = real.cuStreamQuery(PER_THREAD_STREAM);
    Held held(table_lock);
    for (size_t i = 0; i < streams.size() && result == SUCCESS; i++) result = real.cuStreamQuery(streams[i]);
    return result;
}

}  // namespace

bool stream_capturing(Handle stream) {
    if (!any_capture()) return false;
    int state = 0;
    const Driver &real = driver();
    return real.cuStreamIsCapturing && !real.cuStreamIsCapturing(stream, &state) && state;
}

bool any_capture() { return __atomic_load_n(&captures, __ATOMIC_SEQ_CST) > 0; }

Waited wait_for_all(double timeout_s) {
    Waited waited = wait_until(timeout_s, query_all);
    // Streams that came by a way not seen here; whatever those run ends by itself or the application hangs without us.
    if (waited == Waited::done && driver().cuCtxSynchronize() != SUCCESS) return Waited::failed;
    return waited;
}

Waited wait_for_event(Handle event, double timeout_s) {
    return wait_until(timeout_s, [event] { return driver().cuEventQuery(event); });
}

static Result created(Result result, Handle *stream) {
    if (result == SUCCESS && stream) remember(*stream);
    return result;
}

// Counted before it is waited for whoever records, who looks at the count after saying so.
static void begins() {
    count_captures(1);
    wait_for_recording();
}

static Result began(Result result) {
    if (result != SUCCESS) count_captures(-1);
    return result;
}

// `captured`: the stream was being captured, which is over whatever the driver answered.
static Result ended(Result result, bool captured) {
    if (captured) count_captures(-1);
    return result;
}

}  // namespace r3

using r3::Handle;

R3_ENTRY(cuStreamCreate, (Handle *stream, unsigned flags), (stream, flags),
         { return r3::created(real_cuStreamCreate(stream, flags), stream); })

R3_ENTRY(cuStreamCreateWithPriority, (Handle *stream, unsigned flags, int priority), (stream, flags, priority),
         { return r3::created(real_cuStreamCreateWithPriority(stream, flags, priority), stream); })

R3_ENTRY(cuStreamDestroy_v2, (Handle stream), (stream), {
    bool captured = r3::stream_capturing(stream);
    r3::forget(stream);
    return r3::ended(real_cuStreamDestroy_v2(stream), captured);
})

// -- capture into graphs --

// It begins when nothing is being recorded, since recording makes calls that would break it.
#define R3_CAPTURE(name, parameters, arguments)  \
    R3_ENTRY(name, parameters, arguments, {      \
        r3::begins();                            \
        return r3::began(real_##name arguments); \
    })

R3_CAPTURE(cuStreamBeginCapture, (Handle stream), (stream))
R3_CAPTURE(cuStreamBeginCapture_ptsz, (Handle stream), (stream))
R3_CAPTURE(cuStreamBeginCapture_v2, (Handle stream, int mode), (stream, mode))
R3_CAPTURE(cuStreamBeginCapture_v2_ptsz, (Handle stream, int mode), (stream, mode))
R3_CAPTURE(cuStreamBeginCaptureToGraph,
           (Handle stream, Handle graph, const Handle *nodes, const void *edges, size_t count, int mode),
           (stream, graph, nodes, edges, count, mode))
R3_CAPTURE(cuStreamBeginCaptureToGraph_ptsz,
           (Handle stream, Handle graph, const Handle *nodes, const void *edges, size_t count, int mode),
           (stream, graph, nodes, edges, count, mode))

R3_ENTRY(cuStreamEndCapture, (Handle stream, Handle *graph), (stream, graph), {
    bool captured = r3::stream_capturing(stream);
    return r3::ended(real_cuStreamEndCapture(stream, graph), captured);
})

R3_ENTRY(cuStreamEndCapture_ptsz, (Handle stream, Handle *graph), (stream, graph), {
    bool captured = r3::stream_capturing(r3::per_thread(stream));
    return r3::ended(real_cuStreamEndCapture_ptsz(stream, graph), captured);
})
