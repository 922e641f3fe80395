"""Replay on the CUDA device: miniweather's captures, recorded on a CPU, and verdicts on candidates of every kind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.miniweather.driver import TOP, open_session
from kernels.miniweather.record import Run, record
from r3bench import store
from r3bench.model import Configuration, Specialization, Status, Variant
from r3bench.record.images import find_nvcc
from r3bench.server import ReplayServer
from r3bench.stats import Decision

pytestmark = pytest.mark.gpu

CAPTURES = sorted((TOP / "captures" / "miniweather").glob("*.zarr"))
# What the driver says of every kernel, and what a reader of a contest is told of the GPU.
READ_BACK = {"registers", "local_bytes", "static_shared_bytes", "blocks_per_multiprocessor"}
TOLD = {"clock_mhz by block", "throttled_blocks", "launch_floor_ns", "other_processes", "temperature_c", "addresses",
        "unit", "cache", "warm_baseline_ns", "warm_candidate_ns"}  # fmt: skip
UNITS = [(path, index) for path in CAPTURES for index in range(3)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayServer]:
    with ReplayServer("cuda", timeout_s=2.0, cache=tmp_path_factory.mktemp("cache")) as opened:
        yield opened


@pytest.mark.parametrize(("path", "index"), UNITS, ids=lambda value: getattr(value, "stem", value))
def test_units_recorded_on_a_cpu_match(server: ReplayServer, path: Path, index: int) -> None:
    found = server.submit(store.open_capture(path), Variant(), index, "none").result(60)
    assert found.verdict.status is Status.MATCH, found.verdict.detail
    assert dict(found.facts)["registers"] > 0


def capture_of(kernel: str) -> tuple[Path, str]:
    path = next(path for path in CAPTURES if path.stem == kernel)
    return path, store.sources(store.open_capture(path))["kernels.cu"]


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("result[", "result[1 + ", Status.MISMATCH),
        ("result[", "result[1ll << 40 | ", Status.FAULT),
        ("result[", "while (dt > 0) result[", Status.TIMEOUT),
        ("result[", "__trap(); result[", Status.FAULT),
        ("result[", "result[;", Status.BUILD_FAILED),
    ],
)
def test_every_candidate_gets_its_verdict(server: ReplayServer, old: str, new: str, status: Status) -> None:
    path, text = capture_of("update")
    start = text.index("void update(")
    changed = text[:start] + text[start:].replace(old, new, 1)
    found = server.submit(store.open_capture(path), Variant(files=(("kernels.cu", changed),))).result(60)
    assert found.verdict.status is status, found.verdict.detail
    after = server.submit(store.open_capture(path), Variant()).result(60)
    assert after.verdict.status is Status.MATCH, after.verdict.detail
    assert after.measurement is not None
    assert "launch_floor_ns" in dict(after.measurement.conditions)


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc on this machine")
def test_an_image_of_nvcc_is_recorded_and_is_the_baseline(server: ReplayServer, tmp_path: Path) -> None:
    with open_session("cuda", "tests", "nvcc") as session:
        record(session, Run(weather="thermal", nx=64, nz=32, kept={"update": ((0, 1), (0, 2))}), tmp_path)
    capture = store.open_capture(tmp_path / "update.zarr")
    image = store.image(capture)
    assert image is not None
    recorded, ours = (
        server.submit(capture, variant, 0, "none").result(60)
        for variant in (Variant(), Variant(configuration=Configuration()))
    )
    assert [found.verdict.status for found in (recorded, ours)] == [Status.MATCH, Status.MATCH]
    assert recorded.binary == hashlib.sha256(image).hexdigest() != ours.binary
    assert dict(recorded.facts).keys() >= READ_BACK
    assert READ_BACK | {"spill_store_bytes", "spill_load_bytes"} <= dict(ours.facts).keys()


def test_a_configuration_is_compared_with_the_default(server: ReplayServer) -> None:
    path, _ = capture_of("tendencies_x")
    slow = Variant(configuration=Configuration(assembler=(("opt-level", "0"),)))
    fast = Variant(configuration=Configuration(specialize=Specialization(block=True, noalias=True)))
    capture = store.open_capture(path)
    found = server.compare(capture, 0, Variant(), slow).result(120)
    assert found.decision is Decision.SLOWER
    assert found.control is not None
    assert dict(found.conditions).keys() >= TOLD
    assert f"of {found.blocks}" in dict(found.conditions)["throttled_blocks"]
    assert server.compare(capture, 0, Variant(), Variant()).result(120).decision is Decision.IDENTICAL
    assert server.submit(capture, fast).result(60).verdict.status is Status.MATCH


def test_bandwidth_is_told_and_counters_where_they_may_be_counted(server: ReplayServer) -> None:
    told = server.profile(store.open_capture(capture_of("tendencies_x")[0])).result(120)
    assert float(told.pop("memory bandwidth, writing").removesuffix(" GB/s")) > 100
    if not told:
        pytest.skip("ncu is not here, or may not count on this system")
    assert int(told["registers per thread"]) > 8
    assert float(told["bytes written to device memory"]) >= 0
