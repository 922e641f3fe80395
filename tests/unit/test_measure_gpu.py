"""What the timing procedure does otherwise on a GPU: classes of units, cold rings, wider gates, throttled blocks."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest
from replay_case import add, add_wrongly, contents, unit

from r3bench.errors import LaunchError
from r3bench.measure import Terms, contest, rank
from r3bench.model import Target
from r3bench.stats import Budget, Decision
from r3bench.testing import FakeDevice, FakeLaunch, Program, fake_binary
from r3bench.testing.fake import GAP
from r3bench.windows import APART, GPU, GPU_RANKING, Arm, Check, Procedure, Ring, classify, fit, procedure_for, window

HOPPER = Target(device="cuda", arch="sm_90")


def sum_once(run: FakeLaunch) -> None:
    """x + y, on whatever was added before."""
    run.array("x", "f8")[:] = contents().before["x"].view("f8") + run.array("y", "f8")


def where_recorded(run: FakeLaunch) -> None:
    """Right at the addresses of a device's first memory only."""
    (add if run.memory.bases["x"] == GAP else add_wrongly)(run)


PROGRAMS = {
    "once": Program(sum_once, 50_000),
    "once, too": Program(sum_once, 50_100),
    "pinned": Program(where_recorded, 50_000),
    "pinned, slower": Program(where_recorded, 52_000),
    "tiny": Program(add, 2_000),
    "short": Program(add, 8_000),
    "short, slower": Program(add, 8_150),
    "long": Program(add, 50_000),
    "hour": Program(add, 600_000),
    "long, slower": Program(add, 51_000),
}
QUICK = replace(GPU, warm_up_ns=0.0, cold_bytes=0, windows=3)


class Gpu(FakeDevice):
    """A fake GPU that says which conditions it works under, how often it was flushed, and how many memories it has."""

    throttle = "none"
    room = 1 << 20

    def __init__(self, *what: object, **how: object) -> None:
        super().__init__(*what, **how)  # type: ignore[arg-type]
        self.evicted, self.allocated = 0, 0

    def allocate(self, *what):  # type: ignore[no-untyped-def]
        if self.allocated == self.room:
            raise LaunchError("out of memory")
        self.allocated += 1
        return super().allocate(*what)

    def evict(self) -> None:
        self.evicted += 1

    def conditions(self) -> dict[str, str]:
        return {**super().conditions(), "throttle": self.throttle, "clock_mhz": "1980"}


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
    assert fit([arm(device, "long")], ring, replace(QUICK, cold_bytes=40 * ring.clone_bytes))[0] == 40
    few = replace(QUICK, cold_bytes=40 * ring.clone_bytes, ring_bytes=12 * ring.clone_bytes)
    assert fit([arm(device, "long")], ring, few)[0] == 12


def test_a_ranking_flushes_the_caches_before_each_window(device: Gpu) -> None:
    ring, check = staged(device)
    found = rank(arm(device, "tiny"), ring, check, GPU_RANKING)
    said = dict(found.conditions)
    assert (said["clones"], said["cache"]) == ("64", "cold, which decides")  # of 125 that its window would hold
    assert device.allocated == 64
    assert device.evicted >= len(found.samples_ns)
    contest(arm(device, "long"), arm(device, "long", 1), ring, check, terms(0.05), seed=1)
    assert not ring.flushed


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
    assert dict(quiet.conditions)["clock_mhz by block"] == ", ".join(["1980"] * quiet.blocks)


# -- units by their class -------------------------------------------------------------------------------------------


def classed(device: Gpu, name: str) -> tuple[Ring, Check]:
    ring, check = staged(device)
    classify(arm(device, name), ring, check, QUICK)
    return ring, check


@pytest.mark.parametrize(
    ("name", "relocatable", "idempotent"), [("long", True, False), ("once", True, True), ("pinned", False, False)]
)
def test_a_unit_is_classed_by_its_kernel(device: Gpu, name: str, relocatable: bool, idempotent: bool) -> None:
    ring, _ = classed(device, name)
    assert (ring.relocatable, ring.idempotent) == (relocatable, idempotent)


def test_what_is_not_relocatable_is_timed_launch_by_launch(device: Gpu) -> None:
    ring, check = classed(device, "pinned")
    cold = replace(QUICK, cold_bytes=1)
    found = contest(arm(device, "pinned"), arm(device, "pinned, slower"), ring, check, terms(0.01, cold), seed=1)
    assert found.decision is Decision.SLOWER
    said = dict(found.conditions)
    assert said["unit"] == "neither relocatable nor idempotent"
    assert said["launches"] == "apart, on restored memory with caches flushed"
    assert device.evicted >= int(said["clones"]) * 2 * 3 * found.blocks
    assert device.allocated == 3


def test_a_unit_too_large_for_two_copies_is_timed_launch_by_launch(device: Gpu) -> None:
    ring, check = staged(device)
    large = replace(QUICK, cold_bytes=1, ring_bytes=ring.clone_bytes)
    assert fit([arm(device, "tiny")], ring, large)[0] == APART
    assert ring.apart
    assert rank(arm(device, "long"), ring, check, large).samples_ns == (50_000.0,) * large.windows


def test_copies_end_where_memory_does(device: Gpu) -> None:
    device.room = 5
    ring, _ = staged(device)
    assert fit([arm(device, "tiny")], ring, replace(QUICK, cold_bytes=1))[0] == 5
    assert not ring.apart
    device.room, device.allocated = 1, 0
    ring, _ = staged(device)
    assert fit([arm(device, "long")], ring, replace(QUICK, cold_bytes=1))[0] == 11  # 500 us and a tenth more
    assert ring.apart


def test_no_memory_at_all_is_told(device: Gpu) -> None:
    device.room = 0
    with pytest.raises(LaunchError):
        fit([arm(device, "long")], staged(device)[0], QUICK)


def test_what_may_run_twice_has_a_warm_time_too(device: Gpu) -> None:
    ring, check = classed(device, "once")
    found = dict(contest(arm(device, "once"), arm(device, "once, too"), ring, check, terms(0.01), seed=1).conditions)
    assert (found["unit"], found["launches"]) == ("relocatable, idempotent", "on copies, each used once")
    times = [window(arm(device, name), ring, 4, 1.0) for name in ("once", "once, too")]
    assert [found[f"warm_{side}_ns"] for side in ("baseline", "candidate")] == [f"{ns:.0f}" for ns in times]
    ring, check = classed(device, "long")
    assert not any("warm" in key for key, _ in contest(*pair(device), ring, check, terms(0.01), seed=1).conditions)


def pair(device: Gpu) -> tuple[Arm, Arm]:
    return arm(device, "long"), arm(device, "long", 1)


def test_launches_apart_warm_up_by_the_clock(monkeypatch: pytest.MonkeyPatch, device: Gpu) -> None:
    """By their own time alone, 150 ms of launches of 2 us are 75,000, each with a restore and a flush."""
    ring, _ = staged(device)
    ring.relocatable = False
    now = count(0, 10_000_000)
    monkeypatch.setattr("r3bench.windows.perf_counter_ns", lambda: next(now))
    assert fit([arm(device, "tiny")], ring, GPU)[0] == APART
    assert device.evicted < 1000


@pytest.mark.parametrize(("name", "rival", "count"), [("tiny", (), 29), ("tiny", (1_000.0,), 8), ("hour", (), 9)])
def test_a_ranking_has_more_windows_where_they_are_short(
    device: Gpu, name: str, rival: tuple[float, ...], count: int
) -> None:
    ring, check = staged(device)
    found = rank(arm(device, name), ring, check, GPU_RANKING, rival)
    assert (len(found.samples_ns), found.cut_ns) == (count, max(rival, default=None))
