"""What the worker has: it is started and replaced here, and given contents, copies and kernels when they are needed."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from r3bench.devices import Memory
from r3bench.devices.cuda.memory import Contents, CudaMemory, Exchange, Rules, wired
from r3bench.devices.cuda.nvml import Nvml
from r3bench.devices.cuda.outcome import failure
from r3bench.devices.cuda.placement import Range, recorded_ranges
from r3bench.devices.cuda.process import Reply, Request, Worker, WorkerDied
from r3bench.errors import DeviceFault, LaunchError, ReplayTimeout, WorkerLost
from r3bench.model import Binary

_numbers = count()


class CudaKernel:
    """A binary that may be launched; every worker loads it when it first needs it.

    ``binary`` has the same image as was loaded; its facts say what the driver knows of it, too: registers,
    ``local_bytes`` (spills and arrays a thread), shared memory, and, after a launch, ``blocks_per_multiprocessor``.
    """

    def __init__(self, supply: Supply, binary: Binary) -> None:
        self.supply = supply
        self.number = next(_numbers)
        self.binary = binary
        weakref.finalize(self, supply.unused_kernels.append, self.number).atexit = False

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Keep facts about the code; a later value replaces an earlier one."""
        known = {**dict(self.binary.facts), **{name: int(value) for name, value in facts.items()}}
        if known != dict(self.binary.facts):
            self.binary = replace(self.binary, facts=tuple(known.items()))


class Mine(threading.local):
    """What each thread that uses a device has for itself: the file by which its bulk data goes to the worker, what its
    requests took, and the copy that its last launch ran on."""

    def __init__(self) -> None:
        self.exchange = Exchange()
        self.spent: defaultdict[str, float] = defaultdict(float)
        self.ran: CudaMemory | None = None


class Supply:
    """The worker of GPU number ``index``, everything that it may be asked to have, and what must be given back.

    It knows no device, so that it can be closed when nobody has the device any more. Several threads may ask at once,
    each about kernels and copies of its own; ``guard`` is held by who changes what there is.
    """

    def __init__(self, index: int) -> None:
        self.guard = threading.RLock()
        self.mine = Mine()
        self.memories: dict[CudaMemory, None] = {}
        self._alike: defaultdict[int, dict[CudaMemory, None]] = defaultdict(dict)
        self.unused_kernels: deque[int] = deque()
        self.management: Nvml | None = None
        with suppress(OSError):
            self.management = Nvml()
        self._index = index
        self._worker: Worker | None = None
        self._kept: list[Range] = []
        self._closed = False

    def close(self) -> None:
        """Idempotent."""
        self._closed = True
        self._drop_worker()
        management, self.management = self.management, None
        if management is not None:
            management.close()

    def _drop_worker(self, worker: Worker | None = None) -> None:
        """End a worker, by default the one there is."""
        worker = worker or self._worker
        if worker is self._worker:
            self._worker = None
        if worker is not None:
            worker.close()

    def worker(self) -> Worker:
        """A worker that lives: the one there is, or a new one."""
        if self._closed:
            raise ValueError("the device is closed")
        with self.guard:
            if self._worker is None or not self._worker.alive():
                self._drop_worker()
                self._worker = Worker(self._index, self._kept)
            if self._closed:  # meanwhile
                self._drop_worker()
                raise ValueError("the device is closed")
            return self._worker

    def living(self) -> Worker | None:
        """The worker there is, if it lives."""
        worker = self._worker
        return worker if worker is not None and worker.alive() else None

    def ready(self, kernel: CudaKernel, memories: Sequence[CudaMemory]) -> Worker:
        """A worker that has this kernel and these memories."""
        worker = self.worker()
        self.kernel(worker, kernel)
        for memory in memories:
            self.memory(worker, memory)
        return worker

    def kernel(self, worker: Worker, kernel: CudaKernel) -> None:
        if kernel.number not in worker.kernels:
            (reply,) = self.replies(worker, self.loading(worker, kernel))
            worker.kernels.add(kernel.number)
            kernel.learn(reply["answer"]["facts"])

    def loading(self, worker: Worker, kernel: CudaKernel) -> Request:
        """The request to load a kernel."""
        binary = kernel.binary
        fd, data = self.mine.exchange.room(len(binary.image))
        data[:] = np.frombuffer(binary.image, np.uint8)
        described = {"symbol": binary.symbol, "nbytes": len(binary.image), "options": binary.options}
        message = {"op": "load", "id": kernel.number, "unload": self._unused(worker), **described}
        return Request(message, f"loading {binary.symbol}", fds=[fd])

    def _unused(self, worker: Worker) -> list[int]:
        """Kernels that nobody holds any more: they go when another comes."""
        with self.guard:
            unused = {self.unused_kernels.popleft() for _ in range(len(self.unused_kernels))} & worker.kernels
            worker.kernels -= unused
            return sorted(unused)

    def place(self, memory: CudaMemory) -> None:
        """Make a new copy. Where something else has its addresses, a fresh worker keeps them from its start: once."""
        with self.guard:
            self.memory(self.worker(), memory)
            missing = [each for each in recorded_ranges(memory.recorded.buffers) if each not in self._kept]
            if missing and not self._as_recorded(memory):
                self._kept += missing
                self._drop_worker()
                self.memory(self.worker(), memory)

    def addresses(self, memory: CudaMemory) -> dict[str, str]:
        """The condition that says where the unit of a copy is."""
        ranges = recorded_ranges(memory.recorded.buffers)
        if ranges and not self._as_recorded(memory):
            return {"relocated": "by the table of pointers, for its addresses could not be had in two processes"}
        again = any(each in self._kept for each in ranges)
        return {"addresses": "as recorded, in a process begun anew to have them" if again else "as recorded"}

    def _as_recorded(self, memory: CudaMemory) -> bool:
        """Whether one of the copies of its unit lies where that was recorded."""
        with self.guard:
            return any(held.as_recorded for held in self._copies(memory))

    def own(self, memory: Memory) -> CudaMemory:
        if not isinstance(memory, CudaMemory) or memory not in self.memories:
            raise ValueError("this memory was released, or belongs to another device")
        return memory

    def add(self, memory: CudaMemory) -> None:
        self.memories[memory] = self._alike[memory.recorded.alike][memory] = None

    def forget(self, memory: CudaMemory) -> None:
        del self.memories[memory], self._alike[memory.recorded.alike][memory]

    def _copies(self, memory: CudaMemory) -> Iterator[CudaMemory]:
        """All of the same unit: there may be thousands of others."""
        alike = self._alike[memory.recorded.alike]
        return (held for held in alike if held.unit is memory.unit or held.unit == memory.unit)

    def used_beside(self, worker: Worker, memory: CudaMemory) -> list[CudaMemory]:
        """Other copies of its unit in which launches have left their results."""
        with self.guard:
            others = [held for held in self._copies(memory) if held.used and held is not memory]
        return [held for held in others if held.number in worker.copies]

    def memory(self, worker: Worker, memory: CudaMemory) -> None:
        if memory.number in worker.copies:
            return
        with self.guard:
            if memory.number in worker.copies:  # another thread made it meanwhile
                return
            self.contents(worker, memory.recorded.before)
            description = {**memory.description(), "as_recorded": self._first(worker, memory)}
            answer = self.ask(worker, {"op": "make", **description}, f"unit {memory.unit.index}")
            memory.placed(answer["addresses"], bool(answer["recorded"]))
            worker.copies.add(memory.number)

    def still(self, worker: Worker, memory: CudaMemory) -> None:
        """Make a copy that a worker does not have; WorkerLost where what a launch left in it was lost with another."""
        lost = memory.number not in worker.copies and not memory.stale
        self.memory(worker, memory)
        if lost:
            raise WorkerLost("the CUDA worker was lost, and with it what a launch left in memory")

    def _first(self, worker: Worker, memory: CudaMemory) -> bool:
        """Whether no other copy of this unit lies where it was recorded; copies of others take turns there."""
        return not any(held.as_recorded and held.number in worker.copies for held in self._copies(memory))

    def contents(self, worker: Worker, contents: Contents) -> None:
        with self.guard:
            if contents.number not in worker.contents:
                self._put(worker, contents)

    def _put(self, worker: Worker, contents: Contents) -> None:
        like = contents.like if contents.like and contents.like.number in worker.contents else None
        same = sorted(contents.same) if like else []
        message: dict[str, Any] = {
            "op": "contents",
            "id": contents.number,
            "buffers": [wired(each) for each in contents.buffers],
        }
        message |= {"like": like.number if like else None, "same": same}
        message["expected"] = contents.expected
        message["host"] = 2 * contents.unit_bytes > int(worker.hello["memory_bytes"])
        for portion in contents.portions(same):
            fd = contents.lay_out(portion, self.mine.exchange)
            self.ask(worker, message | {"pieces": portion}, "uploading recorded contents", fds=[fd])
            message = {"op": "fill", "id": contents.number}
        worker.contents.add(contents.number)

    def rules(self, worker: Worker, rules: Rules) -> tuple[int, list[tuple[Any, ...]] | None]:
        """What a request says of how to compare: a number, and the rules where the worker does not know them."""
        if rules.contents is not None:
            self.contents(worker, rules.contents)
        return rules.number, None if rules.number in worker.rules else rules.rows

    def drop(self, worker: Worker, contents: Contents) -> None:
        if contents.number in worker.contents:
            worker.contents.discard(contents.number)
            self.ask(worker, {"op": "drop", "id": contents.number}, "dropping recorded contents")

    def ask(
        self,
        worker: Worker,
        message: dict[str, Any],
        what: str,
        *,
        timeout_s: float | None = None,
        fds: Sequence[int] = (),
    ) -> dict[str, Any]:
        """The answer to one request; see :meth:`replies`."""
        (reply,) = self.replies(worker, Request(message, what, timeout_s, fds))
        answer: dict[str, Any] = reply["answer"]
        return answer

    def replies(self, worker: Worker, *requests: Request) -> list[Reply]:
        """What is said to requests, none of it an error; ReplayTimeout only where a time limit is given."""
        said = zip(requests, worker.ask(requests), strict=False)
        return [self._checked(worker, request, reply) for request, reply in said]

    def _checked(self, worker: Worker, request: Request, reply: Reply | Exception) -> Reply:
        what = request.what
        if isinstance(reply, Exception):
            self._drop_worker(worker)
            raise self._lost(request, reply) from None
        spent = self.mine.spent
        spent[str(request.message["op"])] += reply["took"]
        spent["worker"] += float(reply["seconds"])
        if reply["waited"]:
            spent["turn"] += reply["waited"]
        answer = reply["answer"]
        if "refused" in answer:
            raise LaunchError(f"{what} {answer['refused']}")
        if "error" in answer:
            lost = bool(answer["lost"])
            if lost:
                self._drop_worker(worker)
            raise failure(what, int(answer["code"]), str(answer["error"]), str(answer["call"]), lost=lost)
        if "skipped" not in answer and (rules := request.message.get("rules")):
            worker.rules.add(rules[0])
        return reply

    @staticmethod
    def _lost(request: Request, error: Exception) -> Exception:
        """What it means that a worker did not answer."""
        if not isinstance(error, WorkerDied):
            if request.timeout_s is None:
                return WorkerLost(f"the CUDA worker did not answer while {request.what}")
            return ReplayTimeout(f"{request.what} did not end within {request.timeout_s:g} s and was killed")
        kind = WorkerLost if error.from_outside else DeviceFault
        return kind(f"the CUDA worker was lost while at {request.what}: {error}")
