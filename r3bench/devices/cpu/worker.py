"""The process in which kernels run: it maps the arena, links objects, launches, and answers with fixed records.

It is forked from :mod:`r3bench.devices.cpu.forkserver`, so that llvmlite and the driver are there already. It never
sees recorded or expected contents, only the arena; whatever goes wrong in it, its device forks another.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import resource
import signal
import socket
import threading
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llvmlite.binding.orcjit import JITLibraryBuilder, ResourceTracker

from r3bench.devices.cpu.available import check_available
from r3bench.devices.cpu.wire import ARENA, FRAMES, RUN, Op, Poison, Reply, Result
from r3bench.errors import LaunchError

_PR_SET_PDEATHSIG = 1
_MAP_POPULATE, _MAP_FIXED_NOREPLACE = 0x8000, 0x100000
_SA_SIGINFO, _SA_ONSTACK, _SA_RESETHAND = 0x4, 0x08000000, 0x80000000
_FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP)
_MAX_DATAGRAM = 1 << 18
_FDS_BYTES = socket.CMSG_SPACE(4)
_FRAME_ALIGN = 256
_FRAME_GUARD = 1 << 20
_THREAD_STACK_BYTES = 64 << 20
_EVICT_PARTS = 64
_EVICT_MAX_BYTES = 1 << 29
# Beyond these many, a cache of native tables or of frames is emptied.
_CACHED = 32


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
        ("reverse", ctypes.c_uint32),
    )


class _Slot(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("target", ctypes.c_void_p))


class _Own(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("initial", ctypes.c_char_p), ("nbytes", ctypes.c_uint64))


class _Binding(ctypes.Structure):
    _fields_ = (("args", ctypes.c_void_p), ("slots", ctypes.POINTER(_Slot)), ("slot_count", ctypes.c_uint64))


class _Window(ctypes.Structure):
    _fields_ = (
        ("run", ctypes.c_void_p),
        ("bindings", ctypes.POINTER(_Binding)),
        ("owns", ctypes.POINTER(_Own)),
        ("binding_count", ctypes.c_uint64),
        ("own_count", ctypes.c_uint64),
        ("frame_bytes", ctypes.c_uint64),
        ("frames", ctypes.POINTER(ctypes.c_void_p)),
        ("launch", _Launch),
        ("threads", ctypes.c_uint32),
        ("poison", ctypes.c_uint32),
    )


class _Outcome(ctypes.Structure):
    _fields_ = (("status", ctypes.c_uint32), ("index", ctypes.c_uint32), ("block", ctypes.c_uint32 * 3))


class _SignalAction(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _SignalStack(ctypes.Structure):
    _fields_ = (("sp", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


@dataclass(frozen=True, slots=True)
class Code:
    """What the server linked once: the compiler of the process, the driver, and addresses a kernel may import."""

    jit: Any
    driver: ResourceTracker
    provided: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Kernel:
    code: ResourceTracker
    run: int
    frame_bytes: Any
    slots: dict[str, int]
    own: dict[str, int]
    initial: Any
    initial_count: int


@dataclass(frozen=True, slots=True)
class _Memory:
    arguments: int
    pages: list[tuple[int, int]]
    globals: dict[str, int]


def _map(address: int, nbytes: int, flags: int, fd: int = -1, offset: int = 0) -> None:
    """Map at exactly this address, with every page present; OSError if it cannot be."""
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    got = libc.mmap(address, nbytes, protection, flags | _MAP_FIXED_NOREPLACE | _MAP_POPULATE, fd, offset)
    if got != address:
        raise OSError(ctypes.get_errno(), f"{nbytes} bytes cannot be mapped at {address:#x}")


class Worker:
    """Answers the requests of one device until its socket closes."""

    def __init__(self, code: Code, channel: socket.socket, arena: int, threads: int) -> None:
        self.code = code
        self.channel = channel
        self.received = bytearray(_MAX_DATAGRAM)
        self.arena = arena
        self.threads = threads
        self.kernels: dict[int, _Kernel] = {}
        self.memories: dict[int, _Memory] = {}
        self.frames: dict[int, Any] = {}
        self.next_frame = FRAMES
        self.bindings: dict[tuple[int, bytes], tuple[Any, list[Any]]] = {}
        self.evicted: tuple[mmap.mmap, Any] | None = None
        self.window = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Window), ctypes.POINTER(_Outcome))(
            code.driver["r3_window"]
        )

    def live(self) -> None:
        """Set the process up and serve; returns when the device is gone."""
        _limit_resources()
        _map(ARENA, mmap.PAGESIZE, mmap.MAP_SHARED, self.arena)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self.code.driver["r3_report_faults_to"])(ARENA)
        _catch_faults(self.code.driver["r3_on_fault"])
        self._start_threads()
        while request := self._receive():
            self.channel.send(self._answer(*request).pack())

    def _start_threads(self) -> None:
        serve = ctypes.CFUNCTYPE(None, ctypes.c_uint32)(self.code.driver["r3_serve"])

        def body(number: int) -> None:
            _use_signal_stack()
            serve(number)

        _use_signal_stack()
        threading.stack_size(_THREAD_STACK_BYTES)
        for number in range(1, self.threads):
            threading.Thread(target=body, args=(number,), daemon=True).start()

    def _receive(self) -> tuple[bytes, list[int]] | None:
        # One buffer for all: allocating as much for each request would take longer than the rest of a round trip.
        nbytes, ancillary, _, _ = self.channel.recvmsg_into([self.received], _FDS_BYTES)
        if not nbytes:
            return None
        return bytes(memoryview(self.received)[:nbytes]), [
            fd for _, _, data in ancillary for fd in array("i", data[: len(data) // 4 * 4])
        ]

    def _answer(self, data: bytes, fds: list[int]) -> Result:
        if data[0] == Op.RUN:
            return self._run(data)
        match Op(data[0]):
            case Op.LOAD:
                return self._load(json.loads(data[1:]), fds[0])
            case Op.UNLOAD:
                self._forget(self.kernels, json.loads(data[1:]))
            case Op.MAP:
                return self._map_memory(json.loads(data[1:]))
            case Op.UNMAP:
                self._unmap(json.loads(data[1:]))
            case Op.EVICT:
                self._evict()
        return Result(Reply.DONE)

    # -- objects --

    def _load(self, description: dict[str, Any], fd: int) -> Result:
        with os.fdopen(fd, "rb") as file:
            image = file.read()
        variables: dict[str, tuple[int, bool]] = description["globals"]
        builder = JITLibraryBuilder().add_object_img(image)
        for name in description["undefined"]:
            builder.import_symbol(name, self.code.provided[name])
        for name in ("r3_run_block", "r3_frame_bytes", *variables, *(f"r3_slot.{name}" for name in variables)):
            builder.export_symbol(name)
        try:
            code = builder.link(self.code.jit, f"kernel{description['id']}")
        except RuntimeError as error:
            return Result(Reply.REFUSED, text=str(error))
        self.kernels[description["id"]] = _linked(code, variables)
        return Result(Reply.DONE)

    def _forget(self, handles: dict[int, Any], identity: int) -> None:
        handles.pop(identity, None)
        self.bindings.clear()  # its tables point into what is gone

    # -- memories --

    def _map_memory(self, description: dict[str, Any]) -> Result:
        """May come in several parts, each with some of the pages and globals."""
        memory = self.memories.setdefault(description["id"], _Memory(description["arguments"], [], {}))
        memory.globals.update(description["globals"])
        try:
            for address, nbytes in description["pages"]:
                _map(address, nbytes, mmap.MAP_SHARED, self.arena, address - ARENA)
                memory.pages.append((address, nbytes))
        except OSError as error:
            self._unmap(description["id"])
            return Result(Reply.NO_MEMORY, text=str(error))
        return Result(Reply.DONE)

    def _unmap(self, identity: int) -> None:
        memory = self.memories.get(identity)
        for address, nbytes in memory.pages if memory else ():
            libc.munmap(address, nbytes)
        self._forget(self.memories, identity)

    # -- launches --

    def _run(self, data: bytes) -> Result:
        _, poison, identity, *shape = RUN.unpack_from(data)
        kernel = self.kernels[identity]
        launch = _Launch.from_buffer_copy(data, RUN.size - ctypes.sizeof(_Launch))
        frame_bytes = kernel.frame_bytes(ctypes.byref(launch)) or 1
        try:
            frames = self._frames(frame_bytes)
        except (LaunchError, OSError) as error:
            return Result(Reply.NO_MEMORY, text=str(error))
        table, _ = self._bindings(identity, kernel, data[RUN.size :])
        blocks = shape[0] * shape[1] * shape[2]
        if poison == Poison.BLOCK and blocks * frame_bytes > 1 << 28:
            poison = Poison.LAUNCH  # filling more than that would take longer than most kernels
        window = _Window(
            run=kernel.run,
            bindings=table,
            owns=kernel.initial,
            binding_count=len(table),
            own_count=kernel.initial_count,
            frame_bytes=frame_bytes,
            frames=frames,
            launch=launch,
            threads=self.threads,
            poison=poison,
        )
        outcome = _Outcome()
        self.window(ctypes.byref(window), ctypes.byref(outcome))
        return Result(_status(outcome.status), outcome.index, tuple(outcome.block))

    def _bindings(self, identity: int, kernel: _Kernel, ids: bytes) -> tuple[Any, list[Any]]:
        """The native table of this kernel on these memories; the list keeps alive what the table points to."""
        if len(self.bindings) > _CACHED:
            self.bindings.clear()
        if (identity, ids) not in self.bindings:
            memories = [self.memories[number] for number in memoryview(ids).cast("I")]
            slots = [_slots(kernel, memory) for memory in memories]
            table = (_Binding * len(memories))()
            for row, memory, own in zip(table, memories, slots, strict=True):
                row.args, row.slots, row.slot_count = memory.arguments, own, len(own)
            self.bindings[identity, ids] = (table, slots)
        return self.bindings[identity, ids]

    def _frames(self, nbytes: int) -> Any:
        """One frame per thread, each ending at a page that is not mapped; LaunchError or OSError if there is none."""
        rounded = -(-nbytes // _FRAME_ALIGN) * _FRAME_ALIGN
        if rounded not in self.frames:
            if len(self.frames) > _CACHED:
                self._drop_frames()
            check_available(rounded * self.threads, f"a block on each of {self.threads} threads")
            self.frames[rounded] = self._map_frames(rounded)
        return self.frames[rounded]

    def _map_frames(self, nbytes: int) -> Any:
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        frames = (ctypes.c_void_p * self.threads)()
        for thread in range(self.threads):
            _map(self.next_frame, pages, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            frames[thread] = self.next_frame + pages - nbytes
            self.next_frame += pages + _FRAME_GUARD
        return frames

    def _drop_frames(self) -> None:
        for nbytes, frames in self.frames.items():
            pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            for end in (start + nbytes for start in frames):
                libc.munmap(end - pages, pages)
        self.frames.clear()
        self.next_frame = FRAMES

    # -- caches --

    def _evict(self) -> None:
        if self.evicted is None:
            held = mmap.mmap(-1, _evict_bytes())
            address = ctypes.addressof(ctypes.c_char.from_buffer(held))
            self.evicted = (held, ctypes.c_void_p(address))
        held, pointer = self.evicted
        table = (_Binding * 1)(_Binding(args=ctypes.addressof(pointer)))
        launch = _Launch(grid=(_EVICT_PARTS, 1, 1), block=(1, 1, 1), shared_bytes=len(held) // _EVICT_PARTS)
        window = _Window(
            run=self.code.driver["r3_evict_block"],
            bindings=table,
            binding_count=1,
            frames=self._frames(1),
            launch=launch,
            threads=self.threads,
        )
        self.window(ctypes.byref(window), ctypes.byref(_Outcome()))


def _linked(code: ResourceTracker, variables: dict[str, tuple[int, bool]]) -> _Kernel:
    own = {name: code[name] for name in variables}
    writable = [(own[name], nbytes) for name, (nbytes, changes) in variables.items() if changes and nbytes]
    # ctypes.c_char_p fields keep a reference to the bytes they point to.
    initial = [_Own(at, ctypes.string_at(at, nbytes), nbytes) for at, nbytes in writable]
    return _Kernel(
        code=code,
        run=code["r3_run_block"],
        frame_bytes=ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.POINTER(_Launch))(code["r3_frame_bytes"]),
        slots={name: code[f"r3_slot.{name}"] for name in variables},
        own=own,
        initial=(_Own * len(initial))(*initial),
        initial_count=len(initial),
    )


def _slots(kernel: _Kernel, memory: _Memory) -> Any:
    """Every device variable of the kernel: the memory's copy, or the object's own where the memory has none."""
    targets = {at: memory.globals.get(name, kernel.own[name]) for name, at in kernel.slots.items()}
    return (_Slot * len(targets))(*(_Slot(at, target) for at, target in targets.items()))


def _status(returned: int) -> Reply:
    """What a block returned, as the device knows it."""
    return Reply(returned) if returned <= Reply.TRAP else Reply.TRAP


def _evict_bytes() -> int:
    """Twice the last-level cache, in whole parts, as far as the system tells its size."""
    sizes = [1 << 25]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        sizes.append(int(text.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1))
    part = min(2 * max(sizes), _EVICT_MAX_BYTES) // _EVICT_PARTS
    return part // 64 * 64 * _EVICT_PARTS


# -- the process ----------------------------------------------------------------------------------------------------


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit at once if it has ended already."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _limit_resources() -> None:
    """No core files, no files at all, and an address space of physical memory and a little more."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    _lower(resource.RLIMIT_AS, physical + (32 << 30))


def _lower(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    if hard == resource.RLIM_INFINITY or value < hard:
        resource.setrlimit(limit, (value, value))


def _catch_faults(handler: int) -> None:
    action = _SignalAction(handler=handler, flags=_signed(_SA_SIGINFO | _SA_ONSTACK | _SA_RESETHAND))
    for number in _FAULTS:
        libc.sigaction(number, ctypes.byref(action), None)


def _signed(flags: int) -> int:
    return flags - (1 << 32) if flags >= 1 << 31 else flags


def _use_signal_stack() -> None:
    """A stack of its own for the handler of this thread, so that an overflow of the thread's stack is reported too."""
    size = 1 << 16
    stack = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(stack))
    _signal_stacks.append(stack)
    libc.sigaltstack(ctypes.byref(_SignalStack(address, 0, size)), None)


_signal_stacks: list[mmap.mmap] = []
