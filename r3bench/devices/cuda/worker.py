"""The process that holds the GPU's context: ``python -m r3bench.devices.cuda.worker FD INDEX ...`` serves a socket.

What may follow are starts and ends of addresses, reserved for units before anything else lies there.
It knows no capture and no candidate, only bytes that it is sent. After an error that the context does not survive it
answers and ends; its device starts another. It ends by itself when the device's process is gone, also during a launch.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from cuda.bindings import driver as cuda

from r3bench.devices.cuda import survey, wire
from r3bench.devices.cuda.driver import CudaError, attribute, call
from r3bench.devices.cuda.launches import Launches, Refused, Shape
from r3bench.devices.cuda.placement import GRANULE, Buffer, Range
from r3bench.devices.cuda.service import Service
from r3bench.devices.cuda.space import Place, Space, evict_bytes
from r3bench.devices.cuda.tables import Rule
from r3bench.devices.cuda.units import Copy, Units

# cuFuncGetParamInfo, by which arguments are checked and passed.
_OLDEST_DRIVER = 12040

Message = dict[str, Any]


class Worker:
    """One context, and what there is in it."""

    def __init__(self, channel: socket.socket, index: int, ranges: Sequence[Range]) -> None:
        self.channel, self.inbox = channel, wire.Inbox(channel)
        call(cuda.cuInit, 0)
        version = int(call(cuda.cuDriverGetVersion))
        if version < _OLDEST_DRIVER:
            raise CudaError(803, f"the driver knows CUDA {version // 1000}.{version % 1000 // 10} only", "cuInit")
        count = int(call(cuda.cuDeviceGetCount))
        if not count:
            raise CudaError(100, "CUDA sees no GPU", "cuDeviceGetCount")
        self.device = call(cuda.cuDeviceGet, index % count)
        call(cuda.cuCtxSetCurrent, call(cuda.cuDevicePrimaryCtxRetain, self.device))
        # A stream that the driver's own copies wait for: rows are read and tables written between our kernels.
        stream = call(cuda.cuStreamCreate, int(cuda.CUstream_flags.CU_STREAM_DEFAULT))
        self.space = Space(int(self.device))
        for each in ranges:
            self.space.reserve(each)
        self.service = Service(stream, attribute("MULTIPROCESSOR_COUNT", self.device))
        self.units = Units(self.space, self.service)
        self.launches = Launches(self.service)
        self.evicted: int | None = None
        self.restored = call(cuda.cuEventCreate, int(cuda.CUevent_flags.CU_EVENT_DISABLE_TIMING))
        self.service.nothing()
        call(cuda.cuStreamSynchronize, stream)
        self.operations: dict[str, Callable[[Message, list[int]], Message]] = {
            "contents": self.put,
            "fill": self.fill,
            "drop": self.drop,
            "make": self.make,
            "remove": self.remove,
            "load": self.load,
            "run": self.run,
            "compare": self.compare,
            "download": self.download,
            "floors": lambda message, fds: {"ns": self.launches.floors()},
            "seconds": self.seconds,
            "write_speed": self.write_speed,
        }

    def hello(self) -> Message:
        """Who this is."""
        major, minor = (attribute(f"COMPUTE_CAPABILITY_{part}", self.device) for part in ("MAJOR", "MINOR"))
        free, total = call(cuda.cuMemGetInfo)
        return {
            "name": call(cuda.cuDeviceGetName, 256, self.device).split(b"\0")[0].decode(),
            "uuid": self.uuid(),
            "arch": f"sm_{major}{minor}",
            "driver": int(call(cuda.cuDriverGetVersion)),
            "memory_bytes": int(total),
            "free_bytes": int(free),
            "multiprocessors": attribute("MULTIPROCESSOR_COUNT", self.device),
            "cache_bytes": attribute("L2_CACHE_SIZE", self.device),
        }

    def uuid(self) -> str:
        """As NVIDIA's tools print it; CUDA tells that of the whole GPU for a slice, which is the one that is shown."""
        shown = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        whole = f"GPU-{UUID(bytes=bytes(call(cuda.cuDeviceGetUuid, self.device).bytes))}"
        return shown if shown.startswith(survey.SLICE) else whole

    def serve(self) -> None:
        """Answer requests until the device is gone or the context is lost. What is to be done only ``after`` the one
        before it went well is skipped otherwise."""
        well = True
        while True:
            try:
                message, fds = self.inbox.receive()
            except EOFError:
                return
            begin = time.perf_counter()
            answer = self.answer(message, fds) if well or not message.get("after") else {"skipped": True}
            well = _went_well(answer)
            wire.send(self.channel, {"answer": answer, "seconds": time.perf_counter() - begin})
            if answer.get("lost"):
                return

    def answer(self, message: Message, fds: list[int]) -> Message:
        try:
            return self.operations[message["op"]](message, fds)
        except Refused as refused:
            return {"refused": str(refused)}
        except CudaError as error:
            return {**failed(error), "lost": not _alive()}

    # -- memory --

    def put(self, message: Message, fds: list[int]) -> Message:
        buffers = [Buffer(*each) for each in message["buffers"]]
        how = {name: message[name] for name in ("like", "same", "host", "expected")}
        self.units.put(message["id"], buffers, **how)
        return self.fill(message, fds)

    def fill(self, message: Message, fds: list[int]) -> Message:
        self.units.fill(message["id"], message["pieces"], fds[0])
        return {}

    def drop(self, message: Message, fds: list[int]) -> Message:
        self.units.drop(message["id"])
        return {}

    def make(self, message: Message, fds: list[int]) -> Message:
        copy = self.units.make(message["id"], message)
        return {"addresses": copy.addresses, "recorded": copy.recorded}

    def remove(self, message: Message, fds: list[int]) -> Message:
        self.launches.forget()
        self.units.remove(message["id"])
        return {}

    def compare(self, message: Message, fds: list[int]) -> Message:
        self.units.restore(message["restore"])
        return {"rows": self.units.compare(message["memory"], self._rules(*message["rules"]))}

    def _rules(self, number: int, rows: Sequence[Sequence[Any]] | None) -> int:
        """The number of rules that were sent before, or come with it."""
        if rows is not None:
            self.units.rules[number] = [Rule(*each) for each in rows]
        return number

    def download(self, message: Message, fds: list[int]) -> Message:
        self.units.restore(message["restore"])
        self.units.download(message["memory"], message["names"], fds[0])
        return {}

    # -- kernels --

    def load(self, message: Message, fds: list[int]) -> Message:
        for identity in message["unload"]:
            self.launches.unload(identity)
        image = os.pread(fds[0], message["nbytes"], 0)
        os.close(fds[0])
        # PTX is a text that ends with a zero byte.
        return {"facts": self.launches.load(message["id"], image + b"\0", message["symbol"], message["options"])}

    def run(self, message: Message, fds: list[int]) -> Message:
        """Launch once, what was damaged by it, and how memory differs by rules; or so many windows, and their times."""
        identities, kernel, shape = tuple(message["memories"]), message["kernel"], Shape.of(message["launch"])
        copies = [self.units.copies[identity] for identity in identities]
        places = frozenset[Place]().union(*(copy.places for copy in copies))
        rules = self._rules(*message["rules"]) if message["rules"] else None
        if not message["windows"]:
            self._prepare(message, places)
            self.launches.once(kernel, copies[0], shape)
            damaged, rows = self.units.launched(identities[0], rules)
            return {"damaged": damaged, "rows": rows, "occupancy": self.launches.occupancy(kernel, shape)}
        readable = self._readable(copies, message["windows"])

        def prepare() -> None:
            if not readable:  # what is restored from is opened, while no candidate runs
                call(cuda.cuStreamSynchronize, self.service.stream)
            self._prepare(message, places, readable)

        how = copies, identities, shape, message["written"], message["windows"], message["stops"], prepare
        ns = self.launches.windows(kernel, *how, partial(self._renew, message) if readable else None)
        return {"ns": ns, "rows": None if rules is None else self.units.compare(message["judged"], rules)}

    @staticmethod
    def _readable(copies: Sequence[Copy], windows: int) -> frozenset[Place]:
        """What stays open for reading between several windows, so that none of them waits for this process: what was
        recorded before the launch, which is in the copies anyway. One window alone, as claims are made of, has nothing
        but its copies."""
        held = frozenset(copy.contents.place for copy in copies)
        return frozenset() if windows == 1 or any(place.host for place in held) else held

    def _renew(self, message: Message) -> None:
        """Restore what has to be and flush the caches, where access is as it was left."""
        self.units.restore(message["restore"])
        if message["evict"]:
            self.evict()

    def _prepare(self, message: Message, places: frozenset[Place], readable: frozenset[Place] = frozenset()) -> None:
        """Restore what has to be, and close everything else: while caches are flushed, which reads none of it."""
        self.units.restore(message["restore"])
        call(cuda.cuEventRecord, self.restored, self.service.stream)
        if message["evict"]:
            self.evict()
        self.space.only(places, partial(call, cuda.cuEventSynchronize, self.restored), readable)

    def seconds(self, message: Message, fds: list[int]) -> Message:
        """How long restoring, comparing and, as a measure, the driver's own copy of as much take on the GPU."""
        nbytes = sum(self.units.copies[message["memory"]].sizes.values())
        to, source = (self.space.map(-(-nbytes // GRANULE) * GRANULE, always=True) for _ in range(2))
        stream = self.service.stream
        try:
            copy = self.service.seconds(lambda: call(cuda.cuMemcpyDtoDAsync, to.start, source.start, nbytes, stream))
        finally:
            self.space.unmap(to)
            self.space.unmap(source)
        return {"copy": copy, **self.units.seconds(message["memory"], self._rules(*message["rules"]))}

    def write_speed(self, message: Message, fds: list[int]) -> Message:
        """How long the driver takes to fill a buffer of eight times the second-level cache's size."""
        nbytes = 4 * evict_bytes(self.device)
        place = self.space.map(nbytes, always=True)
        try:
            fill = partial(call, cuda.cuMemsetD8Async, place.start, 0, nbytes, self.service.stream)
            return {"bytes": nbytes, "seconds": self.service.seconds(fill)}
        finally:
            self.space.unmap(place)

    def evict(self) -> None:
        """Fill the caches with something else; what follows on the stream waits for it."""
        nbytes = evict_bytes(self.device)
        if self.evicted is None:
            self.evicted = self.space.map(nbytes, always=True).start
        call(cuda.cuMemsetD8Async, self.evicted, 0, nbytes, self.service.stream)


def _went_well(answer: Message) -> bool:
    """Whether it was done, and a launch left behind what it should, as far as that was compared."""
    if {"refused", "error", "skipped"} & answer.keys() or answer.get("damaged") is not None:
        return False
    return not any(count for count, *_ in answer.get("rows") or ())


def failed(error: CudaError) -> Message:
    return {"error": error.name, "code": error.code, "call": error.call}


def _alive() -> bool:
    """Whether the context still works: an error that it does not survive comes back from every call."""
    try:
        call(cuda.cuCtxSynchronize)
    except CudaError:
        return False
    return True


def end_with(channel: socket.socket) -> None:
    """End this process when the other end is gone, whatever the main thread waits for."""
    watch = select.poll()
    watch.register(channel, select.POLLRDHUP | select.POLLHUP)
    watch.poll()
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fd, index, *edges = map(int, sys.argv[1:])
    with socket.socket(fileno=fd) as channel:
        threading.Thread(target=end_with, args=(channel,), daemon=True).start()
        try:
            worker = Worker(channel, index, [Range(*each) for each in zip(edges[::2], edges[1::2], strict=True)])
        except CudaError as error:
            wire.send(channel, failed(error))
            return
        wire.send(channel, worker.hello())
        worker.serve()


if __name__ == "__main__":
    main()
