// The time of one launch on the device, by two events around it.
#pragma once

#include "abi.h"

namespace r3 {

// Keep the device busy for a moment, so that what follows is queued behind it: two events around a launch then take its
// time, and not that of launching it.
void keep_busy(Handle stream);

// Bring a function to the device, which else happens between the events of its first launch.
void load_function(Handle function);

}  // namespace r3
