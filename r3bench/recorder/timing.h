// The time of one launch on the device, by two events around it.
#pragma once

#include "abi.h"

namespace r3 {

// Seconds between two events that have come; 0 where the driver does not say.
double seconds_between(Handle begin, Handle end);

// Keep the device busy for a moment, so that what follows is queued behind it: two events around a launch then take its
// time, and not that of launching it.
void keep_busy(Handle stream);

// What two events around a launch take beyond the launch itself: measured once in a context, 0 where that cannot be.
double events_seconds();

// Bring a function to the device, which else happens between the events of its first launch.
void load_function(Handle function);

void events_renew();  // in a child after fork, or where a context ended

}  // namespace r3
