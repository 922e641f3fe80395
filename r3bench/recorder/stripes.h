// A file in stripes over several, since the system writes to one file from one thread at a time.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace r3 {

const unsigned STRIPES = 16;
const size_t STRIPE_BYTES = 8 << 20;

class Stripes {
public:
    ~Stripes();

    // Create `<path>.0` and so on, of which no byte is written yet; false where the disk refuses.
    bool create(const char *path);
    // Whatever lies across a border goes to both files.
    bool write(const void *data, size_t nbytes, uint64_t offset) const;

private:
    int files_[STRIPES];
    unsigned open_ = 0;
};

}  // namespace r3
