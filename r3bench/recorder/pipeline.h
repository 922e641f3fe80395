// Bulk data from the device to a file: through pinned memory, copied and written at the same time.
#pragma once

#include "abi.h"
#include "stripes.h"

namespace r3 {

// Begin to copy to `file`, which must live until all is written; false where the driver refuses pinned memory.
bool pipeline_begin(const Stripes &file);
// Queue `nbytes` from `from` for `offset` in the file; false where the driver refuses.
bool pipeline_copy(Address from, size_t nbytes, uint64_t offset);
// Copy to the host, in the order of what was queued.
bool pipeline_fetch(void *to, Address from, size_t nbytes);
// Wait until all is written; false where anything failed.
bool pipeline_drain();

uint64_t pipeline_moved();  // pieces written so far, of all files

void pipeline_close();  // give back what belongs to contexts, of which one ends
void pipeline_renew();  // in a child after fork: threads and device memory are the parent's

}  // namespace r3
