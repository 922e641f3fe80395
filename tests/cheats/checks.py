"""Every check that stands between a kernel and a verdict that it is right, by name, and how a test takes it away.

A check is a function, or a constant that one goes by; without it, it is replaced by one that lets everything pass.
Nothing in r3bench itself can be switched off.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from r3bench import compare, measure, original, perturb, replay
from r3bench.compare import Runs, Tolerance
from r3bench.devices.cpu.arena import Segment
from r3bench.devices.cpu.device import CpuDevice
from r3bench.devices.cpu.process import Worker
from r3bench.devices.cpu.wire import Poison
from r3bench.devices.cuda import device as cuda_device
from r3bench.devices.cuda import process as cuda_process
from r3bench.devices.cuda.device import CudaDevice
from r3bench.devices.cuda.process import Worker as CudaWorker
from r3bench.errors import DeviceFault
from r3bench.model import Level, Status, Verdict
from r3bench.replay import trials
from r3bench.server import ReplayServer, local
from r3bench.toolchain import pool
from tests.cheats.unchecked_worker import WITHOUT

Off = Callable[[pytest.MonkeyPatch], None]
MATCH = Verdict(status=Status.MATCH)
ANYTHING = Tolerance(kind="float", ignore=Runs(np.array([0, 1 << 62])))


def replaced(target: Any, name: str, by: Any) -> Off:
    return lambda patch: patch.setattr(target, name, by)


def without_level(level: Level) -> Off:
    offered = property(lambda self: tuple(each for each in Level if each is not level))
    return lambda patch: patch.setattr(ReplayServer, "levels", offered)


def only_written(patch: pytest.MonkeyPatch) -> None:
    judged = compare.tolerance_of
    for module in (compare, cuda_device):
        patch.setattr(
            module,
            "tolerance_of",
            lambda unit, buffer, given: judged(unit, buffer, given) if buffer.name in unit.written else ANYTHING,
        )


def unjudged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(replay.Placement, "check", lambda self, memory: MATCH)
    patch.setattr(replay.Placement, "_doubted", lambda self, memory, timeout_s: None)


def coarse(patch: pytest.MonkeyPatch) -> None:
    for dtype, held in compare._BY_DTYPE.items():
        patch.setitem(compare._BY_DTYPE, dtype, replace(held, rtol=1e-2, scale=1e-2))


def nan_as_wildcard(patch: pytest.MonkeyPatch) -> None:
    distance = compare._float_distance
    patch.setattr(compare, "_float_distance", lambda wanted, got: np.where(np.isnan(got), 0.0, distance(wanted, got)))


def forgiving(patch: pytest.MonkeyPatch) -> None:
    launch = CpuDevice.launch

    def attempted(self: CpuDevice, *what: Any, **how: Any) -> None:
        with suppress(DeviceFault):
            launch(self, *what, **how)

    patch.setattr(CpuDevice, "launch", attempted)


def patient(patch: pytest.MonkeyPatch) -> None:
    ask = Worker.ask
    patch.setattr(Worker, "ask", lambda self, message, *, timeout_s, fds=(): ask(self, message, timeout_s=120, fds=fds))


def everything_mapped(patch: pytest.MonkeyPatch) -> None:
    ready = CpuDevice._ready

    def with_all(self: CpuDevice, kernel: Any, memories: Any) -> Worker:
        worker = ready(self, kernel, memories)
        self._provide(worker, list(self._memories))  # type: ignore[arg-type]
        return worker

    patch.setattr(CpuDevice, "_ready", with_all)


def at_any_time(patch: pytest.MonkeyPatch) -> None:
    without = "from r3bench.frontend import TIMELESS; TIMELESS.clear(); "
    patch.setattr(pool, "_BOOT", pool._BOOT.replace("main(int", without + "main(int"))


def nobody(held: original.Written) -> Any:
    return np.zeros(held.before.shape, np.bool_)


CHECKS: dict[str, Off] = {
    # what a launch leaves behind
    "result": unjudged,
    "tolerance of the type": coarse,
    "NaN only where recorded": nan_as_wildcard,
    "buffers that are not written": only_written,
    "elements that are not written": replaced(original, "unwritten", nobody),
    "poison in what is only written": replaced(original, "write_only", nobody),
    # how it is run
    "reverse order of threads": replaced(CpuDevice, "orders", ("forward",)),
    "poison in shared memory": replaced(CpuDevice, "scratch", Poison.NONE),
    "bytes beside the buffers": replaced(Segment, "damage", lambda self: None),
    "faults": forgiving,
    "time limit": patient,
    "no memory but the launch's own": everything_mapped,
    # what it may not use
    "device variables": replaced(trials, "refuse_hidden_state", lambda built, unit: None),
    "time of the build": at_any_time,
    "clocks": replaced(trials, "refuse_outside_reads", lambda built, material: None),
    # while it is timed
    "comparison after timing": replaced(measure, "confirm", lambda *what: None),
    "launches alone": replaced(measure, "confirm_alone", lambda *what: None),
    "time that writing takes": replaced(measure, "refuse_too_fast", lambda *what: None),
    "repetition on other values": replaced(local, "changed_values", lambda *what, **how: None),
    "rounds turned around": replaced(measure, "rounds", lambda order, count: ["AB"] * count),
    # beyond one launch
    "held-out launches": without_level(Level.HELD_OUT),
    "changed inputs": without_level(Level.PERTURBED),
    "wild inputs": replaced(perturb, "_WILD", {}),
    "sanitizers": without_level(Level.SANITIZED),
}


def undamaged(patch: pytest.MonkeyPatch) -> None:
    run = CudaDevice._run
    patch.setattr(CudaDevice, "_run", lambda *what, **how: {**run(*what, **how), "damaged": None})


def patient_with_a_gpu(patch: pytest.MonkeyPatch) -> None:
    ask = CudaWorker.ask
    patch.setattr(CudaWorker, "ask", lambda self, requests: ask(self, [r._replace(timeout_s=120.0) for r in requests]))


def believing(patch: pytest.MonkeyPatch) -> None:
    """A fault takes with it what the launch left behind: where it does not count, that was right."""
    launch, check, gone = CudaDevice.launch, replay.Placement.check, set[Any]()

    def attempted(self: CudaDevice, kernel: Any, memory: Any, *what: Any, **how: Any) -> None:
        try:
            launch(self, kernel, memory, *what, **how)
        except DeviceFault:
            gone.add(memory)

    patch.setattr(CudaDevice, "launch", attempted)
    patch.setattr(replay.Placement, "check", lambda self, memory: MATCH if memory in gone else check(self, memory))
    patch.setattr(replay.Placement, "_doubted", lambda self, memory, timeout_s: None)


def in_the_worker(check: str) -> Off:
    def start_without(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(cuda_process, "_PROGRAM", "tests.cheats.unchecked_worker")
        patch.setenv(WITHOUT, check)

    return start_without


# What stands in a process of compilers is missing from those that are started from then on.
IN_THE_COMPILER = ("time of the build",)
# What stands elsewhere on a GPU; what stands in its worker is missing from those that are started from then on.
IN_THE_WORKER = ("poison in shared memory", "no memory but the launch's own")
ON_CUDA: dict[str, Off] = {
    "bytes beside the buffers": undamaged,
    "faults": believing,
    "time limit": patient_with_a_gpu,
    **{check: in_the_worker(check) for check in IN_THE_WORKER},
}


def off(check: str, device: str) -> Off:
    """How a check is taken away on a device: on a GPU with the way past the verbs in which it stands."""
    if device != "cuda":
        return CHECKS[check]

    def by_its_verbs(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(replay.Placement, "tried", lambda *what: None)
        ON_CUDA.get(check, CHECKS[check])(patch)

    return by_its_verbs
