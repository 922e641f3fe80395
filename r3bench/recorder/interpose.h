// How the application comes to call us: a list of entry points, found whichever way it looks for them.
#pragma once

#include "abi.h"

namespace r3 {

// An entry point of the driver that we answer for. `real` is what we pass calls on to.
struct Entry {
    const char *name;  // as libcuda.so.1 (or libamdhip64.so) exports it
    void *ours;
    void *real;
    Entry *next;

    Entry(const char *name, void *ours);
};

void *find_real(Entry &entry);

inline void *real_of(Entry &entry) { return entry.real ? entry.real : find_real(entry); }

void *next_function(const char *name);  // of the libraries behind this one

// Defines an entry point `name` of this library, so that directly linked programs bind to it, and lists it. Inside its
// body REAL(name) is the driver's own; a driver without it answers NOT_FOUND.
#define R3_ENTRY(name, parameters, arguments, body) R3_ENTRY_AS("default", name, parameters, arguments, body)

// The same for a function of a library that may be there several times, or not where dlsym finds it for us: only who
// asks for it by dlsym is answered, and the first library that is asked for it is the one that is listened to.
#define R3_FOUND_ENTRY(name, parameters, arguments, body) R3_ENTRY_AS("hidden", name, parameters, arguments, body)

#define R3_ENTRY_AS(seen, name, parameters, arguments, body)                                              \
    extern "C" __attribute__((visibility(seen))) ::r3::Result name parameters;                            \
    static ::r3::Entry entry_##name(#name, reinterpret_cast<void *>(&name));                              \
    static inline ::r3::Result real_##name parameters {                                                   \
        auto *real = reinterpret_cast<::r3::Result(*) parameters>(::r3::real_of(entry_##name));           \
        return real ? real arguments : ::r3::NOT_FOUND;                                                   \
    }                                                                                                     \
    extern "C" ::r3::Result name parameters { body }

}  // namespace r3
