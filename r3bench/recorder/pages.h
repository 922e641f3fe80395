// Digests of the pages of a piece of device memory, made on the device where that is possible.
#pragma once

#include "reach.h"

namespace r3 {

const size_t PAGE_BYTES = 4096;

// One digest a page from `at` on, zero for a page of zeros, and what its words lead to if `reach` is not null; false
// where the memory cannot be read.
bool pages_digest(Address at, size_t nbytes, Vector<Digest> &into, Reach *reach);

}  // namespace r3
