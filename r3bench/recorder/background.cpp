#include "background.h"

#include <stdlib.h>

#include "coverage.h"
#include "driver.h"
#include "pipeline.h"
#include "plan.h"
#include "system.h"

namespace r3 {

namespace {

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
Vector<Unit *> waiting;  // the first is being written
bool started;

void finish(Unit *unit) {
    int mode = 2;  // relaxed: other threads may be capturing streams into graphs
    if (driver().cuThreadExchangeStreamCaptureMode) driver().cuThreadExchangeStreamCaptureMode(&mode);
    Problem problem = driver().cuCtxSetCurrent(unit->context()) ? "its context is gone" : unit->finish();
    if (problem) {
        __atomic_sub_fetch(&unit->kernel().recorded, 1, __ATOMIC_RELAXED);
        __atomic_add_fetch(&unit->kernel().failed, 1, __ATOMIC_RELAXED);
        coverage_failed(unit->kernel(), problem);
    }
    destroy(unit);
    coverage_write(false);
}

void *work(void *) {
    pthread_mutex_lock(&lock);
    for (;;) {
        while (waiting.empty()) pthread_cond_wait(&changed, &lock);
        Unit *unit = waiting[0];
        pthread_mutex_unlock(&lock);
        finish(unit);
        pthread_mutex_lock(&lock);
        waiting.erase(0);
        pthread_cond_broadcast(&changed);
    }
    return nullptr;
}

void wait_at_end() { background_wait(); }

// Handlers of exit() run in reverse: ours, registered behind a launch, before the driver's and the runtime's own.
bool start() {
    if (!started) started = start_thread(work) && !atexit(wait_at_end);
    return started;
}

}  // namespace

void background_push(Unit *unit) {
    __atomic_add_fetch(&unit->kernel().recorded, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&lock);
    bool here = start();
    if (here) waiting.push(unit);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (!here) finish(unit);
}

bool background_wait() {
    pthread_mutex_lock(&lock);
    bool any = !waiting.empty();
    uint64_t moved = pipeline_moved();
    while (!waiting.empty()) {
        timespec until = after(plan().timeout_s);
        if (!pthread_cond_timedwait(&changed, &lock, &until)) continue;
        if (moved == pipeline_moved()) break;
        moved = pipeline_moved();
    }
    bool done = waiting.empty();
    pthread_mutex_unlock(&lock);
    if (!done) warn_once("recorded launches do not reach the disk: they are given up");
    return any && done;
}

void background_renew() {
    pthread_mutex_init(&lock, nullptr);
    pthread_cond_init(&changed, nullptr);
    waiting.clear();
    started = false;
}

}  // namespace r3
