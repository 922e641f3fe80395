"""What the timing procedure does otherwise on a GPU: colder rings, wider gates for short kernels, throttled blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from replay_case import add, contents, unit

from r3bench.measure import GPU, GPU_RANKING, Arm, Check, Procedure, Ring, Terms, contest, fit, procedure_for, rank
from r3bench.model import Target
from r3bench.stats import Budget, Decision
from r3bench.testing import FakeDevice, Program, fake_binary

HOPPER = Target(device="cuda", arch="sm_90")
PROGRAMS = {
    "tiny": Program(add, 2_000),
    "short": Program(add, 8_000),
    "short, slower": Program(add, 8_150),
    "long": Program(add, 50_000),
    "long, slower": Program(add, 51_000),
}
QUICK = replace(GPU, warm_up_ns=0.0, cold_bytes=0, windows=3)


class Gpu(FakeDevice):
    """A fake GPU that says which conditions it works under."""

    throttle = "none"

    def conditions(self) -> dict[str, str]:
        return {**super().conditions(), "throttle": self.throttle}


@pytest.fixture
def device() -> Gpu:
    return Gpu(PROGRAMS, target=HOPPER)


def staged(device: FakeDevice) -> tuple[Ring, Check]:
    held = contents()
    expected = {**held.before, **held.after}
    return Ring(device, unit(), held.before), lambda memory: device.compare(memory, expected)


def arm(device: FakeDevice, name: str, twin: int = 0) -> Arm:
    return Arm(device.load(fake_binary(name, twin, HOPPER)), unit().launch)


def terms(gate: float, procedure: Procedure = QUICK) -> Terms:
    return Terms(gate=gate, budget=Budget(kernels=1, looks=2), procedure=procedure)


def test_each_kind_of_device_has_its_numbers() -> None:
    assert procedure_for(HOPPER, timeout_s=3.0) == replace(GPU, timeout_s=3.0)
    assert procedure_for(HOPPER, ranking=True) == GPU_RANKING
    assert procedure_for(Target(device="cpu", arch="x"), timeout_s=3.0) == Procedure(timeout_s=3.0)


def test_a_ring_is_larger_than_the_cache(device: Gpu) -> None:
    ring, _ = staged(device)
    assert fit([arm(device, "long")], ring, replace(QUICK, cold_bytes=40 * ring.clone_bytes)) == 40
    few = replace(QUICK, cold_bytes=40 * ring.clone_bytes, ring_bytes=12 * ring.clone_bytes)
    assert fit([arm(device, "long")], ring, few) == 12


@pytest.mark.parametrize(("name", "bound"), [("tiny", True), ("short", False)])
def test_a_kernel_that_is_mostly_its_launch_is_labelled(device: Gpu, name: str, bound: bool) -> None:
    ring, check = staged(device)
    assert ("launch_bound" in dict(rank(arm(device, name), ring, check, QUICK).conditions)) is bound


def test_short_kernels_have_a_wider_gate(device: Gpu) -> None:
    for names, decision, gate in (
        (("short", "short, slower"), Decision.SAME, 0.03),
        (("long", "long, slower"), Decision.SLOWER, 0.01),
    ):
        ring, check = staged(device)
        found = contest(arm(device, names[0]), arm(device, names[1]), ring, check, terms(0.01), seed=1)
        assert (found.decision, found.gate) == (decision, gate)


def test_blocks_on_a_throttled_gpu_are_counted(device: Gpu) -> None:
    ring, check = staged(device)
    quiet = contest(arm(device, "long"), arm(device, "long", 1), ring, check, terms(0.01), seed=1)
    device.throttle = "power cap"
    slowed = contest(arm(device, "long"), arm(device, "long", 1), ring, check, terms(0.01), seed=1)
    assert dict(quiet.conditions)["throttled_blocks"] == f"0 of {quiet.blocks}"
    assert dict(slowed.conditions)["throttled_blocks"] == f"{slowed.blocks} of {slowed.blocks}"
