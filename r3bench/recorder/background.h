// Recorded launches on their way from the device to disk, while the application goes on.
#pragma once

#include "unit.h"

namespace r3 {

void background_push(Unit *unit);  // to be finished and destroyed; its launch counts as recorded

// Wait until all are complete, or nothing moves for the time-out; whether there was anything and it is done.
bool background_wait();

void background_renew();  // in a child after fork: what waits is the parent's

}  // namespace r3
