// Streams: which there are, whether one is being captured into a graph, and waiting for all of them.
#pragma once

#include "abi.h"

namespace r3 {

bool stream_capturing(Handle stream);
bool any_capture();  // on any stream of the process: no call that synchronizes may be made meanwhile

enum class Waited { done, timed_out, failed };

// Wait until nothing runs, asking all streams rather than blocking in the driver: a kernel may wait for the host.
Waited wait_for_all(double timeout_s);
Waited wait_for_event(Handle event, double timeout_s);

}  // namespace r3
