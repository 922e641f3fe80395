"""The one seam every back end implements, and how one is opened.

A device holds copies of units' memory, loads binaries and runs them. It gets bytes and nouns, never a compiler or a
store. :class:`r3bench.testing.DeviceContract` is the suite a back end must pass.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from r3bench.errors import DeviceUnavailable
from r3bench.model import Binary, Difference, LaunchConfig, ReplayUnit, Target, Verdict

if TYPE_CHECKING:  # processes that workers are forked from do without NumPy: the less they hold, the sooner
    import numpy as np
    from numpy.typing import NDArray

    from r3bench.compare import Tolerance

Bytes: TypeAlias = "NDArray[np.uint8]"

# After how many windows there are enough, if each took longer than so many nanoseconds.
Stops = Sequence[tuple[int, float]]


class Memory(Protocol):
    """A unit's memory on a device; only the device that made it looks inside."""

    @property
    def unit(self) -> ReplayUnit: ...


class Kernel(Protocol):
    """A loaded binary; only the device that made it looks inside."""

    @property
    def binary(self) -> Binary: ...


class Device(Protocol):
    """A place where kernels run.

    Candidate failures are raised as :class:`~r3bench.errors.CandidateFailure` (LaunchError, DeviceFault, ReplayTimeout)
    and leave the device usable: afterwards every Memory still can be restored, every Kernel still be launched.
    """

    target: Target
    name: str
    orders: tuple[str, ...]
    """In which orders it can run the threads of a block; ``forward`` first. A missing barrier may hide in one."""
    queue: Queue | None
    """Where several threads may ask for whole trials at the same time."""
    cache_bytes: int
    """How much of what is written its caches may hold back from memory."""
    room_bytes: int
    """How many bytes of units may stay on it between requests."""

    @property
    def spent(self) -> Mapping[str, float]:
        """Seconds by what this thread's requests were spent on, for finding out where time goes; names are its own.

        They may overlap: ``worker`` is how long its process was at work at what the others waited for, ``turn`` how
        long they waited for what another thread had asked before.
        """

    def allocate(self, unit: ReplayUnit, before: Mapping[str, Bytes]) -> Memory:
        """Place a unit: ``before`` holds the bytes of every allocation and global by name. Restored already."""

    def restore(self, memory: Memory) -> None:
        """Bring back the recorded contents of every allocation and global."""

    def download(self, memory: Memory) -> dict[str, Bytes]:
        """The bytes of every allocation and global now, as uint8 arrays by name."""

    def compare(
        self, memory: Memory, expected: Mapping[str, Bytes], tolerances: Mapping[str, Tolerance] | None = None
    ) -> Verdict:
        """Judge the memory as :func:`r3bench.compare.judge` does, where the bytes are."""

    def release(self, memory: Memory) -> None:
        """Give the memory back; the handle must not be used again."""

    def load(self, binary: Binary) -> Kernel:
        """Make a binary ready to launch; LaunchError if its format or target does not fit."""

    def launch(
        self,
        kernel: Kernel,
        memory: Memory,
        launch: LaunchConfig,
        *,
        timeout_s: float = 60.0,
        order: str = "forward",
    ) -> None:
        """Run once and wait, in one of ``orders``."""

    @property
    def sanitizers(self) -> tuple[str, ...]:
        """In which ways it can run a launch with every access checked; none where it has no means to."""

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
        """Run once and wait, with every access checked by one of ``sanitizers``; DeviceFault says what it found.

        The CPU device takes a checked build for it, and runs one of so many blocks (``every``); others take the very
        code that is timed, and run all.
        """

    def writer(
        self, kernel: Kernel, memory: Memory, launch: LaunchConfig, place: tuple[str, int], *, timeout_s: float = 60.0
    ) -> str:
        """Which block and thread write a byte of a buffer last, and from which line; empty if that is not known.

        ``place`` is the buffer's name and the byte's number. The CPU device takes a checked build for it.
        """

    def profile(
        self, kernel: Kernel, memory: Memory, launch: LaunchConfig, *, timeout_s: float = 60.0
    ) -> dict[str, str]:
        """What hardware counters say of one launch, by name, in words; nothing where there is no means to count."""

    def window(
        self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, *, timeout_s: float = 60.0
    ) -> float:
        """Launch once on each memory in turn, without pause; nanoseconds for all of them together.

        A memory may be given several times: launches on it find what the one before left.
        """

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
        """So many windows in a row, each on restored memories, with ``flush`` each after :meth:`evict`; no more after
        the first of ``stops``. ``judged`` is what of the memories will be compared then, if that is known."""

    def evict(self) -> None:
        """Push the units' data out of the caches before the next launch, for a cold measurement."""

    def write_speed(self) -> float:
        """Bytes a second that it writes to memory; measured once."""

    def conditions(self) -> dict[str, str]:
        """What a reader of a time must know: clock, throttling, load, temperature; by name."""

    def close(self) -> None:
        """End worker processes and give everything back; idempotent."""


def windows_one_by_one(
    device: Device,
    kernel: Kernel,
    memories: Sequence[Memory],
    launch: LaunchConfig,
    times: int,
    *,
    flush: bool,
    stops: Stops,
    timeout_s: float,
) -> list[float]:
    """:meth:`Device.windows` by a device's other verbs."""
    found: list[float] = []
    while len(found) < times and not stopped(found, stops):
        for memory in dict.fromkeys(memories):
            device.restore(memory)
        if flush:
            device.evict()
        found.append(device.window(kernel, memories, launch, timeout_s=timeout_s))
    return found


def stopped(found: Sequence[float], stops: Stops) -> bool:
    """Whether so many windows are enough: one of the stops is here, and each took longer than it says."""
    return any(len(found) == count and min(found) > longest for count, longest in stops)


class Windows(NamedTuple):
    """What :meth:`Device.windows` is asked for beside the kernel and its launch."""

    memories: Sequence[Memory]
    times: int
    flush: bool
    stops: Stops
    judged: Memory


class Tried(NamedTuple):
    """A kernel; the differences that its launch left, or else what was judged of its windows; their nanoseconds; and
    seconds for loading, the launch and the windows."""

    kernel: Kernel
    differences: tuple[Difference, ...]
    windows_ns: Sequence[float]
    seconds: Sequence[float]


class Queue(Protocol):
    """A device that does one thing after the other, for several threads: what each wants is one request, so that it has
    the next at once. It runs threads in one order."""

    def tried(
        self,
        binary: Binary,
        memory: Memory,
        launch: LaunchConfig,
        windows: Windows,
        expected: Mapping[str, Bytes],
        tolerances: Mapping[str, Tolerance],
        *,
        timeout_s: float = 60.0,
    ) -> Tried | None:
        """Load a binary, launch it once on a memory, restored, and where that is as expected then, time windows and
        judge what they left.

        Meanwhile other threads may ask for the same memories here, but for nothing by the device's own verbs. None
        where these can do what this cannot. CandidateFailure as theirs; WorkerLost where what another thread asked for
        ended a worker.
        """


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """Whether a kind of device can be used here; if not, why (``detail``) and what to do (``remedy``)."""

    name: str
    usable: bool
    detail: str
    remedy: str = ""


CHOICES = ("auto", "cuda", "cpu")
"""What can be asked for in this version."""


def survey() -> list[DeviceStatus]:
    """Every kind of device, best first; starts nothing."""
    return [
        _survey_cuda(),
        DeviceStatus("hip", False, "the HIP device is not part of this version", "use --r3-device cpu"),
        _survey_cpu(),
    ]


def _survey_cuda() -> DeviceStatus:
    from r3bench.devices.cuda import survey as cuda

    missing = cuda.missing()
    return DeviceStatus("cuda", False, *missing) if missing else DeviceStatus("cuda", True, cuda.description())


def _survey_cpu() -> DeviceStatus:
    if sys.platform != "linux":
        return DeviceStatus("cpu", False, f"the CPU device does not run on {sys.platform}", "use Linux")
    missing = [name for name in ("llvmlite", "ziglang") if importlib.util.find_spec(name) is None]
    if missing:
        packages = " and ".join(missing)
        return DeviceStatus("cpu", False, f"the CPU device needs {packages}", f"pip install {' '.join(missing)}")
    return DeviceStatus("cpu", True, "runs kernels on this machine's cores; times are CPU times")


def visible_gpus() -> list[str]:
    """The GPUs to use here, each as ``CUDA_VISIBLE_DEVICES`` would name it alone; empty where none can be used."""
    from r3bench.devices.cuda import survey as cuda

    return cuda.visible()


def count_devices(name: str) -> int:
    """How many devices of a kind there are to use here, or of the best that is usable for ``auto``: the GPUs that
    CUDA_VISIBLE_DEVICES leaves, each MIG slice for itself; one CPU."""
    best = next((each.name for each in survey() if each.usable), "cpu")
    if (best if name == "auto" else name) != "cuda":
        return 1
    from r3bench.devices.cuda.survey import visible

    return len(visible())


def open_device(name: str, **options: Any) -> Device:
    """Open ``cuda``, ``cpu``, or ``auto`` (the best usable here). DeviceUnavailable says why another cannot be used.

    Options of ``cpu``: ``threads`` (default: all cores) and ``reverse`` (run blocks and threads in opposite order); of
    ``cuda``: ``index`` (which of the visible GPUs, counted around).
    """
    found = survey()
    chosen = next((each for each in found if each.name == name or (name == "auto" and each.usable)), None)
    if chosen is None and name == "auto":
        chosen = found[-1]
    if chosen is None:
        raise DeviceUnavailable(f"there is no device {name!r}; choose {', '.join(CHOICES)}.")
    if not chosen.usable:
        raise DeviceUnavailable(f"device {chosen.name} cannot be used: {chosen.detail}; {chosen.remedy}.")
    if chosen.name == "cuda":
        from r3bench.devices.cuda.device import CudaDevice

        return CudaDevice(**options)
    from r3bench.devices.cpu.device import CpuDevice

    return CpuDevice(**options)
