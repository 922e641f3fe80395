"""A worker of the CUDA device on a driver without a GPU: this process's memory is the device's, and calls are counted.

Every call that does something on the device, or waits for it, is a line in the file that R3BENCH_CALLS names: a
kernel's name, or the call's. It knows the worker's own kernels, and ``double``, which doubles 8 doubles
(``stray`` writes past its end, too).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from enum import IntEnum
from itertools import count
from types import ModuleType
from typing import Any
from zlib import crc32

import numpy as np

GRANULE = 2 << 20
_NORESERVE = 0x4000  # MAP_NORESERVE


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2


class Names:
    """An enumeration or a structure of the driver's: every name is a number of its own until it is set."""

    def __getattr__(self, name: str) -> int:
        return crc32(name.encode())

    def __call__(self) -> Any:
        made = Names()
        made.location = Names()
        return made


def at(address: int, nbytes: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(int(address)))


class Driver(ModuleType):
    """Stands for ``cuda.bindings.driver``."""

    CUresult = Result

    def __init__(self) -> None:
        super().__init__("cuda.bindings.driver")
        self._calls = os.open(os.environ["R3BENCH_CALLS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._handles = count(1)
        self._memory_bytes = int(os.environ.get("R3BENCH_MEMORY", 1 << 33))
        self._held: dict[int, int] = {}
        self._arenas: list[mmap.mmap] = []
        self._captured: list[tuple[Any, ...]] | None = None

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            return Names()
        if name.startswith("__"):
            raise AttributeError(name)

        def called(*arguments: Any) -> tuple[Any, ...]:
            return Result.CUDA_SUCCESS, next(self._handles)

        called.__name__ = name
        return called

    def _note(self, what: str) -> None:
        os.write(self._calls, f"{what}\n".encode())

    # -- facts --

    def cuDriverGetVersion(self) -> Any:
        return Result.CUDA_SUCCESS, 13000

    def cuDeviceGetCount(self) -> Any:
        return Result.CUDA_SUCCESS, 1

    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return Result.CUDA_SUCCESS, b"driver without a GPU\0"

    def cuDeviceGetUuid(self, device: int) -> Any:
        uuid = Names()
        uuid.bytes = bytes(16)
        return Result.CUDA_SUCCESS, uuid

    def cuDeviceGetAttribute(self, which: int, device: int) -> Any:
        return Result.CUDA_SUCCESS, 9

    def cuMemGetInfo(self) -> Any:
        return Result.CUDA_SUCCESS, self._memory_bytes, self._memory_bytes

    def cuMemGetAllocationGranularity(self, *what: Any) -> Any:
        return Result.CUDA_SUCCESS, GRANULE

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        return Result.CUDA_SUCCESS, name.decode()

    def cuFuncGetParamInfo(self, function: str, index: int) -> Any:
        return (Result.CUDA_ERROR_INVALID_VALUE, 0, 0) if index else (Result.CUDA_SUCCESS, 0, 8)

    # -- memory --

    def cuMemAddressReserve(self, nbytes: int, step: int, hint: int, flags: int) -> Any:
        """Enough of what is asked for, never where it is asked for."""
        self._arenas.append(mmap.mmap(-1, min(nbytes, 1 << 36), mmap.MAP_PRIVATE | _NORESERVE))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._arenas[-1]))
        return Result.CUDA_SUCCESS, -(-start // GRANULE) * GRANULE

    def cuMemCreate(self, nbytes: int, properties: Any, flags: int) -> Any:
        """Memory of the device while there is some; the host always has more."""
        there = properties.location.type == crc32(b"CU_MEM_LOCATION_TYPE_DEVICE")
        if there and sum(self._held.values()) + nbytes > self._memory_bytes:
            return (Result.CUDA_ERROR_OUT_OF_MEMORY, None)
        handle = next(self._handles)
        self._held[handle] = nbytes if there else 0
        return Result.CUDA_SUCCESS, handle

    def cuMemRelease(self, handle: int) -> Any:
        del self._held[handle]
        return (Result.CUDA_SUCCESS,)

    def _copied(self, to: int, source: int, nbytes: int, name: str) -> Any:
        self._note(name)
        ctypes.memmove(int(to), int(source), nbytes)
        return (Result.CUDA_SUCCESS,)

    def cuMemcpyHtoD(self, to: int, source: int, nbytes: int) -> Any:
        return self._copied(to, source, nbytes, "cuMemcpyHtoD")

    def cuMemcpyDtoH(self, to: int, source: int, nbytes: int) -> Any:
        return self._copied(to, source, nbytes, "cuMemcpyDtoH")

    def cuMemcpyDtoDAsync(self, to: int, source: int, nbytes: int, stream: Any) -> Any:
        return self._copied(to, source, nbytes, "cuMemcpyDtoDAsync")

    def cuMemSetAccess(self, start: int, nbytes: int, rights: Any, count: int) -> Any:
        self._note("cuMemSetAccess")
        return (Result.CUDA_SUCCESS,)

    def cuMemcpyDtoD(self, to: int, source: int, nbytes: int) -> Any:
        return self._copied(to, source, nbytes, "cuMemcpyDtoD")

    # -- waiting --

    def cuCtxSynchronize(self) -> Any:
        self._note("cuCtxSynchronize")
        return (Result.CUDA_SUCCESS,)

    def cuEventSynchronize(self, event: Any) -> Any:
        self._note("cuEventSynchronize")
        return (Result.CUDA_SUCCESS,)

    def cuStreamSynchronize(self, stream: Any) -> Any:
        self._note("cuStreamSynchronize")
        return (Result.CUDA_SUCCESS,)

    # -- graphs --

    def cuStreamBeginCapture(self, stream: Any, mode: int) -> Any:
        self._captured = []
        return (Result.CUDA_SUCCESS,)

    def cuStreamEndCapture(self, stream: Any) -> Any:
        found, self._captured = self._captured, None
        return Result.CUDA_SUCCESS, found

    def cuStreamGetCaptureInfo(self, stream: Any) -> Any:
        """A node that was added last; of the rest nothing is true."""
        return Result.CUDA_SUCCESS, 1, 0, 0, [next(self._handles)], [], 1

    def cuGraphInstantiate(self, graph: Any, flags: int) -> Any:
        return Result.CUDA_SUCCESS, graph

    def cuGraphLaunch(self, graph: list[tuple[Any, ...]], stream: Any) -> Any:
        for launch in graph:
            self.cuLaunchKernel(*launch)
        return (Result.CUDA_SUCCESS,)

    # -- kernels --

    def cuLaunchKernel(self, name: str, *given: Any) -> Any:
        if self._captured is not None:
            self._captured.append((name, *given))
            return (Result.CUDA_SUCCESS,)
        self._note(name)
        blocks, arguments = given[0], given[-2]
        if name in ("double", "stray"):
            (place,) = (ctypes.c_void_p * 1).from_address(arguments)
            held = at(ctypes.c_uint64.from_address(place).value, 72).view("f8")
            held[:8] *= 2
            held[8:] = 1.0 if name == "stray" else held[8]
        elif name in ("r3_copy", "r3_compare"):
            {"r3_copy": _copy, "r3_compare": _compare}[name](blocks, *arguments[0])
        return (Result.CUDA_SUCCESS,)


def _copy(blocks: int, table: int) -> None:
    from r3bench.devices.cuda.tables import CHUNK

    for to, source, nbytes in at(table, blocks * CHUNK.itemsize).view(CHUNK):
        ctypes.memmove(int(to), int(source), int(nbytes))


def _compare(blocks: int, table: int, into: int, again: int) -> None:
    """As service.cu does, but bit by bit whatever the tolerance; elements have 8 bytes, but for single bytes."""
    from r3bench.devices.cuda.tables import PIECES, ROW

    for piece in at(table, blocks * PIECES.itemsize).view(PIECES):
        row = at(into + int(piece["row"]) * ROW.itemsize, ROW.itemsize).view(ROW)[0:1]
        kind = "u1" if piece["type"] == 0 else "u8"
        wanted, got = (at(piece[side], int(piece["nbytes"])).view(kind) for side in ("expected", "actual"))
        places = np.flatnonzero(wanted != got)
        if places.size:
            first = int(piece["first"]) + int(places[0])
            row["count"] += places.size * (not again)
            row["first"] = row["place"] = min(int(row["first"][0]), first)


def stand_in() -> None:
    """Take the place of the package cuda-bindings in this process."""
    package, bindings, driver = ModuleType("cuda"), ModuleType("cuda.bindings"), Driver()
    vars(bindings)["driver"] = driver
    sys.modules |= {each.__name__: each for each in (package, bindings, driver)}


if __name__ == "__main__":
    stand_in()
    from r3bench.devices.cuda import worker

    worker.main()
