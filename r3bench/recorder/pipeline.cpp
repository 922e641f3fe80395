#include "pipeline.h"

#include "driver.h"
#include "pages.h"
#include "system.h"

namespace r3 {

namespace {

// Few and small: pinning takes 0.4 s a GiB, and the application waits for it.
const size_t SLOT_BYTES = STRIPE_BYTES;
const unsigned SLOTS = 16, WRITERS = 10, IN_FLIGHT = 3;

struct Slot {
    unsigned char *bytes;
    Handle copied;  // event
    size_t nbytes;
    uint64_t offset;
    Slot *next;
};

// Streams and events belong to a context: an application with several GPUs has several.
struct InContext {
    Handle context, stream, copied[SLOTS];
};

struct State {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    Slot slots[SLOTS];
    Slot *free_slots, *full, *full_last;
    unsigned writing;
    bool writers, pinned, failed;
    Vector<InContext> contexts;
    Handle stream;
    const Stripes *file;
    uint64_t end;  // of what the file holds or will hold
    Slot *filling, *flying[IN_FLIGHT];
    unsigned flights;
    uint64_t moved;
};

State state;

void *writer(void *) {
    pthread_mutex_lock(&state.lock);
    for (;;) {
        while (!state.full) pthread_cond_wait(&state.changed, &state.lock);
        Slot *slot = state.full;
        state.full = slot->next;
        state.writing++;
        pthread_mutex_unlock(&state.lock);
        bool written = state.file->write(slot->bytes, slot->nbytes, slot->offset);
        pthread_mutex_lock(&state.lock);
        state.writing--, state.moved++;
        state.failed = state.failed || !written;
        slot->next = state.free_slots;
        state.free_slots = slot;
        pthread_cond_broadcast(&state.changed);
    }
    return nullptr;
}

bool start_writers() {
    if (state.writers) return true;
    for (unsigned i = 0; i < WRITERS; i++)
        if (start_thread(writer)) state.writers = true;  // one does, if slowly
    return state.writers;
}

bool make(InContext &made) {
    const unsigned non_blocking = 1, no_timing = 2;
    if (driver().cuStreamCreate(&made.stream, non_blocking)) return false;
    for (Handle &event : made.copied)
        if (driver().cuEventCreate(&event, no_timing)) return false;
    return true;
}

bool enter_context() {
    Handle context = nullptr;
    if (driver().cuCtxGetCurrent(&context)) return false;
    size_t at = 0;
    while (at < state.contexts.size() && state.contexts[at].context != context) at++;
    if (at == state.contexts.size()) {
        InContext made = {context, nullptr, {}};
        if (!make(made)) return false;
        state.contexts.push(made);
    }
    state.stream = state.contexts[at].stream;
    for (unsigned i = 0; i < SLOTS; i++) state.slots[i].copied = state.contexts[at].copied[i];
    return true;
}

bool pin() {
    const unsigned portable = 1;
    for (Slot &slot : state.slots) {
        void *bytes = slot.bytes;
        if (!bytes && driver().cuMemHostAlloc(&bytes, SLOT_BYTES, portable)) return false;
        slot.bytes = static_cast<unsigned char *>(bytes);
    }
    state.free_slots = nullptr;
    for (Slot &slot : state.slots) slot.next = state.free_slots, state.free_slots = &slot;
    return true;
}

bool prepare() {
    if (!enter_context() || !start_writers()) return false;
    if (!state.pinned) state.pinned = pin();
    return state.pinned;
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

// What was filled is on its way.
void send() {
    if (state.flights == IN_FLIGHT) land();
    if (driver().cuEventRecord(state.filling->copied, state.stream)) state.failed = true;
    state.flying[state.flights++] = state.filling;
    state.filling = nullptr;
}

// Slots end where stripes do: each is written at once, and those beside it to other files.
void fill(Address from, size_t nbytes) {
    if (!state.filling) {
        state.filling = take();
        state.filling->offset = state.end, state.filling->nbytes = 0;
    }
    Slot &slot = *state.filling;
    if (driver().cuMemcpyDtoHAsync_v2(slot.bytes + slot.nbytes, from, nbytes, state.stream)) state.failed = true;
    slot.nbytes += nbytes, state.end += nbytes;
    size_t rest = PAGE_BYTES - 1 - (nbytes - 1) % PAGE_BYTES;  // of a page that is not whole
    memset(slot.bytes + slot.nbytes, 0, rest);
    slot.nbytes += rest, state.end += rest;
    if (state.end % SLOT_BYTES == 0) send();
}

}  // namespace

bool pipeline_begin(const Stripes &file, uint64_t end) {
    if (!prepare()) return false;
    state.file = &file, state.end = end;
    state.failed = false;
    return true;
}

bool pipeline_append(Address from, size_t nbytes) {
    while (nbytes && !state.failed) {
        size_t room = SLOT_BYTES - state.end % SLOT_BYTES, part = nbytes < room ? nbytes : room;
        fill(from, part);
        from += part, nbytes -= part;
    }
    return !state.failed;
}

bool pipeline_fetch(void *to, Address from, size_t nbytes) {
    return prepare() && !driver().cuMemcpyDtoHAsync_v2(to, from, nbytes, state.stream) &&
           !driver().cuStreamSynchronize(state.stream);
}

bool pipeline_drain() {
    if (state.filling) send();
    while (state.flights) land();
    pthread_mutex_lock(&state.lock);
    while (state.full || state.writing) pthread_cond_wait(&state.changed, &state.lock);
    pthread_mutex_unlock(&state.lock);
    return !state.failed;
}

uint64_t pipeline_moved() { return __atomic_load_n(&state.moved, __ATOMIC_RELAXED); }

void pipeline_close() {
    for (Slot &slot : state.slots) {
        if (slot.bytes) driver().cuMemFreeHost(slot.bytes);
        slot.bytes = nullptr;
    }
    state.contexts.clear();
    state.pinned = false;
}

void pipeline_renew() {
    pthread_mutex_init(&state.lock, nullptr);
    pthread_cond_init(&state.changed, nullptr);
    for (Slot &slot : state.slots) slot.bytes = nullptr;
    state.contexts.clear();
    state.free_slots = state.full = state.filling = nullptr;
    state.writing = state.flights = 0;
    state.writers = state.pinned = false;
}

}  // namespace r3
