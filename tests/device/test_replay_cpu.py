"""Replay on the CPU device from source to verdict: right, wrong, failing and slow candidates of one recorded kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import numpy as np
import pytest

from r3bench import store
from r3bench.model import (
    Allocation,
    Capture,
    Configuration,
    LaunchConfig,
    LaunchRule,
    Parameter,
    Pointer,
    ReplayUnit,
    Source,
    Specialization,
    Status,
    Variant,
)
from r3bench.server import ReplayServer
from r3bench.stats import Decision
from r3bench.store import UnitContents, text_sha256

N, BLOCK, STEP = 20_000, 64, 0.25

BLUR = """// Each element becomes the mean of the elements of its block of threads, then moves on by a step.
extern "C" __global__ void blur(double *x, const double *rate, int n, double step) {
  __shared__ double held[64];
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
  held[t] = i < n ? x[i] : 0.0;
  __syncthreads();
  double sum = 0.0;
  for (int k = 0; k < 64; k++) sum += held[k];
  if (i < n) x[i] = sum / 64 + step * rate[i];
}
"""
MORE_WORK = """double sum = 0.0;
  for (int k = 0; k < 64; k++) sum += 1e-300 / (1.0 + held[k]);"""
SLOW = BLUR.replace("double sum = 0.0;", MORE_WORK)


def blurred(x: np.ndarray, rate: np.ndarray) -> np.ndarray:
    blocks = np.zeros(-(-x.size // BLOCK) * BLOCK)
    blocks[: x.size] = x
    return np.repeat(blocks.reshape(-1, BLOCK).sum(1) / 64, BLOCK)[: x.size] + STEP * rate


def unit(index: int, n: int) -> ReplayUnit:
    return ReplayUnit(
        index=index,
        launch=LaunchConfig(grid=(-(-n // BLOCK), 1, 1), block=(BLOCK, 1, 1)),
        arguments=bytes(16) + np.int32(n).tobytes() + bytes(4) + np.float64(STEP).tobytes(),
        pointers=(Pointer(offset=0, allocation="x"), Pointer(offset=8, allocation="rate")),
        allocations=tuple(
            Allocation(name=name, address=0x7F00_0000_0000 + (at << 24), nbytes=8 * n, dtype="float64", shape=(n,))
            for at, name in enumerate(("x", "rate"))
        ),
        held_out=index > 0,
    )


def contents(n: int) -> UnitContents:
    chance = np.random.default_rng(n)
    x, rate = chance.random(n), chance.random(n)
    before = {"x": x.view(np.uint8), "rate": rate.view(np.uint8)}
    return UnitContents(before, {"x": blurred(x, rate).view(np.uint8)})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    path = tmp_path_factory.mktemp("captures") / "blur.zarr"
    kinds = (("x", 0, 8, "pointer"), ("rate", 8, 8, "pointer"), ("n", 16, 4, "scalar"), ("step", 24, 8, "scalar"))
    made = Capture(
        path=str(path),
        application="app",
        symbol="blur",
        demangled="blur",
        parameters=tuple(
            Parameter(name=name, offset=at, size=size, kind=kind, dtype="int32" if name == "n" else "float64")  # type: ignore[arg-type]
            for name, at, size, kind in kinds
        ),
        source=Source(root=".", main="blur.cu", span=(3, 11), files=(("blur.cu", text_sha256(BLUR)),)),
        units=(unit(0, N), unit(1, N // 3)),
    )
    return store.write(path, made, [contents(N), contents(N // 3)], {"blur.cu": BLUR})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayServer]:
    with ReplayServer("cpu", timeout_s=60.0, cache=tmp_path_factory.mktemp("cache")) as opened:
        yield opened


def changed(old: str, new: str) -> Variant:
    assert old in BLUR
    return Variant(files=(("blur.cu", BLUR.replace(old, new)),))


@pytest.mark.parametrize("unit", [0, 1])
def test_the_recorded_kernel_matches_and_has_a_time(server: ReplayServer, recorded: Capture, unit: int) -> None:
    found = server.submit(recorded, Variant(), unit).result(60)
    assert found.verdict.status is Status.MATCH, found.verdict.detail
    assert found.measurement is not None
    assert 1e3 < min(found.measurement.samples_ns) < 1e8


def test_a_specialized_kernel_matches_on_every_unit(server: ReplayServer, recorded: Capture) -> None:
    constant = Specialization(arguments=("n", "step"), block=True, grid=True, noalias=True, align=True)
    variant = Variant(configuration=Configuration(specialize=constant))
    outcomes = [server.submit(recorded, variant, unit, "none").result(60) for unit in (0, 1)]
    assert [found.verdict.status for found in outcomes] == [Status.MATCH, Status.MATCH]
    assert outcomes[0].binary != outcomes[1].binary


@pytest.mark.parametrize(
    ("old", "new", "status", "says"),
    [
        ("sum / 64", "sum / 63", Status.MISMATCH, "x[0] is"),
        ("i < n) x[i]", "i < n - 1) x[i]", Status.MISMATCH, "1 of 20000 elements differ"),
        ("i < n) x[i]", "i < 0) x[i]", Status.MISMATCH, "20000 of 20000"),
        ("  __syncthreads();\n", "", Status.MISMATCH, "x["),
        ("sum += held[k]", "sum += (float)held[k]", Status.MISMATCH, "x["),
        ("double step)", "double step, int more)", Status.LAUNCH_FAILED, "takes 5 parameters where 4 were recorded"),
        ("int n, ", "short n, short m, ", Status.LAUNCH_FAILED, "takes 5 parameters where 4 were recorded"),
        ("const double *rate", "double *rate", Status.MATCH, ""),
        ("x[i] = sum", "x[i + n] = sum", Status.FAULT, "wrote 8 bytes at blur.cu:9, block ("),
        ("x[i] = sum", "x[i + n] = sum", Status.FAULT, " of x (20000 elements of float64)"),
        ("double sum = 0.0;", "double sum = 0.0; __trap();", Status.FAULT, "blur"),
        (
            "double sum = 0.0;",
            "double sum = 0.0; while (step > 0) sum += *(volatile double *)x;",
            Status.TIMEOUT,
            "1 s",
        ),
        ("double sum = 0.0;", "double sum = 0.0", Status.BUILD_FAILED, "blur.cu:7:"),
    ],
)
def test_every_candidate_gets_its_verdict(
    server: ReplayServer,
    recorded: Capture,
    old: str,
    new: str,
    status: Status,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if status is Status.TIMEOUT:
        server.submit(recorded, Variant(), timing="none").result(60)  # what the recorded kernel does has no such limit
        monkeypatch.setattr(server, "_timeout_s", 1.0)
    found = server.submit(recorded, changed(old, new)).result(60)
    assert found.verdict.status is status, found.verdict.detail
    assert says in found.verdict.detail
    assert (found.measurement is not None) == (status is Status.MATCH)


def test_a_mismatch_names_who_wrote_it(server: ReplayServer, recorded: Capture) -> None:
    wrong = changed("i < n) x[i]", "i == 700) x[i] = 2; else if (i < n) x[i]")
    verdict = server.submit(recorded, wrong, timing="none").result(60).verdict
    (difference,) = verdict.differences
    assert difference.writer == f"block ({700 // BLOCK}, 0, 0), thread ({700 % BLOCK}, 0, 0) at blur.cu:9"
    assert difference.writer in verdict.detail


def test_a_block_that_is_too_large_is_a_launch_failure(server: ReplayServer, recorded: Capture) -> None:
    found = server.submit(recorded, Variant(launch=LaunchRule(block=(2048, 1, 1)))).result(60)
    assert found.verdict.status is Status.LAUNCH_FAILED


def test_more_work_is_slower_and_its_removal_faster(server: ReplayServer, recorded: Capture) -> None:
    slow = Variant(files=(("blur.cu", SLOW),))
    there = server.compare(recorded, 0, Variant(), slow).result(120)
    back = server.compare(recorded, 0, slow, Variant()).result(120)
    assert (there.decision, back.decision) == (Decision.SLOWER, Decision.FASTER)
    assert dict(there.conditions)["cache"] == "warm, which decides"
    assert there.repeat is not None
    cold = dict(there.repeat.conditions)
    assert float(cold["cold_candidate_ns"]) > float(cold["cold_baseline_ns"]) > 0
    assert there.speedup is not None
    assert back.speedup is not None
    assert there.speedup < 0.8
    assert there.control is not None
    assert there.control.blocks > 0
    assert back.speedup > 1.25


def test_the_same_source_is_identical(server: ReplayServer, recorded: Capture) -> None:
    commented = changed("// Each", "// Every one: each")
    assert server.compare(recorded, 0, Variant(), commented).result(60).decision is Decision.IDENTICAL


def test_closing_ends_a_kernel_that_hangs(recorded: Capture, tmp_path: Path) -> None:
    hanging = changed("double sum = 0.0;", "double sum = 0.0; while (step > 0) sum += *(volatile double *)x;")
    opened = ReplayServer("cpu", timeout_s=600.0, cache=tmp_path)
    futures = [opened.submit(recorded, hanging)]
    while not futures[0].running():
        time.sleep(0.01)
    futures += [opened.submit(recorded, variant) for variant in (Variant(), changed("/ 64", "/ 64.0"))]
    time.sleep(0.2)
    begin = time.monotonic()
    opened.close()
    assert time.monotonic() - begin < 300
    for future in futures:
        with pytest.raises(CancelledError):
            future.result(60)
