#include "pages.h"

#include "driver.h"
#include "own.h"
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

bool digest_on_device(Handle kernel, Address at, size_t nbytes, Vector<Digest> &into, Reach *reach) {
    const Driver &real = driver();
    size_t digests_bytes = into.size() * sizeof(Digest);
    Vector<unsigned char> table;
    if (reach) put_reach(*reach, table);
    Address digests;
    if (real.cuMemAlloc_v2(&digests, digests_bytes + table.size())) return false;
    Address spans = digests + digests_bytes, low = reach ? reach->low() : 0, span = reach ? reach->high() - low : 0;
    uint64_t length = nbytes, count = reach ? reach->known.size() : 0;
    Address marks = spans + count * sizeof(Span);
    void *parameters[] = {&at, &length, &digests, &spans, &count, &low, &span, &marks};
    unsigned blocks = static_cast<unsigned>((into.size() + PAGES_A_BLOCK - 1) / PAGES_A_BLOCK);
    Result result = count ? real.cuMemcpyHtoD_v2(spans, table.begin(), table.size()) : SUCCESS;
    if (!result) result = real.cuLaunchKernel(kernel, blocks, 1, 1, THREADS, 1, 1, 0, nullptr, parameters, nullptr);
    if (!result) result = real.cuMemcpyDtoH_v2(into.begin(), digests, digests_bytes);
    if (!result && count) result = real.cuMemcpyDtoH_v2(reach->reached.begin(), marks, count);
    real.cuMemFree_v2(digests);
    return result == SUCCESS;
}

}  // namespace

bool pages_digest(Address at, size_t nbytes, Vector<Digest> &into, Reach *reach) {
    into.resize(pages_of(nbytes));
    Handle kernel = nbytes > SMALL && at % 16 == 0 ? own_kernel(Own::pages) : nullptr;
    return (kernel && digest_on_device(kernel, at, nbytes, into, reach)) ||
           digest_on_host(at, nbytes, into.begin(), reach);
}

}  // namespace r3
