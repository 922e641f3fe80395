// Tuned kernels in place of the application's own: described by files that the plan names, one fact a line.
//
//   kernel SYMBOL            whose launches are replaced             image PATH      what to load instead
//   argument OFFSET HEX      only where these bytes are passed       block X Y Z     only for this block
//   grid X Y Z               only for this grid                      aligned OFFSET BYTES
//   distinct OFFSET          pointers that must lead to different allocations
//   launch X Y Z X Y Z       run with this block, a thread doing the work of so many
#pragma once

#include "launch.h"
#include "modules.h"

namespace r3 {

struct Substitute;

// The substitutes of a kernel by its name, in the plan's order; null where there is none.
Substitute *substitutes_of(const char *kernel);

// Launch the first substitute whose conditions hold, else the kernel itself.
Result launch_substituted(Kernel &kernel, const Launch &launch);

// Turn a launch that a graph will make into that of the first substitute whose conditions hold; false where none does.
bool substitute_for(Kernel &kernel, Launch &launch);

bool substitutes_made(Handle function);  // whether a function is a substitute's

// The application wrote to device memory: constants that lie there are copied again before their next use.
void substitutes_note_write(Address to, size_t nbytes);

// What was loaded is gone with its context, and is loaded again where it is needed.
void substitutes_forget();

}  // namespace r3
