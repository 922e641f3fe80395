// Which of the application's allocations a launch can reach: by its arguments, and by words in what those lead to.
#pragma once

#include "memory.h"

namespace r3 {

struct Reach {
    Vector<Allocation> known;  // in order of address
    Vector<char> reached;      // beside it

    void begin();                // with all that is allocated now, nothing of it reached
    void follow(uint64_t word);  // mark what a word leads to, if anything
    void follow_all(const unsigned char *bytes, size_t nbytes);  // of every aligned word
    Address low() const;         // words from here
    Address high() const;        // to here may lead somewhere
};

}  // namespace r3
