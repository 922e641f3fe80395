#include "pipeline.h"

#include <signal.h>

#include "driver.h"
#include "system.h"

namespace r3 {

namespace {

const size_t SLOT_BYTES = 8 << 20;
const unsigned SLOTS = 16, WRITERS = 10, IN_FLIGHT = 3;

struct Slot {
    unsigned char *bytes;
    Handle copied;  // event
    size_t nbytes;
    uint64_t offset;
    Slot *next;
};

struct State {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    Slot slots[SLOTS];
    Slot *free_slots, *full, *full_last;
    unsigned writing;
    bool ready, failed;
    Handle context, stream;
    const Stripes *file;
    const Vector<Allocation> *known;
    Vector<char> *reached;
    Slot *flying[IN_FLIGHT];
    unsigned flights;
};

State state;

// Marks what the words of a piece lead to. Most words lead nowhere: one comparison each.
void look_for_pointers(const unsigned char *bytes, size_t nbytes) {
    const Vector<Allocation> &known = *state.known;
    if (known.empty()) return;
    const uint64_t *words = reinterpret_cast<const uint64_t *>(bytes);
    Address low = known[0].address, span = 0;
    for (const Allocation &each : known) span = each.end() - low > span ? each.end() - low : span;
    for (size_t i = 0; i < nbytes / 8; i++) {
        if (words[i] - low > span) continue;
        size_t from = 0, to = known.size();
        while (from < to) {
            size_t middle = (from + to) / 2;
            if (known[middle].address <= words[i]) from = middle + 1;
            else to = middle;
        }
        if (from && words[i] <= known[from - 1].end()) (*state.reached)[from - 1] = 1;
    }
}

void write_slot(Slot &slot) {
    if (state.reached) look_for_pointers(slot.bytes, slot.nbytes);
    if (!state.file->write(slot.bytes, slot.nbytes, slot.offset)) state.failed = true;
}

void *writer(void *) {
    pthread_mutex_lock(&state.lock);
    for (;;) {
        while (!state.full) pthread_cond_wait(&state.changed, &state.lock);
        Slot *slot = state.full;
        state.full = slot->next;
        state.writing++;
        pthread_mutex_unlock(&state.lock);
        write_slot(*slot);
        pthread_mutex_lock(&state.lock);
        state.writing--;
        slot->next = state.free_slots;
        state.free_slots = slot;
        pthread_cond_broadcast(&state.changed);
    }
    return nullptr;
}

bool start_writers() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the application's
    bool started = true;
    for (unsigned i = 0; i < WRITERS; i++) {
        pthread_t thread;
        started = pthread_create(&thread, nullptr, writer, nullptr) == 0 && started;
        if (started) pthread_detach(thread);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

// Streams and events belong to a context: an application with several GPUs has several.
bool enter_context() {
    const Driver &real = driver();
    const unsigned non_blocking = 1, no_timing = 2;
    Handle context = nullptr;
    if (real.cuCtxGetCurrent(&context)) return false;
    if (state.context == context) return true;
    if (real.cuStreamCreate(&state.stream, non_blocking)) return false;
    for (Slot &slot : state.slots)
        if (real.cuEventCreate(&slot.copied, no_timing)) return false;
    state.context = context;
    return true;
}

bool prepare() {
    if (!enter_context()) return false;
    if (state.ready) return true;
    const unsigned portable = 1;
    for (Slot &slot : state.slots) {
        void *bytes;
        if (driver().cuMemHostAlloc(&bytes, SLOT_BYTES, portable)) return false;
        slot.bytes = static_cast<unsigned char *>(bytes);
        slot.next = state.free_slots;
        state.free_slots = &slot;
    }
    return state.ready = start_writers();
}

Slot *take() {
    pthread_mutex_lock(&state.lock);
    while (!state.free_slots) pthread_cond_wait(&state.changed, &state.lock);
    Slot *slot = state.free_slots;
    state.free_slots = slot->next;
    pthread_mutex_unlock(&state.lock);
    return slot;
}

void hand_over(Slot *slot) {
    slot->next = nullptr;
    pthread_mutex_lock(&state.lock);
    (state.full ? state.full_last->next : state.full) = slot;
    state.full_last = slot;
    pthread_cond_broadcast(&state.changed);
    pthread_mutex_unlock(&state.lock);
}

// The oldest copy in flight ends, and its slot goes to the writers.
void land() {
    Slot *slot = state.flying[0];
    if (driver().cuEventSynchronize(slot->copied)) state.failed = true;
    for (unsigned i = 1; i < state.flights; i++) state.flying[i - 1] = state.flying[i];
    state.flights--;
    hand_over(slot);
}

}  // namespace

bool pipeline_begin(const Stripes &file, const Vector<Allocation> *known, Vector<char> *reached) {
    if (!prepare()) return false;
    state.file = &file, state.known = known, state.reached = reached;
    state.failed = false;
    return true;
}

bool pipeline_copy(Address from, size_t nbytes, uint64_t offset) {
    for (size_t done = 0; done < nbytes && !state.failed; done += SLOT_BYTES) {
        if (state.flights == IN_FLIGHT) land();
        Slot *slot = take();
        slot->nbytes = nbytes - done < SLOT_BYTES ? nbytes - done : SLOT_BYTES;
        slot->offset = offset + done;
        if (driver().cuMemcpyDtoHAsync_v2(slot->bytes, from + done, slot->nbytes, state.stream)) state.failed = true;
        if (driver().cuEventRecord(slot->copied, state.stream)) state.failed = true;
        state.flying[state.flights++] = slot;
    }
    return !state.failed;
}

bool pipeline_drain() {
    while (state.flights) land();
    pthread_mutex_lock(&state.lock);
    while (state.full || state.writing) pthread_cond_wait(&state.changed, &state.lock);
    pthread_mutex_unlock(&state.lock);
    return !state.failed;
}

void pipeline_renew() {
    pthread_mutex_init(&state.lock, nullptr);
    pthread_cond_init(&state.changed, nullptr);
    state.free_slots = state.full = nullptr;
    state.writing = state.flights = 0;
    state.ready = false;
    state.context = nullptr;
}

}  // namespace r3
