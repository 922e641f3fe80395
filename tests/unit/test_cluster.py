"""A cluster of two replay workers and a compile worker on this machine: requests, captures, lost workers, the end."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler, SpecCluster

from r3bench import store
from r3bench.cli import main
from r3bench.cluster import addresses, client, nodes, open_cluster, start, worker
from r3bench.cluster.batches import MOST, Batches
from r3bench.cluster.client import Cluster
from r3bench.cluster.nodes import divided
from r3bench.cluster.worker import COMPILE, REPLAY, Absent, kind_of
from r3bench.errors import CaptureError, DeviceUnavailable, ServiceError, WorkerLost
from r3bench.model import Capture, Configuration, Level, Status, Target, Variant
from r3bench.server.requests import Identity

CAPTURE = Path(__file__).parents[2] / "captures" / "miniweather" / "update.zarr"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A scheduler, and a node that works for it as ``r3bench worker`` does."""
    options = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with SpecCluster(scheduler={"cls": Scheduler, "options": options}, workers={}, silence_logs=50) as scheduler:
        command = ["worker", scheduler.scheduler_address, "--replays", "2", "--device", "cpu"]
        with subprocess.Popen([sys.executable, "-m", "r3bench", *command], stderr=subprocess.PIPE) as node:
            yield scheduler.scheduler_address
            node.send_signal(signal.SIGTERM)
            assert node.wait(60) == 0


@pytest.fixture
def cluster(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(start, "_PATIENCE_S", 300.0)
    with open_cluster(address, "cpu") as opened:
        opened._client.wait_for_workers(3, timeout=300)
        while not opened._slots[COMPILE]:  # the node's compile worker may come last
            time.sleep(0.1)
        yield opened


@pytest.fixture(scope="module")
def recorded() -> Capture:
    return store.open_capture(CAPTURE)


def configured(number: int) -> Variant:
    """Variants that give other code each."""
    return Variant(configuration=Configuration(tuning=(("inlining_threshold", 100 + number),)))


def test_requests_are_answered_as_by_any_server(cluster: Cluster, recorded: Capture) -> None:
    assert cluster.target.device == "cpu"
    assert cluster.at_once == 2 * (2 * 2 + len(os.sched_getaffinity(0)))
    assert Level.SANITIZED in cluster.levels
    outcome = cluster.submit(recorded, Variant(), timing="once").result(60)
    assert (outcome.verdict.status, outcome.unit) == (Status.MATCH, 0)
    assert outcome.measurement is not None
    assert dict(outcome.measurement.conditions)["device"].startswith(cluster.machine)
    assert "processor" in cluster.conditions()
    assert "memory bandwidth, writing" in cluster.profile(recorded).result(60)
    verified = cluster.verify(recorded, configured(0), Level.HELD_OUT, unit=1).result(60)
    assert (verified.verdict.status, verified.measurement) == (Status.MATCH, None)
    wanted = Target(device="cuda", arch="sm_90")
    assert cluster.compiled(recorded, Variant(), wanted).result(60).binary.target == wanted


def test_a_contest_is_timed_on_one_device(cluster: Cluster, recorded: Capture) -> None:
    found = cluster.compare(recorded, 0, configured(1), Variant(configuration=Configuration(pipeline="O1"))).result(120)
    assert dict(found.conditions)["device"].startswith(cluster.machine)
    assert found.repeat is None or dict(found.repeat.conditions)["device"] == dict(found.conditions)["device"]


def test_failures_are_verdicts_and_damage_is_raised(cluster: Cluster, recorded: Capture) -> None:
    assert recorded.source is not None
    broken = Variant(files=((recorded.source.main, "this is no kernel"),))
    assert cluster.submit(recorded, broken, timing="race").result(60).verdict.status is Status.BUILD_FAILED
    with pytest.raises(CaptureError, match="has no unit 9"):
        cluster.submit(recorded, Variant(), unit=9).result(60)


def test_the_same_code_is_replayed_once_in_the_whole_cluster(cluster: Cluster, recorded: Capture) -> None:
    one, other = Variant(), Variant(configuration=Configuration())
    first, second = (cluster.submit(recorded, each, timing="once") for each in (one, other))
    assert first.result(60).measurement == second.result(60).measurement
    assert first.result().variant != second.result().variant


def test_a_capture_goes_to_a_node_once(
    cluster: Cluster, recorded: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(CAPTURE, tmp_path / "sent.zarr")
    monkeypatch.chdir(tmp_path)  # where the workers are not: they cannot see the path
    sent, ship = [], cluster._ship

    async def counted(*what: Any) -> float:
        sent.append(what)
        return await ship(*what)

    monkeypatch.setattr(cluster, "_ship", counted)
    capture = replace(recorded, path="sent.zarr")
    futures = [cluster.submit(capture, configured(at), unit=at % 2, timing="none") for at in range(8)]
    assert {future.result(60).verdict.status for future in futures} == {Status.MATCH}
    assert len(sent) == 1
    assert list(Path(tempfile.gettempdir()).glob(f"r3bench-*-{cluster._session.id}/*/capture.zarr/zarr.json"))


def test_what_a_lost_worker_had_is_done_again(cluster: Cluster, recorded: Capture) -> None:
    processes = cluster._client.run(os.getpid, workers=cluster._workers(REPLAY))
    futures: list[Future[Any]] = [cluster.submit(recorded, configured(at), timing="rank") for at in range(12)]
    futures[0].result(60)
    for process in processes.values():
        os.kill(process, signal.SIGKILL)
    assert not wait(futures, 120).not_done
    assert {future.result().verdict.status for future in futures} == {Status.MATCH}
    after = cluster._client.run(os.getpid, workers=cluster._workers(REPLAY))
    assert not set(after.values()) & set(processes.values())


def test_a_worker_that_has_gone_is_not_waited_for(cluster: Cluster) -> None:
    with pytest.raises(WorkerLost, match=r"tcp://127\.0\.0\.1:9 of .* has gone"):
        cluster._start(cluster._on(REPLAY, os.getpid, at="tcp://127.0.0.1:9")).result(60)
    assert cluster._one_kind(["tcp://127.0.0.1:9"]) == cluster.identity
    assert not cluster._asked


def test_a_capture_whose_receiver_was_lost_is_sent_to_another(
    cluster: Cluster, recorded: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(CAPTURE, tmp_path / "again.zarr")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cluster, "_session", replace(cluster._session, id=f"{cluster._session.id}-again"))
    lost, ship = [], cluster._ship

    async def first_to_nobody(absent: Absent, identity: str, capture: Capture) -> float:
        gone = absent if lost else replace(absent, worker="tcp://127.0.0.1:9")
        lost.append(absent)
        return await ship(gone, identity, capture)

    monkeypatch.setattr(cluster, "_ship", first_to_nobody)
    outcome = cluster.submit(replace(recorded, path="again.zarr"), Variant(), timing="none").result(60)
    assert (outcome.verdict.status, len(lost)) == (Status.MATCH, 2)
    cluster._client.run(worker.ended, cluster._session)


def test_a_worker_that_hangs_is_replaced_and_its_request_done_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_S", 8.0)
    begun = tmp_path / "begun"
    command = f"[ -e {begun} ] || {{ touch {begun}; exec sleep 200; }}"
    before = cluster._client.run(os.getpid, workers=cluster._workers(REPLAY))
    assert cluster._start(cluster._on(REPLAY, os.system, command)).result(180) == 0
    after = cluster._client.run(os.getpid, workers=cluster._workers(REPLAY))
    assert set(before.values()) - set(after.values())


def test_a_request_over_which_every_worker_hangs_is_given_up(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "MOST_S", 1.0)
    with pytest.raises(ServiceError, match=r"3 compile workers of .* in turn did not end one request within 1 s"):
        cluster._start(cluster._on(COMPILE, time.sleep, 3600)).result(180)
    assert not cluster._asked


def test_a_damaged_copy_of_a_capture_is_found_where_a_node_has_a_sound_one(
    cluster: Cluster, recorded: Capture, tmp_path: Path
) -> None:
    assert cluster.submit(recorded, Variant(), timing="none").result(60).verdict.status is Status.MATCH
    shutil.copytree(CAPTURE, tmp_path / "damaged.zarr")
    chunk = next(path for path in sorted((tmp_path / "damaged.zarr").rglob("c/*")) if path.is_file())
    chunk.write_bytes(chunk.read_bytes()[:-1] + b"!")
    with pytest.raises(CaptureError, match=r"damaged\.zarr"):
        cluster.submit(store.open_capture(tmp_path / "damaged.zarr"), Variant(), timing="none").result(60)


def test_a_cluster_whose_workers_are_all_gone_ends_its_requests(cluster: Cluster) -> None:
    cluster._patience_s = 0.5
    with pytest.raises(ServiceError, match="or all its quantum workers are gone"):
        cluster._start(cluster._on("quantum", os.getpid)).result(60)


def test_the_end_cancels_what_has_not_ended(address: str, recorded: Capture) -> None:
    with open_cluster(address, "cpu") as opened:
        futures: list[Future[Any]] = [opened.submit(recorded, configured(at)) for at in range(8)]
        futures.append(opened._start(asyncio.sleep(3600)))
    assert not wait(futures, 60).not_done
    assert futures[-1].cancelled()
    opened.close()
    assert not list(Path(tempfile.gettempdir()).glob(f"r3bench-*-{opened._session.id}"))


def test_devices_of_several_kinds_are_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    names = iter(["NVIDIA H100 GPU-1", "NVIDIA H200 GPU-2"])

    async def other(*what: Any, **where: Any) -> Identity:
        return replace(cluster.identity, machine=next(names))

    monkeypatch.setattr(cluster, "_on", other)
    with pytest.raises(DeviceUnavailable, match=r"several kinds \(NVIDIA H100 .*, NVIDIA H200 .*\)"):
        cluster._one_kind(cluster._workers(REPLAY)[:2])
    monkeypatch.undo()
    cluster._kind = "NVIDIA H100 (sm_90)"
    with pytest.raises(DeviceUnavailable, match="not NVIDIA H100"):
        cluster.submit(store.open_capture(CAPTURE), Variant()).result(60)


def test_a_cluster_without_replay_workers_is_not_waited_for_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_PATIENCE_S", 0.5)
    options = {"host": "127.0.0.1", "port": 0, "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    with (
        SpecCluster(scheduler={"cls": Scheduler, "options": options}, workers={}, silence_logs=50) as scheduler,
        pytest.raises(ServiceError, match="start r3bench worker on its nodes"),
    ):
        open_cluster(scheduler.scheduler_address)


def test_workers_that_end_while_they_start_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ends.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    monkeypatch.setattr(nodes, "worker", SimpleNamespace(__name__=str(tmp_path / "ends.py")))
    with pytest.raises(ServiceError, match=r"workers do not start \(.+\): start it again"):
        open_cluster("local:1", "cpu")


def test_a_worker_without_a_scheduler_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_ANSWER_S", 1.0)
    assert main(["worker", "tcp://127.0.0.1:1", "--device", "cpu"]) == 3
    said = capsys.readouterr().err
    assert "no scheduler answers at tcp://127.0.0.1:1" in said
    assert said.count("\n") == 1


# -- addresses and shares -------------------------------------------------------------------------------------------


def test_addresses() -> None:
    settings = (("queue", "gpu"), ("walltime", "01:00:00"))
    assert addresses.parse("local:4") == addresses.Start(kind="local", count=4)
    assert addresses.parse("slurm:2,queue=gpu,walltime=01:00:00") == addresses.Start(
        kind="slurm", count=2, settings=settings
    )
    assert addresses.parse("tcp://127.0.0.1:8786") == "tcp://127.0.0.1:8786"
    assert addresses.parse("tls://head:8786") == "tls://head:8786"
    assert addresses.parse("tcp+private://10.0.0.1:8786") == "tcp://10.0.0.1:8786"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("local", "say local:4"),
        ("local:0", "say local:4"),
        ("slurm:two", "say slurm:4"),
        ("pbs:2,gpu", "say pbs:4"),
        ("head:8786", "names no cluster"),
        ("tls://head", "names no cluster"),
        ("tls://head:many", "names no cluster"),
        ("tcp://10.0.0.1:8786", "can run code as you"),
    ],
)
def test_what_is_no_address(text: str, why: str) -> None:
    with pytest.raises(ServiceError, match=why):
        addresses.parse(text)


def test_processors_are_shared_where_there_are_enough() -> None:
    assert divided(range(16), 4) == ([range(2), range(2, 4), range(4, 6), range(6, 8)], range(8, 16))
    assert divided([0, 1, 2], 2) == ([[0], [1]], [2])
    assert divided([0, 1], 2) == ([[0, 1], [0, 1]], [0, 1])


def test_a_node_has_a_replay_worker_for_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "visible_gpus", lambda: ["2", "MIG-5"])
    *replays, builds = nodes.roles()
    shown = [role.environment["CUDA_VISIBLE_DEVICES"] for role in replays]
    assert (shown, [role.resource for role in replays]) == (["2", "MIG-5"], [REPLAY, REPLAY])
    assert (builds.resource, builds.slots, "CUDA_VISIBLE_DEVICES" in builds.environment) == (
        COMPILE,
        len(os.sched_getaffinity(0)),
        False,
    )
    assert [role.gpu for role in nodes.roles(3)] == ["2", "MIG-5", "2", None]
    assert [role.gpu for role in nodes.roles(device="cpu")] == [None, None]


def test_kinds_are_models() -> None:
    target = Target(device="cuda", arch="sm_90")
    one, other = (
        Identity(target=target, name="", machine=f"NVIDIA H200 GPU-{n}", levels=(), at_once=2) for n in range(2)
    )
    assert kind_of(one) == kind_of(other) == "NVIDIA H200 (sm_90)"


def test_what_waits_goes_several_to_a_task() -> None:
    """Two tasks at once share what waits; each request has its own answer, and what a task raises all of it do."""
    tasks, most = [], 0

    async def run(requests: list[int]) -> list[int]:
        nonlocal most
        tasks.append(requests)
        most = max(most, len(batches._tasks))
        await asyncio.sleep(0)
        if 13 in requests:
            raise ServiceError("gone")
        return [10 * number for number in requests]

    async def ask(*numbers: int) -> list[object]:
        return await asyncio.gather(*(batches.ask(number) for number in numbers), return_exceptions=True)

    batches = Batches(run, lambda: 2)
    assert asyncio.run(ask(*range(8))) == [10 * number for number in range(8)]
    assert tasks == [[0], [1], [2, 3, 4], [5, 6], [7]]
    assert most == 2
    tasks.clear()
    answers = asyncio.run(ask(10, 11, 12, 13, 14))
    assert tasks == [[10], [11], [12, 13], [14]]
    assert [str(each) for each in answers] == ["100", "110", "gone", "gone", "140"]
    tasks.clear()
    asyncio.run(ask(*range(40)))
    assert max(map(len, tasks)) == MOST


def test_requests_that_are_cancelled_leave_the_others_alone() -> None:
    ran = []

    async def run(requests: list[int]) -> list[int]:
        ran.extend(requests)
        await asyncio.sleep(0.01)
        return requests

    async def cancelled() -> list[object]:
        batches = Batches(run, lambda: 1)
        asked = [asyncio.ensure_future(batches.ask(number)) for number in range(4)]
        await asyncio.sleep(0)
        asked[0].cancel()
        asked[2].cancel()
        return await asyncio.gather(*asked, return_exceptions=True)

    first, second, third, fourth = asyncio.run(cancelled())
    assert (second, fourth, ran) == (1, 3, [0, 1, 3])
    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(third, asyncio.CancelledError)
