// Whether a launch is to be recorded, and recording it: one at a time, from its prologue to its epilogue.
#pragma once

#include "launch.h"
#include "modules.h"

namespace r3 {

// Pass the launch on, recording it if it was chosen; `occurrence` counts launches of this kernel from 0.
Result launch_recorded(Kernel &kernel, const Launch &launch, long occurrence);

// Whether the user wants this launch of a kernel.
bool launch_chosen(const Kernel &kernel, long occurrence);

// Whatever else changes device memory waits here while another thread records.
void wait_for_recording();

void recording_renew();  // in a child after fork

}  // namespace r3
