"""What sealing costs on the CPU device: per candidate, per replacement of a worker, per launch, per compilation.

A candidate is one object that is loaded and launched once, as a search does. With the seal each has a fresh worker;
without, one worker links them all. The least of all repetitions counts, since whatever else runs only makes it longer;
the median beside it shows how busy the machine was. The figures asked for: at most 10 ms more per candidate, source to
answer; 20 ms until the worker that follows a crash has answered; 50 us for a launch of a kernel that does nothing.

    python -m tests.benchmarks.sealing [repetitions]
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest.mock import patch

from r3bench import frontend, sealing
from r3bench.devices.cpu.device import CpuDevice
from r3bench.devices.cpu.process import Worker
from r3bench.devices.cpu.wire import Poison
from r3bench.model import Binary
from tests.benchmarks.machine import describe, judge
from tests.device.cpu_case import compile_object, unit_of

SOURCE = {"k.cu": "__global__ void k(float* x) { x[threadIdx.x] *= 2; }"}
IDLE = "FRAME(0) BLOCK()"


class Unsealed(CpuDevice):
    """Tells its workers to go on without."""

    def _request(self, worker: Worker, op: Any, message: bytes, fds: Any = ()) -> Any:
        if op.name != "SEAL":
            return super()._request(worker, op, message, fds)
        worker.sealed = False
        return None

    def _ready(self, kernel: Any, memories: Any) -> Worker:
        worker = super()._ready(kernel, memories)
        worker.sealed = False
        return worker


def repeated(action: Callable[[], None], repetitions: int) -> list[float]:
    """Milliseconds of each repetition."""
    spent = []
    for _ in range(repetitions):
        begin = perf_counter()
        action()
        spent.append(1e3 * (perf_counter() - begin))
    return spent


def told(what: str, spent: list[float]) -> float:
    print(f"{what}: least {min(spent):.3f} ms, median {median(spent):.3f} ms")
    return min(spent)


class Case:
    """A device with a kernel that does nothing, on a small unit."""

    def __init__(self, device: CpuDevice, image: bytes) -> None:
        self.device = device
        self.binary = Binary(target=device.target, symbol="idle", image=image, format="object")
        self.unit, before = unit_of(1, grid=(1, 1, 1))
        self.memory = device.allocate(self.unit, before)
        self.kernel = device.load(self.binary)
        self.launch()

    def launch(self) -> None:
        self.device.launch(self.kernel, self.memory, self.unit.launch)

    def candidate(self) -> None:
        """One more kernel; the one before is dropped, as in a search."""
        del self.kernel
        self.kernel = self.device.load(self.binary)
        self.launch()

    def window(self) -> float:
        """Microseconds from request to answer of one launch, by the device's clock."""
        return self.device._run(self.kernel, [self.device._own(self.memory)], self.unit.launch, PLAIN, 10.0) / 1e3

    def crash(self) -> None:
        worker = self.device._resources.worker
        assert worker is not None
        os.kill(worker.pid, signal.SIGKILL)
        while worker.alive():
            pass


PLAIN = (Poison.NONE, "forward")


def compile_once() -> None:
    frontend.compile_ir(SOURCE, "k.cu")


def started_unsealed(command: Any, *, read: Any, limits: Any, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, **options)


def main(repetitions: int) -> int:
    print(f"{describe()}; {sealing.state()}")
    with tempfile.TemporaryDirectory() as folder:
        image = compile_object(Path(folder), IDLE)
    sealed, unsealed = Case(CpuDevice(), image), Case(Unsealed(), image)
    compile_once()
    with_seal, without = [], []
    for _ in range(repetitions):  # in turn, so that both see the same machine
        with_seal += repeated(compile_once, 1)
        with patch.object(sealing, "started", started_unsealed):
            without += repeated(compile_once, 1)
    more = max(0.0, told("compile, sealed", with_seal) - told("compile, not sealed", without))
    more += told("load and launch, sealed", repeated(sealed.candidate, repetitions))
    more -= told("load and launch, not sealed", repeated(unsealed.candidate, repetitions))
    replaced = []
    for _ in range(repetitions):
        sealed.crash()
        replaced += repeated(sealed.launch, 1)
    again = told("launch after a crash", replaced)
    launches = [sealed.window() for _ in range(50 * repetitions)]
    print(f"launch: least {min(launches):.1f} us, median {median(launches):.1f} us")
    for case in (sealed, unsealed):
        case.device.close()
    held = [
        judge("sealing a candidate", more, 10, "ms"),
        judge("replacement", again, 20, "ms"),
        judge("launch round trip", min(launches), 50, "us"),
    ]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 40))
