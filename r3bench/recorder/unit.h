// One recorded launch: what is kept of memory before and after it, and its description.
#pragma once

#include "launch.h"
#include "memory.h"
#include "modules.h"
#include "stripes.h"

namespace r3 {

// A reason that nothing was recorded, or null.
using Problem = const char *;

struct Buffer;

class Unit {
public:
    Unit(Kernel &kernel, const Launch &launch, long occurrence);
    ~Unit();

    Problem before();            // all that the launch can reach is on disk
    Problem after(double seconds);  // what it changed is too, and the unit is complete; the time on the device

private:
    Problem read_arguments();
    bool takes_texture() const;
    void reach(uint64_t word);
    Problem copy_variables();
    Problem copy_reachable();
    Problem copy(Buffer &buffer, bool changed_only);
    Problem describe(double seconds);
    Buffer *add(Address address, size_t nbytes, const char *kind, const char *symbol);

    Kernel &kernel_;
    const Launch &launch_;
    long occurrence_;
    double when_;
    Stripes file_;
    char name_[32];
    uint64_t pages_ = 0;  // written to the file so far
    Vector<unsigned char> arguments_;
    Vector<Buffer *> buffers_;
    Vector<Allocation> known_;
    Vector<char> reached_;
    Map<Digest, uint64_t> places_;  // pages in the file by content
};

uint64_t recorded_bytes();  // of all units of this process, on disk
void units_renew();         // in a child after fork

}  // namespace r3
