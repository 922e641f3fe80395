// Device memory of ours, in which what a launch found and left waits for its way to disk while the application goes on.
#pragma once

#include "abi.h"
#include "containers.h"

namespace r3 {

class Staging {
public:
    ~Staging();

    // Room for `nbytes` in the current context; 0 where that would leave the application too little.
    Address place(size_t nbytes);

private:
    Vector<Address> chunks_;
    Address next_ = 0;
    size_t rest_ = 0;
};

}  // namespace r3
