// Every function that launches a kernel, as one kind of launch.
#include "launch.h"

#include "coverage.h"
#include "interpose.h"
#include "modules.h"
#include "plan.h"
#include "profile.h"
#include "recording.h"
#include "streams.h"
#include "substitutes.h"

namespace r3 {

namespace {

Launch of_config(Handle function, const LaunchConfig *config, void **parameters, void **extra) {
    Launch launch = {function, config->grid, config->block, {0, 0, 0}, config->shared_bytes, false,
                     config->stream, parameters, extra, nullptr, config};
    for (unsigned i = 0; i < config->attribute_count; i++) {
        const LaunchAttribute &attribute = config->attributes[i];
        if (attribute.id == ATTRIBUTE_COOPERATIVE) launch.cooperative = attribute.cooperative != 0;
        if (attribute.id == ATTRIBUTE_CLUSTER) launch.cluster = attribute.cluster;
    }
    return launch;
}

LaunchConfig config_of(const Launch &launch) {
    LaunchConfig config = *launch.config;
    config.grid = launch.grid, config.block = launch.block, config.shared_bytes = launch.shared_bytes;
    return config;
}

Result launched(const Launch &launch) {
    if (!plan().active) return launch.pass(launch);
    Kernel *kernel = kernel_of(launch.function);
    if (!kernel) {
        coverage_unknown();
        return launch.pass(launch);
    }
    if (stream_capturing(launch.stream)) {
        Launch captured = launch;
        captured.in_graph = true;
        return kernel->substitute ? launch_substituted(*kernel, captured) : launch.pass(launch);
    }
    long occurrence = __atomic_fetch_add(&kernel->launches, 1, __ATOMIC_RELAXED);
    kernel->grid = launch.grid, kernel->block = launch.block;
    coverage_launched();
    if (plan().profile) return launch_timed(*kernel, launch);
    if (kernel->substitute) return launch_substituted(*kernel, launch);
    return launch_recorded(*kernel, launch, occurrence);
}

// A launch that is counted, and neither recorded nor substituted.
void declared(Handle function, Dim3 grid, const char *why) {
    if (!plan().active) return;
    Kernel *kernel = kernel_of(function);
    if (!kernel) return coverage_unknown();
    __atomic_fetch_add(&kernel->launches, 1, __ATOMIC_RELAXED);
    kernel->grid = grid;
    coverage_launched();
    if (kernel->wanted) coverage_count(*kernel, why);
    wait_for_recording();
}

const char *const BY_PARTS = "its arguments were set one by one (cuLaunchGrid)";

}  // namespace

#define R3_PASS_PLAIN(name)                                                                                    \
    static Result pass_##name(const Launch &l) {                                                               \
        return real_##name(l.function, l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z,          \
                           l.shared_bytes, l.stream, l.parameters, l.extra);                                   \
    }
#define R3_PASS_COOPERATIVE(name)                                                                              \
    static Result pass_##name(const Launch &l) {                                                               \
        return real_##name(l.function, l.grid.x, l.grid.y, l.grid.z, l.block.x, l.block.y, l.block.z,          \
                           l.shared_bytes, l.stream, l.parameters);                                            \
    }
#define R3_PASS_EX(name)                                                  \
    static Result pass_##name(const Launch &l) {                          \
        LaunchConfig config = config_of(l);                               \
        return real_##name(&config, l.function, l.parameters, l.extra);   \
    }
#define R3_PLAIN                                                                                              \
    (Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,           \
     unsigned shared, Handle stream, void **parameters, void **extra)
#define R3_COOPERATIVE                                                                                        \
    (Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,           \
     unsigned shared, Handle stream, void **parameters)
#define R3_EX (const LaunchConfig *config, Handle function, void **parameters, void **extra)

static Result pass_cuLaunchKernel(const Launch &);
static Result pass_cuLaunchKernel_ptsz(const Launch &);
static Result pass_cuLaunchKernelEx(const Launch &);
static Result pass_cuLaunchKernelEx_ptsz(const Launch &);
static Result pass_cuLaunchCooperativeKernel(const Launch &);
static Result pass_cuLaunchCooperativeKernel_ptsz(const Launch &);

}  // namespace r3

using r3::Handle;
using r3::Launch;
using r3::LaunchConfig;

R3_ENTRY(cuLaunchKernel, R3_PLAIN, (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra), {
    return r3::launched({function, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared, false, stream, parameters, extra,
                         r3::pass_cuLaunchKernel, nullptr});
})

R3_ENTRY(cuLaunchKernel_ptsz, R3_PLAIN, (function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra), {
    return r3::launched({function, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared, false, r3::per_thread(stream),
                         parameters, extra, r3::pass_cuLaunchKernel_ptsz, nullptr});
})

R3_ENTRY(cuLaunchCooperativeKernel, R3_COOPERATIVE,
         (function, gx, gy, gz, bx, by, bz, shared, stream, parameters), {
             return r3::launched({function, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared, true, stream, parameters,
                                  nullptr, r3::pass_cuLaunchCooperativeKernel, nullptr});
         })

R3_ENTRY(cuLaunchCooperativeKernel_ptsz, R3_COOPERATIVE,
         (function, gx, gy, gz, bx, by, bz, shared, stream, parameters), {
             return r3::launched({function, {gx, gy, gz}, {bx, by, bz}, {0, 0, 0}, shared, true,
                                  r3::per_thread(stream), parameters, nullptr,
                                  r3::pass_cuLaunchCooperativeKernel_ptsz, nullptr});
         })

R3_ENTRY(cuLaunchKernelEx, R3_EX, (config, function, parameters, extra), {
    Launch launch = r3::of_config(function, config, parameters, extra);
    launch.pass = r3::pass_cuLaunchKernelEx;
    return r3::launched(launch);
})

R3_ENTRY(cuLaunchKernelEx_ptsz, R3_EX, (config, function, parameters, extra), {
    Launch launch = r3::of_config(function, config, parameters, extra);
    launch.stream = r3::per_thread(launch.stream);
    launch.pass = r3::pass_cuLaunchKernelEx_ptsz;
    return r3::launched(launch);
})

// -- seen and not recorded --

R3_ENTRY(cuLaunch, (Handle function), (function), {
    r3::declared(function, {1, 1, 1}, r3::BY_PARTS);
    return real_cuLaunch(function);
})

R3_ENTRY(cuLaunchGrid, (Handle function, int width, int height), (function, width, height), {
    r3::declared(function, {unsigned(width), unsigned(height), 1}, r3::BY_PARTS);
    return real_cuLaunchGrid(function, width, height);
})

R3_ENTRY(cuLaunchGridAsync, (Handle function, int width, int height, Handle stream),
         (function, width, height, stream), {
             r3::declared(function, {unsigned(width), unsigned(height), 1}, r3::BY_PARTS);
             return real_cuLaunchGridAsync(function, width, height, stream);
         })

R3_ENTRY(cuLaunchCooperativeKernelMultiDevice, (r3::LaunchParams * launches, unsigned count, unsigned flags),
         (launches, count, flags), {
             for (unsigned i = 0; i < count; i++)
                 r3::declared(launches[i].function, launches[i].grid, "it is launched on several devices at once");
             return real_cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
         })

namespace r3 {

R3_PASS_PLAIN(cuLaunchKernel)
R3_PASS_PLAIN(cuLaunchKernel_ptsz)
R3_PASS_COOPERATIVE(cuLaunchCooperativeKernel)
R3_PASS_COOPERATIVE(cuLaunchCooperativeKernel_ptsz)
R3_PASS_EX(cuLaunchKernelEx)
R3_PASS_EX(cuLaunchKernelEx_ptsz)

}  // namespace r3
