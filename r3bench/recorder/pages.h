// The pages of a piece of device memory: a digest of each, made on the device where that is possible.
#pragma once

#include "reach.h"
#include "staging.h"

namespace r3 {

const size_t PAGE_BYTES = 4096;

enum : unsigned char { FILLED = 1, CHANGED = 2 };  // of a page: not all zeros; not as it was before

struct Pages {
    Vector<unsigned char> flags;  // of each page
    Vector<Digest> digests;       // of each page, zero for one of zeros; empty as long as they are
    Address held;                 // on the device
};

// Look at `nbytes` from `at` on, by copies alone where they are `away`: what became of its pages since `before` (all changed if null), and what its words lead
// to if `reach` is not null. False where the memory cannot be read.
bool pages_look(Address at, size_t nbytes, bool away, Staging &staging, Pages *before, Pages &into, Reach *reach);

// Bring the digests to the host; false where the driver refuses.
bool pages_fetch(Pages &pages);

}  // namespace r3
