// A libcuda.so.1 without a GPU: device memory is the host's, and kernels are functions that the program registers.
// It answers for what the recorder and the test programs use, in the versions that the real one exports.
#include <dlfcn.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "programs/abi.h"

typedef void (*Function)(void **parameters, const Dims *dims);

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, INVALID_IMAGE = 200, WRONG_CONTEXT = 201, NOT_FOUND = 500,
       NOT_READY = 600, UNSAFE = 900 };

typedef struct Kernel {
    char name[64];
    Function function;
    int count;
    size_t sizes[16];
    struct Kernel *next;
} Kernel;

typedef struct Variable {
    char name[64];
    size_t nbytes;
    void *bytes;
    struct Variable *next;
} Variable;

static Kernel *kernels;
static Variable *variables;
static int device_module, tuned_module, contexts[2], streams_made, busy_polls, capture_broken;
static long queries;
static int generation;  // of contexts: what was made in one before a reset is gone
static __thread int current, relaxed;
static Handle capture_stream;
static struct Graph *capturing;
static long launches;

// -- what test programs call --

void fakeKernel(const char *name, Function function, int count, const size_t *sizes) {
    Kernel *kernel = calloc(1, sizeof *kernel);
    strncpy(kernel->name, name, sizeof kernel->name - 1);
    kernel->function = function, kernel->count = count;
    memcpy(kernel->sizes, sizes, (size_t)count * sizeof *sizes);
    kernel->next = kernels, kernels = kernel;
}
void *fakeVariable(const char *name, size_t nbytes) {
    Variable *variable = calloc(1, sizeof *variable);
    strncpy(variable->name, name, sizeof variable->name - 1);
    variable->nbytes = nbytes, variable->bytes = aligned_alloc(256, (nbytes + 255) / 256 * 256);
    memset(variable->bytes, 0, nbytes);
    variable->next = variables, variables = variable;
    return variable->bytes;
}
void fakeBusy(int polls) { busy_polls = polls; }
int fakePollsLeft(void) { return busy_polls; }
long fakeQueries(void) { return queries; }
long fakeLaunches(void) { return launches; }

// -- contexts, devices --

Result cuInit(unsigned flags) { return flags ? INVALID : SUCCESS; }
Result cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
Result cuCtxGetCurrent(Handle *context) { return *context = &contexts[current], SUCCESS; }
Result cuCtxGetDevice(int *device) { return *device = current, SUCCESS; }
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    return *value = attribute == 75 ? 9 : 0, device > 1 ? INVALID : SUCCESS;
}
Result cuDeviceGetName(char *name, int length, int device) {
    return snprintf(name, (size_t)length, "fake"), device > 1 ? INVALID : SUCCESS;
}
Result cuCtxSetCurrent(Handle context) {
    current = context == &contexts[1];
    return context == &contexts[current] ? SUCCESS : INVALID;
}
Result cuCtxGetLimit(size_t *value, int limit) { return *value = (size_t)1024 << limit, SUCCESS; }
Result cuDevicePrimaryCtxRetain(Handle *context, int device) { return *context = &contexts[device], SUCCESS; }
Result cuDevicePrimaryCtxReset_v2(int device);
Handle fakeContext(int device) { return &contexts[device]; }

// Calls that synchronize or allocate break a capture that is under way, unless the thread says that it knows.
static Result unsafe(void) {
    if (!capturing || relaxed) return SUCCESS;
    return capture_broken = 1, UNSAFE;
}
Result cuThreadExchangeStreamCaptureMode(int *mode) {
    int before = relaxed ? 2 : 0;
    return relaxed = *mode == 2, *mode = before, SUCCESS;
}
Result cuCtxSynchronize(void) { return unsafe(); }

// -- streams and events: everything is done at once, but for the polls that a program asked for --

Result cuStreamCreate(Handle *stream, unsigned flags) {
    (void)flags;
    return *stream = (Handle)(uintptr_t)(0x1000 + 16 * ++streams_made + current), SUCCESS;
}
Result cuStreamDestroy_v2(Handle stream) { return stream ? SUCCESS : INVALID; }
Result cuStreamQuery(Handle stream) {
    (void)stream;
    queries++;
    if (unsafe()) return UNSAFE;
    if (getenv("FAKE_BROKEN_QUERY")) return INVALID;
    if (!busy_polls) return SUCCESS;
    busy_polls -= busy_polls > 0;
    return NOT_READY;
}
Result cuStreamSynchronize(Handle stream) { return (void)stream, unsafe(); }
Result cuStreamIsCapturing(Handle stream, int *state) { return *state = capturing && stream == capture_stream, SUCCESS; }
typedef struct {
    struct timespec when;
    int context, generation;
} Event;
Result cuEventCreate(Handle *event, unsigned flags) {
    Event *made = *event = calloc(1, sizeof *made);
    return (void)flags, made->context = current, made->generation = generation, SUCCESS;
}
Result cuEventRecord(Handle event, Handle stream) {
    // A stream belongs to a context, as its number says; the default ones to the current.
    int context = (uintptr_t)stream > 2 ? (int)(uintptr_t)stream & 1 : current;
    if (((Event *)event)->context != context || ((Event *)event)->generation != generation) return WRONG_CONTEXT;
    clock_gettime(CLOCK_MONOTONIC, &((Event *)event)->when);
    return SUCCESS;
}
Result cuEventQuery(Handle event) {
    if (getenv("FAKE_PENDING_EVENTS")) return NOT_READY;
    return event ? SUCCESS : INVALID;
}
static int stream_waits;
Result cuStreamWaitEvent(Handle stream, Handle event, unsigned flags) {
    return (void)stream, stream_waits++, event && !flags ? SUCCESS : INVALID;
}
int fakeStreamWaits(void) { return stream_waits; }
Result cuEventSynchronize(Handle event) { return event ? SUCCESS : INVALID; }
Result cuEventElapsedTime(float *milliseconds, Handle begin, Handle end) {
    const struct timespec *b = &((Event *)begin)->when, *e = &((Event *)end)->when;
    *milliseconds = (float)(1e3 * (double)(e->tv_sec - b->tv_sec) + 1e-6 * (double)(e->tv_nsec - b->tv_nsec));
    return SUCCESS;
}
Result cuEventDestroy_v2(Handle event) { return free(event), SUCCESS; }

// -- memory --

// A device of FAKE_FREE_BYTES: the recorder may keep what it copied there, or not.
static size_t device_bytes(void) {
    const char *given = getenv("FAKE_FREE_BYTES");
    return given ? strtoull(given, NULL, 10) : (size_t)1 << 40;
}
static size_t used;
Result cuMemGetInfo_v2(size_t *unused, size_t *whole) {
    *whole = device_bytes();
    return *unused = *whole > used ? *whole - used : 0, SUCCESS;
}
static Result allocated(Address *at, size_t nbytes) {
    if (unsafe()) return UNSAFE;
    void *bytes = aligned_alloc(4096, (nbytes + 4095) / 4096 * 4096);
    if (!bytes) return OUT_OF_MEMORY;
    memset(bytes, 0, nbytes);
    return *at = (Address)(uintptr_t)bytes, SUCCESS;
}
static void *host(Address at) { return (void *)(uintptr_t)at; }
// Who owns what, as far as it is asked for: own kernels end the program where they are given another device's.
static struct {
    Address at;
    size_t nbytes;
    int device;
} owned[64];
static int owners;
static void own(Address at, size_t nbytes) {
    int next = __atomic_fetch_add(&owners, 1, __ATOMIC_SEQ_CST);
    if (next < 64) owned[next].at = at, owned[next].nbytes = nbytes, owned[next].device = current;
}
static int owner(Address at) {
    for (int i = owners < 64 ? owners : 64; i-- > 0;)
        if (owned[i].at <= at && at < owned[i].at + owned[i].nbytes) return owned[i].device;
    return current;
}
// With FAKE_STRICT_RESET what was allocated is gone, and what reads it ends the program.
Result cuDevicePrimaryCtxReset_v2(int device) {
    generation++;
    for (int i = 0; getenv("FAKE_STRICT_RESET") && i < owners; i++)
        if (owned[i].device == device) mprotect(host(owned[i].at), (owned[i].nbytes + 4095) / 4096 * 4096, PROT_NONE);
    return device > 1 ? INVALID : SUCCESS;
}
Result cuMemAlloc_v2(Address *at, size_t nbytes) {
    if (__atomic_load_n(&used, __ATOMIC_SEQ_CST) + nbytes > device_bytes()) return OUT_OF_MEMORY;
    Result result = allocated(at, nbytes);
    if (!result) __atomic_add_fetch(&used, malloc_usable_size(host(*at)), __ATOMIC_SEQ_CST), own(*at, nbytes);
    return result;
}
Result cuMemAllocPitch_v2(Address *at, size_t *pitch, size_t width, size_t height, unsigned element) {
    (void)element;
    *pitch = (width + 511) / 512 * 512;
    return allocated(at, *pitch * height);
}
Result cuMemAllocManaged(Address *at, size_t nbytes, unsigned flags) { return (void)flags, allocated(at, nbytes); }
static Result captured_memory(int type, Address *at, size_t nbytes);
Result cuMemAllocAsync(Address *at, size_t nbytes, Handle stream) {
    return capturing && stream == capture_stream ? captured_memory(NODE_ALLOCATES, at, nbytes) : allocated(at, nbytes);
}
Result cuMemAllocAsync_ptsz(Address *at, size_t nbytes, Handle stream) { return cuMemAllocAsync(at, nbytes, stream); }
Result cuMemFree_v2(Address at) {
    __atomic_sub_fetch(&used, malloc_usable_size(host(at)), __ATOMIC_SEQ_CST);
    return free(host(at)), unsafe();
}
Result cuMemFreeAsync(Address at, Handle stream) {
    if (capturing && stream == capture_stream) return captured_memory(NODE_FREES, &at, 4096);
    return free(host(at)), SUCCESS;
}
// What is mapped cannot be read before access is given.
Result cuMemMap(Address at, size_t nbytes, size_t offset, uint64_t handle, uint64_t flags) {
    void *made = mmap(host(at), nbytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return (void)offset, (void)handle, (void)flags, made == host(at) ? SUCCESS : INVALID;
}
Result cuMemSetAccess(Address at, size_t nbytes, const int *access, size_t count) {
    return (void)count, mprotect(host(at), nbytes, access[2] ? PROT_READ | PROT_WRITE : PROT_NONE) ? INVALID : SUCCESS;
}
Result cuMemUnmap(Address at, size_t nbytes) { return munmap(host(at), nbytes) ? INVALID : SUCCESS; }
Result cuMemHostAlloc(void **at, size_t nbytes, unsigned flags) {
    return flags && getenv("FAKE_NO_PINNED_MEMORY") ? OUT_OF_MEMORY : allocated((Address *)at, nbytes);
}
Result cuMemFreeHost(void *at) { return free(at), SUCCESS; }
Result cuMemcpyHtoD_v2(Address to, const void *from, size_t nbytes) { return memcpy(host(to), from, nbytes), SUCCESS; }
Result cuMemcpyDtoH_v2(void *to, Address from, size_t nbytes) { return memcpy(to, host(from), nbytes), unsafe(); }
Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t nbytes, Handle stream) {
    if (getenv("FAKE_SLOW_COPIES")) usleep(300000);
    return (void)stream, cuMemcpyDtoH_v2(to, from, nbytes);
}
Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t nbytes, Handle stream) {
    return (void)stream, memmove(host(to), host(from), nbytes), SUCCESS;
}

Result cuTexObjectCreate(uint64_t *made, const void *resource, const void *texture, const void *view) {
    return (void)resource, (void)texture, (void)view, *made = 0x7e70001, SUCCESS;
}

#include "fake_own.h"

// -- modules: PTX texts are one module, those that say "tuned" another, whose names end so; the recorder's own kernels are
// refused, as by an old driver, unless they are asked for --

Result cuModuleLoadData(Handle *module, const void *image) {
    const char *text = image;
    if (unsafe()) return UNSAFE;
    int own = strstr(text, "r3_pages") != NULL;
    if (!strstr(text, ".version") || (own && !getenv("FAKE_OWN_KERNELS"))) return INVALID_IMAGE;
    if (own) return *module = &own_module, SUCCESS;
    return *module = strstr(text, "tuned") ? &tuned_module : &device_module, SUCCESS;
}
Result cuModuleGetTexRef(Handle *reference, Handle module, const char *name) {
    return *reference = module, name ? SUCCESS : INVALID;
}
Result cuModuleUnload(Handle module) { return module ? SUCCESS : INVALID; }
Result cuModuleGetFunction(Handle *function, Handle module, const char *name) {
    char full[80];
    if (module == &own_module) return *function = &own_kernels[!strcmp(name, "r3_pages")], SUCCESS;
    snprintf(full, sizeof full, "%s%s", name, module == &tuned_module ? "@tuned" : "");
    for (Kernel *kernel = kernels; kernel; kernel = kernel->next)
        if (!strcmp(kernel->name, full)) return *function = kernel, SUCCESS;
    return NOT_FOUND;
}
Result cuModuleGetGlobal_v2(Address *at, size_t *nbytes, Handle module, const char *name) {
    char full[80];
    snprintf(full, sizeof full, "%s%s", name, module == &tuned_module ? "@tuned" : "");
    for (Variable *variable = variables; variable; variable = variable->next)
        if (!strcmp(variable->name, full))
            return *at = (Address)(uintptr_t)variable->bytes, *nbytes = variable->nbytes, SUCCESS;
    return NOT_FOUND;
}
static size_t offset_of(const Kernel *kernel, size_t index) {
    size_t offset = 0;
    for (size_t i = 0; i <= index; i++) {
        size_t align = kernel->sizes[i] < 8 ? kernel->sizes[i] : 8;
        offset = (offset + align - 1) / align * align;
        if (i < index) offset += kernel->sizes[i];
    }
    return offset;
}
Result cuFuncGetParamInfo(Handle function, size_t index, size_t *offset, size_t *nbytes) {
    const Kernel *kernel = function;
    if (index >= (size_t)kernel->count) return INVALID;
    return *offset = offset_of(kernel, index), *nbytes = kernel->sizes[index], SUCCESS;
}
Result cuFuncGetAttribute(int *value, int attribute, Handle function) { return *value = 100 + attribute, function ? SUCCESS : INVALID; }
Result cuFuncGetName(const char **name, Handle function) { return *name = ((Kernel *)function)->name, SUCCESS; }
Result cuFuncGetModule(Handle *module, Handle function) { return *module = &device_module, function ? SUCCESS : INVALID; }

// -- launches --

static Result captured(Handle function, const Dims *dims, void **parameters);
static Result run(Handle function, const Dims *dims, void **parameters, void **extra) {
    Kernel *kernel = function;
    void *places[16];
    if (extra) {
        for (int i = 0; i < kernel->count; i++) places[i] = (char *)extra[1] + offset_of(kernel, (size_t)i);
        parameters = places;
    }
    __atomic_add_fetch(&launches, 1, __ATOMIC_SEQ_CST);
    kernel->function(parameters, dims);
    return SUCCESS;
}
Result cuLaunchKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, Handle stream, void **parameters, void **extra) {
    Dims dims = {{gx, gy, gz}, {bx, by, bz}};
    if (capturing && stream == capture_stream) return captured(function, &dims, parameters);
    return (void)shared, run(function, &dims, parameters, extra);
}
Result cuLaunchKernel_ptsz(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                           unsigned bz, unsigned shared, Handle stream, void **parameters, void **extra) {
    return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}
Result cuLaunchCooperativeKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, Handle stream, void **parameters) {
    return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, parameters, NULL);
}
typedef struct {
    Dims dims;
    unsigned shared;
    Handle stream;
    void *attributes;
    unsigned count;
} Config;
Result cuLaunchKernelEx(const Config *config, Handle function, void **parameters, void **extra) {
    return run(function, &config->dims, parameters, extra);
}
// Arguments that are set one by one, for one function at a time.
static char parts[256];
static Dims parts_dims;
Result cuFuncSetBlockShape(Handle function, int x, int y, int z) {
    parts_dims = (Dims){{1, 1, 1}, {(unsigned)x, (unsigned)y, (unsigned)z}};
    return function ? SUCCESS : INVALID;
}
Result cuParamSetSize(Handle function, unsigned nbytes) { return nbytes <= sizeof parts && function ? SUCCESS : INVALID; }
Result cuParamSetv(Handle function, int offset, const void *bytes, unsigned nbytes) {
    return memcpy(parts + offset, bytes, nbytes), function ? SUCCESS : INVALID;
}
Result cuLaunchGrid(Handle function, int width, int height) {
    void *extra[] = {(void *)1, parts, NULL};
    parts_dims.grid[0] = (unsigned)width, parts_dims.grid[1] = (unsigned)height;
    return run(function, &parts_dims, NULL, extra);
}
Result cuLaunchGridAsync(Handle function, int width, int height, Handle stream) {
    return (void)stream, cuLaunchGrid(function, width, height);
}
Result cuLaunch(Handle function) { return cuLaunchGrid(function, 1, 1); }
Result cuLaunchCooperativeKernelMultiDevice(LaunchParams *list, unsigned count, unsigned flags) {
    for (unsigned i = 0; i < count; i++) run(list[i].function, &list[i].dims, list[i].parameters, NULL);
    return flags ? INVALID : SUCCESS;
}

#include "fake_graphs.h"

// -- entry points by name and version --

Result cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    const char *suffixes[] = {"_v2", ""};
    char name[128];
    Handle self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    *function = NULL;
    for (int i = 0; i < 4 && !*function; i++) {
        if (i < 2 && !(flags & 2)) continue;
        snprintf(name, sizeof name, "%s%s%s", symbol, suffixes[i % 2], i < 2 ? "_ptsz" : "");
        *function = dlsym(self, name);
    }
    if (status) *status = *function ? 0 : 1;
    return (void)version, *function ? SUCCESS : NOT_FOUND;
}
Result cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
