"""Several devices as one server: each capture has its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from replay_case import FakeCompiler, capture, programs, variant

from r3bench.devices import count_devices
from r3bench.devices.cuda import survey as cuda_survey
from r3bench.errors import DeviceUnavailable
from r3bench.model import Capture, Level, Status, Target, Variant
from r3bench.server import ReplayServer
from r3bench.server.fleet import Fleet, open_server
from r3bench.stats import Decision
from r3bench.testing import FakeDevice


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Capture]:
    folder = tmp_path_factory.mktemp("captures")
    return [capture(folder / text, text=text) for text in ("add", "quick", "slow")]


@pytest.fixture
def devices() -> list[FakeDevice]:
    return [FakeDevice(programs(), name=f"fake {number}") for number in range(2)]


@pytest.fixture
def fleet(devices: list[FakeDevice]) -> Iterator[Fleet]:
    compiler = FakeCompiler()
    with closing(Fleet([ReplayServer(lambda d=d: d, compiler=compiler) for d in devices])) as opened:  # type: ignore[misc]
        yield opened


def test_each_capture_is_on_one_device(fleet: Fleet, devices: list[FakeDevice], recorded: list[Capture]) -> None:
    for held, counts in zip(recorded, [(1, 0), (1, 1), (1, 1)], strict=True):
        assert fleet.submit(held, Variant()).result(60).verdict.status is Status.MATCH
        assert tuple(int(device.launches > 0) for device in devices) == counts
    before = devices[1].launches
    for held in (recorded[0], recorded[2]):
        assert fleet.verify(held, Variant(), Level.HELD_OUT, 1).result(60).verdict.status is Status.MATCH
        found = fleet.compare(held, 0, variant("add"), variant("quick")).result(60)
        assert found.decision is Decision.FASTER
    assert devices[1].launches == before


def test_it_says_which_devices_it_has(fleet: Fleet) -> None:
    assert (fleet.name, fleet.target.arch) == ("fake 0, fake 1", "fake")
    assert fleet.levels[0] is Level.SEEN
    assert fleet.conditions()["clock"] == "made up"


def test_devices_that_differ_are_no_fleet(devices: list[FakeDevice]) -> None:
    devices[1].target = Target(device="cpu", arch="another")
    servers = [ReplayServer(lambda d=d: d, compiler=FakeCompiler()) for d in devices]  # type: ignore[misc]
    with pytest.raises(DeviceUnavailable, match=r"the devices differ \(another, fake\)"):
        Fleet(servers)
    assert all(device.closed for device in devices)


def test_as_many_servers_as_visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, int]] = []

    def fake(name: str, **options: int) -> FakeDevice:
        opened.append(options)
        return FakeDevice(programs(), name=f"{name} {options['index']}")

    monkeypatch.setattr(cuda_survey, "visible", lambda: ["0", "MIG-a", "MIG-b"])
    monkeypatch.setattr("r3bench.server.fleet.open_device", fake)
    assert (count_devices("cuda"), count_devices("cpu")) == (3, 1)
    with closing(open_server("cuda")) as server:
        assert server.name == "cuda 0, cuda 1, cuda 2"
    assert opened == [{"index": 0}, {"index": 1}, {"index": 2}]
