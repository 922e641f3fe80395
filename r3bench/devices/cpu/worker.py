"""The process in which kernels run: it maps the arena, links objects, launches, and answers with fixed records.

It is forked from :mod:`r3bench.devices.cpu.forkserver`, so that llvmlite and the driver are there already. It never
sees recorded or expected contents, only the arena; whatever goes wrong in it, its device forks another.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import socket
import threading
from array import array
from dataclasses import dataclass
from typing import Any

from llvmlite.binding.orcjit import JITLibraryBuilder, ResourceTracker

from r3bench import sealing
from r3bench.devices.cpu import available
from r3bench.devices.cpu.native import (
    FRAME_BYTES,
    ON_ADDRESS,
    ON_THREAD,
    WINDOW,
    Binding,
    Launch,
    Outcome,
    Own,
    Slot,
    Window,
    catch_faults,
    libc,
    limit_resources,
    map_exactly,
    use_one_heap,
    use_signal_stack,
)
from r3bench.devices.cpu.wire import ARENA, FRAMES, RUN, Op, Poison, Reply, Result
from r3bench.errors import LaunchError

_MAX_DATAGRAM = 1 << 18
_FDS_BYTES = socket.CMSG_SPACE(4)
_FRAME_ALIGN = 256
_FRAME_GUARD = 1 << 20
_THREAD_STACK_BYTES = 64 << 20
# Beyond these many, prepared launches or frames are dropped.
_CACHED = 32


@dataclass(frozen=True, slots=True)
class Code:
    """What the server found once: the compiler of the process, the linked driver, addresses a kernel may import."""

    jit: Any
    driver: ResourceTracker
    provided: dict[str, int]
    evict_bytes: int


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
        self.prepared: dict[bytes, tuple[Window, list[Any]]] = {}
        self.outcome = Outcome()
        self.statistics = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self.evict_bytes = code.evict_bytes
        self.evicted: tuple[mmap.mmap, Any] | None = None
        self.gather = ON_THREAD(code.driver["r3_gather"])
        self.window = WINDOW(code.driver["r3_window"])

    def live(self) -> None:
        """Set the process up and serve; returns when the device is gone."""
        limit_resources()
        use_one_heap()
        sealing.first_to_end()
        self.readable = (*available.keep_open(), self.statistics)
        sealing.restrict_files()  # of this thread and those it starts, so before them
        map_exactly(ARENA, mmap.PAGESIZE, mmap.MAP_SHARED, self.arena)
        ON_ADDRESS(self.code.driver["r3_report_faults_to"])(ARENA)
        catch_faults(self.code.driver["r3_on_fault"])
        self._start_threads()
        while request := self._receive():
            self.channel.send(self._answer(*request).pack())

    def _start_threads(self) -> None:
        serve = ON_THREAD(self.code.driver["r3_serve"])

        ready = threading.Semaphore(0)

        def body(number: int) -> None:
            use_signal_stack()
            ready.release()
            serve(number)

        use_signal_stack()
        threading.stack_size(_THREAD_STACK_BYTES)
        for number in range(1, self.threads):
            threading.Thread(target=body, args=(number,), daemon=True).start()
        # The seal refuses the call by which a thread names its signal stack: none may still have it before it.
        for _ in range(1, self.threads):
            ready.acquire()

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
                return self._map_memories(json.loads(data[1:]))
            case Op.UNMAP:
                for identity in json.loads(data[1:]):
                    self._unmap(identity)
            case Op.GATHER:
                self.gather(self.threads)
            case Op.EVICT:
                self._evict()
            case Op.SEAL:
                self._seal()
        return Result(Reply.DONE)

    def _seal(self) -> None:
        """From now on: no descriptors but those there are, no code but what is linked, no more than half the memory."""
        own = int(os.pread(self.statistics, 256, 0).split()[5]) * mmap.PAGESIZE
        sealing.limit(nofile=0, nproc=0, data=own + available.available_bytes() // 2)
        channel = ((0, self.channel.fileno()),)
        no_code = (2, mmap.PROT_EXEC)
        sealing.allow_only(
            [
                sealing.Call("recvmsg", channel),
                sealing.Call("sendto", channel),
                *sealing.MEMORY_AND_TIME,
                sealing.Call("mmap", ((4, self.arena),), without=(no_code,)),
                sealing.Call("mmap", without=(no_code, (3, mmap.MAP_SHARED))),
                *(sealing.Call("pread64", ((0, fd),)) for fd in self.readable),
                *(sealing.Call(name, ((0, 2),)) for name in ("write", "writev")),
                sealing.Call("tgkill", ((0, os.getpid()),)),
            ],
            deny=("mremap",),  # realloc does without
        )

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
        self.prepared.clear()  # its tables point into what is gone

    # -- memories --

    def _map_memories(self, parts: list[dict[str, Any]]) -> Result:
        """All or none. A memory with many pages and globals comes in several requests, each with some of them."""
        try:
            for part in parts:
                memory = self.memories.setdefault(part["id"], _Memory(part["arguments"], [], {}))
                memory.globals.update(part["globals"])
                for address, nbytes in part["pages"]:
                    map_exactly(address, nbytes, mmap.MAP_SHARED, self.arena, address - ARENA)
                    memory.pages.append((address, nbytes))
        except OSError as error:
            for part in parts:
                self._unmap(part["id"])
            return Result(Reply.NO_MEMORY, text=str(error))
        return Result(Reply.DONE)

    def _unmap(self, identity: int) -> None:
        memory = self.memories.get(identity)
        for address, nbytes in memory.pages if memory else ():
            libc.munmap(address, nbytes)
        self._forget(self.memories, identity)

    # -- launches --

    def _run(self, data: bytes) -> Result:
        try:
            window, _ = self.prepared.get(data) or self._prepare(data)
        except (LaunchError, OSError) as error:
            return Result(Reply.NO_MEMORY, text=str(error))
        outcome = self.outcome
        self.window(window, outcome)
        return Result(_status(outcome.status), outcome.index, tuple(outcome.block))

    def _prepare(self, data: bytes) -> tuple[Window, list[Any]]:
        """What a request to run is to the driver, kept for the next such request; the list keeps its tables alive."""
        if len(self.prepared) > _CACHED:
            self.prepared.clear()
        _, poison, identity, *shape = RUN.unpack_from(data)
        kernel = self.kernels[identity]
        launch = Launch(tuple(shape[:3]), tuple(shape[3:6]), *shape[6:8], self.threads, shape[8])
        frame_bytes = kernel.frame_bytes(launch) or 1
        if poison == Poison.BLOCK and shape[0] * shape[1] * shape[2] * frame_bytes > 1 << 28:
            poison = Poison.LAUNCH  # filling more than that would take longer than most kernels
        frames = self._frames(frame_bytes)
        memories = [self.memories[number] for number in memoryview(data)[RUN.size :].cast("I")]
        slots = [_slots(kernel, memory) for memory in memories]
        table = (Binding * len(memories))()
        for row, memory, own in zip(table, memories, slots, strict=True):
            row.args, row.slots, row.slot_count = memory.arguments, own, len(own)
        window = Window(
            run=kernel.run,
            bindings=table,
            owns=kernel.initial,
            binding_count=len(table),
            own_count=kernel.initial_count,
            frame_bytes=frame_bytes,
            frames=frames,
            launch=launch,
            poison=poison,
        )
        self.prepared[data] = (window, slots)
        return self.prepared[data]

    def _frames(self, nbytes: int) -> Any:
        """One frame per thread, each ending at a page that is not mapped; LaunchError or OSError if there is none."""
        rounded = -(-nbytes // _FRAME_ALIGN) * _FRAME_ALIGN
        if rounded not in self.frames:
            if len(self.frames) > _CACHED:
                self._drop_frames()
            available.check_available(rounded * self.threads, f"a block on each of {self.threads} threads")
            self.frames[rounded] = self._map_frames(rounded)
        return self.frames[rounded]

    def _map_frames(self, nbytes: int) -> Any:
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        frames = (ctypes.c_void_p * self.threads)()
        for thread in range(self.threads):
            map_exactly(self.next_frame, pages, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            frames[thread] = self.next_frame + pages - nbytes
            self.next_frame += pages + _FRAME_GUARD
        return frames

    def _drop_frames(self) -> None:
        for nbytes, frames in self.frames.items():
            pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
            for end in (start + nbytes for start in frames):
                libc.munmap(end - pages, pages)
        self.frames.clear()
        self.prepared.clear()
        self.next_frame = FRAMES

    # -- caches --

    def _evict(self) -> None:
        if self.evicted is None:
            held = mmap.mmap(-1, self.evict_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            address = ctypes.addressof(ctypes.c_char.from_buffer(held))
            self.evicted = (held, ctypes.c_void_p(address))
        held, pointer = self.evicted
        table = (Binding * 1)(Binding(args=ctypes.addressof(pointer)))
        launch = Launch(
            grid=(available.EVICT_PARTS, 1, 1),
            block=(1, 1, 1),
            shared_bytes=len(held) // available.EVICT_PARTS,
            threads=self.threads,
            every=1,
        )
        window = Window(
            run=self.code.driver["r3_evict_block"],
            bindings=table,
            binding_count=1,
            frames=self._frames(1),
            launch=launch,
        )
        self.window(window, self.outcome)


def _linked(code: ResourceTracker, variables: dict[str, tuple[int, bool]]) -> _Kernel:
    own = {name: code[name] for name in variables}
    writable = [(own[name], nbytes) for name, (nbytes, changes) in variables.items() if changes and nbytes]
    # ctypes.c_char_p fields keep a reference to the bytes they point to.
    initial = [Own(at, ctypes.string_at(at, nbytes), nbytes) for at, nbytes in writable]
    return _Kernel(
        code=code,
        run=code["r3_run_block"],
        frame_bytes=FRAME_BYTES(code["r3_frame_bytes"]),
        slots={name: code[f"r3_slot.{name}"] for name in variables},
        own=own,
        initial=(Own * len(initial))(*initial),
        initial_count=len(initial),
    )


def _slots(kernel: _Kernel, memory: _Memory) -> Any:
    """Every device variable of the kernel: the memory's copy, or the object's own where the memory has none."""
    targets = {at: memory.globals.get(name, kernel.own[name]) for name, at in kernel.slots.items()}
    return (Slot * len(targets))(*(Slot(at, target) for at, target in targets.items()))


def _status(returned: int) -> Reply:
    """What a block returned, as the device knows it."""
    return Reply(returned) if returned <= Reply.DIVERGED else Reply.TRAP
