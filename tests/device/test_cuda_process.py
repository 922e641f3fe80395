"""The CUDA device's worker is killed at each point of its talk: nobody is blamed, and the request is done again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from r3bench.devices.cuda import process
from r3bench.devices.cuda.supply import Supply
from r3bench.errors import WorkerLost
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
