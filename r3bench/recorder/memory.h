// The application's memory that a kernel can reach: one table of allocations, by address.
#pragma once

#include "abi.h"
#include "containers.h"

namespace r3 {

struct Allocation {
    Address address;
    size_t nbytes;
    const char *kind;  // device, managed, host or pool, as a capture names them
    uint64_t number;   // counts allocations, so that one can be told from the next at the same address
    Handle context;    // that it was made in
    uint64_t devices;  // a bit for each whose kernels may read it without being told; 0 as long as none may
    bool mapped;       // into reserved addresses, where memory that follows upon other memory is one with it

    Address end() const { return address + nbytes; }
};

void memory_add(Address address, size_t nbytes, const char *kind);
void memory_remove(Address address);
void memory_context_ended(Handle context);  // memory ends with its context

// The allocation that holds an address (its end counts, as one-past-the-end pointers do); false where none does.
bool memory_find(Address address, Allocation &found);

// A bit for the current device, as `devices` of an allocation has it.
uint64_t memory_device();

// All allocations that a kernel may read in order of address, for looking many words up at once.
void memory_snapshot(Vector<Allocation> &into);

// What was made of textures, surfaces and arrays, and whether a word is the handle of one.
bool memory_is_texture(uint64_t word);

}  // namespace r3
