#include "own.h"

#include "driver.h"
#include "streams.h"
#include "system.h"

// The text of own.ptx, which the build gives the place of.
__asm__(".section .rodata\n"
        ".balign 16\n"
        "r3_own_ptx:\n"
        ".incbin \"" R3_OWN_PTX "\"\n"
        ".byte 0\n"
        ".previous\n");
extern "C" __attribute__((visibility("hidden"))) const char r3_own_ptx[];

namespace r3 {

namespace {

const char *const NAMES[] = {"r3_pages", "r3_busy"};

struct InContext {
    Handle context, kernels[2];
};

Lock loading;
Vector<InContext> loaded;

}  // namespace

Handle own_kernel(Own which) {
    const Driver &real = driver();
    Handle context = nullptr, module = nullptr;
    if (real.cuCtxGetCurrent(&context)) return nullptr;
    Held held(loading);
    for (const InContext &each : loaded)
        if (each.context == context) return each.kernels[int(which)];
    if (any_capture()) return nullptr;  // nothing may be loaded meanwhile
    InContext made = {context, {nullptr, nullptr}};
    if (!real.cuModuleLoadData(&module, r3_own_ptx))
        for (int i = 0; i < 2; i++) real.cuModuleGetFunction(&made.kernels[i], module, NAMES[i]);
    loaded.push(made);
    return made.kernels[int(which)];
}

void own_kernels_renew() { loaded.clear(); }

}  // namespace r3
