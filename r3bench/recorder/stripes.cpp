#include "stripes.h"

#include <fcntl.h>
#include <unistd.h>

#include "system.h"

namespace r3 {

Stripes::~Stripes() {
    while (open_) close(files_[--open_]);
}

bool Stripes::create(const char *path) {
    for (; open_ < STRIPES; open_++) {
        Text name;
        name.add("%s.%u", path, open_);
        files_[open_] = open(name.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (files_[open_] < 0) return false;
    }
    return true;
}

bool Stripes::write(const void *data, size_t nbytes, uint64_t offset) const {
    const char *rest = static_cast<const char *>(data);
    while (nbytes) {
        uint64_t stripe = offset / STRIPE_BYTES, within = offset % STRIPE_BYTES;
        size_t piece = nbytes < STRIPE_BYTES - within ? nbytes : STRIPE_BYTES - within;
        if (!write_at(files_[stripe % STRIPES], rest, piece, stripe / STRIPES * STRIPE_BYTES + within)) return false;
        rest += piece, nbytes -= piece, offset += piece;
    }
    return true;
}

}  // namespace r3
