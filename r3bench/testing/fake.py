"""A device without hardware: kernels are Python functions, their time and their faults are made up.

It keeps every promise of :class:`r3bench.devices.Device`: memory is cloned and restored, addresses are its own and
pointers follow them. Its clock is drawn from a seeded generator, so that a search or a contest on it can be repeated.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.compare import Tolerance, judge
from r3bench.devices import Bytes, Kernel, Memory, Queue, Stops, windows_one_by_one
from r3bench.errors import DeviceFault, LaunchError
from r3bench.model import Binary, LaunchConfig, ReplayUnit, Target, Verdict

FAKE_TARGET = Target(device="cpu", arch="fake")
MAX_THREADS = 1024
GAP = 1 << 32


@dataclass(frozen=True, slots=True)
class FakeLaunch:
    """What a program sees of one launch: live memory, the argument block with live pointers, and its shape."""

    memory: FakeMemory
    arguments: bytes
    launch: LaunchConfig
    order: str

    def argument(self, offset: int, dtype: str) -> Any:
        """A scalar or pointer of the argument block."""
        return np.frombuffer(self.arguments, dtype, 1, offset)[0]

    def array(self, name: str, dtype: str) -> NDArray[Any]:
        """An allocation or global by name; writing to it is writing to the device's memory."""
        return self.memory.live[name].view(dtype)

    def at(self, address: int, dtype: str) -> NDArray[Any]:
        """What a pointer points to, up to the end of its allocation; DeviceFault if that is nothing."""
        name, offset = self.memory.find(int(address))
        return self.memory.live[name][offset:].view(dtype)


@dataclass(frozen=True, slots=True)
class Program:
    """What a fake kernel does to memory, and how long it says that one launch takes."""

    run: Callable[[FakeLaunch], None]
    nanoseconds: float | Callable[[LaunchConfig], float] = 1000.0

    def time(self, launch: LaunchConfig) -> float:
        return self.nanoseconds(launch) if callable(self.nanoseconds) else self.nanoseconds


def fake_binary(name: str, twin: int = 0, target: Target = FAKE_TARGET) -> Binary:
    """The binary of a program; another ``twin`` is other code that does the same in the same time."""
    return Binary(target=target, symbol=name, image=f"{name}#{twin}".encode(), format="object")


@dataclass(slots=True, eq=False)
class FakeMemory:
    """A unit's memory: recorded bytes, live bytes, and the address that each buffer has here."""

    unit: ReplayUnit
    before: Mapping[str, Bytes]
    bases: Mapping[str, int]
    live: dict[str, Bytes] = field(default_factory=dict)

    def find(self, address: int) -> tuple[str, int]:
        for name, base in self.bases.items():
            if base <= address < base + self.before[name].nbytes:
                return name, address - base
        raise DeviceFault(f"The kernel touched address {address:#x}, which belongs to no buffer.")


@dataclass(frozen=True, slots=True)
class FakeKernel:
    binary: Binary
    program: Program


class FakeDevice:
    """Runs programs by the name in a binary's image; ``noise`` is the standard deviation of a window's log time."""

    def __init__(
        self,
        programs: Mapping[str, Program],
        *,
        noise: float = 0.0,
        seed: int = 0,
        name: str = "fake",
        target: Target = FAKE_TARGET,
        write_speed: float = math.inf,
    ) -> None:
        self.name = name
        self.target = target
        self.orders: tuple[str, ...] = ("forward", "reverse")
        self.queue: Queue | None = None
        self.sanitizers: tuple[str, ...] = ()
        self.counters: Mapping[str, str] = {}
        self.cache_bytes = 0
        self.room_bytes = 1 << 31
        self.spent: Mapping[str, float] = {}
        self.launches = 0
        self.closed = False
        self._programs = programs
        self._noise = noise
        self._write_speed = write_speed
        self._chance = random.Random(seed)
        self._next_base = GAP

    def allocate(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> FakeMemory:
        bases = {}
        for name, data in before.items():
            bases[name] = self._next_base
            self._next_base += data.nbytes + GAP
        memory = FakeMemory(unit, {name: data.copy() for name, data in before.items()}, bases)
        self.restore(memory)
        return memory

    def restore(self, memory: Memory) -> None:
        own = _own(memory)
        own.live = {name: data.copy() for name, data in own.before.items()}
        for pointer in own.unit.pointers:
            if pointer.holder:
                _word(own.live[pointer.holder], pointer.offset)[0] = (
                    own.bases[pointer.allocation] + pointer.displacement
                )

    def download(self, memory: Memory) -> dict[str, Bytes]:
        own = _own(memory)
        now = {name: data.copy() for name, data in own.live.items()}
        recorded = {allocation.name: allocation.address for allocation in own.unit.allocations}
        for pointer in own.unit.pointers:
            if not pointer.holder:
                continue
            word = _word(now[pointer.holder], pointer.offset)
            try:
                name, offset = own.find(int(word[0]))
            except DeviceFault:
                continue  # the kernel wrote something else there
            if name in recorded:
                word[0] = recorded[name] + offset
        return now

    def compare(
        self, memory: Memory, expected: Mapping[str, Bytes], tolerances: Mapping[str, Tolerance] | None = None
    ) -> Verdict:
        return judge(memory.unit, expected, self.download(memory), tolerances)

    def release(self, memory: Memory) -> None:
        _own(memory).live.clear()

    def load(self, binary: Binary) -> FakeKernel:
        name = binary.image.decode(errors="replace").split("#")[0]
        if binary.target != self.target or name not in self._programs:
            raise LaunchError(f"The fake device holds no program for {binary.symbol} on {binary.target.arch}.")
        return FakeKernel(binary, self._programs[name])

    def launch(
        self,
        kernel: Kernel,
        memory: Memory,
        launch: LaunchConfig,
        *,
        timeout_s: float = 60.0,
        order: str = "forward",
    ) -> None:
        assert isinstance(kernel, FakeKernel)
        if not 0 < launch.threads_per_block <= MAX_THREADS or launch.blocks <= 0:
            raise LaunchError(f"A block of {launch.block} in a grid of {launch.grid} cannot be launched.")
        own = _own(memory)
        arguments = np.frombuffer(bytearray(own.unit.arguments), np.uint8)
        for pointer in own.unit.pointers:
            if not pointer.holder:
                _word(arguments, pointer.offset)[0] = own.bases[pointer.allocation] + pointer.displacement
        self.launches += 1
        kernel.program.run(FakeLaunch(own, arguments.tobytes(), launch, order))

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
        raise ValueError("the fake device has no sanitizer")

    def writer(
        self, kernel: Kernel, memory: Memory, launch: LaunchConfig, place: tuple[str, int], *, timeout_s: float = 60.0
    ) -> str:
        return ""

    def profile(
        self, kernel: Kernel, memory: Memory, launch: LaunchConfig, *, timeout_s: float = 60.0
    ) -> dict[str, str]:
        return dict(self.counters)

    def window(
        self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, *, timeout_s: float = 60.0
    ) -> float:
        assert isinstance(kernel, FakeKernel)
        for memory in memories:
            self.launch(kernel, memory, launch, timeout_s=timeout_s)
        factor = float(np.exp(self._chance.gauss(0.0, self._noise)))
        return len(memories) * kernel.program.time(launch) * factor

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

    def evict(self) -> None:
        """There are no caches."""

    def write_speed(self) -> float:
        return self._write_speed

    def conditions(self) -> dict[str, str]:
        return {"clock": "made up"}

    def close(self) -> None:
        self.closed = True


def _own(memory: Memory) -> FakeMemory:
    assert isinstance(memory, FakeMemory)
    return memory


def _word(data: Bytes, offset: int) -> NDArray[np.uint64]:
    return data[offset : offset + 8].view(np.uint64)
