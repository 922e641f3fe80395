"""The timing procedure on a device whose clock and noise are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import log

import numpy as np
import pytest
from replay_case import add, contents, programs, unit

from r3bench.compare import judge
from r3bench.devices import Kernel, Memory
from r3bench.errors import DeviceFault
from r3bench.measure import Terms, contest, orders, rank
from r3bench.model import LaunchConfig, Status, Verdict
from r3bench.stats import Budget, Decision
from r3bench.testing import FakeDevice, Program, fake_binary
from r3bench.windows import RANKING, Arm, ArmFailed, Check, Procedure, Ring, fit, floor_ns

QUICK = Procedure(windows=5, warm_up_ns=0.0)
TERMS = Terms(gate=0.05, budget=Budget(), procedure=QUICK)


class Watched(FakeDevice):
    """Keeps what happened: a letter per restore (r) and the program's name and number of launches per window."""

    def __init__(self, *args: object, **how: object) -> None:
        super().__init__(*args, **how)  # type: ignore[arg-type]
        self.story: list[str] = []
        self.allocated = 0

    def allocate(self, *what):  # type: ignore[no-untyped-def]
        self.allocated += 1
        return super().allocate(*what)

    def restore(self, memory: Memory) -> None:
        self.story.append("r")
        super().restore(memory)

    def window(self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, **how: float) -> float:
        assert len({id(memory) for memory in memories}) == len(memories)
        self.story.append(f"{kernel.binary.symbol} {len(memories)}")
        return super().window(kernel, memories, launch, **how)


class Disturbed(Watched):
    """Its first few windows take longer: something else ran."""

    def __init__(self, few: int, longer_ns: float) -> None:
        super().__init__({**programs(), "short": Program(lambda run: None, 1e3)})
        self.extra = iter([longer_ns] * few)

    def window(self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, **how: float) -> float:
        return super().window(kernel, memories, launch, **how) + next(self.extra, 0.0)


def stage(device: FakeDevice | None = None) -> tuple[FakeDevice, Ring, Check]:
    device = device or Watched(programs())
    held = contents()
    expected = {**held.before, **held.after}
    return device, Ring(device, unit(), held.before), lambda memory: device.compare(memory, expected)


def arm(device: FakeDevice, name: str, side: str = "candidate", twin: int = 0) -> Arm:
    return Arm(device.load(fake_binary(name, twin)), unit().launch, side)


# -- windows and rings ----------------------------------------------------------------------------------------------


def test_a_window_is_as_long_as_it_must_be() -> None:
    device, ring, _ = stage()
    assert fit([arm(device, "add")], ring, QUICK)[0] == 4  # 100 us each, 300 us wanted, a tenth more for noise


def test_the_fastest_arm_decides_the_length() -> None:
    device, ring, _ = stage()
    assert fit([arm(device, "slow"), arm(device, "quick")], ring, QUICK)[0] == 5


def test_one_launch_is_enough_for_a_long_kernel() -> None:
    device, ring, _ = stage(Watched({"long": Program(lambda run: None, 5e7)}))
    assert fit([arm(device, "long")], ring, QUICK)[0] == 1


def test_short_kernels_take_many_clones_within_the_limit() -> None:
    device, ring, _ = stage(Watched({"short": Program(lambda run: None, 100.0)}))
    assert 3000 <= fit([arm(device, "short")], ring, replace(QUICK, clones=10_000))[0] <= 3301
    device, ring, _ = stage(Watched({"short": Program(lambda run: None, 100.0)}))
    assert fit([arm(device, "short")], ring, QUICK)[0] == QUICK.clones
    device, ring, _ = stage(Watched({"short": Program(lambda run: None, 100.0)}))
    assert fit([arm(device, "short")], ring, replace(QUICK, ring_bytes=256 * 20))[0] == 20
    assert ring.nbytes == 256 * 20


def test_a_unit_larger_than_the_limit_still_has_one_memory() -> None:
    device, ring, _ = stage()
    assert fit([arm(device, "add")], ring, replace(QUICK, ring_bytes=1))[0] == 1


def test_arms_of_one_unit_get_windows_of_one_size() -> None:
    """Otherwise the cost of starting a window would count more for one candidate than for another."""
    device, ring, _ = stage()
    assert [fit([arm(device, name)], ring, QUICK)[0] for name in ("add", "quick", "add", "slow")] == [4, 5, 5, 5]


def test_a_much_slower_arm_gets_no_longer_window() -> None:
    device, ring, _ = stage(Watched({**programs(), "long": Program(lambda run: None, 5e7)}))
    assert [fit([arm(device, name)], ring, QUICK)[0] for name in ("add", "long")] == [4, 1]


def test_a_launch_that_was_disturbed_does_not_pass_for_a_long_kernel() -> None:
    device, ring, _ = stage(Disturbed(3, 9e5))
    assert fit([arm(device, "add")], ring, QUICK)[0] == 4


def test_windows_that_turn_out_short_are_taken_anew() -> None:
    """Else the cost of starting one would count for the kernel's time."""
    device, ring, _ = stage(Disturbed(6, 3e5))
    found = dict(rank(arm(device, "short"), ring, lambda memory: Verdict(status=Status.MATCH)).conditions)
    assert found["clones"] == str(RANKING.clones)


def test_warming_up_lasts() -> None:
    device, ring, _ = stage()
    fit([arm(device, "add")], ring, replace(QUICK, warm_up_ns=4e6))
    assert device.launches >= 40


def test_clones_are_made_once() -> None:
    device, ring, check = stage()
    assert isinstance(device, Watched)
    rank(arm(device, "add"), ring, check)
    rank(arm(device, "add"), ring, check)
    assert device.allocated == 4


def test_every_memory_is_restored_before_every_window() -> None:
    device, ring, check = stage()
    assert isinstance(device, Watched)
    rank(arm(device, "add"), ring, check, QUICK)
    restored = 0
    for event in device.story[-25:]:
        if event == "r":
            restored += 1
        else:
            assert event == f"add {restored}"
            restored = 0


def test_a_ranking_keeps_every_sample() -> None:
    device, ring, check = stage(FakeDevice(programs(), noise=0.1, seed=1))
    found = rank(arm(device, "add"), ring, check)
    assert len(set(found.samples_ns)) == 5
    assert np.median(found.samples_ns) == pytest.approx(1e5, rel=0.2)
    assert found.binary == fake_binary("add").sha256


@pytest.mark.parametrize(
    ("rival", "windows", "cut_ns"),
    [
        ((80_000.0, 90_000.0), 3, 90_000.0),  # all of its windows are shorter
        ((80_000.0, 97_000.0), 5, None),  # one is not, by the margin
        ((101_000.0, 102_000.0), 5, None),
        ((), 5, None),
    ],
)
def test_a_ranking_is_cut_off_when_surely_slower(rival: tuple[float, ...], windows: int, cut_ns: float | None) -> None:
    device, ring, check = stage()
    found = rank(arm(device, "add"), ring, check, QUICK, rival)
    assert (len(found.samples_ns), found.cut_ns) == (windows, cut_ns)
    assert found.samples_ns[0] == 100_000.0


def test_what_is_cut_off_was_confirmed_all_the_same() -> None:
    device, ring, _ = stage()
    with pytest.raises(ArmFailed):
        rank(arm(device, "add"), ring, lambda memory: Verdict(status=Status.MISMATCH), QUICK, (10.0,))


# -- the order of blocks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", [(10, 20, 40), (13, 26, 52), (17, 34, 68), (1, 2, 4)])
@pytest.mark.parametrize("seed", range(20))
def test_orders_are_balanced_at_every_look(schedule: tuple[int, ...], seed: int) -> None:
    drawn = list(orders(schedule, seed))
    assert len(drawn) == schedule[-1]
    for look in schedule:
        assert abs(drawn[:look].count("AB") - drawn[:look].count("BA")) == look % 2


def test_orders_are_random_and_can_be_drawn_again() -> None:
    schedule = (10, 20, 40)
    assert list(orders(schedule, 5)) == list(orders(schedule, 5))
    firsts = [next(orders((13, 26), seed)) for seed in range(400)]
    assert 150 < firsts.count("AB") < 250
    odd_ones = [list(orders((13,), seed)).count("AB") for seed in range(400)]
    assert 150 < odd_ones.count(7) < 250


# -- contests -------------------------------------------------------------------------------------------------------


TERMS = Terms(gate=0.05, budget=Budget(), procedure=QUICK)


@pytest.mark.parametrize(
    ("candidate", "decision", "speedup"),
    [("quick", Decision.FASTER, 1.25), ("slow", Decision.SLOWER, 1 / 1.3), ("add", Decision.SAME, 1.0)],
)
def test_a_known_difference_is_found(candidate: str, decision: Decision, speedup: float) -> None:
    device, ring, check = stage(FakeDevice(programs(), noise=0.01, seed=3))
    found = contest(arm(device, "add", "baseline"), arm(device, candidate, twin=1), ring, check, TERMS, seed=0)
    assert found.decision is decision
    assert found.low is not None
    assert found.high is not None
    assert found.low <= speedup <= found.high
    assert found.speedup == pytest.approx(speedup, rel=0.01)
    assert found.blocks == 10
    assert found.baseline_ns == pytest.approx(1e5, rel=0.02)


def test_everything_that_was_measured_is_kept() -> None:
    device, ring, check = stage(FakeDevice(programs(), noise=0.01, seed=3))
    found = contest(arm(device, "add", "baseline"), arm(device, "quick"), ring, check, TERMS, seed=9)
    assert len(found.d) == len(found.orders) == len(found.baseline_samples_ns) == len(found.candidate_samples_ns) == 10
    assert {len(samples) for samples in found.baseline_samples_ns + found.candidate_samples_ns} == {5}
    a, b = found.baseline_samples_ns[4], found.candidate_samples_ns[4]
    assert found.d[4] == pytest.approx(log(min(b) / min(a)))
    assert found.orders == tuple(orders((10,), 9))
    assert {"seed": "9", "clones": "5", "clock": "made up"}.items() <= dict(found.conditions).items()

    assert (found.baseline_binary, found.candidate_binary) == (fake_binary("add").sha256, fake_binary("quick").sha256)
    assert found.confidence == pytest.approx(1 - 0.01 / 3)
    assert found.smallest_effect > 0


def test_what_a_launch_writes_is_told_with_the_speed_of_memory() -> None:
    device, ring, check = stage(FakeDevice(programs(), noise=0.01, seed=3))
    silent = contest(arm(device, "add", "baseline"), arm(device, "quick"), ring, check, TERMS, seed=9)
    assert "write_speed" not in dict(silent.conditions)
    ring.written_bytes = 64
    told = dict(contest(arm(device, "add", "baseline"), arm(device, "quick"), ring, check, TERMS, seed=9).conditions)
    assert told["written_bytes"] == "64"
    assert float(told["write_speed"]) == pytest.approx(device.write_speed(), rel=1e-3)


def test_blocks_run_in_the_order_drawn() -> None:
    device, ring, check = stage(Watched(programs()))
    assert isinstance(device, Watched)
    found = contest(arm(device, "add", "baseline"), arm(device, "quick"), ring, check, TERMS, seed=2)
    alone = int(dict(found.conditions)["clones"])
    told = [event.split()[0] for event in device.story if event != "r"]
    windows = told[-100 - alone : -alone]
    assert told[-alone:] == ["quick"] * alone
    ran = ["AB" if windows[10 * block] == "add" else "BA" for block in range(10)]
    assert tuple(ran) == found.orders
    first, second = windows[:2]
    assert windows[:10] == [first, second, second, first] * 2 + [first, second]


def test_noise_too_wide_for_the_gate_is_unclear_at_the_cap() -> None:
    device, ring, check = stage(FakeDevice(programs(), noise=0.5, seed=4))
    found = contest(arm(device, "add", "baseline"), arm(device, "add", twin=1), ring, check, TERMS, seed=0)
    assert (found.decision, found.blocks) == (Decision.UNCLEAR, 40)
    assert found.smallest_effect > 0.05


def test_a_further_look_decides_what_the_first_cannot() -> None:
    device, ring, check = stage(FakeDevice(programs(), noise=0.06, seed=5))
    found = contest(arm(device, "add", "baseline"), arm(device, "add", twin=1), ring, check, TERMS, seed=0)
    assert found.decision is Decision.SAME
    assert found.blocks in (20, 40)


def test_equal_arms_on_a_noisy_device_are_not_called_different() -> None:
    """300 contests of other code for the same work, a session's error being 1 %: at most 1 % claim a difference."""
    claims, empty = 0, replace(unit(), pointers=(), allocations=())
    for seed in range(300):
        noise = (0.002, 0.02, 0.05, 0.2)[seed % 4]
        device = FakeDevice({"work": Program(lambda run: None, 4e5)}, noise=noise, seed=seed)
        ring = Ring(device, empty, {})
        found = contest(
            arm(device, "work", "baseline"),
            arm(device, "work", twin=1),
            ring,
            lambda memory: Verdict(status=Status.MATCH),
            replace(TERMS, gate=0.0),
            seed=seed,
        )
        assert found.decision in (Decision.UNCLEAR, Decision.FASTER, Decision.SLOWER)  # a gate of 0 leaves no room
        claims += found.decision is not Decision.UNCLEAR
    assert claims <= 3


# -- arms that fail meanwhile ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_an_arm_that_goes_wrong_while_timed_is_named(side: str) -> None:
    device, ring, check = stage()
    arms = {"baseline": arm(device, "add", "baseline"), "candidate": arm(device, "add", twin=1)}
    arms[side] = arm(device, "later wrong", side)
    with pytest.raises(ArmFailed) as failed:
        contest(arms["baseline"], arms["candidate"], ring, check, TERMS, seed=0)
    assert failed.value.arm == side
    assert isinstance(failed.value.failure, Verdict)
    assert failed.value.failure.status is Status.MISMATCH


def test_an_arm_that_crashes_while_timed_is_named() -> None:
    device, ring, check = stage()
    with pytest.raises(ArmFailed) as failed:
        contest(arm(device, "add", "baseline"), arm(device, "later crash"), ring, check, TERMS, seed=0)
    assert failed.value.arm == "candidate"
    assert isinstance(failed.value.failure, DeviceFault)


def test_the_check_sees_one_launch_after_a_restore() -> None:
    """An in-place kernel would show two launches, or none, as a mismatch."""
    device, ring, _ = stage()
    held = contents()
    seen = []

    def check(memory: Memory) -> Verdict:
        seen.append(judge(memory.unit, {**held.before, **held.after}, device.download(memory)))
        return seen[-1]

    found = contest(arm(device, "add", "baseline"), arm(device, "add", twin=1), ring, check, TERMS, seed=0)
    assert len(seen) == 20 + int(dict(found.conditions)["clones"])
    assert {verdict.status for verdict in seen} == {Status.MATCH}


# -- too good to be true ----------------------------------------------------------------------------------------------


def test_a_time_below_what_writing_takes_is_refused() -> None:
    """1000 bytes at 1 GB/s: 500 ns at least, with a factor of two to be sure."""
    device = FakeDevice({"add": Program(add, 501), "quick": Program(add, 499)}, write_speed=1e9)
    _, ring, check = stage(device)
    ring.written_bytes = 1000
    assert floor_ns(ring, 4) == 500.0
    possible, impossible = (Arm(device.load(fake_binary(name)), unit().launch) for name in ("add", "quick"))
    assert rank(possible, ring, check).samples_ns[0] == 501.0
    for measured in (
        lambda: rank(impossible, ring, check),
        lambda: contest(possible, impossible, ring, check, TERMS, 0),
    ):
        with pytest.raises(ArmFailed) as failed:
            measured()
        assert isinstance(failed.value.failure, Verdict)
        assert failed.value.failure.status is Status.TOO_FAST
        assert "writing the 1000 bytes" in failed.value.failure.detail


def test_what_fits_in_the_caches_has_no_floor() -> None:
    device, ring, _ = stage(FakeDevice(programs(), write_speed=1.0))
    ring.written_bytes, device.cache_bytes = 1000, 64_000
    assert floor_ns(ring, 64) == 0.0
    assert floor_ns(ring, 65) > 0.0
