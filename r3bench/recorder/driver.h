// The real functions of the driver that the recorder calls itself; a member is null where the driver lacks it.
#pragma once

#include "abi.h"

namespace r3 {

// name in the driver, result, arguments
#define R3_DRIVER_FUNCTIONS(F)                                                            \
    F(cuCtxSynchronize, Result, ())                                                       \
    F(cuCtxGetCurrent, Result, (Handle *))                                                \
    F(cuCtxSetCurrent, Result, (Handle))                                                  \
    F(cuCtxGetDevice, Result, (int *))                                                    \
    F(cuDevicePrimaryCtxGetState, Result, (int, unsigned *, int *))                       \
    F(cuDeviceGetAttribute, Result, (int *, int, int))                                    \
    F(cuDeviceGetName, Result, (char *, int, int))                                        \
    F(cuDriverGetVersion, Result, (int *))                                                \
    F(cuStreamCreate, Result, (Handle *, unsigned))                                       \
    F(cuStreamDestroy_v2, Result, (Handle))                                               \
    F(cuStreamQuery, Result, (Handle))                                                    \
    F(cuStreamSynchronize, Result, (Handle))                                              \
    F(cuStreamWaitEvent, Result, (Handle, Handle, unsigned))                              \
    F(cuStreamIsCapturing, Result, (Handle, int *))                                       \
    F(cuThreadExchangeStreamCaptureMode, Result, (int *))                                 \
    F(cuEventCreate, Result, (Handle *, unsigned))                                        \
    F(cuEventRecord, Result, (Handle, Handle))                                            \
    F(cuEventQuery, Result, (Handle))                                                     \
    F(cuEventSynchronize, Result, (Handle))                                               \
    F(cuEventElapsedTime, Result, (float *, Handle, Handle))                              \
    F(cuEventDestroy_v2, Result, (Handle))                                                \
    F(cuMemAlloc_v2, Result, (Address *, size_t))                                         \
    F(cuMemFree_v2, Result, (Address))                                                    \
    F(cuMemGetInfo_v2, Result, (size_t *, size_t *))                                      \
    F(cuMemGetAddressRange_v2, Result, (Address *, size_t *, Address))                    \
    F(cuMemHostAlloc, Result, (void **, size_t, unsigned))                                \
    F(cuMemFreeHost, Result, (void *))                                                    \
    F(cuMemcpyHtoD_v2, Result, (Address, const void *, size_t))                           \
    F(cuMemcpyDtoHAsync_v2, Result, (void *, Address, size_t, Handle))                    \
    F(cuMemcpyDtoH_v2, Result, (void *, Address, size_t))                                 \
    F(cuMemcpyDtoDAsync_v2, Result, (Address, Address, size_t, Handle))                   \
    F(cuModuleLoadData, Result, (Handle *, const void *))                                 \
    F(cuModuleGetFunction, Result, (Handle *, Handle, const char *))                      \
    F(cuModuleGetGlobal_v2, Result, (Address *, size_t *, Handle, const char *))          \
    F(cuLibraryGetGlobal, Result, (Address *, size_t *, Handle, const char *))            \
    F(cuKernelGetFunction, Result, (Handle *, Handle))                                    \
    F(cuKernelGetName, Result, (const char **, Handle))                                   \
    F(cuKernelGetParamInfo, Result, (Handle, size_t, size_t *, size_t *))                 \
    F(cuKernelGetLibrary, Result, (Handle *, Handle))                                     \
    F(cuFuncGetName, Result, (const char **, Handle))                                     \
    F(cuFuncGetParamInfo, Result, (Handle, size_t, size_t *, size_t *))                   \
    F(cuFuncGetModule, Result, (Handle *, Handle))                                        \
    F(cuFuncGetAttribute, Result, (int *, int, Handle))                                   \
    F(cuFuncLoad, Result, (Handle))                                                       \
    F(cuFuncSetAttribute, Result, (Handle, int, int))                                     \
    F(cuCtxGetLimit, Result, (size_t *, int))                                             \
    F(cuLaunchKernel, Result,                                                             \
      (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **)) \
    F(cuGraphGetNodes, Result, (Handle, Handle *, size_t *))                              \
    F(cuGraphNodeGetType, Result, (Handle, int *))                                        \
    F(cuGraphKernelNodeGetParams_v2, Result, (Handle, KernelNode *))                      \
    F(cuGraphKernelNodeGetAttribute, Result, (Handle, int, void *))                       \
    F(cuGraphMemAllocNodeGetParams, Result, (Handle, AllocationNode *))                   \
    F(cuGraphMemFreeNodeGetParams, Result, (Handle, Address *))                           \
    F(cuGraphChildGraphNodeGetGraph, Result, (Handle, Handle *))                          \
    F(cuGraphGetEdges, Result, (Handle, Handle *, Handle *, size_t *))                    \
    F(cuGraphClone, Result, (Handle *, Handle))                                           \
    F(cuGraphNodeFindInClone, Result, (Handle *, Handle, Handle))                         \
    F(cuGraphDestroyNode, Result, (Handle))                                               \
    F(cuGraphDestroy, Result, (Handle))                                                   \
    F(cuGraphInstantiateWithFlags, Result, (Handle *, Handle, uint64_t))                  \
    F(cuGraphLaunch, Result, (Handle, Handle))                                            \
    F(cuGraphExecDestroy, Result, (Handle))                                               \
    F(cuGraphKernelNodeSetParams_v2, Result, (Handle, const KernelNode *))                \
    F(cuGraphExecKernelNodeSetParams_v2, Result, (Handle, Handle, const KernelNode *))

struct Driver {
#define R3_MEMBER(name, result, arguments) result(*name) arguments;
    R3_DRIVER_FUNCTIONS(R3_MEMBER)
#undef R3_MEMBER
};

// Resolved on first use; all members are null where the process has no libcuda.so.1.
const Driver &driver();

// A function of the real libcuda.so.1 by its exported name, or null.
void *real_driver_function(const char *name);

}  // namespace r3
