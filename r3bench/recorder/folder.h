// The folder of this process below the one of the whole recording.
#pragma once

namespace r3 {

const char *folder();
void folder_renew();  // a child after fork gets its own

}  // namespace r3
