// Bulk data from the device to a file: through pinned memory, copied and written at the same time.
#pragma once

#include "abi.h"
#include "memory.h"
#include "stripes.h"

namespace r3 {

// Begin to copy to `file`, which must live until all is written; every word that leads into one of `known` marks it in `reached` (same length) if not null.
bool pipeline_begin(const Stripes &file, const Vector<Allocation> *known, Vector<char> *reached);
// Queue `nbytes` from `from` for `offset` in the file; false where the driver refuses.
bool pipeline_copy(Address from, size_t nbytes, uint64_t offset);
// Wait until all is written; false where anything failed.
bool pipeline_drain();

void pipeline_renew();  // in a child after fork: threads and device memory are the parent's

}  // namespace r3
