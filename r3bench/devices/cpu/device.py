"""The device itself: it holds the arena and the recorded contents, and replaces its worker whenever one is lost."""

from __future__ import annotations

import json
import os
import platform
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from struct import pack
from time import perf_counter_ns
from typing import Any, cast
from weakref import WeakValueDictionary

from r3bench import sealing
from r3bench.compare import Tolerance, judge
from r3bench.devices import Bytes, Kernel, Memory, Queue, Stops, windows_one_by_one
from r3bench.devices.contents import ARGUMENTS
from r3bench.devices.cpu import faults, violations
from r3bench.devices.cpu.arena import Arena
from r3bench.devices.cpu.available import evict_bytes
from r3bench.devices.cpu.elf import Symbols
from r3bench.devices.cpu.limits import check_binary, check_launch, check_unit
from r3bench.devices.cpu.memory import CpuMemory
from r3bench.devices.cpu.process import Worker, WorkerDied, ended_by
from r3bench.devices.cpu.provided import IGNORED
from r3bench.devices.cpu.wire import ORDERS, RUN, Op, Poison, Reply, Result
from r3bench.errors import DeviceFault, LaunchError, ReplayTimeout, WorkerLost
from r3bench.model import Binary, LaunchConfig, ReplayUnit, Target, Verdict, facts_of
from r3bench.symbols import demangled

_SETUP_TIMEOUT_S = 30.0
# Empty round trips measured before a window, and before the first: the shortest must be shorter than any real one's.
_PINGS, _FIRST_PINGS = 2, 32
_SPEED_TRIES = 4  # the first also gets the pages
# So many pages and globals of a memory fit in one datagram.
_PART = 500
_MAX_MEMORIES = 1 << 15
# When a worker is replaced, the new one links what so many workers before it were asked for: those kernels may well be
# launched again in turn, and one that is linked later takes a worker of its own.
_RELINKED = 2


class CpuKernel:
    """A binary that may be launched; every worker links it when it first needs it."""

    def __init__(self, device: CpuDevice, identity: int, binary: Binary, symbols: Symbols) -> None:
        self.device = weakref.ref(device)
        self.identity = identity
        self.binary = binary
        self.symbols = symbols
        self.wanted = 0  # number of the worker that was asked for it last
        self.checked = bool(facts_of(binary.facts).get("checked"))


class _Resources:
    """What must be given back even if nobody closes the device."""

    def __init__(self) -> None:
        self.arena = Arena()
        self.worker: Worker | None = None

    def close(self) -> None:
        self.drop_worker()
        self.arena.close()

    def drop_worker(self) -> int | None:
        worker, self.worker = self.worker, None
        return worker.close() if worker else None


class CpuDevice:
    """Runs blocks on ``threads`` threads (default: the cores this process may use).

    In order ``reverse`` the blocks, and the threads of each, run in the opposite order, and in order ``separate`` each
    thread of a block goes as far as it gets alone: a result that depends on the order shows. With ``reverse=True``
    every launch and window runs in reverse. DeviceUnavailable if its processes do not start.
    """

    name = "cpu"
    orders: tuple[str, ...] = ORDERS
    queue: Queue | None = None
    sanitizers: tuple[str, ...] = tuple(f"checked build, {order}" for order in ORDERS)
    scratch = Poison.BLOCK

    def __init__(self, *, threads: int | None = None, reverse: bool = False) -> None:
        if threads is not None and threads < 1:
            raise ValueError(f"the CPU device needs at least one thread, not {threads}")
        self.threads = threads or len(os.sched_getaffinity(0))
        self.reverse = reverse
        self.cache_bytes = evict_bytes() // 2
        self.room_bytes = 1 << 31
        self._kernel_ids, self._memory_ids = count(), count()
        self._memories: dict[Memory, int] = {}
        self._unused_kernels: deque[int] = deque()
        self._recent: WeakValueDictionary[int, CpuKernel] = WeakValueDictionary()
        self._workers = 0
        self._round_trip_ns = 0
        self._watched = 0
        self._write_speed: float | None = None
        self._resources = _Resources()
        self.spent: defaultdict[str, float] = defaultdict(float)
        self._finalizer = weakref.finalize(self, self._resources.close)
        self.target = Target(device="cpu", arch=self._worker().processor)

    @contextmanager
    def _spending(self, what: str) -> Iterator[None]:
        begin = perf_counter_ns()
        yield
        self.spent[what] += (perf_counter_ns() - begin) * 1e-9

    # -- memory --

    def allocate(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> CpuMemory:
        """See :class:`~r3bench.devices.Device`. Read-only arrays are kept by reference, others are copied."""
        memory = CpuMemory(self._resources.arena, unit, before)
        self._memories[memory] = next(self._memory_ids)
        return memory

    def restore(self, memory: Memory) -> None:
        with self._spending("restore"):
            self._own(memory).restore()

    def download(self, memory: Memory) -> dict[str, Bytes]:
        held = self._own(memory)
        return {name: held.bytes_of(name).copy() for name in held.names()}

    def compare(
        self, memory: Memory, expected: Mapping[str, Bytes], tolerances: Mapping[str, Tolerance] | None = None
    ) -> Verdict:
        held = self._own(memory)
        with self._spending("compare"):
            return judge(held.unit, expected, {name: held.bytes_of(name) for name in held.names()}, tolerances)

    def release(self, memory: Memory) -> None:
        held = self._own(memory)
        identity = self._memories.pop(held)
        worker = self._resources.worker
        try:
            if worker is not None and identity in worker.memories and worker.alive():
                with suppress(WorkerLost):  # and with it all that it had mapped
                    self._take_away(worker, {identity})
        finally:
            self._resources.arena.release(held.segment)

    def _own(self, memory: Memory) -> CpuMemory:
        if memory not in self._memories:
            raise ValueError("this memory was released, or belongs to another device")
        return cast(CpuMemory, memory)

    # -- kernels --

    def load(self, binary: Binary) -> CpuKernel:
        """Link the object in the worker; LaunchError if its format, target or symbols do not fit."""
        kernel = CpuKernel(self, next(self._kernel_ids), binary, check_binary(binary, self.target))
        weakref.finalize(kernel, self._unused_kernels.append, kernel.identity).atexit = False
        self._worker_with(kernel)
        return kernel

    def _own_kernel(self, kernel: Kernel) -> CpuKernel:
        if not isinstance(kernel, CpuKernel) or kernel.device() is not self:
            raise ValueError("this kernel was loaded by another device")
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
        """Run once and wait. Frames are poisoned before, and the bytes beside the buffers are checked after."""
        self._once(kernel, memory, launch, order, timeout_s)

    def _once(
        self, kernel: Kernel, memory: Memory, launch: LaunchConfig, order: str, timeout_s: float, every: int = 1
    ) -> None:
        if order not in self.orders:
            raise ValueError(f"the CPU device runs threads in order {' or '.join(self.orders)}, not {order}")
        held = self._own(memory)
        self._run(kernel, [held], launch, (self.scratch, order), timeout_s, every)
        damaged = held.segment.damage()
        if damaged is not None:
            raise DeviceFault(faults.spoiled(demangled(kernel.binary.symbol), damaged, held.segment))

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
        """Run a checked build in one of the two orders."""
        if not self._own_kernel(kernel).checked:
            raise ValueError("only a checked build checks its accesses")
        self._once(kernel, memory, launch, sanitizer.rsplit(" ", 1)[1], timeout_s, every)

    def writer(
        self, kernel: Kernel, memory: Memory, launch: LaunchConfig, place: tuple[str, int], *, timeout_s: float = 60.0
    ) -> str:
        """Run a checked build, which notes who writes there."""
        name, offset = place
        self._watched = self._own(memory).segment.address(name) + offset
        try:
            self.launch(kernel, memory, launch, timeout_s=timeout_s)
        finally:
            self._watched = 0
        return violations.writer(self._resources.arena.page)

    def profile(
        self, kernel: Kernel, memory: Memory, launch: LaunchConfig, *, timeout_s: float = 60.0
    ) -> dict[str, str]:
        return {}

    def window(
        self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, *, timeout_s: float = 60.0
    ) -> float:
        """Nanoseconds by this process's clock, less the shortest empty round trip to a worker that was ever seen."""
        held = [self._own(memory) for memory in memories]
        elapsed = self._run(kernel, held, launch, (Poison.NONE, "forward"), timeout_s)
        return max(1.0, elapsed - self._round_trip_ns)

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
        how: dict[str, Any] = {"flush": flush, "stops": stops, "timeout_s": timeout_s}
        return windows_one_by_one(self, kernel, memories, launch, times, **how)

    def _run(
        self,
        loaded: Kernel,
        memories: list[CpuMemory],
        launch: LaunchConfig,
        how: tuple[Poison, str],
        timeout_s: float,
        every: int = 1,
    ) -> int:
        """Nanoseconds from request to answer; ``how`` says what is poisoned and in which order threads run."""
        kernel = self._own_kernel(loaded)
        self._check(kernel, memories, launch)
        worker = self._ready(kernel, memories)
        poison, order = how
        order = "reverse" if self.reverse else order
        shape = (*launch.grid, *launch.block, launch.shared_bytes, ORDERS.index(order), every)
        message = RUN.pack(Op.RUN, poison, kernel.identity, *shape)
        message += pack(f"<{len(memories)}I", *(self._memories[memory] for memory in memories))
        name, page = demangled(kernel.binary.symbol), self._resources.arena.page
        if kernel.checked:
            violations.list_buffers(page, memories, self._watched)
        if poison is Poison.NONE:
            self._measure_round_trip(worker)
        start = perf_counter_ns()
        try:
            result = worker.ask(message, timeout_s=timeout_s)
        except TimeoutError:
            self._resources.drop_worker()
            raise ReplayTimeout(f"{name} did not end within {timeout_s:g} s and was killed") from None
        except WorkerDied as death:
            self._resources.worker = None
            if death.from_outside:
                raise WorkerLost(f"{name} did not end: its worker was {ended_by(death.exit_code)}") from None
            fault = self._resources.arena.fault()
            if kernel.checked and (violation := violations.found(page, fault[2])):
                raise DeviceFault(violations.told(name, violation, memories)) from None
            segments = [memory.segment for memory in memories]
            raise DeviceFault(faults.crashed(name, death.exit_code, fault, segments)) from None
        elapsed = perf_counter_ns() - start
        self.spent["run"] += elapsed * 1e-9
        if result.status is Reply.REFUSED:  # no launch is answered so: the worker is no longer itself
            self._resources.drop_worker()
        _raise_for(name, result)
        return elapsed

    def _check(self, kernel: CpuKernel, memories: list[CpuMemory], launch: LaunchConfig) -> None:
        check_launch(kernel.binary, launch)
        if not 1 <= len(memories) <= _MAX_MEMORIES:
            raise ValueError(f"a window has from 1 to {_MAX_MEMORIES} launches, not {len(memories)}")
        for unit in {id(memory.unit): memory.unit for memory in memories}.values():  # hashing a unit takes longer
            check_unit(kernel.binary, kernel.symbols, unit)

    # -- the worker --

    def _worker(self) -> Worker:
        """A worker that lives: the one there is, or a new one."""
        if not self._finalizer.alive:
            raise ValueError("the device is closed")
        worker = self._resources.worker
        if worker is None or not worker.alive():
            self._resources.drop_worker()
            self._resources.arena.clear_fault()
            with self._spending("start"):
                worker = self._resources.worker = Worker(self._resources.arena.fd, self.threads)
            self._workers += 1
        return worker

    def _ready(self, kernel: CpuKernel, memories: list[CpuMemory]) -> Worker:
        """A worker that has this kernel and these memories, and no others: none may be where a kernel finds results."""
        worker = self._worker_with(kernel)
        self._take_away(worker, worker.memories - {self._memories[memory] for memory in memories})
        self._provide(worker, memories)
        if not worker.sealed:
            worker.sealed = True
            self._request(worker, Op.SEAL, b"")
        return worker

    def _worker_with(self, kernel: CpuKernel) -> Worker:
        """A worker that has linked this kernel. One that has run any is sealed and links no more: it is replaced."""
        worker = self._worker()
        self._unload(worker)
        if kernel.identity in worker.kernels:
            kernel.wanted = self._workers
            return worker
        if worker.sealed:
            self._resources.worker = None
            worker.dismiss()
            worker = self._worker()
        if not worker.kernels:
            for other in list(self._recent.values()):
                if other.wanted >= self._workers - _RELINKED:
                    with suppress(LaunchError):  # the other's, when it is launched
                        self._link(worker, other)
        self._link(worker, kernel)
        self._recent[kernel.identity] = kernel
        kernel.wanted = self._workers
        return worker

    def _unload(self, worker: Worker) -> None:
        """Forget kernels that nobody holds; a sealed worker keeps their code as long as it lives."""
        while self._unused_kernels:
            identity = self._unused_kernels.popleft()
            if identity in worker.kernels:
                worker.kernels.discard(identity)
                if not worker.sealed:
                    self._tell(worker, Op.UNLOAD, identity)

    def _link(self, worker: Worker, kernel: CpuKernel) -> None:
        if kernel.identity in worker.kernels:
            return
        variables = {name: (held.nbytes, held.writable) for name, held in kernel.symbols.variables.items()}
        undefined = sorted(kernel.symbols.undefined - IGNORED)
        description = {"id": kernel.identity, "undefined": undefined, "globals": variables}
        with os.fdopen(os.memfd_create("r3bench-object"), "w+b") as image:
            image.write(kernel.binary.image)
            image.seek(0)
            result = self._tell(worker, Op.LOAD, description, [image.fileno()])
        if result.status is not Reply.DONE:
            raise LaunchError(f"{kernel.binary.symbol} cannot be linked: {result.text}")
        worker.kernels.add(kernel.identity)

    def _provide(self, worker: Worker, memories: Sequence[CpuMemory]) -> None:
        """Have a worker map memories, as many with one request as fit in it."""
        missing = [memory for memory in dict.fromkeys(memories) if self._memories[memory] not in worker.memories]
        for group in _grouped(missing):
            parts = [self._part(memory, first) for memory in group for first in range(0, _entries(memory), _PART)]
            for message in [parts] if len(group) > 1 else [[part] for part in parts]:
                result = self._tell(worker, Op.MAP, message)
                if result.status is not Reply.DONE:
                    raise LaunchError(f"out of memory: {result.text}")
            worker.memories.update(self._memories[memory] for memory in group)

    def _take_away(self, worker: Worker, identities: set[int]) -> None:
        """Have a worker unmap memories."""
        worker.memories -= identities
        gone = list(identities)
        for first in range(0, len(gone), _PART):
            self._tell(worker, Op.UNMAP, gone[first : first + _PART])

    def _part(self, memory: CpuMemory, first: int) -> dict[str, object]:
        pages, variables = memory.segment.pages, list(memory.global_addresses().items())
        return {
            "id": self._memories[memory],
            "arguments": memory.segment.address(ARGUMENTS),
            "pages": pages[first : first + _PART],
            "globals": dict(variables[first : first + _PART]),
        }

    def _tell(self, worker: Worker, op: Op, description: object, fds: Sequence[int] = ()) -> Result:
        return self._request(worker, op, json.dumps(description).encode(), fds)

    def _request(self, worker: Worker, op: Op, message: bytes, fds: Sequence[int] = ()) -> Result:
        """A request that runs no kernel: whatever ends the worker meanwhile is a fault all the same."""
        try:
            with self._spending(op.name.lower()):
                return worker.ask(bytes([op]) + message, timeout_s=_SETUP_TIMEOUT_S, fds=fds)
        except TimeoutError:
            self._resources.drop_worker()
            raise WorkerLost(f"the CPU worker did not answer a request to {op.name.lower()}") from None
        except WorkerDied as death:
            self._resources.worker = None
            what, error = ended_by(death.exit_code), WorkerLost if death.from_outside else DeviceFault
            raise error(f"the CPU worker was {what} at a request to {op.name.lower()}") from None

    def _measure_round_trip(self, worker: Worker) -> None:
        """Keep the shortest empty round trip, and wake all threads of the worker, which is no part of one.

        The request that follows then finds them running: else half of a window of 0.3 ms may pass with one of two.
        """
        for _ in range(_PINGS if self._round_trip_ns else _FIRST_PINGS):
            start = perf_counter_ns()
            self._request(worker, Op.PING, b"")
            elapsed = perf_counter_ns() - start
            self._round_trip_ns = min(self._round_trip_ns or elapsed, elapsed)
        self._request(worker, Op.GATHER, b"")

    def evict(self) -> None:
        self._request(self._worker(), Op.EVICT, b"")

    def write_speed(self) -> float:
        """By filling the caches with something else, each line of it being read and written."""
        if self._write_speed is None:
            seconds = []
            for _ in range(_SPEED_TRIES):
                start = perf_counter_ns()
                self.evict()
                seconds.append((perf_counter_ns() - start) * 1e-9)
            self._write_speed = evict_bytes() / min(seconds)
        return self._write_speed

    def conditions(self) -> dict[str, str]:
        """Processor, clock and governor where the system tells them, load average, threads."""
        frequency = Path("/sys/devices/system/cpu/cpu0/cpufreq")
        found = {
            "time": "CPU time, says nothing about a GPU",
            "processor": _processor(),
            "arch": self.target.arch,
            "threads": str(self.threads),
            "seal": sealing.state(),
            "load": f"{os.getloadavg()[0]:.2f}",
        }
        for name, file in (("governor", "scaling_governor"), ("clock_khz", "scaling_cur_freq")):
            with suppress(OSError):
                found[name] = (frequency / file).read_text().strip()
        return found

    def close(self) -> None:
        self._finalizer()


def _entries(memory: CpuMemory) -> int:
    return max(len(memory.segment.pages), len(memory.unit.globals))


def _grouped(memories: Sequence[CpuMemory]) -> Iterator[list[CpuMemory]]:
    """The memories in groups of at most _PART entries; a larger one is a group of its own."""
    group, filled = list[CpuMemory](), 0
    for memory in memories:
        if group and filled + _entries(memory) > _PART:
            yield group
            group, filled = [], 0
        group.append(memory)
        filled += _entries(memory)
    if group:
        yield group


def _raise_for(name: str, result: Result) -> None:
    if result.status is Reply.NO_MEMORY:
        raise LaunchError(f"{name} needs more memory for a block than there is: {result.text}")
    if result.status is not Reply.DONE:
        raise DeviceFault(faults.stopped(name, result))


def _processor() -> str:
    """The processor's name as the system gives it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()
