// Bulk data from the device to a file: through pinned memory, copied and written at the same time.
#pragma once

#include "abi.h"
#include "stripes.h"

namespace r3 {

// Begin to append to `file`, which has `end` bytes of whole pages and lives until pipeline_drain; false where the driver
// refuses pinned memory.
bool pipeline_begin(const Stripes &file, uint64_t end);
// Queue `nbytes` from `from`, filled up with zeros to whole pages; false where the driver refuses.
bool pipeline_append(Address from, size_t nbytes);
// Copy to the host, in the order of what was queued.
bool pipeline_fetch(void *to, Address from, size_t nbytes);
// Wait until all is written; false where anything failed.
bool pipeline_drain();

uint64_t pipeline_moved();  // pieces written so far, of all files

void pipeline_close();  // give back what belongs to contexts, of which one ends
void pipeline_renew();  // in a child after fork: threads and device memory are the parent's

}  // namespace r3
