// Digests of the pages of a piece of device memory, made on the device where that is possible.
#pragma once

#include "abi.h"
#include "containers.h"

namespace r3 {

const size_t PAGE_BYTES = 4096;

// One digest a page from `at` on, zero for a page of zeros; false where the memory cannot be read.
bool pages_digest(Address at, size_t nbytes, Vector<Digest> &into);

void pages_renew();  // in a child after fork

}  // namespace r3
