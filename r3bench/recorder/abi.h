// What the recorder needs of the binary interface of libcuda.so.1: written down here, so that no toolkit is needed.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace r3 {

using Result = int;
using Address = uint64_t;
using Handle = void *;

enum : Result {
    SUCCESS = 0,
    OUT_OF_MEMORY = 2,
    NOT_FOUND = 500,
    NOT_READY = 600,
};

struct Dim3 {
    unsigned x, y, z;
};

struct IpcHandle {
    char bytes[64];
};

struct LaunchAttribute {
    int id;
    int pad;
    union {
        char bytes[64];
        Dim3 cluster;
        int cooperative;
    };
};

enum { ATTRIBUTE_COOPERATIVE = 2, ATTRIBUTE_CLUSTER = 4 };

// CUlaunchConfig
struct LaunchConfig {
    Dim3 grid, block;
    unsigned shared_bytes;
    Handle stream;
    LaunchAttribute *attributes;
    unsigned attribute_count;
};

// CUDA_LAUNCH_PARAMS
struct LaunchParams {
    Handle function;
    Dim3 grid, block;
    unsigned shared_bytes;
    Handle stream;
    void **parameters;
};

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNode {
    Handle function;
    Dim3 grid, block;
    unsigned shared_bytes;
    void **parameters;
    void **extra;
    Handle kernel;
    Handle context;
};

// CUDA_MEM_ALLOC_NODE_PARAMS: where its pool lies and who may read it, which the recorder does not ask; then these.
struct AllocationNode {
    char pool[88];
    const void *readers;
    size_t reader_count, nbytes;
    uint64_t at;
};

// CUgraphNodeParams of a conditional node: the graphs that it launches, or not.
struct ConditionalNode {
    int type, reserved[3];
    uint64_t condition;
    int kind;
    unsigned count;
    Handle *made;
};

enum { NODE_KERNEL = 0, NODE_CHILD_GRAPH = 4, NODE_ALLOCATES = 10, NODE_FREES = 11, NODE_CONDITIONAL = 13 };

// Words of the array "extra" of a launch.
enum : uintptr_t { EXTRA_END = 0, EXTRA_BUFFER = 1, EXTRA_SIZE = 2 };

const Handle PER_THREAD_STREAM = reinterpret_cast<Handle>(2);

}  // namespace r3
