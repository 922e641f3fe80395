#include "staging.h"

#include "background.h"
#include "driver.h"

namespace r3 {

namespace {

const size_t CHUNK = 32 << 20, ALIGN = 256;
const size_t SHARE = 2;  // as much again stays free

bool fits(size_t nbytes) {
    size_t unused = 0, whole = 0;
    return driver().cuMemGetInfo_v2 && !driver().cuMemGetInfo_v2(&unused, &whole) && nbytes <= unused / SHARE;
}

}  // namespace

Staging::~Staging() {
    for (Address chunk : chunks_) driver().cuMemFree_v2(chunk);
}

Address Staging::place(size_t nbytes) {
    nbytes = (nbytes + ALIGN - 1) / ALIGN * ALIGN;
    if (nbytes > rest_) {
        size_t chunk = nbytes < CHUNK ? CHUNK : nbytes;
        if (!fits(chunk) && !(background_wait() && fits(chunk))) return 0;
        if (driver().cuMemAlloc_v2(&next_, chunk)) return 0;
        chunks_.push(next_);
        rest_ = chunk;
    }
    Address found = next_;
    next_ += nbytes, rest_ -= nbytes;
    return found;
}

}  // namespace r3
