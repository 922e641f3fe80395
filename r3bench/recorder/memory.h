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

    Address end() const { return address + nbytes; }
};

void memory_add(Address address, size_t nbytes, const char *kind);
void memory_remove(Address address);

// The allocation that holds an address (its end counts, as one-past-the-end pointers do); false where none does.
bool memory_find(Address address, Allocation &found);

// All allocations in order of address, for looking many words up at once.
void memory_snapshot(Vector<Allocation> &into);

// What was made of textures, surfaces and arrays, and whether a word is the handle of one.
bool memory_is_texture(uint64_t word);

void memory_renew();  // in a child after fork

}  // namespace r3
