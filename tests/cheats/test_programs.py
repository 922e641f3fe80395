"""Cheats at the clock, which no kernel that is let through can play on a real device: programs of the fake one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from r3bench.devices import Kernel, Memory
from r3bench.model import Capture, LaunchConfig, Status, Variant
from r3bench.server import ReplayServer
from r3bench.stats import Comparison, Decision
from r3bench.testing import FakeDevice, FakeLaunch, Program
from r3bench.testing.fake import FakeMemory
from tests.cheats.checks import CHECKS
from tests.cheats.table import CHEATS as KERNELS
from tests.unit.replay_case import FakeCompiler, add, capture, contents, variant


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return capture(tmp_path_factory.mktemp("captures"))


def late() -> Callable[[FakeLaunch], None]:
    """Answers at once, and does its work when it is next asked for some."""
    left: list[FakeLaunch] = []

    def run(launch: FakeLaunch) -> None:
        while left:
            add(left.pop())
        left.append(launch)

    return run


class Disturbed(FakeDevice):
    """What follows a window of the program ``spoiler`` takes twice as long, as if that had left other work running; the
    program ``knowing`` half as long on the values that were recorded."""

    spoiled = False

    def window(self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, **how: Any) -> float:
        factor, self.spoiled = 1.0 + self.spoiled, kernel.binary.image.startswith(b"spoiler")
        if kernel.binary.image.startswith(b"knowing") and self.holds_what_was_recorded(memories[0]):
            factor /= 2
        return factor * super().window(kernel, memories, launch, **how)

    @staticmethod
    def holds_what_was_recorded(memory: Memory) -> bool:
        assert isinstance(memory, FakeMemory)
        return np.array_equal(memory.live["y"], contents().before["y"])


def compared(recorded: Capture, program: Program, name: str = "cheat") -> Comparison:
    """The recorded program, which takes 1000 ns, against a cheat; writing what must change takes 51 ns at least."""
    device = Disturbed({"add": Program(add, 1000.0), name: program}, write_speed=1e9, noise=0.001)
    with ReplayServer(lambda: device, compiler=FakeCompiler()) as server:
        return server.compare(recorded, 0, Variant(), variant(name)).result(60)


CHEATS: dict[str, tuple[Callable[[], Program], str, Status]] = {
    "takes no time": (lambda: Program(add, 1.0), "time that writing takes", Status.TOO_FAST),
    "goes on working after it has answered": (lambda: Program(late(), 100.0), "result", Status.MISMATCH),
}


@pytest.mark.parametrize(("program", "check", "status"), CHEATS.values(), ids=CHEATS.keys())
def test_a_program_is_caught(
    monkeypatch: pytest.MonkeyPatch, recorded: Capture, program: Callable[[], Program], check: str, status: Status
) -> None:
    found = compared(recorded, program())
    assert (found.decision, found.refused, found.verdict.status) == (Decision.REFUSED, "candidate", status)
    CHECKS[check](monkeypatch)
    found = compared(recorded, program())
    assert found.decision is Decision.FASTER


def test_a_program_that_slows_what_comes_after_it_gains_nothing(
    monkeypatch: pytest.MonkeyPatch, recorded: Capture
) -> None:
    assert compared(recorded, Program(add, 1000.0), "spoiler").decision is Decision.SAME
    CHECKS["rounds turned around"](monkeypatch)
    assert compared(recorded, Program(add, 1000.0), "spoiler").decision is Decision.FASTER


def test_a_program_that_is_fast_on_the_recorded_values_only_gains_nothing(
    monkeypatch: pytest.MonkeyPatch, recorded: Capture
) -> None:
    found = compared(recorded, Program(add, 1000.0), "knowing")
    assert found.decision is Decision.UNSTABLE
    assert found.repeat is not None
    assert dict(found.repeat.conditions)["values"] == "floats changed by up to 30%"
    CHECKS["repetition on other values"](monkeypatch)
    assert compared(recorded, Program(add, 1000.0), "knowing").decision is Decision.FASTER


def test_every_check_has_a_cheat_that_it_alone_catches() -> None:
    at_the_clock = {"rounds turned around", "repetition on other values", "launches alone"}
    caught = {cheat.check for cheat in KERNELS} | {check for _, check, _ in CHEATS.values()} | at_the_clock
    assert caught == set(CHECKS)
    assert len(KERNELS) + len(CHEATS) + len(at_the_clock) >= 16
