#include "pages.h"

#include "driver.h"
#include "own.h"
#include "pipeline.h"
#include "system.h"

namespace r3 {

namespace {

const size_t SMALL = 64 << 10, PIECE = 4 << 20;
const unsigned THREADS = 256, PAGES_A_BLOCK = THREADS / 32;

// An allocation, as our kernel takes it.
struct Span {
    Address first, end;
};

size_t pages_of(size_t nbytes) { return (nbytes + PAGE_BYTES - 1) / PAGE_BYTES; }

bool all_zero(const unsigned char *bytes, size_t nbytes) {
    return !nbytes || (bytes[0] == 0 && !memcmp(bytes, bytes + 1, nbytes - 1));
}

// By way of host memory: few pages, odd addresses, drivers that do not take our kernel.
bool digest_on_host(Address at, size_t nbytes, Digest *into, Reach *reach) {
    unsigned char *bytes = static_cast<unsigned char *>(malloc(PIECE));
    bool read = bytes != nullptr;
    for (size_t done = 0; read && done < nbytes; done += PIECE) {
        size_t piece = nbytes - done < PIECE ? nbytes - done : PIECE;
        read = driver().cuMemcpyDtoH_v2(bytes, at + done, piece) == SUCCESS;
        if (read && reach) reach->follow_all(bytes, piece);
        for (size_t page = 0; read && page < piece; page += PAGE_BYTES) {
            size_t length = piece - page < PAGE_BYTES ? piece - page : PAGE_BYTES;
            Digest digest = all_zero(bytes + page, length) ? Digest{0, 0} : digest_of(bytes + page, length);
            into[(done + page) / PAGE_BYTES] = digest;
        }
    }
    free(bytes);
    return read;
}

// The allocations and what is reached of them, in one piece.
void put_reach(const Reach &reach, Vector<unsigned char> &into) {
    for (const Allocation &each : reach.known) {
        Span span = {each.address, each.end()};
        into.append(reinterpret_cast<const unsigned char *>(&span), sizeof span);
    }
    into.append(reinterpret_cast<const unsigned char *>(reach.reached.begin()), reach.reached.size());
}

struct Room {
    Address at = 0;
    bool own = false;  // not of the staging, which has none left

    Room(Staging &staging, size_t nbytes) : at(staging.place(nbytes)) {
        if (!at) own = driver().cuMemAlloc_v2(&at, nbytes) == SUCCESS;
    }
    ~Room() {
        if (own) driver().cuMemFree_v2(at);
    }
};

bool look_on_device(Handle kernel, Address at, size_t nbytes, Staging &staging, const Pages *before, Pages &into,
                    Reach *reach) {
    const Driver &real = driver();
    size_t pages = into.flags.size();
    Vector<unsigned char> table;
    if (reach) put_reach(*reach, table);
    Room room(staging, pages * sizeof(Digest) + table.size() + pages);
    if (!room.at) return false;
    uint64_t length = nbytes, count = reach ? reach->known.size() : 0;
    Address digests = room.at, spans = digests + pages * sizeof(Digest), marks = spans + count * sizeof(Span);
    Address flags = spans + table.size(), previous = before ? before->held : 0;
    Address low = reach ? reach->low() : 0, span = reach ? reach->high() - low : 0;
    void *parameters[] = {&at, &length, &digests, &previous, &flags, &spans, &count, &low, &span, &marks};
    unsigned blocks = static_cast<unsigned>((pages + PAGES_A_BLOCK - 1) / PAGES_A_BLOCK);
    Result result = count ? real.cuMemcpyHtoD_v2(spans, table.begin(), table.size()) : SUCCESS;
    if (!result) result = real.cuLaunchKernel(kernel, blocks, 1, 1, THREADS, 1, 1, 0, nullptr, parameters, nullptr);
    if (!result) result = real.cuMemcpyDtoH_v2(into.flags.begin(), flags, pages);
    if (!result && count) result = real.cuMemcpyDtoH_v2(reach->reached.begin(), marks, count);
    // Without anything to compare with, all pages are changed: if not, the kernel did not do its work.
    if (!previous && !(into.flags[0] & into.flags[pages - 1] & CHANGED)) result = NOT_FOUND;
    into.held = digests;
    if (!result && room.own) result = pages_fetch(into) ? SUCCESS : NOT_FOUND;
    if (room.own || result) into.held = 0;
    return result == SUCCESS;
}

bool look_on_host(Address at, size_t nbytes, Pages &into, Reach *reach) {
    into.digests.resize(into.flags.size());
    if (!digest_on_host(at, nbytes, into.digests.begin(), reach)) return false;
    for (size_t page = 0; page < into.flags.size(); page++)
        into.flags[page] = into.digests[page].zero() ? CHANGED : FILLED | CHANGED;
    return true;
}

// Where one of them is not on the device any more, or never was.
bool compare_on_host(Pages &before, Pages &now) {
    if (!pages_fetch(before) || !pages_fetch(now)) return false;
    for (size_t page = 0; page < now.flags.size(); page++)
        if (before.digests[page] == now.digests[page]) now.flags[page] &= static_cast<unsigned char>(~CHANGED);
    return true;
}

}  // namespace

bool pages_look(Address at, size_t nbytes, bool away, Staging &staging, Pages *before, Pages &into, Reach *reach) {
    into.flags.resize(pages_of(nbytes));
    Handle kernel = !away && nbytes > SMALL && at % 16 == 0 ? own_kernel(Own::pages) : nullptr;
    bool here = kernel && look_on_device(kernel, at, nbytes, staging, before, into, reach);
    if (!here && !look_on_host(at, nbytes, into, reach)) return false;
    return !before || (before->held && here) || compare_on_host(*before, into);
}

bool pages_fetch(Pages &pages) {
    if (!pages.digests.empty() || !pages.held) return true;
    pages.digests.resize(pages.flags.size());
    return pipeline_fetch(pages.digests.begin(), pages.held, pages.digests.size() * sizeof(Digest));
}

}  // namespace r3
