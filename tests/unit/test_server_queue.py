"""A device with a queue: several requests are tried there at once, and come to what they come to alone."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from replay_case import FakeCompiler, capture, programs, until, variant

from r3bench import store
from r3bench.compare import Tolerance
from r3bench.devices import Bytes, Kernel, Memory, Tried, Windows
from r3bench.errors import BuildError, WorkerLost
from r3bench.model import (
    Binary,
    Capture,
    Configuration,
    Difference,
    LaunchConfig,
    LaunchRule,
    ReplayUnit,
    Status,
    Target,
    Variant,
)
from r3bench.overrides import tolerance_path
from r3bench.remix import BuildRequest
from r3bench.server import ReplayServer
from r3bench.testing import FakeDevice
from r3bench.toolchain import Built

GPU = Target(device="cuda", arch="fake")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    return capture(tmp_path_factory.mktemp("captures"))


@pytest.fixture(autouse=True)
def _locks_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


class Queueing(FakeDevice):
    """A GPU with a queue, which notes what is ``asked``. Windows of the kernel ``held`` wait until they may ``go_on``;
    in the next so many windows (``loses``) its worker is lost."""

    def __init__(self) -> None:
        super().__init__(programs(), name="queueing", target=GPU)
        self.queue, self.orders, self.loses = self, ("forward",), 0
        self.held, self.asked, self.launched = "", list[str](), list[str]()
        self.timing, self.go_on = threading.Event(), threading.Event()
        self._turn = threading.RLock()

    def launch(self, kernel: Kernel, memory: Memory, launch: LaunchConfig, **how: Any) -> None:
        self.launched.append(_program(kernel.binary))
        super().launch(kernel, memory, launch, **how)

    def window(self, kernel: Kernel, memories: Sequence[Memory], launch: LaunchConfig, **how: Any) -> float:
        self._lose()
        if _program(kernel.binary) == self.held:
            self.timing.set()
            assert self.go_on.wait(60)
        return super().window(kernel, memories, launch, **how)

    def _lose(self) -> None:
        if self.loses:
            self.loses -= 1
            raise WorkerLost("killed by what another thread asked")

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
        self.asked.append(_program(binary))
        with self._turn:
            kernel, seconds = self.load(binary), (0.5, 0.25, 0.125)
            self.restore(memory)
            self.launch(kernel, memory, launch)
            if differing := self.compare(memory, expected, tolerances).differences:
                return Tried(kernel, differing, [], seconds)
            ns = self.windows(kernel, windows.memories, launch, windows.times, stops=windows.stops)
            return Tried(kernel, self.compare(windows.judged, expected, tolerances).differences, ns, seconds)


def _program(binary: Binary) -> str:
    return binary.image.decode().partition("#")[0]


@pytest.fixture
def queueing(recorded: Capture) -> Iterator[tuple[Queueing, ReplayServer]]:
    device = Queueing()
    with ReplayServer(lambda: device, compiler=FakeCompiler()) as opened:
        opened.submit(recorded, Variant()).result(60)
        assert device.asked == []  # the first of a unit finds out about it
        yield device, opened


def test_what_is_tried_in_a_queue_has_the_outcome_that_it_has_alone(
    queueing: tuple[Queueing, ReplayServer], recorded: Capture
) -> None:
    device, opened = queueing
    running = ReplayServer(lambda: FakeDevice(programs(), name="alone", target=GPU), compiler=FakeCompiler())
    running.submit(recorded, Variant()).result(60)
    for name in ("quick", "slow", "wrong", "large", "crash", "hang", "later wrong", "nothing"):
        found, alone = (each.submit(recorded, variant(name)).result(60) for each in (opened, running))
        assert (found.verdict, found.binary) == (alone.verdict, alone.binary)
        assert (found.measurement is None) == (alone.measurement is None)
        if found.measurement and alone.measurement:
            assert found.measurement.samples_ns == alone.measurement.samples_ns
            assert found.measurement.conditions == alone.measurement.conditions
        assert device.asked[-1] == name
    times = dict(opened.submit(recorded, variant("quick")).result(60).stages)
    assert (times["load"], times["verify"], times["time"]) == (0.5, 0.25, 0.125)


def test_several_are_in_a_queue_at_once_and_a_contest_has_the_device_alone(
    queueing: tuple[Queueing, ReplayServer], recorded: Capture
) -> None:
    device, opened = queueing
    device.held = "quick"
    first = opened.submit(recorded, variant("quick"))
    assert device.timing.wait(60)
    second = opened.submit(recorded, variant("slow"))
    until(lambda: "slow" in device.asked)
    contest = opened.compare(recorded, 0, variant("narrow"), variant("racing"))
    until(contest.running)
    assert not {"narrow", "racing"} & set(device.launched)
    assert [future.done() for future in (first, second)] == [False, False]
    device.go_on.set()
    assert [future.result(60).verdict.status for future in (first, second)] == [Status.MATCH] * 2
    assert contest.result(60).decision is not None


def test_a_mismatch_that_is_not_seen_again_stays_one(
    queueing: tuple[Queueing, ReplayServer], recorded: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, opened = queueing
    tried = device.tried

    def differing_once(*what: Any, **how: Any) -> Tried | None:
        found = tried(*what, **how)
        assert found is not None
        told = {"count": 1, "elements": 8, "first": (0,), "worst": (0,), "error": 1.0, "limit": 0.0}
        told |= dict.fromkeys(("first_expected", "first_actual", "worst_expected", "worst_actual"), "1")
        difference = Difference(buffer="x", **told)
        return found._replace(differences=(difference,))

    monkeypatch.setattr(device, "tried", differing_once)
    found = opened.submit(recorded, variant("quick")).result(60)
    assert (found.verdict.status, found.measurement) == (Status.MISMATCH, None)


def test_a_kernel_that_takes_longer_windows_is_timed_alone(
    queueing: tuple[Queueing, ReplayServer], recorded: Capture
) -> None:
    device, opened = queueing

    def timed(microseconds: int) -> tuple[str, bool]:
        """The launches of a window of 250 microseconds, and whether it was one request that took it."""
        found = opened.submit(recorded, variant("narrow", launch=LaunchRule(block=(microseconds, 1, 1)))).result(60)
        assert found.measurement is not None
        return dict(found.measurement.conditions)["clones"], ("load", 0.5) in found.stages

    assert [timed(each) for each in (16, 16, 64)] == [("18", False), ("18", True), ("18", True)]
    assert [timed(each) for each in (1, 1, 16)] == [("64", False), ("64", True), ("64", True)]
    assert len(device.asked) == 6


def test_other_threads_keep_their_time_where_a_device_has_a_clock_of_its_own(
    queueing: tuple[Queueing, ReplayServer], recorded: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, opened = queueing
    seen, window = set[float](), device.window

    def looking(*what: Any, **how: Any) -> float:
        seen.add(sys.getswitchinterval())
        return window(*what, **how)

    monkeypatch.setattr(device, "window", looking)
    opened.submit(recorded, variant("quick")).result(60)
    assert seen == {sys.getswitchinterval()}


def test_the_same_code_that_comes_while_it_is_timed_is_not_replayed(
    queueing: tuple[Queueing, ReplayServer], recorded: Capture
) -> None:
    device, opened = queueing
    device.held = "quick"
    first = opened.submit(recorded, variant("quick"), timing="once")
    assert device.timing.wait(60)
    same = variant("quick", configuration=Configuration(pipeline="O2"))
    second = opened.submit(recorded, same, timing="once")
    until(second.running)
    device.go_on.set()
    assert first.result(60).measurement == second.result(60).measurement
    assert device.asked == ["quick"]


def test_what_lost_its_worker_to_another_request_has_the_device_alone_the_next_time(
    queueing: tuple[Queueing, ReplayServer], recorded: Capture
) -> None:
    device, opened = queueing
    device.loses = 1
    assert opened.submit(recorded, variant("quick")).result(60).measurement is not None
    assert device.asked == ["quick"]
    device.loses = 4  # alone, it tries three times more
    found = opened.submit(recorded, variant("slow")).result(60)
    assert (found.verdict.status, found.measurement) == (Status.FAULT, None)


def test_a_fault_that_may_be_nobodys_is_not_remembered(
    queueing: tuple[Queueing, ReplayServer], recorded: Capture
) -> None:
    device, opened = queueing
    device.loses = 4
    found = [opened.submit(recorded, variant("quick"), timing="once").result(60).verdict.status for _ in range(2)]
    assert found == [Status.FAULT, Status.MATCH]


def test_a_worker_that_is_lost_while_a_unit_is_placed_leaves_no_memory_behind(
    queueing: tuple[Queueing, ReplayServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, opened = queueing
    own, allocate, released = capture(tmp_path), device.allocate, device.release
    held, lost = list[Any](), list[int]()

    def losing(unit: ReplayUnit, before: Mapping[str, Bytes]) -> Any:
        if len(held) == 4 and not lost:  # the ring's first, two that were observed on, and the first to be kept
            lost.append(len(held))
            raise WorkerLost("killed")
        held.append(allocate(unit, before))
        return held[-1]

    def releasing(memory: Any) -> None:
        held.remove(memory)
        released(memory)

    monkeypatch.setattr(device, "allocate", losing)
    monkeypatch.setattr(device, "release", releasing)
    assert opened.submit(own, Variant(), 0, "none").result(60).verdict.status is Status.MATCH
    assert (lost, len(held)) == ([4], 3)


def test_the_recorded_kernel_is_built_again_where_its_build_was_killed(recorded: Capture) -> None:
    device, compiler, killed = Queueing(), FakeCompiler(), list[BuildRequest]()
    submit = compiler.submit

    def killing(request: BuildRequest) -> Future[Built]:
        if killed:
            return submit(request)
        killed.append(request)
        ended: Future[Built] = Future()
        error = BuildError("its compiler was killed")
        error.__cause__ = WorkerLost("killed")
        ended.set_exception(error)
        return ended

    compiler.submit = killing  # type: ignore[method-assign]
    with ReplayServer(lambda: device, compiler=compiler) as opened:
        for name in ("add", "quick", "slow"):
            assert opened.submit(recorded, variant(name)).result(60).verdict.status is Status.MATCH
        assert device.asked == ["slow"]  # from the second on the unit has memories to be tried on


@pytest.mark.parametrize("loose", [True, False])
def test_tolerances_that_change_while_a_unit_is_read_count_from_the_next_request_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loose: bool
) -> None:
    own = capture(tmp_path)
    path, contents = tolerance_path(own.path), store.contents
    texts = ["[x]\natol = 0.8\n", "[x]\natol = 0.7\n"][:: 1 if loose else -1]
    path.write_text(texts[0])

    def edited_meanwhile(*what: Any) -> Any:
        found = contents(*what)
        path.write_text(texts[1])
        return found

    with ReplayServer(Queueing, compiler=FakeCompiler()) as opened:
        with monkeypatch.context() as patch:
            patch.setattr(store, "contents", edited_meanwhile)
            found = [opened.submit(own, variant("nearly")).result(60).verdict.status]
        for text in (texts[1], texts[0]):
            path.write_text(text)
            found.append(opened.submit(own, variant("nearly")).result(60).verdict.status)
    expected = {True: Status.MATCH, False: Status.MISMATCH}
    assert found == [expected[each] for each in (loose, not loose, loose)]
