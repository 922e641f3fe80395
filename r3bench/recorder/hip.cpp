// HIP applications: what libamdhip64.so offers under its own names. Memory and launches are seen and listed; launches
// are not recorded, since HIP does not say what parameters a kernel has.
#include "coverage.h"
#include "interpose.h"
#include "memory.h"
#include "modules.h"
#include "plan.h"

namespace r3 {

static Result gained(Result result, void *const *at, size_t nbytes, const char *kind) {
    if (result == SUCCESS && at) memory_add(reinterpret_cast<Address>(*at), nbytes, kind);
    return result;
}

static void returned(void *at) { memory_remove(reinterpret_cast<Address>(at)); }

static Result named(Result result, Handle *function, Handle module, const char *name) {
    if (result == SUCCESS && function) kernel_register(*function, module, name);
    return result;
}

static void seen(const void *function, Dim3 grid, Dim3 block) {
    if (!plan().active) return;
    Kernel *kernel = kernel_registered(function);
    if (!kernel) return coverage_unknown();
    __atomic_fetch_add(&kernel->launches, 1, __ATOMIC_RELAXED);
    kernel->grid = grid, kernel->block = block;
    coverage_launched();
    if (kernel->wanted) coverage_count(*kernel, "HIP does not say what parameters kernels have");
}

}  // namespace r3

using r3::Dim3;
using r3::Handle;

// -- memory --

R3_ENTRY(hipMalloc, (void **at, size_t nbytes), (at, nbytes),
         { return r3::gained(real_hipMalloc(at, nbytes), at, nbytes, "device"); })

R3_ENTRY(hipExtMallocWithFlags, (void **at, size_t nbytes, unsigned flags), (at, nbytes, flags),
         { return r3::gained(real_hipExtMallocWithFlags(at, nbytes, flags), at, nbytes, "device"); })

R3_ENTRY(hipMallocPitch, (void **at, size_t *pitch, size_t width, size_t height), (at, pitch, width, height), {
    r3::Result result = real_hipMallocPitch(at, pitch, width, height);
    return r3::gained(result, at, result == r3::SUCCESS ? *pitch * height : 0, "device");
})

R3_ENTRY(hipMallocManaged, (void **at, size_t nbytes, unsigned flags), (at, nbytes, flags),
         { return r3::gained(real_hipMallocManaged(at, nbytes, flags), at, nbytes, "managed"); })

R3_ENTRY(hipMallocAsync, (void **at, size_t nbytes, Handle stream), (at, nbytes, stream),
         { return r3::gained(real_hipMallocAsync(at, nbytes, stream), at, nbytes, "pool"); })

R3_ENTRY(hipHostMalloc, (void **at, size_t nbytes, unsigned flags), (at, nbytes, flags),
         { return r3::gained(real_hipHostMalloc(at, nbytes, flags), at, nbytes, "host"); })

R3_ENTRY(hipHostRegister, (void *at, size_t nbytes, unsigned flags), (at, nbytes, flags),
         { return r3::gained(real_hipHostRegister(at, nbytes, flags), &at, nbytes, "host"); })

R3_ENTRY(hipFree, (void *at), (at), {
    r3::returned(at);
    return real_hipFree(at);
})

R3_ENTRY(hipFreeAsync, (void *at, Handle stream), (at, stream), {
    r3::returned(at);
    return real_hipFreeAsync(at, stream);
})

R3_ENTRY(hipHostFree, (void *at), (at), {
    r3::returned(at);
    return real_hipHostFree(at);
})

R3_ENTRY(hipHostUnregister, (void *at), (at), {
    r3::returned(at);
    return real_hipHostUnregister(at);
})

// -- kernels --

R3_ENTRY(hipModuleGetFunction, (Handle *function, Handle module, const char *name), (function, module, name),
         { return r3::named(real_hipModuleGetFunction(function, module, name), function, module, name); })

R3_ENTRY(__hipRegisterFunction,
         (void **modules, const void *host, char *device, const char *name, unsigned limit, void *thread, void *block,
          void *block_size, void *grid_size, int *warp),
         (modules, host, device, name, limit, thread, block, block_size, grid_size, warp), {
             r3::kernel_register(const_cast<void *>(host), modules, name);
             return real___hipRegisterFunction(modules, host, device, name, limit, thread, block, block_size,
                                               grid_size, warp);
         })

// -- launches --

R3_ENTRY(hipModuleLaunchKernel,
         (Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
          unsigned shared, Handle stream, void **parameters, void **extra),
         (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra), {
             r3::seen(function, Dim3{gx, gy, gz}, Dim3{bx, by, bz});
             return real_hipModuleLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
         })

R3_ENTRY(hipLaunchKernel,
         (const void *function, Dim3 grid, Dim3 block, void **parameters, size_t shared, Handle stream),
         (function, grid, block, parameters, shared, stream), {
             r3::seen(function, grid, block);
             return real_hipLaunchKernel(function, grid, block, parameters, shared, stream);
         })

R3_ENTRY(hipLaunchCooperativeKernel,
         (const void *function, Dim3 grid, Dim3 block, void **parameters, unsigned shared, Handle stream),
         (function, grid, block, parameters, shared, stream), {
             r3::seen(function, grid, block);
             return real_hipLaunchCooperativeKernel(function, grid, block, parameters, shared, stream);
         })

R3_ENTRY(hipExtLaunchKernel,
         (const void *function, Dim3 grid, Dim3 block, void **parameters, size_t shared, Handle stream, Handle begin,
          Handle end, int flags),
         (function, grid, block, parameters, shared, stream, begin, end, flags), {
             r3::seen(function, grid, block);
             return real_hipExtLaunchKernel(function, grid, block, parameters, shared, stream, begin, end, flags);
         })
