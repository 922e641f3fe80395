#include "stripes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "system.h"

namespace r3 {

namespace {

// Not every disk that opens a file for it is written to directly. Whether the file goes through the cache now, or did
// already: another writer may have come upon the same refusal.
bool through_cache(int file) {
    int flags = fcntl(file, F_GETFL);
    return !(flags & O_DIRECT) || !fcntl(file, F_SETFL, flags & ~O_DIRECT);
}

}  // namespace

// Applications that close all files close these too, and may have one of their own under the same number by now.
bool Stripes::File::ours() const {
    struct stat now;
    return !fstat(number, &now) && now.st_dev == device && now.st_ino == inode;
}

Stripes::~Stripes() {
    while (open_)
        if (files_[--open_].ours()) close(files_[open_].number);
}

bool Stripes::create(const char *path) {
    path_.add("%s", path);
    for (; open_ < STRIPES; open_++) {
        Text file;
        struct stat made;
        name(file, open_);
        const int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
        int number = open(file.c_str(), flags | O_DIRECT, 0666);
        if (number < 0) number = open(file.c_str(), flags, 0666);
        if (number < 0 || fstat(number, &made)) return false;
        files_[open_] = {number, made.st_dev, made.st_ino};
    }
    return true;
}

void Stripes::name(Text &into, unsigned stripe) const { into.add("%s.%u", path_.c_str(), stripe); }

void Stripes::remove() const {
    for (unsigned stripe = 0; stripe < open_; stripe++) {
        Text file;
        name(file, stripe);
        unlink(file.c_str());
    }
}

bool Stripes::write(const void *data, size_t nbytes, uint64_t offset) const {
    const char *rest = static_cast<const char *>(data);
    while (nbytes) {
        uint64_t stripe = offset / STRIPE_BYTES, within = offset % STRIPE_BYTES;
        size_t piece = nbytes < STRIPE_BYTES - within ? nbytes : STRIPE_BYTES - within;
        if (!files_[stripe % STRIPES].ours()) return false;
        int file = files_[stripe % STRIPES].number;
        uint64_t place = stripe / STRIPES * STRIPE_BYTES + within;
        if (!write_at(file, rest, piece, place) && !(through_cache(file) && write_at(file, rest, piece, place)))
            return false;
        rest += piece, nbytes -= piece, offset += piece;
    }
    return true;
}

}  // namespace r3
