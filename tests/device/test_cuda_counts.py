"""What one verification of a search does on a GPU, counted by a driver without one: requests, runs, copies, waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from r3bench.devices import Tried, Windows
from r3bench.devices.cuda import process
from r3bench.devices.cuda.device import CudaDevice
from r3bench.errors import DeviceFault, LaunchError
from r3bench.model import Binary, Status
from r3bench.testing.contract import Case, case

Counted = Callable[[], Counter[str]]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[CudaDevice, Counted]]:
    """A device, and how often what was done since the last look."""
    calls = tmp_path / "calls"
    monkeypatch.setattr(process, "_PROGRAM", "tests.device.counted_worker")
    monkeypatch.setenv("R3BENCH_CALLS", str(calls))

    def since() -> Counter[str]:
        found = Counter(calls.read_text().split())
        calls.write_text("")
        return found

    with closing(CudaDevice(index=0)) as device:
        yield device, since


def unit() -> Case:
    made = case({"x": np.arange(1.0, 9.0)}, ["x"])
    for data in made.before.values():
        data.flags.writeable = False
    return made


def kernel(device: CudaDevice, symbol: str = "double") -> Binary:
    return Binary(target=device.target, symbol=symbol, image=b"\x7fELF", format="cubin")


def test_an_evaluation_takes_one_run_one_restore_and_two_comparisons(
    counted: tuple[CudaDevice, Counted],
) -> None:
    device, since = counted
    held = unit()
    expected = held.expect(x=2 * np.arange(1.0, 9.0))
    for data in expected.values():
        data.flags.writeable = False
    memory, loaded = device.allocate(held.unit, held.before), device.load(kernel(device))

    def verified() -> Status:
        device.restore(memory)
        device.launch(loaded, memory, held.unit.launch)
        return device.compare(memory, expected).status

    assert [verified() for _ in range(2)] == [Status.MATCH] * 2  # the first sends rules and tables
    asked = dict(device.spent)
    since()
    assert verified() is Status.MATCH
    assert since() == {
        "r3_copy": 1,  # the restore, then a wait before what it reads is closed
        "cuEventSynchronize": 1,
        "cuMemSetAccess": 4,  # taken from all that was recorded before, and from all after; and given again
        "r3_poison": 1,
        "double": 1,
        "cuStreamSynchronize": 1,
        "cuMemcpyDtoDAsync": 1,  # empty rows
        "r3_compare": 1,  # the buffers and what lies beside them
        "cuMemcpyDtoH": 1,
    }
    assert {name for name in device.spent if device.spent[name] != asked[name]} == {"run", "worker"}
    assert device.compare(memory, expected).status is Status.MATCH
    assert since() == {}
    two = [memory, device.allocate(held.unit, held.before)]
    device.windows(loaded, two, held.unit.launch, 1, flush=True)
    since()
    device.windows(loaded, two, held.unit.launch, 3, flush=True)
    assert since() == {
        "r3_copy": 1 + 3,  # before the graph is made, and in it
        "cuMemSetAccess": 1,  # what is restored from is opened for reading, once, and stays so
        "double": 6,
        "cuStreamSynchronize": 1,  # no window waits for this process
    }
    device.windows(loaded, two, held.unit.launch, 1)
    assert since()["cuMemSetAccess"] == 1  # a window alone has nothing but its copies
    asked = dict(device.spent)
    since()
    assert device.compare(memory, expected).status is Status.MATCH  # what a timed launch left
    assert since() == {"cuMemSetAccess": 1, "cuMemcpyDtoDAsync": 1, "r3_compare": 1, "cuMemcpyDtoH": 1}
    assert {name for name in device.spent if device.spent[name] != asked[name]} == {"compare", "worker"}
    assert device.windows(loaded, two, held.unit.launch, 9, stops=[(2, 0.0)], judged=two[1]) != []
    assert since()["double"] == 4
    assert device.compare(two[1], expected).status is Status.MATCH
    assert since() == {}  # it was compared with the same request


def test_a_whole_trial_is_asked_for_once(counted: tuple[CudaDevice, Counted], monkeypatch: pytest.MonkeyPatch) -> None:
    device, since = counted
    held, asked = unit(), list[int]()
    ask = process.Worker.ask
    monkeypatch.setattr(
        process.Worker, "ask", lambda self, requests: asked.append(len(requests)) or ask(self, requests)
    )
    first, *ring = (device.allocate(held.unit, held.before) for _ in range(3))
    windows = Windows(ring, 9, True, [(2, 0.0)], ring[1])

    def tried(factor: float, symbol: str = "double") -> Tried:
        assert device.queue is not None
        what = kernel(device, symbol), first, held.unit.launch, windows, expected[factor], {}
        found = device.queue.tried(*what)
        assert found is not None
        return found

    expected = {factor: held.expect(x=factor * np.arange(1.0, 9.0)) for factor in (2.0, 3.0)}
    for data in (*expected[2.0].values(), *expected[3.0].values()):
        data.flags.writeable = False
    for _ in range(2):
        since()
        asked.clear()
        found = tried(2.0)
        assert (found.differences, len(found.windows_ns)) == ((), 2)
    counts = since()
    assert (asked, counts["double"], counts["r3_copy"]) == ([3], 1 + 2 * 2, 1 + 1 + 2)
    assert counts["r3_compare"] == 2  # after the launch, and after the windows
    tried(3.0)
    since()
    assert tried(3.0).differences[0].count == 8
    assert since()["double"] == 1  # what does not match is not timed
    with pytest.raises(DeviceFault, match="stray wrote just past the end of buffer x"):
        tried(2.0, "stray")
    assert since()["stray"] == 1


def test_a_unit_of_more_than_half_of_the_memory_is_read_from_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(process, "_PROGRAM", "tests.device.counted_worker")
    monkeypatch.setenv("R3BENCH_CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("R3BENCH_MEMORY", str(160 << 20))
    values = np.arange(82.0 * (1 << 17))  # of the rest, the worker's own tables take nearly all
    made = case({"x": values}, ["x"])
    with closing(CudaDevice(index=0)) as device:
        memory, loaded = device.allocate(made.unit, made.before), device.load(kernel(device))
        for _ in range(2):
            device.restore(memory)
            device.launch(loaded, memory, made.unit.launch)
            doubled = np.concatenate([2 * values[:8], values[8:]])
            assert device.compare(memory, made.expect(x=doubled)).status is Status.MATCH
            assert device.compare(memory, made.before).status is Status.MISMATCH
        with pytest.raises(LaunchError, match="out of memory"):
            device.allocate(made.unit, made.before)
        device.release(memory)
        device.allocate(made.unit, made.before)


def test_what_other_contents_hold_too_is_not_sent_again(counted: tuple[CudaDevice, Counted]) -> None:
    device, since = counted
    made = case({"x": np.arange(1.0, 9.0), "y": np.zeros(8)}, ["y"])
    others = [np.full(8, value).view(np.uint8) for value in (7.0, 9.0)]
    for data in (*made.before.values(), *others):
        data.flags.writeable = False
    device.allocate(made.unit, made.before)
    for poison in others:
        since()
        memory = device.allocate(made.unit, {**made.before, "y": poison})
        copies = since()
        assert (copies["cuMemcpyDtoD"], copies["cuMemcpyHtoD"]) == (1, 1)
        found = device.download(memory)
        assert found["x"].tobytes() == made.before["x"].tobytes()
        assert found["y"].tobytes() == poison.tobytes()


def test_what_a_launch_found_is_gone_with_what_comes_next(counted: tuple[CudaDevice, Counted]) -> None:
    device, _ = counted
    held = unit()
    memory, loaded = device.allocate(held.unit, held.before), device.load(kernel(device))
    expected = {factor: held.expect(x=factor * np.arange(1.0, 9.0)) for factor in (1, 2, 4)}
    for data in expected.values():
        data["x"].flags.writeable = False

    def left() -> list[int]:
        return [factor for factor, data in expected.items() if device.compare(memory, data).status is Status.MATCH]

    assert left() == [1]
    device.launch(loaded, memory, held.unit.launch)
    assert left() == [2]
    device.launch(loaded, memory, held.unit.launch)
    assert left() == [4]
    device.restore(memory)
    assert left() == [1]


def test_what_is_beside_the_buffers_is_looked_at_in_the_same_run(counted: tuple[CudaDevice, Counted]) -> None:
    device, _ = counted
    held = unit()
    memory, loaded = device.allocate(held.unit, held.before), device.load(kernel(device, "stray"))
    assert device.compare(memory, held.before).status is Status.MATCH
    with pytest.raises(DeviceFault, match="stray wrote just past the end of buffer x"):
        device.launch(loaded, memory, held.unit.launch)
