"""The replay server: every request answered, one device at a time, claims repeated, an end at any time."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any, Literal, cast

import pytest
from replay_case import FakeCompiler, capture, programs, until, variant

from r3bench import replay
from r3bench.devices import Device, Kernel, Memory
from r3bench.errors import CaptureError, DeviceUnavailable, WorkerLost
from r3bench.model import (
    Capture,
    Configuration,
    LaunchConfig,
    LaunchRule,
    Level,
    Measurement,
    Status,
    Target,
    Variant,
    content_id,
)
from r3bench.overrides import tolerance_path
from r3bench.server import ReplayServer, resident
from r3bench.server import local as server
from r3bench.server.resident import Latest, Resident, TimingLock, timing_lock
from r3bench.server.stages import when_all
from r3bench.stats import Decision
from r3bench.testing import FakeDevice, FakeLaunch, Program


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return capture(tmp_path_factory.mktemp("captures"))


@pytest.fixture(autouse=True)
def _locks_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class Opener:
    """Opens fake devices and keeps them; each by the next of ``makers``, the last one again and again."""

    def __init__(self, *makers: Callable[[], FakeDevice]) -> None:
        self.makers = makers or (lambda: FakeDevice(programs(), name=str(id(self))),)
        self.devices: list[FakeDevice] = []

    def __call__(self) -> FakeDevice:
        self.devices.append(self.makers[min(len(self.devices), len(self.makers) - 1)]())
        return self.devices[-1]


@pytest.fixture
def opener() -> Opener:
    return Opener()


@pytest.fixture
def compiler() -> FakeCompiler:
    return FakeCompiler()


@pytest.fixture
def running(opener: Opener, compiler: FakeCompiler) -> Iterator[ReplayServer]:
    with ReplayServer(opener, compiler=compiler) as opened:
        yield opened


# -- requests -------------------------------------------------------------------------------------------------------


def test_a_request_gives_the_outcome_of_a_replay(running: ReplayServer, recorded: Capture) -> None:
    found = running.submit(recorded, variant("quick"), unit=1).result(60)
    assert (found.verdict.status, found.unit) == (Status.MATCH, 1)
    assert found.measurement is not None
    assert found.measurement.samples_ns[0] == 80_000.0


def test_an_outcome_says_how_long_it_waited(running: ReplayServer, recorded: Capture, compiler: FakeCompiler) -> None:
    compiler.gate.clear()
    future = running.submit(recorded, Variant(), timing="none")
    until(lambda: len(compiler.requests) == 2)  # the recorded kernel, too
    time.sleep(0.05)
    compiler.gate.set()
    waited = dict(future.result(60).stages)
    assert list(waited) == ["frontend", "load", "verify", "queue build", "queue device"]
    assert waited["queue build"] > 0.045  # all but the 0.001 s of its front end
    assert waited["queue device"] >= 0


def test_a_request_may_only_verify(running: ReplayServer, recorded: Capture) -> None:
    found = running.submit(recorded, Variant(), timing="none").result(60)
    assert (found.verdict.status, found.measurement) == (Status.MATCH, None)


def test_what_a_device_tells_of_itself_and_of_the_recorded_kernel(recorded: Capture) -> None:
    def counting() -> FakeDevice:
        device = FakeDevice(programs(), write_speed=12.34e9)
        device.counters = {"registers per thread": "32"}
        return device

    with ReplayServer(counting, compiler=FakeCompiler()) as opened:
        told = opened.profile(recorded).result(60)
    assert told == {"memory bandwidth, writing": "12 GB/s", "registers per thread": "32"}


def test_every_request_is_answered_whatever_the_others_do(running: ReplayServer, recorded: Capture) -> None:
    names = ["add", "wrong", "crash", "hang", "syntax error", "quick", "large", "texture", "nothing", "scribble"] * 6
    futures = [running.submit(recorded, variant(name), unit=at % 2) for at, name in enumerate(names)]
    assert not wait(futures, 60).not_done
    for name, future in zip(names, futures, strict=True):
        assert (future.result().verdict.status is Status.MATCH) == (name in ("add", "quick"))


class Losing:
    """A fake device whose worker is killed at one of its calls; its device's number is counted on."""

    def __init__(self, at: int) -> None:
        self._device, self._at, self.calls = FakeDevice(programs(), name="losing"), at, 0

    def __getattr__(self, name: str) -> Any:
        held = getattr(self._device, name)
        return self._losing(held) if callable(held) and name not in ("close", "release") else held

    def _losing(self, verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self._at:
                raise WorkerLost("the worker was killed")
            return verb(*arguments, **named)

        return call


ASKED: dict[str, Callable[[ReplayServer, Capture], Any]] = {
    "submit": lambda server, held: server.submit(held, variant("add")).result(60).verdict.status,
    "verify": lambda server, held: server.verify(held, variant("add"), Level.PERTURBED).result(60).verdict.status,
    "compare": lambda server, held: server.compare(held, 0, variant("add"), variant("quick")).result(60).decision,
    "profile": lambda server, held: server.profile(held).result(60),
    "conditions": lambda server, held: server.conditions(),
}


@pytest.mark.parametrize("verb", ASKED)
def test_a_request_is_done_again_at_whatever_call_the_device_loses_its_worker(recorded: Capture, verb: str) -> None:
    def asked(at: int) -> tuple[Any, int]:
        device = Losing(at)
        with ReplayServer(lambda: cast(Device, device), compiler=FakeCompiler()) as opened:
            return ASKED[verb](opened, recorded), device.calls

    undisturbed, calls = asked(0)
    assert calls
    for at in range(1, calls + 1, max(1, calls // 10)):
        assert asked(at)[0] == undisturbed, f"call {at} of {calls}"


def test_nothing_is_opened_until_it_is_needed(running: ReplayServer, recorded: Capture, opener: Opener) -> None:
    assert not opener.devices
    running.submit(recorded, Variant()).result(60)
    assert running.target == Target(device="cpu", arch="fake")
    assert len(opener.devices) == 1


def test_a_device_that_cannot_be_used_is_what_the_future_raises(recorded: Capture) -> None:
    def unusable() -> FakeDevice:
        raise DeviceUnavailable("device cuda cannot be used: no driver; install one.")

    with ReplayServer(unusable, compiler=FakeCompiler()) as opened:
        with pytest.raises(DeviceUnavailable, match="no driver"):
            opened.submit(recorded, Variant()).result(60)
        with pytest.raises(DeviceUnavailable, match="no driver"):
            opened.compare(recorded, 0, Variant(), variant("quick")).result(60)


def test_a_damaged_capture_stops_only_its_own_requests(running: ReplayServer, recorded: Capture) -> None:
    missing = running.submit(recorded, Variant(), unit=7)
    present = running.submit(recorded, Variant())
    with pytest.raises(CaptureError, match="has no unit 7"):
        missing.result(60)
    assert present.result(60).verdict.status is Status.MATCH


def test_builds_run_side_by_side(running: ReplayServer, recorded: Capture, compiler: FakeCompiler) -> None:
    compiler.gate.clear()
    futures = [running.submit(recorded, variant(f"add#{twin}")) for twin in range(5)]
    until(lambda: len(compiler.requests) == 6)  # and the recorded kernel
    assert not any(future.done() for future in futures)
    compiler.gate.set()
    assert all(future.result(60).verdict.status is Status.MATCH for future in futures)


def test_the_device_runs_one_request_at_a_time(recorded: Capture) -> None:
    inside, most = [0], [0]

    def busy(run: FakeLaunch) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.002)
        run.array("x", "f8")[:] += run.array("y", "f8")
        inside[0] -= 1

    device = FakeDevice({"add": Program(busy, 1e6)}, name="one at a time")
    with ReplayServer(lambda: device, compiler=FakeCompiler()) as opened:
        futures = [opened.submit(recorded, variant(f"add#{twin}"), timing="none") for twin in range(8)]
        assert all(future.result(60).verdict.status is Status.MATCH for future in futures)
    assert most[0] == 1


# -- what stays resident --------------------------------------------------------------------------------------------


def test_a_unit_is_read_and_placed_once(
    running: ReplayServer, recorded: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    monkeypatch.setattr(server, "read_material", lambda *what: reads.append(what) or replay.read_material(*what))
    for _ in range(3):
        running.submit(recorded, Variant()).result(60)
        running.submit(recorded, Variant(), unit=1).result(60)
    assert len(reads) == 2


def test_beyond_the_limit_the_oldest_is_given_back(recorded: Capture) -> None:
    class Holding(FakeDevice):
        held = 0

        def allocate(self, *what):  # type: ignore[no-untyped-def]
            self.held += 1
            return super().allocate(*what)

        def release(self, memory: Memory) -> None:
            self.held -= 1
            super().release(memory)

    device = Holding(programs(), name="holding")
    with ReplayServer(lambda: device, compiler=FakeCompiler(), resident_bytes=256) as opened:
        for unit in (0, 1, 0, 1):
            found = opened.submit(recorded, Variant(), unit=unit, timing="none").result(60)
            assert found.verdict.status is Status.MATCH
            assert device.held == 3  # one copy to time on, two to verify on


def test_a_unit_placed_again_is_not_measured_again(recorded: Capture) -> None:
    device, launches = FakeDevice(programs(), name="measured"), []
    device.room_bytes = 1
    with ReplayServer(lambda: device, compiler=FakeCompiler()) as opened:
        for unit in (0, 1, 0, 1):
            before = device.launches
            assert (
                opened.submit(recorded, Variant(), unit=unit, timing="none").result(60).verdict.status is Status.MATCH
            )
            launches.append(device.launches - before)
    assert launches[2:] == [2, 2]
    assert min(launches[:2]) > 2


class Item:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_what_was_used_last_stays() -> None:
    dropped: list[Item] = []
    resident: Resident[Item] = Resident(10, drop=dropped.append)
    a, b, c = Item(4), Item(4), Item(4)
    for key, item in (("a", a), ("b", b), ("a", a), ("c", c)):
        resident.get(key, lambda item=item: item)  # type: ignore[misc]
    assert dropped == [b]
    large = Item(99)
    assert resident.get("large", lambda: large) is large
    assert dropped == [b, a, c]


def test_the_latest_values_stay() -> None:
    latest: Latest[str] = Latest(2)
    latest["a"], latest["b"] = "1", "2"
    assert latest.get("a") == "1"
    latest["c"] = "3"
    assert [latest.get(key) for key in "abc"] == ["1", None, "3"]


# -- cancelling and closing -----------------------------------------------------------------------------------------


def test_a_request_can_be_cancelled_until_the_device_has_it(
    running: ReplayServer, recorded: Capture, compiler: FakeCompiler, opener: Opener
) -> None:
    compiler.gate.clear()
    unwanted, wanted = running.submit(recorded, variant("quick")), running.submit(recorded, Variant())
    assert unwanted.cancel()
    compiler.gate.set()
    assert wanted.result(60).verdict.status is Status.MATCH
    assert not wait([unwanted], 60).not_done
    assert opener.devices[0].launches < 60  # of one request, not of two


def test_closing_ends_requests_at_every_stage_at_once(recorded: Capture) -> None:
    entered, closed = threading.Event(), threading.Event()

    class Stuck(FakeDevice):
        def close(self) -> None:
            super().close()
            closed.set()

    def hang(run: FakeLaunch) -> None:
        entered.set()
        assert closed.wait(60)  # not closed first, it would be waited for in vain

    compiler = FakeCompiler()
    opened = ReplayServer(lambda: Stuck({**programs(), "stuck": Program(hang)}, name="stuck"), compiler=compiler)
    futures = [opened.submit(recorded, variant(name)) for name in ("stuck", "add", "quick")]
    assert entered.wait(60)
    compiler.gate.clear()
    futures.append(opened.submit(recorded, variant("slow")))
    opened.close()
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(60)
    assert compiler.closed


def test_a_closed_server_says_so(recorded: Capture) -> None:
    opened = ReplayServer(Opener(), compiler=FakeCompiler())
    opened.close()
    opened.close()
    with pytest.raises(RuntimeError, match="closed"):
        opened.submit(recorded, Variant())


def test_closing_closes_every_device(recorded: Capture, opener: Opener) -> None:
    with ReplayServer(opener, compiler=FakeCompiler()) as opened:
        opened.compare(recorded, 0, Variant(), variant("quick")).result(60)
    assert [device.closed for device in opener.devices] == [True, True]


def test_all_ends_when_the_last_ends() -> None:
    futures: list[Future[int]] = [Future() for _ in range(3)]
    ended = []
    when_all(futures, lambda: ended.append(True))
    for future in reversed(futures):
        assert not ended
        future.set_result(1)
    assert ended == [True]


# -- comparing ------------------------------------------------------------------------------------------------------


def noisy(seed: int, **changed: Program) -> Callable[[], FakeDevice]:
    return lambda: FakeDevice({**programs(), **changed}, noise=0.01, seed=seed, name=f"noisy {seed}")


@pytest.mark.parametrize(("name", "decision"), [("quick", Decision.FASTER), ("slow", Decision.SLOWER)])
def test_a_claim_is_repeated_on_a_fresh_device(recorded: Capture, name: str, decision: Decision) -> None:
    opener = Opener(noisy(1), noisy(2))
    with ReplayServer(opener, compiler=FakeCompiler()) as opened:
        found = opened.compare(recorded, 0, Variant(), variant(name)).result(60)
        assert len(opener.devices) == 2
        assert [device.closed for device in opener.devices] == [False, True]
    assert found.decision is decision
    assert found.repeat is not None
    assert found.repeat.decision is decision
    assert found.repeat.orders != found.orders
    assert found.repeat.d != found.d


def test_a_claim_that_the_repetition_does_not_confirm_is_unstable(recorded: Capture) -> None:
    other_place = noisy(2, quick=programs()["add"])
    with ReplayServer(Opener(noisy(1), other_place), compiler=FakeCompiler()) as opened:
        found = opened.compare(recorded, 0, Variant(), variant("quick")).result(60)
    assert found.decision is Decision.UNSTABLE
    assert found.repeat is not None
    assert found.repeat.decision is Decision.SAME


def test_a_claim_comes_with_what_equal_work_seems_to_differ_by(recorded: Capture) -> None:
    with ReplayServer(Opener(noisy(1), noisy(2)), compiler=FakeCompiler()) as opened:
        found = opened.compare(recorded, 0, variant("slow"), variant("quick")).result(60)
    control = found.control
    assert control is not None
    assert control.decision is Decision.SAME
    assert control.baseline_binary == found.baseline_binary != control.candidate_binary != found.candidate_binary
    assert control.speedup is not None
    assert found.noise_floor == pytest.approx(abs(control.speedup - 1), rel=0.02)
    assert 0 < found.noise_floor < 0.02


def test_equal_times_are_no_claim(recorded: Capture) -> None:
    opener = Opener(noisy(3))
    with ReplayServer(opener, compiler=FakeCompiler()) as opened:
        found = opened.compare(recorded, 0, Variant(), variant("add#1"), kernels=10).result(60)
    assert (found.decision, found.blocks, found.repeat) == (Decision.SAME, 13, None)
    assert (found.control, found.noise_floor) == (None, None)
    assert len(opener.devices) == 1


def test_the_same_code_and_launch_are_not_timed(running: ReplayServer, recorded: Capture, opener: Opener) -> None:
    found = running.compare(recorded, 0, Variant(), variant("add#")).result(60)
    assert (found.decision, found.speedup, found.blocks) == (Decision.IDENTICAL, 1.0, 0)
    before = opener.devices[0].launches
    running.compare(recorded, 0, Variant(), variant("add#")).result(60)
    assert opener.devices[0].launches - before == 4  # two arms, verified in two runs each


def test_the_same_code_in_another_launch_is_timed(running: ReplayServer, recorded: Capture) -> None:
    wide, small = variant("narrow", launch=LaunchRule(block=(8, 1, 1))), variant("narrow")
    found = running.compare(recorded, 0, wide, small).result(60)
    assert found.decision is Decision.FASTER
    assert found.speedup == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("baseline", "candidate", "arm", "status"),
    [
        ("add", "wrong", "candidate", Status.MISMATCH),
        ("wrong", "add", "baseline", Status.MISMATCH),
        ("add", "syntax error", "candidate", Status.BUILD_FAILED),
        ("add", "later wrong", "candidate", Status.MISMATCH),
        ("later crash", "add", "baseline", Status.FAULT),
    ],
)
def test_an_arm_without_a_match_has_no_time(
    running: ReplayServer, recorded: Capture, baseline: str, candidate: str, arm: str, status: Status
) -> None:
    found = running.compare(recorded, 0, variant(baseline), variant(candidate)).result(60)
    assert (found.decision, found.refused, found.verdict.status) == (Decision.REFUSED, arm, status)
    assert (found.speedup, found.baseline_ns, found.d) == (None, None, ())


# -- quiet while timing ---------------------------------------------------------------------------------------------


def test_timing_waits_for_the_device_of_this_machine_and_verifying_does_not(
    running: ReplayServer, recorded: Capture
) -> None:
    with timing_lock(running.device.name):
        assert running.submit(recorded, Variant(), timing="none").result(60).verdict.status is Status.MATCH
        timed = running.submit(recorded, Variant())
        time.sleep(0.3)
        assert not timed.done()
    assert timed.result(60).measurement is not None


def test_other_threads_give_way_while_a_clock_runs(recorded: Capture) -> None:
    seen, before = [], sys.getswitchinterval()

    class Looking(FakeDevice):
        def window(self, kernel: Kernel, memories: list[Memory], launch: LaunchConfig, **how: float) -> float:
            seen.append(sys.getswitchinterval())
            return super().window(kernel, memories, launch, **how)

    with ReplayServer(lambda: Looking(programs(), name="looking"), compiler=FakeCompiler()) as opened:
        opened.submit(recorded, Variant()).result(60)
    assert seen == pytest.approx([server.SWITCH_S] * len(seen))
    assert sys.getswitchinterval() == before


def test_a_lock_whose_file_was_deleted_still_locks(tmp_path: Path) -> None:
    held, other = TimingLock(tmp_path / "lock"), TimingLock(tmp_path / "lock")
    with held:
        assert not other.acquire(0.01)
    (tmp_path / "lock").unlink()
    with held:
        assert not other.acquire(0.01)
    assert other.acquire(0.01)


def test_a_lock_whose_folder_is_gone_says_so(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    held = TimingLock(folder / "lock")
    (folder / "lock").unlink()
    folder.rmdir()
    for _ in range(2):
        with pytest.raises(DeviceUnavailable, match=r"gone/lock cannot be opened .* make its folder, or set TMPDIR"):
            held.acquire(0.01)
    folder.mkdir()
    assert held.acquire(0.01)


def test_threads_share_a_lock_and_let_other_processes_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, other = TimingLock(tmp_path / "lock"), TimingLock(tmp_path / "lock")
    with held, held:
        assert not other.acquire(0.01)
    monkeypatch.setattr(resident, "_SHARED_S", -1.0)
    with held:
        assert not held.acquire(0.01)
        assert not other.acquire(0.01)
    assert other.acquire(0.0)  # before the first comes back
    other.release()
    with held:
        assert not other.acquire(0.01)


def test_closing_does_not_wait_for_another_process(opener: Opener, recorded: Capture) -> None:
    opened = ReplayServer(opener, compiler=FakeCompiler())
    with timing_lock(opened.device.name):
        timed = opened.submit(recorded, Variant())
        until(timed.running)
        opened.close()
        with pytest.raises(CancelledError):
            timed.result(60)


def test_builds_wait_while_a_claim_is_timed(recorded: Capture) -> None:
    timing, go_on = threading.Event(), threading.Event()

    class Slow(FakeDevice):
        def window(self, kernel: Kernel, memories: list[Memory], launch: LaunchConfig, **how: float) -> float:
            timing.set()
            go_on.wait(60)
            return super().window(kernel, memories, launch, **how)

    compiler = FakeCompiler()
    with ReplayServer(lambda: Slow(programs(), name="slow"), compiler=compiler) as opened:
        contest = opened.compare(recorded, 0, Variant(), variant("add#1"))
        assert timing.wait(60)
        built = len(compiler.requests)
        later = opened.submit(recorded, variant("quick"), timing="none")
        time.sleep(0.05)
        assert len(compiler.requests) == built
        go_on.set()
        assert contest.result(60).decision is Decision.SAME
        assert later.result(60).verdict.status is Status.MATCH


def test_the_same_code_and_launch_is_replayed_once_where_that_will_do(
    running: ReplayServer, recorded: Capture, opener: Opener
) -> None:
    first = running.submit(recorded, variant("add"), timing="once").result(60)
    launches = opener.devices[0].launches
    same = variant("add", configuration=Configuration(pipeline="O2"))
    second = running.submit(recorded, same, timing="once").result(60)
    assert opener.devices[0].launches == launches
    assert second.measurement == first.measurement
    assert second.variant == content_id(same) != first.variant
    for other in (variant("add", launch=LaunchRule(block=(64, 1, 1))), variant("quick")):
        launches = opener.devices[0].launches
        running.submit(recorded, other, timing="once").result(60)
        assert opener.devices[0].launches > launches
    launches = opener.devices[0].launches
    running.submit(recorded, variant("add"), timing="rank").result(60)
    assert opener.devices[0].launches > launches


def test_in_a_race_what_is_surely_slower_than_the_same_text_was_is_cut_off(
    running: ReplayServer, recorded: Capture, opener: Opener
) -> None:
    def raced(name: str, threads: int, timing: Literal["once", "race"] = "race") -> Measurement:
        block = LaunchRule(block=(threads, 1, 1))
        found = running.submit(recorded, variant(name, launch=block), timing=timing).result(60).measurement
        assert found is not None
        return found

    assert raced("narrow", 64).cut_ns is None  # nothing was there to race against
    assert (raced("narrow", 128).cut_ns, raced("narrow", 32).cut_ns) == (64_000.0, None)
    assert raced("narrow", 256).cut_ns == 32_000.0
    launches = opener.devices[0].launches
    assert raced("narrow", 256).cut_ns == 32_000.0
    assert opener.devices[0].launches == launches
    assert raced("slow", 32).cut_ns is None  # another text
    assert raced("narrow", 256, "once").cut_ns is None  # whoever does not race gets a whole time
    assert raced("narrow", 256).cut_ns is None  # which then is at hand


def test_no_text_has_a_best_time_that_another_order_of_threads_was_not_asked_about(
    running: ReplayServer, recorded: Capture, opener: Opener
) -> None:
    def tried(threads: int, timing: Literal["once", "race", "rank"]) -> Status:
        block = LaunchRule(block=(threads, 1, 1))
        return running.submit(recorded, variant("racing", launch=block), 0, timing).result(60).verdict.status

    assert tried(128, "once") is Status.MISMATCH  # the first of its text
    assert tried(64, "race") is Status.MATCH
    assert tried(256, "once") is Status.MATCH  # what is slower need not wait for it
    assert tried(32, "race") is Status.MISMATCH
    assert tried(256, "rank") is Status.MISMATCH  # as the finalists of a search are timed


def test_what_does_not_build_has_no_code_to_be_known_by(running: ReplayServer, recorded: Capture) -> None:
    for _ in range(2):
        found = running.submit(recorded, variant("syntax error"), timing="once").result(60)
        assert found.verdict.status is Status.BUILD_FAILED


@pytest.mark.parametrize("timing", ["rank", "once"])
def test_tolerances_that_were_changed_count_from_then_on(timing: Literal["rank", "once"], tmp_path: Path) -> None:
    own = capture(tmp_path)
    with ReplayServer(lambda: FakeDevice(programs()), compiler=FakeCompiler()) as opened:
        for limit, status in ((0.8, Status.MATCH), (0.7, Status.MISMATCH), (0.8, Status.MATCH)):
            tolerance_path(own.path).write_text(f"[x]\natol = {limit}\n")
            assert opened.submit(own, variant("nearly"), 0, timing).result(60).verdict.status is status
