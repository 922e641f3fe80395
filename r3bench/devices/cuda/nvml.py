"""NVIDIA's management library: driver, GPUs, clocks, throttling, temperature, processes. Needs no CUDA context."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Set
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any

_SUCCESS = 0
_CLOCKS = {"clock_mhz": 1, "memory_clock_mhz": 2}
_REASONS = {
    0x0001: "idle",
    0x0002: "application clocks",
    0x0004: "power cap",
    0x0008: "hardware slowdown",
    0x0010: "sync boost",
    0x0020: "software thermal",
    0x0040: "hardware thermal",
    0x0080: "power brake",
    0x0100: "display clock",
}
# What says that the GPU ran slower than it could have: neither idling nor a clock that somebody chose.
_THROTTLING = 0x0004 | 0x0008 | 0x0020 | 0x0040 | 0x0080
_MAX_PROCESSES = 256
_KEPT_S = 1.0


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class Nvml:
    """The library, open. OSError where it is not here or finds no driver."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        self._handles: dict[str, ctypes.c_void_p] = {}
        self._slow: dict[str, tuple[float, dict[str, str]]] = {}
        if code := self._library.nvmlInit_v2():
            raise OSError(f"NVIDIA's management library does not start (error {code})")

    def close(self) -> None:
        self._library.nvmlShutdown()

    def driver(self) -> str:
        return self._text("nvmlSystemGetDriverVersion") or "unknown"

    def cuda(self) -> tuple[int, int] | None:
        """The newest version of CUDA that the driver knows."""
        found = self._number("nvmlSystemGetCudaDriverVersion_v2")
        return None if found is None else (found // 1000, found % 1000 // 10)

    def names(self) -> list[str]:
        """The GPUs of this machine, in the order of their places on the bus."""
        count = ctypes.c_uint()
        self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        return [self._text("nvmlDeviceGetName", self._handle(index)) or "GPU" for index in range(count.value)]

    def slices(self) -> dict[str, list[str]]:
        """The MIG slices of each GPU that is cut into them, by their UUIDs; of each GPU by its number and its UUID."""
        found: dict[str, list[str]] = {}
        for number in range(len(self.names())):
            gpu, current, later = self._handle(number), ctypes.c_uint(), ctypes.c_uint()
            mode = self._library.nvmlDeviceGetMigMode(gpu, ctypes.byref(current), ctypes.byref(later))
            if mode == _SUCCESS and current.value:
                uuids = list(self._slices_of(gpu))
                found |= dict.fromkeys((str(number), self._uuid(gpu)), uuids)
        return found

    def _slices_of(self, gpu: ctypes.c_void_p) -> Iterator[str]:
        held = ctypes.c_void_p()
        for place in range(self._number("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0):
            ask = self._library.nvmlDeviceGetMigDeviceHandleByIndex
            if ask(gpu, ctypes.c_uint(place), ctypes.byref(held)) == _SUCCESS:
                yield self._uuid(held)

    def _uuid(self, handle: ctypes.c_void_p) -> str:
        return self._text("nvmlDeviceGetUUID", handle) or ""

    def busy(self) -> list[int]:
        """For each GPU the percentage of the last moment in which a kernel ran."""
        count, found = ctypes.c_uint(), (ctypes.c_uint * 2)()
        self._library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        ask = self._library.nvmlDeviceGetUtilizationRates
        return [int(found[0]) for index in range(count.value) if ask(self._handle(index), found) == _SUCCESS]

    def _handle(self, index: int) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
        return handle

    def conditions(self, uuid: str, own: Set[int]) -> dict[str, str]:
        """Clocks, throttle reasons, temperature, power and other processes of one GPU, as far as it tells them: the
        first two of now, the rest, which takes milliseconds, of the last second."""
        handle = self._by_uuid(uuid)
        if handle is None:
            return {}
        found = {name: self._number("nvmlDeviceGetClockInfo", handle, kind) for name, kind in _CLOCKS.items()}
        texts = {name: str(value) for name, value in found.items() if value is not None}
        reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", handle, wide=True)
        if reasons is not None:
            texts["throttle"] = throttling(reasons)
        asked, slow = self._slow.get(uuid, (-inf, {}))
        if monotonic() - asked > _KEPT_S:
            slow = self._asked_slowly(handle, own)
            self._slow[uuid] = monotonic(), slow
        return texts | slow

    def _by_uuid(self, uuid: str) -> ctypes.c_void_p | None:
        if uuid not in self._handles:
            handle = ctypes.c_void_p()
            if self._library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)) != _SUCCESS:
                return None
            self._handles[uuid] = handle
        return self._handles[uuid]

    def _asked_slowly(self, handle: ctypes.c_void_p, own: Set[int]) -> dict[str, str]:
        found = {
            "driver": self.driver(),
            "temperature_c": self._number("nvmlDeviceGetTemperature", handle, 0),
            "power_mw": self._number("nvmlDeviceGetPowerUsage", handle),
        }
        if (processes := self._processes(handle)) is not None:
            found["other_processes"] = len(processes - own)
        return {name: str(value) for name, value in found.items() if value is not None}

    def _processes(self, handle: ctypes.c_void_p) -> set[int] | None:
        count, table = ctypes.c_uint(_MAX_PROCESSES), (_Process * _MAX_PROCESSES)()
        ask = self._library.nvmlDeviceGetComputeRunningProcesses_v3
        if ask(handle, ctypes.byref(count), table) != _SUCCESS:
            return None
        return {each.pid for each in table[: count.value]}

    def _number(self, function: str, *arguments: Any, wide: bool = False) -> int | None:
        value = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        code = getattr(self._library, function)(*arguments, ctypes.byref(value))
        return int(value.value) if code == _SUCCESS else None

    def _text(self, function: str, *arguments: Any) -> str | None:
        held = ctypes.create_string_buffer(96)
        code = getattr(self._library, function)(*arguments, held, ctypes.c_uint(len(held)))
        return held.value.decode("utf-8", "replace") if code == _SUCCESS else None


@contextmanager
def opened() -> Iterator[Nvml]:
    library = Nvml()
    try:
        yield library
    finally:
        library.close()


def throttling(reasons: int) -> str:
    """The reasons in words that slowed the GPU down; ``none`` if nothing did."""
    return ", ".join(text for bit, text in _REASONS.items() if reasons & _THROTTLING & bit) or "none"
