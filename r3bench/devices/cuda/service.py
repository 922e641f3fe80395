"""The worker's own kernels (service.cu), and the tables that they read."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable
from importlib.resources import files
from itertools import cycle
from typing import Any

from cuda.bindings import driver as cuda

from r3bench.devices.cuda.driver import call, function_attribute
from r3bench.devices.cuda.placement import GRANULE
from r3bench.devices.cuda.space import Space
from r3bench.devices.cuda.tables import Table

_TABLES_BYTES = 64 << 20
_TRIES = 9
_POISONS = (0xFFFFFFFF, 0x5C5C5C5C)
_KERNELS = ("r3_copy", "r3_patch", "r3_compare", "r3_poison", "r3_nothing")


class Tables:
    """Tables on the device by key, in one piece of memory that is begun anew when it is full."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._place = space.map(_TABLES_BYTES, always=True)
        self._next = self._place.start
        self._found: dict[Hashable, tuple[int, int]] = {}

    def get(self, key: Hashable, make: Callable[[], Table]) -> tuple[int, int]:
        """Address and length of a table, uploaded once."""
        if key not in self._found:
            table = make()
            self._found[key] = (self._upload(table), len(table))
        return self._found[key]

    def forget(self) -> None:
        """Tables hold addresses: they go when what is at them goes."""
        self._found.clear()
        self._next = self._place.start

    def _upload(self, table: Table) -> int:
        if table.nbytes > self._place.range.nbytes:
            self._space.unmap(self._place)
            self._place = self._space.map(-(-table.nbytes // GRANULE) * GRANULE, always=True)
            self.forget()
        if self._next + table.nbytes > self._place.range.end:
            self.forget()
        start = self._next
        if table.nbytes:
            call(cuda.cuMemcpyHtoD, start, table.ctypes.data, table.nbytes)
        self._next += -(-table.nbytes // 256) * 256
        return start


class Service:
    """Our kernels on one stream."""

    def __init__(self, stream: Any, multiprocessors: int) -> None:
        self.stream, self._multiprocessors = stream, multiprocessors
        text = files("r3bench.devices.cuda").joinpath("service.ptx").read_bytes() + b"\0"
        module = call(cuda.cuModuleLoadData, text)
        self.kernels = {name: call(cuda.cuModuleGetFunction, module, name.encode()) for name in _KERNELS}
        self._shared = self._allow_shared_memory()
        self._poisons = cycle(_POISONS)

    def _allow_shared_memory(self) -> int:
        """All of the shared memory that a block can have, for the kernel that poisons it."""
        poison = self.kernels["r3_poison"]
        device = call(cuda.cuCtxGetDevice)
        most = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        nbytes = int(call(cuda.cuDeviceGetAttribute, most, device))
        nbytes -= function_attribute("SHARED_SIZE_BYTES", poison)
        allowed = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call(cuda.cuFuncSetAttribute, poison, allowed, nbytes)
        return nbytes

    def copy(self, table: tuple[int, int]) -> None:
        """Copy what a table of chunks says."""
        address, count = table
        if count:
            self._run("r3_copy", count, 512, (address, ctypes.c_uint64))

    def patch(self, table: tuple[int, int]) -> None:
        """Write what a table of words says."""
        address, count = table
        if count:
            counted = (count, ctypes.c_uint32)
            self._run("r3_patch", -(-count // 128), 128, (address, ctypes.c_uint64), counted)

    def compare(self, table: tuple[int, int], rows: int, *, again: bool) -> None:
        """Compare what a table of pieces says into rows; ``again`` looks for the places of the largest errors."""
        address, count = table
        if count:
            into = (rows, ctypes.c_uint64)
            self._run("r3_compare", count, 256, (address, ctypes.c_uint64), into, (int(again), ctypes.c_uint32))

    def poison_shared_memory(self) -> None:
        """Fill it with NaN and with a large number in turn: two launches find different contents there."""
        self.fill_shared_memory(next(self._poisons))

    def fill_shared_memory(self, value: int) -> None:
        """Fill the shared memory of every multiprocessor with a word."""
        words, filled = (self._shared // 4, ctypes.c_uint32), (value, ctypes.c_uint32)
        self._run("r3_poison", 2 * self._multiprocessors, 1024, words, filled, shared_bytes=self._shared)

    def nothing(self) -> None:
        self._run("r3_nothing", 1, 1)

    def seconds(self, action: Callable[[], object]) -> float:
        """The least time by the GPU's events that an action took in some tries."""
        begin, end = (call(cuda.cuEventCreate, 0) for _ in range(2))
        samples = []
        for _ in range(_TRIES):
            call(cuda.cuEventRecord, begin, self.stream)
            action()
            call(cuda.cuEventRecord, end, self.stream)
            call(cuda.cuEventSynchronize, end)
            samples.append(float(call(cuda.cuEventElapsedTime, begin, end)) / 1e3)
        for event in (begin, end):
            call(cuda.cuEventDestroy, event)
        return min(samples)

    def _run(self, name: str, blocks: int, threads: int, *arguments: tuple[int, Any], shared_bytes: int = 0) -> None:
        given = (tuple(value for value, _ in arguments), tuple(kind for _, kind in arguments))
        parameters = given if arguments else 0
        shape = (blocks, 1, 1, threads, 1, 1, shared_bytes)
        call(cuda.cuLaunchKernel, self.kernels[name], *shape, self.stream, parameters, 0)
