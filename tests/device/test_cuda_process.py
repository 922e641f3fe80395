"""The CUDA device's worker is killed at each point of its talk: nobody is blamed, and the request is done again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import sleep

import pytest

from r3bench.devices.cuda import process
from r3bench.devices.cuda.process import Request
from r3bench.devices.cuda.supply import Supply
from r3bench.errors import DeviceFault, WorkerLost
from r3bench.replay.failures import again


@pytest.fixture
def supply(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Supply]:
    monkeypatch.setattr(process, "_PROGRAM", "tests.device.ending_worker")
    monkeypatch.setenv("R3BENCH_ENDED", str(tmp_path / "ended"))
    with closing(Supply(0)) as opened:
        yield opened


@pytest.mark.parametrize("point", ["starting", "greeting", "asked", "slowly", "answering", "idle"])
def test_a_request_whose_worker_is_killed_is_done_again(
    supply: Supply, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, point: str
) -> None:
    monkeypatch.setenv("R3BENCH_ENDS_AT", point)
    for number in range(2):
        answer = again(lambda: supply.ask(supply.worker(), {"op": "echo", "number": number}, "asking"))  # noqa: B023
        assert answer == {"op": "echo", "number": number}
    assert (tmp_path / "ended").exists()


def test_a_killed_worker_is_told_from_one_that_failed(supply: Supply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R3BENCH_ENDS_AT", "answering")
    with pytest.raises(WorkerLost, match="asking: it was killed by SIGKILL"):
        supply.ask(supply.worker(), {"op": "echo"}, "asking")


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (signal.SIGTERM, WorkerLost),
        (signal.SIGHUP, WorkerLost),
        (signal.SIGSEGV, DeviceFault),
        (signal.SIGABRT, DeviceFault),
    ],
)
def test_signals_that_others_send_are_nobodys_fault(
    supply: Supply, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, error: type[Exception]
) -> None:
    monkeypatch.setenv("R3BENCH_ENDS_AT", "asked")
    monkeypatch.setenv("R3BENCH_ENDS_BY", str(int(number)))
    with pytest.raises(error, match=f"asking: it was killed by {number.name}"):
        supply.ask(supply.worker(), {"op": "echo"}, "asking")


def test_an_answer_that_is_none_ends_the_worker(supply: Supply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R3BENCH_ENDS_AT", "never")
    with pytest.raises(DeviceFault, match="asking: it sent an answer that is none"):
        supply.ask(supply.worker(), {"op": "junk"}, "asking")
    assert supply.ask(supply.worker(), {"op": "echo"}, "asking") == {"op": "echo"}


def test_every_thread_gets_the_answer_to_what_it_asked(supply: Supply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R3BENCH_ENDS_AT", "never")
    worker = supply.worker()

    def asked(number: int) -> bool:
        message = {"op": "echo", "number": number, "text": number * "x"}
        return supply.ask(worker, message, "asking") == message

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(asked, range(300)))
    assert supply.worker() is worker


def test_requests_that_belong_together_are_answered_together(supply: Supply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R3BENCH_ENDS_AT", "never")
    worker = supply.worker()

    def asked(number: int) -> bool:
        messages = [{"op": "echo", "number": number, "part": part} for part in range(3)]
        said = supply.replies(worker, *(Request(message, "asking") for message in messages))
        return [reply["answer"] for reply in said] == messages

    with ThreadPoolExecutor(3) as threads:
        assert all(threads.map(asked, range(100)))


def test_a_worker_that_ends_at_one_of_several_requests_is_blamed_for_that(
    supply: Supply, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R3BENCH_ENDS_AT", "never")
    ending = (Request({"op": op}, f"at {op}") for op in ("echo", "end", "echo"))
    with pytest.raises(DeviceFault, match="lost while at at end: "):
        supply.replies(supply.worker(), *ending)
    losing = (Request({"op": op}, f"at {op}") for op in ("echo", "lose", "echo"))
    with pytest.raises(DeviceFault, match="at lose touched memory"):
        supply.replies(supply.worker(), *losing)
    assert supply.ask(supply.worker(), {"op": "echo"}, "asking") == {"op": "echo"}


@pytest.mark.parametrize("op", ["end", "lose"])
def test_only_the_request_that_ends_a_worker_is_blamed(
    supply: Supply, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    monkeypatch.setenv("R3BENCH_ENDS_AT", "never")
    worker = supply.worker()
    with ThreadPoolExecutor(1) as other:
        blamed = other.submit(supply.ask, worker, {"op": op}, "asking")
        while not worker.waits:
            sleep(0.001)
        with pytest.raises(WorkerLost, match="it ended at what was asked of it before"):
            supply.ask(worker, {"op": "echo"}, "waiting")
        with pytest.raises(DeviceFault):
            blamed.result(60)
    assert supply.ask(supply.worker(), {"op": "echo"}, "asking") == {"op": "echo"}
