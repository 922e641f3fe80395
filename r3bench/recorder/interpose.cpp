// Answers dlsym and cuGetProcAddress with our entry points, and finds the driver's own behind them.
#include "interpose.h"

#include <dlfcn.h>
#include <string.h>

#include "containers.h"
#include "driver.h"
#include "system.h"

#if defined(__x86_64__)
#define R3_FIRST_GLIBC "GLIBC_2.2.5"
#else
#define R3_FIRST_GLIBC "GLIBC_2.17"
#endif

namespace r3 {

using Dlsym = void *(*)(void *, const char *);

namespace {

Entry *first;

Dlsym real_dlsym() {
    static Dlsym found;
    if (!found) found = reinterpret_cast<Dlsym>(dlvsym(RTLD_NEXT, "dlsym", R3_FIRST_GLIBC));
    return found;
}

Entry *named(const char *name) {
    for (Entry *entry = first; entry; entry = entry->next)
        if (!strcmp(entry->name, name)) return entry;
    return nullptr;
}

bool is_nvrtc(const char *name) { return !strncmp(name, "nvrtc", 5); }

void *library_of(const char *name) {
    if (is_nvrtc(name)) return nullptr;  // known from who asks for it
    static void *cuda, *hip;
    bool of_hip = !strncmp(name, "hip", 3) || !strncmp(name, "__hip", 5);
    void *&library = of_hip ? hip : cuda;
    const char *file = of_hip ? "libamdhip64.so" : "libcuda.so.1";
    if (!library) library = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (!library) library = dlopen(file, RTLD_LAZY);
    return library;
}

void *real_function(const char *name) {
    void *library = library_of(name);
    return library && real_dlsym() ? real_dlsym()(library, name) : nullptr;
}

// Our entry points by the driver's own, all looked up once: the runtime asks for hundreds of functions when it starts.
Map<const void *, Entry *> of_driver;

void look_up() {
    for (Entry *entry = first; entry; entry = entry->next) {
        void *real = strncmp(entry->name, "cu", 2) ? nullptr : real_of(*entry);
        if (real) of_driver.at(real) = entry;
    }
}

// Our entry point for what the driver answered: versions and per-thread variants have addresses of their own.
Entry *standing_for(void *real) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look_up);
    Entry **found = of_driver.find(real);
    return found ? *found : nullptr;
}

bool interesting(const char *name) {
    return (name[0] == 'c' && name[1] == 'u') || !strncmp(name, "hip", 3) || !strncmp(name, "__hip", 5) ||
           is_nvrtc(name);
}

void answer(void **function) {
    if (!function || !*function) return;
    if (Entry *entry = standing_for(*function)) *function = entry->ours;
}

}  // namespace

Entry::Entry(const char *name, void *ours) : name(name), ours(ours), real(nullptr), next(first) { first = this; }

void *find_real(Entry &entry) { return entry.real = real_function(entry.name); }

void *real_driver_function(const char *name) { return real_function(name); }

const Driver &driver() {
    static Driver found;
    static bool complete;
    if (!complete) {
#define R3_RESOLVE(name, result, arguments) \
    found.name = reinterpret_cast<result(*) arguments>(real_driver_function(#name));
        R3_DRIVER_FUNCTIONS(R3_RESOLVE)
#undef R3_RESOLVE
        complete = true;
    }
    return found;
}

void *next_function(const char *name) { return real_dlsym() ? real_dlsym()(RTLD_NEXT, name) : nullptr; }

static void *our_dlsym(void *library, const char *name) {
    void *real = real_dlsym()(library, name);
    Entry *entry = real ? named(name) : nullptr;
    if (entry && is_nvrtc(name)) {
        if (!entry->real) entry->real = real;
        if (entry->real != real) return real;
    }
    return entry ? entry->ours : real;
}

}  // namespace r3

using r3::Address;
using r3::Handle;

R3_ENTRY(cuGetProcAddress, (const char *symbol, void **function, int version, uint64_t flags),
         (symbol, function, version, flags), {
             r3::Result result = real_cuGetProcAddress(symbol, function, version, flags);
             if (result == r3::SUCCESS) r3::answer(function);
             return result;
         })

R3_ENTRY(cuGetProcAddress_v2, (const char *symbol, void **function, int version, uint64_t flags, int *status),
         (symbol, function, version, flags, status), {
             r3::Result result = real_cuGetProcAddress_v2(symbol, function, version, flags, status);
             if (result == r3::SUCCESS) r3::answer(function);
             return result;
         })

// RTLD_NEXT and RTLD_DEFAULT mean something by who asks: those go on by a tail call, which leaves the asker in place.
extern "C" __attribute__((visibility("default"))) void *dlsym(void *library, const char *name) {
    if (library == RTLD_NEXT || library == RTLD_DEFAULT || !r3::interesting(name))
        __attribute__((musttail)) return r3::real_dlsym()(library, name);
    return r3::our_dlsym(library, name);
}
