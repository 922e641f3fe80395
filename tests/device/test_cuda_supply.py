"""The CUDA device's own process against a worker without a GPU: what it is given, when it is replaced, what is said."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, get_ident
from typing import Any

import numpy as np
import pytest

from r3bench import parts
from r3bench.compare import Buffer as Compared
from r3bench.compare import Runs, Tolerance, differences
from r3bench.devices import Tried, Windows
from r3bench.devices.cuda import memory as memory_module
from r3bench.devices.cuda import requests as asked_module
from r3bench.devices.cuda import supply
from r3bench.devices.cuda.device import CudaDevice
from r3bench.devices.cuda.memory import Contents, Exchange
from r3bench.devices.cuda.placement import Buffer, Range, recorded_ranges
from r3bench.devices.cuda.process import Reply, Request, WorkerDied
from r3bench.devices.cuda.wire import TYPES
from r3bench.errors import DeviceFault, LaunchError, ReplayTimeout, WorkerLost
from r3bench.model import Binary, Status, Target
from r3bench.testing.contract import Case, case, linked, same

HELLO = {"name": "GPU", "uuid": "GPU-0", "arch": "sm_90", "driver": 13000, "memory_bytes": 1 << 30, "cache_bytes": 1}
NAMES = {number: name for name, number in TYPES.items() if name != "bool"}


class FakeWorker:
    """Answers as a worker does; kernels are called by their symbol: ``double`` doubles x, others fail as they say.

    In so many processes from the first on (``taken``) something else is where units were recorded.
    """

    taken = 0

    def __init__(self, index: int, kept: Sequence[Range]) -> None:
        self.hello = dict(HELLO)
        self.kept = list(kept)
        self.contents: set[int] = set()
        self.copies: set[int] = set()
        self.kernels: set[int] = set()
        self.said: list[dict[str, Any]] = []
        self.living = True
        self._contents: dict[int, dict[str, bytes]] = {}
        self._copies: dict[int, dict[str, Any]] = {}
        self._symbols: dict[int, str] = {}
        self.rules: set[int] = set()
        self._rules: dict[int, list[Any]] = {}
        WORKERS.append(self)

    def alive(self) -> bool:
        return self.living

    def close(self) -> None:
        self.living = False

    def ask(self, requests: Sequence[Request]) -> list[Reply | Exception]:
        replies: list[Reply | Exception] = []
        well = True
        for message, _, _, fds in requests:
            self.said.append(message)
            try:
                answer = self._answer(message, fds) if well or not message.get("after") else {"skipped": True}
            except (TimeoutError, WorkerDied) as error:
                return [*replies, error]
            well = not {"skipped", "error", "refused"} & answer.keys() and not any(map(any, answer.get("rows", [])))
            replies.append({"answer": answer, "seconds": 0.25, "took": 0.5, "waited": 0.0})
        return replies

    def _answer(self, message: dict[str, Any], fds: Sequence[int]) -> dict[str, Any]:
        for number in message.get("restore", []):
            self._restore(self._copies[number])
        answer: dict[str, Any] = getattr(self, {"contents": "put"}.get(message["op"], message["op"]))(message, *fds)
        return answer

    def ops(self) -> list[str]:
        return [message["op"] for message in self.said]

    def put(self, message: dict[str, Any], fd: int) -> dict[str, Any]:
        held = [Buffer(*each) for each in message["buffers"]]
        same = {name: self._contents[message["like"]][name] for name in message["same"]}
        self._contents[message["id"]] = {each.name: bytes(each.nbytes) for each in held} | same
        return self.fill(message, fd)

    def fill(self, message: dict[str, Any], fd: int) -> dict[str, Any]:
        held, at = self._contents[message["id"]], 0
        for name, begin, nbytes in message["pieces"]:
            piece = os.pread(fd, nbytes, at)
            held[name] = held[name][:begin] + piece + held[name][begin + nbytes :]
            at += nbytes
        return {}

    def make(self, message: dict[str, Any]) -> dict[str, Any]:
        here = message["as_recorded"] and len(WORKERS) > self.taken
        shift = 0 if here else 1 << 32 | message["id"] << 20
        addresses = {name: (address or 1 << 50) + shift for name, address, *_ in message["buffers"]}
        self._copies[message["id"]] = {**message, "addresses": addresses}
        return {"addresses": addresses, "recorded": not shift}

    def _restore(self, copy: dict[str, Any]) -> None:
        copy["live"] = {name: bytearray(data) for name, data in self._contents[copy["contents"]].items()}
        for holder, offset, target, displacement in copy["pointers"]:
            if holder:
                value = copy["addresses"][target] + displacement
                copy["live"][holder][offset : offset + 8] = value.to_bytes(8, "little")

    def compare(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"rows": self._rows(message["memory"], *message["rules"])}

    def _rows(self, memory: int, number: int, rules: Sequence[Any] | None) -> list[Any]:
        if rules is not None:
            self._rules[number] = list(rules)
        return [self._row(self._copies[memory]["live"], *rule) for rule in self._rules[number]]

    def _row(self, live: dict[str, Any], name: str, contents: int, kind: int, item: int, *limits: Any) -> list[Any]:
        tolerant, atol, rtol, least, ulp, *runs = limits
        exact, ignore = (Runs(np.array(edges, np.int64)) for edges in runs)
        wanted, got = (np.frombuffer(bytes(data), np.uint8) for data in (self._contents[contents][name], live[name]))
        held = Compared(name=name, nbytes=wanted.size, dtype=NAMES[kind], shape=(wanted.size // item,))
        loose = Tolerance(kind="float", rtol=rtol, atol=max(atol, least), ulp=ulp)
        tolerance = replace(loose if tolerant else Tolerance(), exact=exact, ignore=ignore)
        found = differences(wanted, got, held, tolerance)
        if found is None:
            return [0]
        places = (found.first[0], found.worst[0])
        texts = [got[at * item : (at + 1) * item].tobytes().hex() for at in places]
        return [found.count, places[0], struct.unpack("<Q", struct.pack("<d", found.error))[0], places[1], *texts]

    def download(self, message: dict[str, Any], fd: int) -> dict[str, Any]:
        live = self._copies[message["memory"]]["live"]
        os.pwrite(fd, b"".join(bytes(live[name]) for name in message["names"]), 0)
        return {}

    def load(self, message: dict[str, Any], fd: int) -> dict[str, Any]:
        for number in message["unload"]:
            del self._symbols[number]
        if os.pread(fd, message["nbytes"], 0) != b"code":
            return {"error": "CUDA_ERROR_INVALID_IMAGE", "code": 200, "call": "cuModuleLoadDataEx", "lost": False}
        self._symbols[message["id"]] = message["symbol"]
        return {"facts": {"registers": 32}}

    def run(self, message: dict[str, Any]) -> dict[str, Any]:
        symbol = self._symbols[message["kernel"]]
        if symbol == "hang":
            raise TimeoutError
        if symbol == "die":
            self.living = False
            raise WorkerDied("it was killed by SIGKILL", from_outside=True)
        if symbol == "stray":
            return {"error": "CUDA_ERROR_ILLEGAL_ADDRESS", "code": 700, "call": "cuStreamSynchronize", "lost": True}
        if symbol == "refused":
            return {"refused": "takes 8 bytes of arguments, but the unit has 12"}
        for number in message["memories"]:
            np.frombuffer(self._copies[number]["live"]["x"], np.float64)[:] *= 2
        rows = self._rows(message["judged"], *message["rules"]) if message["rules"] else []
        ns = [100.0 * len(message["memories"])] * message["windows"]
        return {"ns": ns, "occupancy": 8, "damaged": None, "rows": rows}

    def write_speed(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"bytes": 1 << 30, "seconds": 0.5}

    def floors(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"ns": [500.0, 1500.0]}

    def remove(self, message: dict[str, Any]) -> dict[str, Any]:
        del self._copies[message["id"]]
        return {}

    def drop(self, message: dict[str, Any]) -> dict[str, Any]:
        del self._contents[message["id"]]
        return {}


WORKERS: list[FakeWorker] = []


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaDevice]:
    WORKERS.clear()
    monkeypatch.setattr(supply, "Worker", FakeWorker)
    opened = CudaDevice(index=0)
    yield opened
    opened.close()
    assert not any(worker.living for worker in WORKERS)


def binary(symbol: str) -> Binary:
    return Binary(target=Target(device="cuda", arch="sm_90"), symbol=symbol, image=b"code", format="cubin")


def lone() -> Case:
    made = case({"x": np.arange(1.0, 9.0)}, ["x"])
    for data in made.before.values():
        data.flags.writeable = False
    return made


def test_the_first_copy_lies_where_it_was_recorded(device: CudaDevice) -> None:
    link = linked()
    first, second = (device.allocate(link.unit, link.before) for _ in range(2))
    asked = [message["as_recorded"] for message in WORKERS[0].said if message["op"] == "make"]
    assert (asked, first.as_recorded, second.as_recorded) == ([True, False], True, False)
    assert first.addresses["data"] == link.unit.allocations[1].address != second.addresses["data"]
    for memory in (first, second):
        same(device.download(memory), link.before)
        assert device.compare(memory, link.before).status is Status.MATCH
    device.release(first)
    third = device.allocate(link.unit, link.before)
    assert third.as_recorded


@pytest.mark.parametrize(
    ("taken", "name", "says"),
    [
        (0, "addresses", "as recorded"),
        (1, "addresses", "as recorded, in a process begun anew"),
        (9, "relocated", "by the table of pointers"),
    ],
)
def test_where_something_else_is_a_fresh_process_is_tried_once(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, taken: int, name: str, says: str
) -> None:
    monkeypatch.setattr(FakeWorker, "taken", taken)
    one, kernel = lone(), device.load(binary("double"))
    memories = [device.allocate(one.unit, one.before) for _ in range(3)]
    assert len(WORKERS) == (2 if taken else 1)
    assert memories[0].as_recorded == (taken < 2)
    assert WORKERS[-1].kept == (recorded_ranges(memories[0].recorded.buffers) if taken else [])
    device.window(kernel, memories[1:], one.unit.launch)
    assert device.conditions()[name].startswith(says)
    for memory in memories:
        device.release(memory)
    assert name not in device.conditions()


def test_contents_are_sent_once_and_dropped_with_the_last_copy(device: CudaDevice) -> None:
    one = lone()
    memories = [device.allocate(one.unit, one.before) for _ in range(3)]
    assert WORKERS[0].ops().count("contents") == 1
    for memory in memories:
        device.release(memory)
    assert WORKERS[0].ops()[-2:] == ["remove", "drop"]
    with pytest.raises(ValueError, match="was released"):
        device.download(memories[0])


def test_units_of_the_same_arrays_share_their_contents(device: CudaDevice) -> None:
    one = lone()
    other = replace(one.unit, arguments=bytes(7) + b"\1")
    memories = [device.allocate(unit, one.before) for unit in (one.unit, other)]
    assert WORKERS[0].ops().count("contents") == 1
    device.release(memories[0])
    assert "drop" not in WORKERS[0].ops()
    same(device.download(memories[1]), one.before)
    device.release(memories[1])
    assert WORKERS[0].ops()[-1] == "drop"


def test_memory_is_restored_and_caches_flushed_with_the_next_launch(device: CudaDevice) -> None:
    one, kernel = lone(), device.load(binary("double"))
    memory = device.allocate(one.unit, one.before)
    for _ in range(2):
        device.restore(memory)
        device.evict()
        device.launch(kernel, memory, one.unit.launch)
    device.launch(kernel, memory, one.unit.launch)
    runs = [message for message in WORKERS[0].said if message["op"] == "run"]
    assert [(run["restore"], run["evict"]) for run in runs] == [([memory.number], True)] * 2 + [([], False)]
    same(device.download(memory), one.expect(x=4 * np.arange(1.0, 9.0)))
    assert dict(kernel.binary.facts) == {"registers": 32, "blocks_per_multiprocessor": 8}
    assert device.window(kernel, [memory] * 5, one.unit.launch) == 500


def test_windows_in_a_row_are_one_request(device: CudaDevice) -> None:
    one, kernel = lone(), device.load(binary("double"))
    memory = device.allocate(one.unit, one.before)
    before, said = dict(device.spent), len(WORKERS[0].said)
    assert device.windows(kernel, [memory] * 2, one.unit.launch, 3, flush=True) == [200.0] * 3
    (run,) = WORKERS[0].said[said:]
    assert (run["windows"], run["restore"], run["evict"]) == (3, [memory.number], True)
    assert device.spent["worker"] - before["worker"] == 0.25
    assert device.spent["run"] > before.get("run", 0.0)


def test_a_launch_on_one_copy_finds_no_results_in_those_beside_it(device: CudaDevice) -> None:
    one, kernel = lone(), device.load(binary("double"))
    copies = [device.allocate(one.unit, one.before) for _ in range(3)]
    device.windows(kernel, copies, one.unit.launch, 1)
    device.windows(kernel, copies[1:2], one.unit.launch, 1)
    runs = [message for message in WORKERS[0].said if message["op"] == "run"]
    assert set(runs[-1]["restore"]) == {copy.number for copy in copies}
    for copy in (copies[0], copies[2]):
        same(device.download(copy), one.expect(x=np.arange(1.0, 9.0)))
    same(device.download(copies[1]), one.expect(x=2 * np.arange(1.0, 9.0)))
    device.windows(kernel, copies[2:], one.unit.launch, 1)
    assert set(WORKERS[0].said[-1]["restore"]) == {copies[1].number, copies[2].number}
    same(device.download(copies[1]), one.expect(x=np.arange(1.0, 9.0)))


def test_what_an_answer_says_is_kept_apart_from_what_it_took(device: CudaDevice) -> None:
    assert device.write_speed() == float(1 << 31)
    assert device.spent["worker"] == 0.25


def test_kernels_nobody_holds_go_when_another_comes(device: CudaDevice) -> None:
    first = device.load(binary("double")).number
    device.load(binary("stray"))
    loads = [message["unload"] for message in WORKERS[0].said if message["op"] == "load"]
    assert loads == [[], [first]]


def test_each_kernel_goes_once_whichever_thread_loads_the_next(device: CudaDevice) -> None:
    with ThreadPoolExecutor(4) as threads:
        numbers = set(threads.map(lambda _: device.load(binary("double")).number, range(400)))
    device.load(binary("double"))
    gone = [number for message in WORKERS[0].said if message["op"] == "load" for number in message["unload"]]
    assert sorted(gone) == sorted(numbers)


@pytest.mark.parametrize(
    ("symbol", "error", "says", "lost"),
    [
        ("hang", ReplayTimeout, "hang did not end within 2 s and was killed", True),
        ("die", WorkerLost, "it was killed by SIGKILL", True),
        ("stray", DeviceFault, "stray touched memory that is not its own", True),
        ("refused", LaunchError, "refused takes 8 bytes of arguments", False),
    ],
)
def test_after_a_failure_everything_is_there_again(
    device: CudaDevice, symbol: str, error: type[Exception], says: str, lost: bool
) -> None:
    one, good, bad = lone(), device.load(binary("double")), device.load(binary(symbol))
    memory = device.allocate(one.unit, one.before)
    with pytest.raises(error, match=says):
        device.launch(bad, memory, one.unit.launch, timeout_s=2.0)
    device.restore(memory)
    device.launch(good, memory, one.unit.launch)
    assert device.compare(memory, one.expect(x=2 * np.arange(1.0, 9.0))).status is Status.MATCH
    assert len(WORKERS) == 1 + lost
    assert WORKERS[-1].ops()[: 3 if lost else 0] == (["load", "contents", "make"] if lost else [])


def test_what_a_launch_left_is_not_judged_where_it_was_lost_with_its_worker(device: CudaDevice) -> None:
    one, kernel = lone(), device.load(binary("double"))
    memory = device.allocate(one.unit, one.before)
    device.launch(kernel, memory, one.unit.launch)
    WORKERS[0].living = False
    with pytest.raises(WorkerLost, match="what a launch left"):
        device.compare(memory, one.before)
    device.restore(memory)
    device.launch(kernel, memory, one.unit.launch)
    assert device.compare(memory, one.expect(x=2 * np.arange(1.0, 9.0))).status is Status.MATCH


@pytest.mark.parametrize(("most_edges", "downloads"), [(1 << 14, 0), (1, 1)])
def test_rules_for_single_elements_are_for_the_gpu(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch, most_edges: int, downloads: int
) -> None:
    """Scattered ones are judged here, and only where something differs."""
    monkeypatch.setattr(asked_module, "_MOST_EDGES", most_edges)
    one, kernel = lone(), device.load(binary("double"))
    memory = device.allocate(one.unit, one.before)
    device.launch(kernel, memory, one.unit.launch)
    twice = 2 * np.arange(1.0, 9.0)
    first_two = Runs(np.array([0, 2]))
    loose = {"x": Tolerance(kind="float", rtol=0.1, exact=first_two)}
    assert device.compare(memory, one.expect(x=twice), loose).status is Status.MATCH
    assert "download" not in WORKERS[0].ops()
    rounded = twice * np.array([1, 1, *[1.01] * 6])
    assert device.compare(memory, one.expect(x=rounded), loose).status is Status.MATCH
    assert WORKERS[0].ops().count("download") == downloads
    found = device.compare(memory, one.expect(x=twice * 1.01), loose)
    (difference,) = found.differences
    assert (found.status, difference.count, difference.first, difference.limit) == (Status.MISMATCH, 2, (0,), 0.0)
    ignored = {"x": replace(loose["x"], exact=Runs(np.array([0, 0])), ignore=first_two)}
    assert device.compare(memory, one.expect(x=rounded * np.array([5, 5, *[1] * 6])), ignored).status is Status.MATCH


def test_code_for_something_else_is_not_sent(device: CudaDevice) -> None:
    other = replace(binary("double"), target=Target(device="cuda", arch="sm_80"))
    with pytest.raises(LaunchError, match="sm_80; this device loads"):
        device.load(other)
    assert "load" not in WORKERS[0].ops()


def test_contents_are_laid_out_in_parts_by_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART", 100)
    arrays = {"x": np.arange(1050, dtype=np.uint32).view(np.uint8), "y": np.arange(99, dtype=np.uint8)}
    buffers = tuple(Buffer(name, None, data.nbytes, 256) for name, data in arrays.items())
    contents = Contents(buffers, arrays, unit_bytes=4299)
    (portion,), exchange = contents.portions(), Exchange()
    laid_out = os.pread(contents.lay_out(portion, exchange), 4299, 0)
    assert laid_out == arrays["x"].tobytes() + arrays["y"].tobytes()
    exchange.close()


@pytest.mark.parametrize("room", [1, 5, 8, 16, 63, 64, 65, 1000])
def test_large_contents_come_in_portions(device: CudaDevice, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """No request brings more, and none is made in vain; what comes of it is the same."""
    monkeypatch.setattr(memory_module, "PORTION", room)
    one = lone()
    same(device.download(device.allocate(one.unit, one.before)), one.before)
    sizes = [sum(nbytes for _, _, nbytes in each["pieces"]) for each in WORKERS[0].said if "pieces" in each]
    total = sum(data.nbytes for data in one.before.values())
    assert sizes == [room] * (total // room) + [total % room] * (total % room > 0)


def test_a_unit_larger_than_the_gpu_is_refused_with_what_helps(device: CudaDevice) -> None:
    one = lone()
    device.hello["memory_bytes"] = 10
    with pytest.raises(LaunchError, match=r"needs \d+ bytes and the GPU has 10; replay it on a larger GPU, or record"):
        device.allocate(one.unit, one.before)
    assert "make" not in WORKERS[0].ops()


# -- whole trials -----------------------------------------------------------------------------------------------------


class Tries:
    """A unit with two copies and what it is tried on; x is doubled, which is right unless ``factor`` says otherwise."""

    def __init__(self, device: CudaDevice) -> None:
        self.one, self.device = lone(), device
        self.first, *ring = (device.allocate(self.one.unit, self.one.before) for _ in range(3))
        self.windows = Windows(ring, 5, True, [(3, 7.0)], ring[1])

    def __call__(self, symbol: str, factor: float = 2.0) -> Tried | None:
        assert self.device.queue is not None
        expected = {name: data.copy() for name, data in self.one.expect(x=factor * np.arange(1.0, 9.0)).items()}
        for data in expected.values():
            data.flags.writeable = False
        launch = self.one.unit.launch
        return self.device.queue.tried(binary(symbol), self.first, launch, self.windows, expected, {}, timeout_s=2.0)


def test_a_trial_loads_verifies_and_times_at_once(device: CudaDevice) -> None:
    tries = Tries(device)
    found = tries("double")
    assert found is not None
    assert (found.differences, found.windows_ns) == ((), [200.0] * 5)
    assert dict(found.kernel.binary.facts) == {"registers": 32, "blocks_per_multiprocessor": 8}
    assert found.seconds == [0.25] * 3
    loading, once, timed = WORKERS[0].said[-3:]
    assert [each["op"] for each in (loading, once, timed)] == ["load", "run", "run"]
    assert [each.get("after") for each in (loading, once, timed)] == [None, True, True]
    assert (once["windows"], once["restore"], once["judged"]) == (0, [tries.first.number], tries.first.number)
    assert (timed["windows"], timed["evict"], timed["stops"]) == (5, True, [(3, 7.0)])
    assert timed["restore"] == [memory.number for memory in tries.windows.memories]
    assert timed["judged"] == tries.windows.judged.number
    assert device.conditions()["addresses"].startswith("as recorded")
    launched = len(WORKERS[0].said)
    device.restore(tries.first)  # what a trial left is nothing that the verbs count on
    assert device.compare(tries.first, tries.one.before).status is Status.MATCH
    assert len(WORKERS[0].said) == launched + 1


def test_what_does_not_match_is_not_timed(device: CudaDevice) -> None:
    found = Tries(device)("double", factor=3.0)
    assert found is not None
    (difference,) = found.differences
    assert (difference.buffer, difference.count, found.windows_ns) == ("x", 8, [])


@pytest.mark.parametrize(
    ("symbol", "error", "says"),
    [
        ("refused", LaunchError, "refused takes 8 bytes of arguments"),
        ("stray", DeviceFault, "stray touched memory"),
        ("hang", ReplayTimeout, "hang did not end within 2 s"),
        ("die", WorkerLost, "killed by SIGKILL"),
    ],
)
def test_what_fails_while_it_is_tried_leaves_the_queue_usable(
    device: CudaDevice, symbol: str, error: type[Exception], says: str
) -> None:
    tries = Tries(device)
    with pytest.raises(error, match=says):
        tries(symbol)
    found = tries("double")
    assert found is not None
    assert found.differences == ()
    first, second = (each for worker in WORKERS for each in worker.said if each["op"] == "load")
    assert second["unload"] == ([first["id"]] if symbol == "refused" else [])


def test_what_only_this_process_can_judge_is_not_for_the_queue(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = linked()
    first, *ring = (device.allocate(link.unit, link.before) for _ in range(3))
    for data in link.before.values():
        data.flags.writeable = False
    asked = binary("double"), first, link.unit.launch, Windows(ring, 5, True, [], ring[0]), link.before
    assert device.queue is not None
    assert device.queue.tried(*asked, {}) is None  # the ring's pointers are others
    monkeypatch.setattr(asked_module, "_MOST_EDGES", 1)
    tries = Tries(device)
    scattered = {"x": Tolerance(kind="float", exact=Runs(np.array([0, 2])))}
    arguments = binary("double"), tries.first, tries.one.unit.launch, tries.windows, tries.one.before
    assert device.queue.tried(*arguments, scattered) is None
    assert "load" not in WORKERS[0].ops()


class Met(set[int]):
    """Numbers of which two threads have asked for one before either is told."""

    def __init__(self, numbers: set[int]) -> None:
        super().__init__(numbers)
        self.both, self.asked = Barrier(2), set[int]()

    def __contains__(self, number: object) -> bool:
        found = super().__contains__(number)
        if get_ident() not in self.asked:
            self.asked.add(get_ident())
            self.both.wait(60)
        return found


def test_a_copy_that_two_threads_miss_is_made_once(device: CudaDevice) -> None:
    one, worker = lone(), WORKERS[0]
    memory = device.allocate(one.unit, one.before)
    made = worker.ops().count("make")
    worker.copies = Met(set())
    with ThreadPoolExecutor(2) as threads:
        for each in [threads.submit(device._supply.memory, worker, memory) for _ in range(2)]:
            each.result(60)
    assert worker.ops().count("make") == made + 1


def test_windows_have_the_time_of_those_that_may_be_long() -> None:
    assert asked_module.limit_s(35, [(4, 1.0), (5, 5e5)], 10.0) == 50.0
    assert asked_module.limit_s(7, [], 10.0) == 70.0
