// What became of every launch: recorded, substituted, or not and why. Written to the folder of the process.
#pragma once

#include "modules.h"

namespace r3 {

// A reason that nothing was recorded, or null.
using Problem = const char *;

void coverage_count(Kernel &kernel, Problem reason);   // a launch that the user wanted and did not get
void coverage_failed(Kernel &kernel, Problem reason);  // the same, and the user is told once
void coverage_unknown();                               // a launch of a function that nobody knows
void coverage_launched();                              // a launch begins
void coverage_waited();                                // the application has waited for the device
void coverage_region(int step);                        // a range of the marked part begins (1) or ends (-1)
void coverage_write(bool ended);
void coverage_renew();  // in a child after fork

}  // namespace r3
