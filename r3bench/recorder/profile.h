// The time of every launch on the device, for the list of kernels.
#pragma once

#include "launch.h"
#include "modules.h"

namespace r3 {

Result launch_timed(Kernel &kernel, const Launch &launch);
void profile_collect();  // what has ended by now
void profile_renew();    // in a child after fork

}  // namespace r3
