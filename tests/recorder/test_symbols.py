"""What the preload library answers for, by name, and what it asks of the system."""

from __future__ import annotations

import re

import pytest

from r3bench import recorder
from tests.recorder.elf import dynamic_symbols

CUDA = """
cuGetProcAddress cuGetProcAddress_v2 dlsym
cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchKernelEx_ptsz cuLaunchCooperativeKernel
cuLaunchCooperativeKernel_ptsz cuGraphLaunch cuGraphLaunch_ptsz cuGraphInstantiateWithFlags
cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemAllocManaged cuMemAllocAsync cuMemAllocFromPoolAsync cuMemMap cuMemHostAlloc
cuMemAllocHost_v2 cuMemHostRegister_v2 cuMemFree_v2 cuMemFreeAsync cuMemUnmap cuMemFreeHost cuMemHostUnregister
cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction
cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetKernel cuKernelGetFunction
cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoDAsync_v2 cuMemcpyPeer cuMemsetD32Async cuMemcpy2DAsync_v2_ptsz
cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz cuStreamEndCapture
cuGraphInstantiate_v2 cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz cuGraphExecUpdate
cuGraphExecUpdate_v2 cuGraphExecKernelNodeSetParams_v2 cuGraphExecNodeSetParams cuGraphNodeSetEnabled cuGraphExecDestroy
cuCtxSynchronize_v2 cuCtxDestroy_v2 cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuMemGetInfo_v2 cuMemCreate
dlclose cuMemSetAccess cuMemPoolImportPointer cuMemsetD2D32Async_ptsz cuMemcpyBatchAsync_v2 cuMemcpy3DPeerAsync
cuModuleGetTexRef cuDevicePrimaryCtxRetain cuLaunch cuLaunchGrid cuLaunchGridAsync cuGraphAddNode cuGraphAddNode_v2
cuLaunchCooperativeKernelMultiDevice
"""
HIP = """
hipMalloc hipExtMallocWithFlags hipMallocPitch hipMallocManaged hipMallocAsync hipHostMalloc hipHostRegister hipFree
hipFreeAsync hipHostFree hipHostUnregister hipModuleGetFunction __hipRegisterFunction hipModuleLaunchKernel
hipLaunchKernel hipLaunchCooperativeKernel hipExtLaunchKernel
"""


@pytest.fixture(scope="module")
def dynamic() -> list[tuple[str, str, str]]:
    """Name, section index and version of every dynamic symbol."""
    return dynamic_symbols(recorder.library().read_bytes())


@pytest.mark.parametrize("name", [*CUDA.split(), *HIP.split()])
def test_it_answers_for(name: str, dynamic: list[tuple[str, str, str]]) -> None:
    assert name in {symbol for symbol, section, _ in dynamic if section != "undefined"}


def test_it_exports_nothing_else(dynamic: list[tuple[str, str, str]]) -> None:
    ours = re.compile(r"cu[A-Z]|hip|__hip|dlsym$|dlclose$|InitializeInjectionNvtx2$")
    assert not [symbol for symbol, section, _ in dynamic if section != "undefined" and not ours.match(symbol)]


def test_it_asks_for_an_old_c_library_and_nothing_more(dynamic: list[tuple[str, str, str]]) -> None:
    versions = {version for _, section, version in dynamic if section == "undefined" and version}
    assert versions
    assert all(tuple(map(int, v.removeprefix("GLIBC_").split("."))) <= (2, 17) for v in versions)


def test_per_thread_forms_are_listed_beside_the_others(dynamic: list[tuple[str, str, str]]) -> None:
    names = {symbol for symbol, section, _ in dynamic if section != "undefined"}
    for name in names:
        if name.endswith(("_ptsz", "_ptds")):
            assert name[:-5] in names
