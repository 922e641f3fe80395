// A file in stripes over several, since the system writes to one file from one thread at a time; past the page cache,
// which would take the application's memory, and more time than many disks.
#pragma once

#include <sys/types.h>

#include "containers.h"

namespace r3 {

const unsigned STRIPES = 16;
const size_t STRIPE_BYTES = 4 << 20;

class Stripes {
public:
    ~Stripes();

    // Create `<path>.0` and so on, of which no byte is written yet; false where the disk refuses.
    bool create(const char *path);
    bool created() const { return open_ == STRIPES; }
    void remove() const;
    // Whole pages, from aligned memory; whatever lies across a border goes to both files.
    bool write(const void *data, size_t nbytes, uint64_t offset) const;

private:
    struct File {
        int number;
        dev_t device;
        ino_t inode;
        bool ours() const;
    };

    void name(Text &into, unsigned stripe) const;

    Text path_;
    File files_[STRIPES];
    unsigned open_ = 0;
};

}  // namespace r3
