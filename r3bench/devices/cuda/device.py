"""The device itself: its verbs, as requests to a worker that :mod:`r3bench.devices.cuda.supply` keeps alive."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from r3bench.compare import EXACT, Tolerance, buffers, differences, tolerance_of, verdict_of
from r3bench.compare import Buffer as Compared
from r3bench.devices import Bytes, Kernel, Memory, Queue, Stops
from r3bench.devices.cuda import profiler
from r3bench.devices.cuda import sanitizer as sanitizing
from r3bench.devices.cuda.memory import CudaMemory, Recorded, Rules
from r3bench.devices.cuda.process import OURS, Worker
from r3bench.devices.cuda.queue import CudaQueue
from r3bench.devices.cuda.requests import (
    check_binary,
    check_launch,
    differences_found,
    limit_s,
    many_rules,
    nanoseconds,
    place_of,
    running,
)
from r3bench.devices.cuda.supply import CudaKernel, Supply
from r3bench.devices.cuda.survey import default_index
from r3bench.errors import DeviceFault, LaunchError, WorkerLost
from r3bench.model import Binary, Difference, LaunchConfig, ReplayUnit, Target, Verdict

# Larger buffers are compared on the GPU alone.
_PICTURED_BYTES = 16 << 20
_MAX_MEMORIES = 1 << 15


class CudaDevice:
    """One GPU: number ``index`` of those that CUDA_VISIBLE_DEVICES leaves, counted around.

    By default that is the first, and under pytest-xdist the one of the worker's number. DeviceUnavailable if its worker
    does not start.
    """

    orders: tuple[str, ...] = ("forward",)

    def __init__(self, *, index: int | None = None) -> None:
        self._index = default_index() if index is None else index
        self._supply = Supply(self._index)
        self._finalizer = weakref.finalize(self, self._supply.close)
        self._recorded: dict[tuple[Any, ...], Recorded] = {}
        self._evict = False
        self._floor_ns: float | None = None
        self._write_speed: float | None = None
        self.hello = self._supply.worker().hello
        self.cache_bytes = int(self.hello["cache_bytes"])
        self.room_bytes = int(self.hello["memory_bytes"]) // 4
        self.target = Target(device="cuda", arch=str(self.hello["arch"]))
        self.name = f"{self.hello['name']} {self.hello['uuid']}"
        self.queue: Queue | None = CudaQueue(self._supply, self.target)

    @property
    def spent(self) -> Mapping[str, float]:
        return self._supply.mine.spent

    @cached_property
    def sanitizers(self) -> tuple[str, ...]:
        """The tools of compute-sanitizer, where it is here and runs on this GPU."""
        return sanitizing.tools(self._index)

    # -- memory --

    def allocate(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> CudaMemory:
        """See :class:`~r3bench.devices.Device`. Read-only arrays are kept by reference, others are copied.

        The first copy of a unit lies where it was recorded, if these addresses can be had; others are relocated. Where
        that takes a fresh process, what launches left in other memories is lost: they are restored.
        """
        needed, most = sum(buffer.nbytes for buffer in buffers(unit)), int(self.hello["memory_bytes"])
        if needed > most:  # of more than half, the recorded contents stay on the host
            raise LaunchError(
                f"out of memory: unit {unit.index} needs {needed} bytes and the GPU has {most}; replay it on a larger "
                "GPU, or record a smaller launch"
            )
        with self._supply.guard:
            memory = CudaMemory(self._recorded_as(unit, before))
            memory.recorded.copies += 1
            self._supply.add(memory)
            try:
                self._supply.place(memory)
            except BaseException:
                self.release(memory)
                raise
        return memory

    def _recorded_as(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> Recorded:
        key = (id(unit), *(id(before.get(buffer.name)) for buffer in buffers(unit)))
        found = self._recorded.get(key)
        if found is None:
            found = Recorded(unit, before)
            if found.shared:
                found.take_over(self._recorded.values())
                self._recorded[key] = found
        return found

    def restore(self, memory: Memory) -> None:
        """Takes place on the device with whatever is asked of it next, for many copies at once."""
        self._to_restore(self._supply.own(memory))

    @staticmethod
    def _to_restore(held: CudaMemory) -> None:
        held.stale, held.rows = True, None

    def download(self, memory: Memory) -> dict[str, Bytes]:
        held = self._supply.own(memory)
        return self._read(held, held.names())

    def _read(self, held: CudaMemory, names: Sequence[str]) -> dict[str, Bytes]:
        worker = self._supply.worker()
        self._supply.still(worker, held)
        sizes = {buffer.name: buffer.nbytes for buffer in held.recorded.buffers}
        fd, data = self._supply.mine.exchange.room(sum(sizes[name] for name in names))
        message = {"op": "download", "memory": held.number, "names": names, "restore": self._stale([held])}
        self._supply.ask(worker, message, "reading memory back", fds=[fd])
        held.stale = False
        ends = np.cumsum([sizes[name] for name in names])
        return {
            name: held.original(name, data[end - sizes[name] : end].copy())
            for name, end in zip(names, ends, strict=True)
        }

    def compare(
        self, memory: Memory, expected: Mapping[str, Bytes], tolerances: Mapping[str, Tolerance] | None = None
    ) -> Verdict:
        held, overrides = self._supply.own(memory), tolerances or {}
        given = {name: np.ascontiguousarray(expected[name]).reshape(-1) for name in held.names()}
        # Relocated pointers are for this process, and so are, where anything differs, very scattered rules and buffers
        # that are small enough for a picture of where they differ.
        scattered = {name for name in held.names() if many_rules(overrides.get(name))}
        there = [each for each in held.recorded.compared if not held.relocated(each.name)]
        found = self._compare_there(held, there, expected, {**overrides, **dict.fromkeys(scattered, EXACT)})
        here = {each.name for each in held.recorded.compared if held.relocated(each.name)}
        differing = {each.name for each in there if found[each.name] is not None and each.nbytes <= _PICTURED_BYTES}
        here |= differing | {name for name in scattered if found.get(name) is not None}
        read = self._read(held, sorted(here)) if here else {}
        for each in held.recorded.compared:
            if each.name in here:
                tolerance = tolerance_of(held.unit, each, overrides)
                found[each.name] = differences(given[each.name], read[each.name], each, tolerance)
        in_order = [found[each.name] for each in held.recorded.compared]
        return verdict_of(held.unit, tuple(each for each in in_order if each is not None))

    def _compare_there(
        self, held: CudaMemory, wanted: Sequence[Compared], expected: Mapping[str, Bytes], overrides: Any
    ) -> dict[str, Difference | None]:
        rules = held.recorded.rules(wanted, expected, overrides)
        rows = held.rows if rules is held.rules else None
        if rows is None:
            rows = self._asked(held, rules, {"op": "compare", "restore": self._stale([held])}, "comparing")["rows"]
            held.stale, held.recorded.compared_by = False, rules if rules.kept else None
        return differences_found(held, wanted, expected, overrides, rows)

    def _asked(self, held: CudaMemory, rules: Rules, message: dict[str, Any], what: str) -> dict[str, Any]:
        """The answer to a request about a copy and rules, which the worker has then."""
        worker = self._supply.worker()
        self._supply.still(worker, held)
        message |= {"memory": held.number, "rules": self._supply.rules(worker, rules)}
        answer = self._supply.ask(worker, message, what)
        if rules.contents is not None and not rules.kept:
            self._supply.drop(worker, rules.contents)
        return answer

    def release(self, memory: Memory) -> None:
        held, mine = self._supply.own(memory), self._supply.mine
        mine.ran = None if mine.ran is held else mine.ran
        recorded = held.recorded
        with self._supply.guard:
            self._supply.forget(held)
            recorded.copies -= 1
            if not recorded.copies:
                self._recorded = {key: each for key, each in self._recorded.items() if each is not recorded}
            if (worker := self._supply.living()) is not None:
                with suppress(WorkerLost):  # and with it all that is to be given back
                    self._give_back(worker, held)

    def _give_back(self, worker: Worker, held: CudaMemory) -> None:
        if held.number in worker.copies:
            worker.copies.discard(held.number)
            self._supply.ask(worker, {"op": "remove", "id": held.number}, "releasing memory")
        if not held.recorded.copies:
            kept = {contents for each in self._recorded.values() for contents in each.all_contents()}
            for contents in set(held.recorded.all_contents()) - kept:
                self._supply.drop(worker, contents)

    @staticmethod
    def _stale(memories: Sequence[CudaMemory]) -> list[int]:
        return [memory.number for memory in dict.fromkeys(memories) if memory.stale]

    # -- kernels --

    def load(self, binary: Binary) -> CudaKernel:
        """Load the code in the worker; LaunchError if its format or target does not fit."""
        check_binary(binary, self.target)
        kernel = CudaKernel(self._supply, binary)
        self._supply.kernel(self._supply.worker(), kernel)
        return kernel

    def launch(
        self,
        kernel: Kernel,
        memory: Memory,
        launch: LaunchConfig,
        *,
        timeout_s: float = 60.0,
        order: str = "forward",
    ) -> None:
        """Run once and wait. Shared memory is poisoned before, and the bytes beside the buffers are checked after."""
        if order not in self.orders:
            raise ValueError(f"a GPU runs threads in an order of its own, so {order!r} cannot be asked for")
        held, loaded = self._supply.own(memory), self._own_kernel(kernel)
        answer = self._run(loaded, [held], launch, timeout_s, evict=self._flushes())
        loaded.learn({"blocks_per_multiprocessor": answer["occupancy"]})
        if answer["damaged"] is not None:
            raise DeviceFault(f"{loaded.binary.symbol} wrote {place_of(int(answer['damaged']), held)}")

    def sanitize(
        self,
        kernel: Kernel,
        memory: Memory,
        launch: LaunchConfig,
        sanitizer: str,
        *,
        timeout_s: float = 60.0,
        every: int = 1,
    ) -> None:
        """Run the very code once in a process of its own, each buffer in an allocation of its size."""
        held, binary = self._supply.own(memory), self._own_kernel(kernel).binary
        check_launch(binary.symbol, launch)
        sanitizing.run(sanitizer, self._index, binary, held, launch, timeout_s)

    def writer(
        self, kernel: Kernel, memory: Memory, launch: LaunchConfig, place: tuple[str, int], *, timeout_s: float = 60.0
    ) -> str:
        return ""

    def profile(
        self, kernel: Kernel, memory: Memory, launch: LaunchConfig, *, timeout_s: float = 60.0
    ) -> dict[str, str]:
        """What ncu counts of one launch in a process of its own, where it is here and may count."""
        held, binary = self._supply.own(memory), self._own_kernel(kernel).binary
        check_launch(binary.symbol, launch)
        return profiler.counters(self._index, binary, held, launch, timeout_s)

    def window(
        self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, *, timeout_s: float = 60.0
    ) -> float:
        """Nanoseconds by the GPU's own events within one graph of all launches."""
        held = [self._supply.own(memory) for memory in memories]
        how: dict[str, Any] = {"windows": 1, "evict": self._flushes()}
        (ns,) = nanoseconds(self._run(self._own_kernel(kernel), held, launch, timeout_s, **how))
        return ns

    def windows(
        self,
        kernel: Kernel,
        memories: Sequence[Memory],
        launch: LaunchConfig,
        times: int,
        *,
        flush: bool = False,
        stops: Stops = (),
        judged: Memory | None = None,
        timeout_s: float = 60.0,
    ) -> list[float]:
        """All of them with one request, and the comparison of what will be judged, by the rules that copies of the unit
        were compared by last."""
        held = [self._supply.own(memory) for memory in memories]
        for memory in held:
            self._to_restore(memory)
        how: dict[str, Any] = {"windows": times, "evict": flush, "stops": stops}
        how["judged"] = None if judged is None else self._supply.own(judged)
        return nanoseconds(self._run(self._own_kernel(kernel), held, launch, limit_s(times, stops, timeout_s), **how))

    def _own_kernel(self, kernel: Kernel) -> CudaKernel:
        if not isinstance(kernel, CudaKernel) or kernel.supply is not self._supply:
            raise ValueError("this kernel was loaded by another device")
        return kernel

    def _flushes(self) -> bool:
        """Whether :meth:`evict` was asked for, which is once."""
        flushes, self._evict = self._evict, False
        return flushes

    def _run(
        self,
        kernel: CudaKernel,
        memories: list[CudaMemory],
        launch: LaunchConfig,
        timeout_s: float,
        *,
        evict: bool,
        windows: int = 0,
        stops: Stops = (),
        judged: CudaMemory | None = None,
    ) -> dict[str, Any]:
        if not 1 <= len(memories) <= _MAX_MEMORIES:
            raise ValueError(f"a window has from 1 to {_MAX_MEMORIES} launches, not {len(memories)}")
        symbol = kernel.binary.symbol
        check_launch(symbol, launch)
        worker = self._supply.ready(kernel, memories)
        # Copies share pieces of memory: who is launched on one alone must not find beside it what others left.
        beside = self._supply.used_beside(worker, memories[0]) if windows and len(memories) == 1 else []
        for memory in beside:
            self._to_restore(memory)
        judged = judged if windows else memories[0]
        rules = judged.recorded.compared_by if judged else None
        how: dict[str, Any] = {"judged": judged, "windows": windows, "stops": stops, "evict": evict}
        how["rules"] = self._supply.rules(worker, rules) if rules else None
        message = running(kernel.number, memories, launch, self._stale([*memories, *beside]), **how)
        for memory in memories:
            memory.rows = None
        answer = self._supply.ask(worker, message, symbol, timeout_s=timeout_s)
        for memory in (*beside, *memories):
            memory.stale, memory.used = False, memory in memories
        if judged is not None:
            judged.rows, judged.rules = answer["rows"] if rules else None, rules
        self._supply.mine.ran = memories[0]
        return answer

    # -- the rest --

    def evict(self) -> None:
        """Takes place on the device just before the next launch, after what is to be restored."""
        self._evict = True

    def write_speed(self) -> float:
        """By the driver's own filling of a buffer many times the size of the second-level cache."""
        if self._write_speed is None:
            worker, what = self._supply.worker(), "measuring how fast memory is written"
            found = self._supply.ask(worker, {"op": "write_speed"}, what)
            self._write_speed = float(found["bytes"]) / float(found["seconds"])
        return self._write_speed

    def conditions(self) -> dict[str, str]:
        """GPU, driver, clocks, throttle reasons, temperature, other processes, launch floor; the unit's addresses."""
        if self._floor_ns is None:
            worker, what = self._supply.worker(), "measuring the launch floor"
            self._floor_ns = float(self._supply.ask(worker, {"op": "floors"}, what)["ns"][0])
        found = {
            "device": self.name,
            "arch": self.target.arch,
            "cuda": f"{self.hello['driver'] // 1000}.{self.hello['driver'] % 1000 // 10}",
            "launch_floor_ns": f"{self._floor_ns:.0f}",
        }
        if (ran := self._supply.mine.ran) is not None:
            found |= self._supply.addresses(ran)
        if (management := self._supply.management) is not None:
            begin = perf_counter()
            found |= management.conditions(str(self.hello["uuid"]), OURS)
            self._supply.mine.spent["nvml"] += perf_counter() - begin
        return found

    def seconds(self, memory: Memory, expected: Mapping[str, Bytes]) -> dict[str, float]:
        """How long restoring and comparing take on the GPU itself, and the driver's own copy of as many bytes."""
        held = self._supply.own(memory)
        rules = held.recorded.rules(held.recorded.compared, expected, {})
        found = self._asked(held, rules, {"op": "seconds"}, "measuring the device's own work")
        return {name: float(value) for name, value in found.items()}

    def close(self) -> None:
        self._finalizer()
