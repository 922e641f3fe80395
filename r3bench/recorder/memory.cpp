// Every way in which an application gets and returns memory.
#include "memory.h"

#include "background.h"
#include "driver.h"
#include "interpose.h"
#include "launch.h"
#include "recording.h"
#include "streams.h"
#include "system.h"

namespace r3 {

namespace {

Lock table_lock;
Vector<Allocation> table;  // ordered by address
Map<uint64_t, bool> textures;
uint64_t made;

// The first allocation that starts behind an address.
size_t behind(Address address) {
    size_t low = 0, high = table.size();
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].address <= address) low = middle + 1;
        else high = middle;
    }
    return low;
}

void note_texture(uint64_t handle) {
    Held held(table_lock);
    textures.at(handle) = true;
}

}  // namespace

void memory_add(Address address, size_t nbytes, const char *kind) {
    if (!address || !nbytes) return;
    Handle context = nullptr;
    driver().cuCtxGetCurrent(&context);
    bool everywhere = !strcmp(kind, "host") || !strcmp(kind, "managed");
    Held held(table_lock);
    size_t at = behind(address);
    Allocation added = {address, nbytes, kind, ++made, context, everywhere ? ~0ull : memory_device(), false};
    if (at && table[at - 1].address == address) table[at - 1] = added;
    else table.insert(at, added);
}

void memory_remove(Address address) {
    Held held(table_lock);
    size_t at = behind(address);
    if (at && table[at - 1].address == address) table.erase(at - 1);
}

void memory_context_ended(Handle context) {
    Held held(table_lock);
    for (size_t i = table.size(); i-- > 0;)
        if (table[i].context == context) table.erase(i);
}

uint64_t memory_device() {
    int device = 0;
    return driver().cuCtxGetDevice(&device) ? 1 : 1ull << (device & 63);
}

bool memory_find(Address address, Allocation &found) {
    Held held(table_lock);
    size_t at = behind(address);
    if (!at || address > table[at - 1].end()) return false;
    found = table[at - 1];
    return true;
}

void memory_snapshot(Vector<Allocation> &into) {
    Held held(table_lock);
    into.clear();
    for (const Allocation &each : table)
        if (each.devices) into.push(each);
}

bool memory_is_texture(uint64_t word) {
    Held held(table_lock);
    return word && textures.find(word) != nullptr;
}

// Where memory of ours is in the way, it is given back and the application asks again.
template <class F>
static Result with_room(F &&allocate) {
    Result result = allocate();
    return result == OUT_OF_MEMORY && background_wait() ? allocate() : result;
}

static Result added(Result result, const Address *address, size_t nbytes, const char *kind) {
    if (result == SUCCESS && address) memory_add(*address, nbytes, kind);
    return result;
}

static Result added(Result result, void *const *address, size_t nbytes, const char *kind) {
    if (result == SUCCESS && address) memory_add(reinterpret_cast<Address>(*address), nbytes, kind);
    return result;
}

// CUmemAccessDesc
struct Access {
    int kind, device, allowed;
};

// Under the lock, as what follows: what lies across an address becomes two.
static void cut(Address at) {
    size_t found = behind(at);
    if (!found || !table[found - 1].mapped || table[found - 1].address == at || table[found - 1].end() <= at) return;
    Allocation &low = table[found - 1], high = low;
    high.address = at, high.nbytes = low.end() - at, high.number = ++made;
    low.nbytes = at - low.address, low.number = ++made;
    table.insert(found, high);
}

// An array may lie across mappings: what the same devices may read is one.
static void join(Address at) {
    size_t found = behind(at);
    if (found < 2 || table[found - 1].address != at) return;
    Allocation &low = table[found - 2], &high = table[found - 1];
    if (!low.mapped || !high.mapped || low.end() != at || low.devices != high.devices) return;
    low.nbytes += high.nbytes, low.number = ++made;
    table.erase(found - 1);
}

// Memory that was mapped is read by those devices that were given access, and by none before; a part of it likewise.
static Result accessed(Result result, Address at, size_t nbytes, const Access *given, size_t count) {
    const int DEVICE = 1;
    if (result != SUCCESS) return result;
    wait_for_recording();
    Held held(table_lock);
    cut(at), cut(at + nbytes);
    for (size_t found = behind(at - 1); found < table.size() && table[found].address < at + nbytes; found++)
        for (size_t i = 0; i < count && table[found].mapped; i++) {
            if (given[i].kind != DEVICE) continue;
            uint64_t bit = 1ull << (given[i].device & 63), &devices = table[found].devices;
            devices = given[i].allowed ? devices | bit : devices & ~bit;
        }
    for (size_t found = table.size(); found-- > 0;)
        if (at <= table[found].address && table[found].address <= at + nbytes) join(table[found].address);
    return result;
}

static Result mapped(Result result, Address at, size_t nbytes) {
    if (result != SUCCESS) return result;
    memory_add(at, nbytes, "device");
    Held held(table_lock);
    size_t found = behind(at);
    if (found && table[found - 1].address == at) table[found - 1].devices = 0, table[found - 1].mapped = true;
    return result;
}

static void unmapped(Address at, size_t nbytes) {
    wait_for_recording();
    Held held(table_lock);
    cut(at), cut(at + nbytes);
    for (size_t found = table.size(); found-- > 0;)
        if (table[found].mapped && at <= table[found].address && table[found].address < at + nbytes) table.erase(found);
}

// Taken out before the driver frees it, since another thread may get the same address at once; and not while a launch
// that may reach it is being recorded.
static void removed(Address address) {
    wait_for_recording();
    memory_remove(address);
}

// Memory that a stream being captured makes or frees is so when its graph is launched.
static Result added_in_order(Result result, const Address *at, size_t nbytes, bool captured) {
    return captured ? result : added(result, at, nbytes, "pool");
}

// How much memory of another process there is behind an address.
static size_t range_of(Address at) {
    size_t nbytes = 0;
    Address start;
    if (!driver().cuMemGetAddressRange_v2 || driver().cuMemGetAddressRange_v2(&start, &nbytes, at)) return 0;
    return nbytes;
}

static Result noted(Result result, const uint64_t *handle) {
    if (result == SUCCESS && handle) note_texture(*handle);
    return result;
}

}  // namespace r3

using r3::Address;
using r3::Handle;

// An entry point that puts the address of `nbytes` at `at`.
#define R3_MEMORY(name, parameters, arguments, kind) \
    R3_ENTRY(name, parameters, arguments,            \
             { return r3::added(r3::with_room([=] { return real_##name arguments; }), at, nbytes, kind); })

// -- device memory --

R3_MEMORY(cuMemAlloc_v2, (Address *at, size_t nbytes), (at, nbytes), "device")

R3_ENTRY(cuMemAllocPitch_v2, (Address *at, size_t *pitch, size_t width, size_t height, unsigned element),
         (at, pitch, width, height, element), {
             auto allocate = [=] { return real_cuMemAllocPitch_v2(at, pitch, width, height, element); };
             r3::Result result = r3::with_room(allocate);
             return r3::added(result, at, result == r3::SUCCESS ? *pitch * height : 0, "device");
         })

R3_MEMORY(cuMemAllocManaged, (Address *at, size_t nbytes, unsigned flags), (at, nbytes, flags), "managed")

R3_ENTRY(cuMemFree_v2, (Address at), (at), {
    r3::removed(at);
    return real_cuMemFree_v2(at);
})

// -- stream-ordered memory and pools --

#define R3_ORDERED(name, parameters, arguments, whose)                                                        \
    R3_ENTRY(name, parameters, arguments, {                                                                  \
        bool captured = r3::stream_capturing(whose);                                                         \
        r3::Result result = r3::with_room([=] { return real_##name arguments; });                            \
        return r3::added_in_order(result, at, nbytes, captured);                                             \
    })

R3_ORDERED(cuMemAllocAsync, (Address *at, size_t nbytes, Handle stream), (at, nbytes, stream), stream)

R3_ORDERED(cuMemAllocAsync_ptsz, (Address *at, size_t nbytes, Handle stream), (at, nbytes, stream),
           r3::per_thread(stream))

R3_ORDERED(cuMemAllocFromPoolAsync, (Address *at, size_t nbytes, Handle pool, Handle stream),
           (at, nbytes, pool, stream), stream)

R3_ORDERED(cuMemAllocFromPoolAsync_ptsz, (Address *at, size_t nbytes, Handle pool, Handle stream),
           (at, nbytes, pool, stream), r3::per_thread(stream))

R3_ENTRY(cuMemFreeAsync, (Address at, Handle stream), (at, stream), {
    if (!r3::stream_capturing(stream)) r3::removed(at);
    return real_cuMemFreeAsync(at, stream);
})

R3_ENTRY(cuMemFreeAsync_ptsz, (Address at, Handle stream), (at, stream), {
    if (!r3::stream_capturing(r3::per_thread(stream))) r3::removed(at);
    return real_cuMemFreeAsync_ptsz(at, stream);
})

R3_ENTRY(cuMemPoolImportPointer, (Address *at, Handle pool, const void *shared), (at, pool, shared), {
    r3::Result result = real_cuMemPoolImportPointer(at, pool, shared);
    return r3::added(result, at, result == r3::SUCCESS ? r3::range_of(*at) : 0, "pool");
})

// -- mapped memory --

R3_ENTRY(cuMemCreate, (uint64_t *handle, size_t nbytes, const void *properties, uint64_t flags),
         (handle, nbytes, properties, flags),
         { return r3::with_room([=] { return real_cuMemCreate(handle, nbytes, properties, flags); }); })

R3_ENTRY(cuMemMap, (Address at, size_t nbytes, size_t offset, uint64_t handle, uint64_t flags),
         (at, nbytes, offset, handle, flags),
         { return r3::mapped(real_cuMemMap(at, nbytes, offset, handle, flags), at, nbytes); })

R3_ENTRY(cuMemSetAccess, (Address at, size_t nbytes, const r3::Access *given, size_t count),
         (at, nbytes, given, count),
         { return r3::accessed(real_cuMemSetAccess(at, nbytes, given, count), at, nbytes, given, count); })

R3_ENTRY(cuMemUnmap, (Address at, size_t nbytes), (at, nbytes), {
    r3::unmapped(at, nbytes);
    return real_cuMemUnmap(at, nbytes);
})

// -- memory of the host that the device sees --

R3_ENTRY(cuMemHostAlloc, (void **at, size_t nbytes, unsigned flags), (at, nbytes, flags),
         { return r3::added(real_cuMemHostAlloc(at, nbytes, flags), at, nbytes, "host"); })

R3_ENTRY(cuMemAllocHost_v2, (void **at, size_t nbytes), (at, nbytes),
         { return r3::added(real_cuMemAllocHost_v2(at, nbytes), at, nbytes, "host"); })

R3_ENTRY(cuMemHostRegister_v2, (void *at, size_t nbytes, unsigned flags), (at, nbytes, flags),
         { return r3::added(real_cuMemHostRegister_v2(at, nbytes, flags), &at, nbytes, "host"); })

R3_ENTRY(cuMemHostUnregister, (void *at), (at), {
    r3::removed(reinterpret_cast<Address>(at));
    return real_cuMemHostUnregister(at);
})

R3_ENTRY(cuMemFreeHost, (void *at), (at), {
    r3::removed(reinterpret_cast<Address>(at));
    return real_cuMemFreeHost(at);
})

// -- memory of other processes --

R3_ENTRY(cuIpcOpenMemHandle_v2, (Address *at, r3::IpcHandle handle, unsigned flags), (at, handle, flags), {
    r3::Result result = real_cuIpcOpenMemHandle_v2(at, handle, flags);
    return r3::added(result, at, result == r3::SUCCESS ? r3::range_of(*at) : 0, "device");
})

R3_ENTRY(cuIpcOpenMemHandle, (Address *at, r3::IpcHandle handle, unsigned flags), (at, handle, flags), {
    r3::Result result = real_cuIpcOpenMemHandle(at, handle, flags);
    return r3::added(result, at, result == r3::SUCCESS ? r3::range_of(*at) : 0, "device");
})

R3_ENTRY(cuIpcCloseMemHandle, (Address at), (at), {
    r3::removed(at);
    return real_cuIpcCloseMemHandle(at);
})

// -- what is seen and cannot be recorded --

R3_ENTRY(cuTexObjectCreate, (uint64_t *made, const void *resource, const void *texture, const void *view),
         (made, resource, texture, view),
         { return r3::noted(real_cuTexObjectCreate(made, resource, texture, view), made); })

R3_ENTRY(cuSurfObjectCreate, (uint64_t *made, const void *resource), (made, resource),
         { return r3::noted(real_cuSurfObjectCreate(made, resource), made); })
