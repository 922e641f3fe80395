// What the test programs and the libcuda.so.1 without a GPU must agree on: types of the driver, written down once.
#pragma once
#include <stdint.h>

typedef int Result;
typedef uint64_t Address;
typedef void *Handle;
typedef struct {
    unsigned grid[3], block[3];
} Dims;

// CUDA_KERNEL_NODE_PARAMS_v2
typedef struct {
    Handle function;
    Dims dims;
    unsigned shared;
    void **parameters, **extra;
    Handle kernel, context;
} NodeParams;

// CUDA_LAUNCH_PARAMS
typedef struct {
    Handle function;
    Dims dims;
    unsigned shared;
    Handle stream;
    void **parameters;
} LaunchParams;

// CUgraphNodeParams of a conditional node: `made` are the graphs that it launches, or not.
typedef struct {
    int type, reserved[3];
    uint64_t condition;
    int kind;
    unsigned count;
    Handle *made, context;
    char rest[208];
} ConditionalParams;

enum { NODE_KERNEL = 0, NODE_CHILD = 4, NODE_ALLOCATES = 10, NODE_FREES = 11, NODE_CONDITIONAL = 13 };
