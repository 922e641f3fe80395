// What the test programs have in common: three ways to find the driver, one kernel, a few helpers.
#pragma once
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"

static void *library(void) {
    void *found = dlopen("libcuda.so.1", RTLD_LAZY);
    if (!found) exit(fprintf(stderr, "%s\n", dlerror()));
    return found;
}

#ifdef BY_PROC_ADDRESS
// As the CUDA runtime does: dlsym gives cuGetProcAddress, and that everything else.
static void *entry(const char *name, const char *base) {
    Result (*get)(const char *, void **, int, uint64_t, int *);
    *(void **)&get = dlsym(library(), "cuGetProcAddress_v2");
    void *found = NULL;
    (void)name;
    return get(base, &found, 12000, PER_THREAD ? 2 : 0, NULL) ? NULL : found;
}
#else
static void *entry(const char *name, const char *base) { return (void)base, dlsym(library(), name); }
#endif

#define FIND(variable, name, base) *(void **)&variable = entry(name, base)

static Result (*cuMemAlloc_)(Address *, size_t);
static Result (*cuMemFree_)(Address);
static Result (*cuMemcpyHtoD_)(Address, const void *, size_t);
static Result (*cuMemcpyDtoH_)(void *, Address, size_t);
static Result (*cuModuleLoadData_)(Handle *, const void *);
static Result (*cuModuleGetFunction_)(Handle *, Handle, const char *);
static Result (*cuLaunchKernel_)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle,
                                 void **, void **);
static void (*fakeKernel_)(const char *, void (*)(void **, const Dims *), int, const size_t *);
static void *(*fakeVariable_)(const char *, size_t);
static void (*fakeBusy_)(int);
static int (*fakePollsLeft_)(void);

static void find_driver(void) {
    FIND(cuMemAlloc_, "cuMemAlloc_v2", "cuMemAlloc");
    FIND(cuMemFree_, "cuMemFree_v2", "cuMemFree");
    FIND(cuMemcpyHtoD_, "cuMemcpyHtoD_v2", "cuMemcpyHtoD");
    FIND(cuMemcpyDtoH_, "cuMemcpyDtoH_v2", "cuMemcpyDtoH");
    FIND(cuModuleLoadData_, "cuModuleLoadData", "cuModuleLoadData");
    FIND(cuModuleGetFunction_, "cuModuleGetFunction", "cuModuleGetFunction");
    FIND(cuLaunchKernel_, "cuLaunchKernel", "cuLaunchKernel");
    *(void **)&fakeKernel_ = dlsym(library(), "fakeKernel");
    *(void **)&fakeVariable_ = dlsym(library(), "fakeVariable");
    *(void **)&fakeBusy_ = dlsym(library(), "fakeBusy");
    *(void **)&fakePollsLeft_ = dlsym(library(), "fakePollsLeft");
}

// out[i] += factor * in[i]
static void scale(void **parameters, const Dims *dims) {
    (void)dims;
    double *out = *(double **)parameters[0], *in = *(double **)parameters[1];
    double factor = *(double *)parameters[2];
    int count = *(int *)parameters[3];
    for (int i = 0; i < count; i++) out[i] += factor * in[i];
}

static const size_t SCALE_SIZES[] = {8, 8, 8, 4};

static Handle scale_function(void) {
    Handle module, function;
    fakeKernel_("_Z5scalePdPKddi", scale, 4, SCALE_SIZES);
    if (cuModuleLoadData_(&module, ".version 7.0\n.visible .entry _Z5scalePdPKddi()\n{\n ret;\n}\n")) exit(2);
    if (cuModuleGetFunction_(&function, module, "_Z5scalePdPKddi")) exit(3);
    return function;
}

static void launch_scale(Handle function, Address out, Address in, double factor, int count, Handle stream) {
    void *parameters[] = {&out, &in, &factor, &count};
    if (cuLaunchKernel_(function, 2, 1, 1, 64, 1, 1, 0, stream, parameters, NULL)) exit(4);
}
