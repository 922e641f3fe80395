// One recorded launch: what is kept of memory before and after it, and its description.
#pragma once

#include "coverage.h"
#include "launch.h"
#include "modules.h"
#include "pages.h"
#include "places.h"
#include "stripes.h"

namespace r3 {

// Pages from `first` on: `count` of them lie in the file from page `place` on, or are all the same (step 0), or zeros.
struct Run {
    uint64_t first, count;
    int64_t place;
    uint64_t step;
};

const int64_t ZEROS = -1;

// Neighbouring pages that are to be kept, and where they are until they are written.
struct Piece {
    uint64_t first, count;
    Address from;
};

// A buffer before the launch, or after it.
struct Moment {
    Pages pages;
    Vector<Piece> pieces;
    Vector<Run> runs;
};

struct Buffer {
    Address address;
    size_t nbytes;
    const char *kind;
    const char *symbol;  // of a variable, or null
    uint64_t number;
    bool away;  // another device's, which only copies read for sure
    Moment before, after;
};

// The bytes of a launch's arguments, however they were passed.
Problem read_arguments(const Kernel &kernel, const Launch &launch, Vector<unsigned char> &into);

class Unit {
public:
    static Unit *create(Kernel &kernel, const Launch &launch, long occurrence);
    ~Unit();

    Problem refused();              // why such a launch is never recorded; asked first
    Problem before();               // all that the launch can reach is set aside
    Problem after(double seconds);  // what it changed is too; the time on the device
    Problem finish();               // all is on disk, and the unit complete; the application may have gone on

    Kernel &kernel() const { return *kernel_; }
    Handle context() const { return context_; }

private:
    bool takes_texture() const;
    Problem set_aside_variables();
    Problem set_aside_reachable();
    Problem set_aside(Buffer &buffer, Moment &moment);
    void stage(const Buffer &buffer, Piece &piece);
    Problem hold();
    Problem write();
    Problem write(Buffer &buffer, Moment &moment);
    void describe(double seconds);
    Buffer *add(Address address, size_t nbytes, const char *kind, const char *symbol);

    Kernel *kernel_;
    Launch launch_;
    Handle context_;
    long occurrence_;
    double when_;
    Stripes file_;
    Staging staging_;
    bool elsewhere_;  // something could not be staged: all goes to disk before the application goes on
    bool complete_;   // and on disk
    char name_[32];
    Text facts_;
    Vector<unsigned char> arguments_;
    Vector<Buffer *> buffers_;
    Reach reach_;
    Places places_;  // pages in the file by content
};

// Of one launch: what is said of it but of its memory, and the runs of a buffer.
void describe_launch(Text &text, const Launch &launch);
void describe_buffer(Text &text, const Buffer &buffer);

uint64_t recorded_bytes();  // of all units of this process, on disk
void units_renew();         // in a child after fork

}  // namespace r3
