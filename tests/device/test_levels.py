"""Levels of verification on the CPU device: what passes the recorded launch alone, and is caught beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from r3bench import levels
from r3bench.model import Capture, Configuration, Level, Specialization, Status, Target, Variant, Verdict
from r3bench.original import Original
from r3bench.record import Session
from r3bench.replay import read_material
from r3bench.server import ReplayServer
from r3bench.toolchain import Compiler

N = 200
TEXT = """
extern "C" __global__ void relax(const double* from, double* to, int n, int weight, double step) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 1 || i >= n - 1) return;
    double sum = from[i - 1] + from[i + 1];
    to[i] = from[i] + step * (sum - 2.0 * from[i]) + 1e-6 * (double)((long long)weight * weight);
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayServer]:
    with ReplayServer("cpu", timeout_s=60.0, cache=tmp_path_factory.mktemp("cache")) as opened:
        yield opened


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    folder = tmp_path_factory.mktemp("levels")
    (folder / "k.cu").write_text(TEXT)
    values = np.random.default_rng(0).random(N)
    with Session("levels", folder, "cpu") as session:
        module = session.module("k.cu")
        held = session.array("from", values), session.array("to", np.zeros(N))
        session.capture("relax")
        session.launch(module, "relax", (4, 1, 1), (64, 1, 1), (*held, N, 3, 0.1))
        return session.save(folder)[0]


def changed(old: str, new: str) -> Variant:
    assert old in TEXT
    return Variant(files=(("k.cu", TEXT.replace(old, new)),))


def test_the_device_offers_every_level(server: ReplayServer) -> None:
    assert server.levels == tuple(Level)


@pytest.mark.parametrize("level", list(Level))
def test_the_recorded_kernel_passes_every_level(server: ReplayServer, recorded: Capture, level: Level) -> None:
    verdict = server.verify(recorded, Variant(), level).result(60).verdict
    assert (verdict.status, verdict.level) == (Status.MATCH, level), verdict.detail


def test_a_match_says_what_was_run(server: ReplayServer, recorded: Capture) -> None:
    detail = server.verify(recorded, Variant(), Level.PERTURBED).result(60).verdict.detail
    assert "floats changed by up to 30%" in detail
    assert "weight = 65537" in detail
    assert "n = 199" in detail
    assert "others were left out" in detail  # n = 601 makes it write beyond its buffers; a NaN spreads
    assert "NaN" not in detail
    assert server.verify(recorded, Variant(), Level.SANITIZED).result(60).verdict.detail == (
        "checked build, forward, checked build, reverse, checked build, separate"
    )


def test_a_variant_that_compiles_arguments_in_is_built_for_each_input(server: ReplayServer, recorded: Capture) -> None:
    constant = Variant(configuration=Configuration(specialize=Specialization(arguments=("n", "weight", "step"))))
    verdict = server.verify(recorded, constant, Level.PERTURBED).result(60).verdict
    assert verdict.status is Status.MATCH, verdict.detail


@pytest.mark.parametrize(
    ("old", "new", "level", "status", "says"),
    [
        ("step * (sum", "0.1 * (sum", Level.PERTURBED, Status.MISMATCH, "with step = 0.125: to[1] is"),
        ("(long long)weight", "weight", Level.PERTURBED, Status.MISMATCH, "with weight = 65537: to[1] is"),
        ("i >= n - 1", "i >= 199", Level.PERTURBED, Status.MISMATCH, "with n = 199: to[198] is"),
        (
            "if (i < 1",
            "double held = to[n]; to[n] = 1; to[n] = held;\n    if (i < 1",
            Level.SANITIZED,
            Status.FAULT,
            "checked build, forward: relax read 8 bytes at k.cu:4",
        ),
    ],
)
def test_a_kernel_that_fits_one_launch_is_caught(
    server: ReplayServer, recorded: Capture, old: str, new: str, level: Level, status: Status, says: str
) -> None:
    variant = changed(old, new)
    assert server.submit(recorded, variant, timing="none").result(60).verdict.status is Status.MATCH
    verdict = server.verify(recorded, variant, level).result(60).verdict
    assert (verdict.status, verdict.level) == (status, level), verdict.detail
    assert says in verdict.detail


def test_a_kernel_that_faults_has_the_name_that_people_write(server: ReplayServer, tmp_path: Path) -> None:
    text = "namespace ns { __global__ void fill(double* to) { to[threadIdx.x] = 1.0; } }"
    capture = recorded_as(tmp_path, text, "ns::fill", (1, 64), np.zeros(64))
    beyond = Variant(files=(("k.cu", text.replace("[threadIdx.x]", "[threadIdx.x + 64]")),))
    for level, says in (
        (Level.SEEN, "ns::fill wrote just past"),
        (Level.SANITIZED, "ns::fill wrote 8 bytes at k.cu:1"),
    ):
        verdict = server.verify(capture, beyond, level).result(60).verdict
        assert verdict.status is Status.FAULT
        assert says in verdict.detail


def test_a_sanitizer_that_the_recorded_kernel_fails_is_left_out_and_said(server: ReplayServer, tmp_path: Path) -> None:
    reading = TEXT.replace("if (i < 1", "double beyond = to[n]; if (i < 1")
    reading = reading.replace("1e-6 *", "(beyond != beyond) * 0.0 + 1e-6 *")
    (tmp_path / "k.cu").write_text(reading)
    with Session("levels", tmp_path, "cpu") as session:
        module = session.module("k.cu")
        held = session.array("from", np.random.default_rng(0).random(N)), session.array("to", np.zeros(N))
        session.capture("relax")
        session.launch(module, "relax", (4, 1, 1), (64, 1, 1), (*held, N, 3, 0.1))
        capture = session.save(tmp_path)[0]
    verdict = server.verify(capture, Variant(), Level.SANITIZED).result(60).verdict
    assert verdict.status is Status.MATCH
    assert verdict.detail.startswith("none; checked build, forward was left out, for the recorded kernel fails it")
    assert "index 200 of to" in verdict.detail


SUMMED = """
extern "C" __global__ void sum(const double* from, double* to, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(to, from[i]);
}
"""


def test_a_sum_by_atomics_may_differ_as_far_as_it_does(server: ReplayServer, tmp_path: Path) -> None:
    """Numbers that cancel: another order of additions is further off than the type's tolerance."""
    (tmp_path / "k.cu").write_text(SUMMED)
    values = np.random.default_rng(0).normal(size=1 << 14) * 1e6
    values[-1] -= values.sum() - 1.0
    with Session("levels", tmp_path, "cpu") as session:
        module = session.module("k.cu")
        session.capture("sum")
        held = session.array("from", values), session.array("to", np.zeros(1))
        session.launch(module, "sum", (64, 1, 1), (256, 1, 1), (*held, 1 << 14))
        capture = session.save(tmp_path)[0]
    found = server.submit(capture, Variant()).result(60)
    assert found.verdict.status is Status.MATCH, found.verdict.detail
    assert found.measurement is not None
    assert "as far as its results spread" in dict(found.measurement.conditions)["tolerance of to"]
    wrong = Variant(files=(("k.cu", SUMMED.replace("from[i])", "from[i] * 1.00001)")),))
    assert server.submit(capture, wrong, timing="none").result(60).verdict.status is Status.MISMATCH


def recorded_as(folder: Path, text: str, kernel: str, launch: tuple[int, int], *arguments: Any) -> Capture:
    (folder / "k.cu").write_text(text)
    with Session("levels", folder, "cpu") as session:
        module = session.module("k.cu")
        session.capture(kernel)
        held = [session.array(f"a{i}", a) if isinstance(a, np.ndarray) else a for i, a in enumerate(arguments)]
        session.launch(module, kernel, *launch, held)
        return session.save(folder)[0]


def test_an_input_on_which_one_order_of_threads_differs_is_left_out(server: ReplayServer, tmp_path: Path) -> None:
    """With n = 63 the last element of a row is the first of the next, which another thread writes."""
    text = """
    extern "C" __global__ void rows(const float* from, float* to, int n) {
        for (int row = 0; row < 64; row++) to[row * n + threadIdx.x] = from[64 * row + threadIdx.x];
    }"""
    values = np.random.default_rng(0).random((64, 64), np.float32)
    capture = recorded_as(tmp_path, text, "rows", (1, 64), values, np.zeros((64, 64), np.float32), 64)
    verdict = server.verify(capture, Variant(), Level.PERTURBED).result(60).verdict
    assert verdict.status is Status.MATCH, verdict.detail
    assert "n = 63" not in verdict.detail


def test_flags_that_lead_the_recorded_kernel_out_of_its_buffers_are_left_out(
    server: ReplayServer, tmp_path: Path
) -> None:
    """What lies behind a table of three is not faulted at, and no honest variant need read it."""
    text = """
    extern "C" __global__ void look(const int* which, const double* table, double* to) {
        to[threadIdx.x] = table[which[threadIdx.x]];
    }"""
    which = np.arange(64, dtype=np.int32) % 3
    capture = recorded_as(tmp_path, text, "look", (1, 64), which, np.array([1.0, 2.0, 3.0]), np.zeros(64))
    clamped = text.replace("[which[threadIdx.x]]", "[which[threadIdx.x] == 2 ? 2 : which[threadIdx.x] & 1]")
    verdict = server.verify(capture, Variant(files=(("k.cu", clamped),)), Level.PERTURBED).result(60).verdict
    assert verdict.status is Status.MATCH, verdict.detail
    assert "integers replaced" in verdict.detail
    assert "flags beyond those recorded" not in verdict.detail


@pytest.mark.parametrize(
    ("also", "n", "status"),
    [("", "(n < 40 ? n : 40)", Status.MATCH), ("+ (*(const volatile int*)(from + i + 1) & 0)", "40", Status.MISMATCH)],
    ids=["where it does not otherwise", "where it always does"],
)
def test_a_count_that_leads_the_recorded_kernel_out_of_its_buffers_tells_nothing(
    server: ReplayServer, tmp_path: Path, also: str, n: str, status: Status
) -> None:
    text = """
    extern "C" __global__ void hist(const int* from, int* to, int n) {
        int i = threadIdx.x;
        if (i < n) atomicAdd(to + (from[i] & 3), 1 ALSO);
    }""".replace("ALSO", also)
    values = np.random.default_rng(0).integers(0, 100, 40, np.int32)
    capture = recorded_as(tmp_path, text, "hist", (1, 64), values, np.zeros(4, np.int32), 40)
    variant = Variant(files=(("k.cu", text.replace("i < n", f"i < {n}")),))
    verdict = server.verify(capture, variant, Level.PERTURBED).result(60).verdict
    assert verdict.status is status, verdict.detail
    assert ("n = 121" in verdict.detail, "with n = 39" in verdict.detail) == (False, status is Status.MISMATCH)


@pytest.mark.parametrize(
    ("bound", "body", "says"),
    [
        ("n", "to[i] = 2.0 * from[i];", None),
        ("n", "to[i] = 2.0 * from[i] + (n == 128 && i > 64);", "with n = 128"),
        ("256", "to[i] = 2.0 * from[i];", "with n = 255"),
    ],
    ids=["right", "wrong for another size", "wrong for any size"],
)
def test_a_size_that_asks_for_more_threads_than_were_launched_tells_nothing_of_a_thread_that_does_two_elements(
    server: ReplayServer, tmp_path: Path, bound: str, body: str, says: str | None
) -> None:
    head = 'extern "C" __global__ void twice(const double* from, double* to, int n) {\n'
    each = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    text = f"{head} {each} if (i < n) to[i] = 2.0 * from[i]; }}"
    two = f"{head} {each} for (; i < {bound}; i += gridDim.x * blockDim.x) {{ {body} }} }}"
    values = np.random.default_rng(0).random(256)
    capture = recorded_as(tmp_path, text, "twice", (4, 64), values, np.zeros(256), 256)
    variant = Variant(files=(("k.cu", two),))
    verdict = server.verify(capture, variant, Level.PERTURBED).result(60).verdict
    assert (verdict.status is Status.MATCH) is (says is None), verdict.detail
    assert ("n = 255" if says is None else says) in verdict.detail
    assert "n = 769" not in verdict.detail  # four blocks keep the recorded kernel in its buffers there


def test_a_kernel_that_nothing_but_its_launch_bounds_may_do_no_more_than_it(
    server: ReplayServer, tmp_path: Path
) -> None:
    text = """
    extern "C" __global__ void twice(const double* from, double* to, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        to[i] = n > 256 ? 3.0 * from[i] : 2.0 * from[i];
    }"""
    more = text.replace("int i", "if (n > 256) to[n] = 0.0;\n        int i")
    capture = recorded_as(tmp_path, text, "twice", (4, 64), np.random.default_rng(0).random(256), np.zeros(256), 256)
    verdict = server.verify(capture, Variant(files=(("k.cu", more),)), Level.PERTURBED).result(60).verdict
    assert verdict.status is Status.FAULT
    assert "with n = 769" in verdict.detail


def test_numbers_that_cancel_where_signs_are_turned_may_be_added_in_another_order(
    server: ReplayServer, tmp_path: Path
) -> None:
    text = """
    extern "C" __global__ void sum(const float* from, float* to, int n) {
        float found = 0;
        for (int i = 0; i < n; i++) found += from[i];
        if (threadIdx.x == 0) to[0] = found;
    }"""
    values = np.random.default_rng(0).random(50_000, np.float32)
    capture = recorded_as(tmp_path, text, "sum", (1, 1), values, np.zeros(1, np.float32), values.size)
    backwards = Variant(files=(("k.cu", text.replace("from[i];", "from[n - 1 - i];")),))
    wrong = Variant(files=(("k.cu", text.replace("from[i];", "fabsf(from[i]);")),))
    verdicts = [server.verify(capture, each, Level.PERTURBED).result(60).verdict for each in (backwards, wrong)]
    assert verdicts[0].status is Status.MATCH, verdicts[0].detail
    assert "signs turned" in verdicts[0].detail
    assert (verdicts[1].status, "with signs turned" in verdicts[1].detail) == (Status.MISMATCH, True)


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        ("q + dt * s", "dt * s + q", Status.MATCH),
        ("s += q * k", "s = fmaf(q, (float)k, s)", Status.MATCH),
        ("q + dt * s", "0.0f", Status.MISMATCH),
        ("q + dt * s", "q + dt * s * 1.05f", Status.MISMATCH),
        ("p - p0", "(p * 2 - p0 * 2) * 0.5f + (p0 - p0)", Status.MATCH),
    ],
)
def test_what_is_small_beside_others_in_its_buffer_is_right_all_the_same(
    server: ReplayServer, tmp_path: Path, old: str, new: str, status: Status
) -> None:
    """Pressures and mixing ratios in turn, and a difference of nearly equal pressures, which rounding alone decides."""
    text = """
    extern "C" __global__ void micro(const float* in, float* out, float* apart, int n, float dt) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        float p = in[2 * i], q = in[2 * i + 1], p0 = in[2 * ((i + 1) % n)], s = 0.0f;
        for (int k = 1; k <= 4; k++) s += q * k;
        out[2 * i] = p * (1.0f + 1e-3f * dt);
        out[2 * i + 1] = q + dt * s;
        apart[i] = i ? p - p0 : p;
    }"""
    assert old in text
    chance = np.random.default_rng(0)
    given = np.stack([1e5 * (1 + 1e-7 * chance.random(200)), 1e-3 * chance.random(200)], 1).astype(np.float32)
    both = given.reshape(-1), np.zeros(400, np.float32), np.zeros(200, np.float32)
    capture = recorded_as(tmp_path, text, "micro", (2, 128), *both, 200, np.float32(0.1))
    variant = Variant(files=(("k.cu", text.replace(old, new)),))
    found = server.submit(capture, variant, timing="none").result(60).verdict
    assert found.status is status, found.detail
    assert ("a1[1] is " in found.detail) is (status is Status.MISMATCH)


@pytest.mark.parametrize(
    ("new", "status"), [("e * (1.0f / sum)", Status.MATCH), ("e > 99 ? e / sum : 0", Status.MISMATCH)]
)
def test_small_parts_of_a_whole_are_looked_at_in_half_precision_too(
    server: ReplayServer, tmp_path: Path, new: str, status: Status
) -> None:
    text = """
    #include <cuda_fp16.h>
    extern "C" __global__ void softmax(const __half* in, __half* out, int n) {
        float sum = 0;
        for (int i = 0; i < n; i++) sum += expf(__half2float(in[i]));
        float e = expf(__half2float(in[threadIdx.x]));
        out[threadIdx.x] = __float2half(e / sum);
    }"""
    given = np.random.default_rng(0).random(256).astype(np.float16)
    given[7] = 8
    capture = recorded_as(tmp_path, text, "softmax", (1, 256), given, np.zeros(256, np.float16), 256)
    variant = Variant(files=(("k.cu", text.replace("e / sum", new)),))
    found = server.submit(capture, variant, timing="none").result(60).verdict
    assert found.status is status, found.detail


# -- what a GPU's candidate does in the orders of a CPU ---------------------------------------------------------------

RACE = """
extern "C" __global__ void last(const double* from, double* to, int n) {
    if (CONDITION) to[blockIdx.x] = from[threadIdx.x];
}
"""
RIGHT = RACE.replace("CONDITION", "threadIdx.x == blockDim.x - 1")


def under_sanitizers(recorded: Capture, text: str, cache: Path) -> Verdict:
    """The verdict of a GPU's sanitizers, of which none is here: what remains is the other orders."""
    gpu = SimpleNamespace(target=Target(device="cuda", arch="sm_90"), sanitizers=(), spent={})
    material = read_material(recorded, 0)
    tolerances = Original(material.tolerances, (material.before, material.before))
    placement: Any = SimpleNamespace(device=gpu, material=material, original=tolerances)
    with Compiler(1, cache=cache) as compiler:
        return levels._sanitized(placement, Variant(files=(("k.cu", text),)), compiler, 60.0).verdict


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    folder = tmp_path_factory.mktemp("orders")
    (folder / "k.cu").write_text(RIGHT)
    with Session("orders", folder, "cpu") as session:
        module = session.module("k.cu")
        held = session.array("from", np.random.default_rng(0).random(64)), session.array("to", np.zeros(4))
        session.capture("last")
        session.launch(module, "last", 4, 64, (*held, 64))
        return session.save(folder)[0]


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        (RIGHT, Status.MATCH, "other orders of threads, on a CPU"),
        (RACE.replace("CONDITION", "true"), Status.MISMATCH, "other orders of threads, on a CPU: to[0] is"),
        (RIGHT.replace("to[b", "to[n * n * n + b"), Status.FAULT, "other orders of threads, on a CPU: last wrote"),
        (RIGHT.replace("(thr", '(printf("") >= 0 && thr'), Status.MATCH, "were left out: unsupported, "),
    ],
)
def test_a_race_that_is_right_by_luck_shows_in_other_orders(
    last: Capture, tmp_path: Path, text: str, status: Status, says: str
) -> None:
    found = under_sanitizers(last, text, tmp_path)
    assert found.status is status, found.detail
    assert says in found.detail


def test_what_a_cpu_cannot_replay_is_left_out(last: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    race, left_out = RACE.replace("CONDITION", "true"), "none; other orders of threads, on a CPU were left out: "
    assert last.source is not None
    for source in (None, replace(last.source, language="ptx")):
        found = under_sanitizers(replace(last, source=source), race, tmp_path)
        assert (found.status, found.detail) == (Status.MATCH, f"{left_out}there is no CUDA C++ source")
    monkeypatch.setattr(levels, "_SAMPLED_BYTES", 100)
    found = under_sanitizers(last, race, tmp_path)
    assert (found.status, found.detail) == (Status.MATCH, f"{left_out}the unit is too large")


@pytest.mark.parametrize(("block", "status"), [(1, Status.MATCH), (2, Status.FAULT)])
def test_of_a_large_unit_some_blocks_run_in_checked_builds(
    last: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, status: Status
) -> None:
    monkeypatch.setattr(levels, "_ORDERED_BYTES", 100)
    monkeypatch.setattr(levels, "_CHECKED_BYTES", 300)  # a half of the unit
    uninitialized = f"__shared__ double held[64]; if (blockIdx.x == {block}) to[blockIdx.x] = held[threadIdx.x];"
    found = under_sanitizers(last, RIGHT.replace("if (thr", f"{uninitialized} if (thr"), tmp_path)
    assert found.status is status, found.detail
    assert "checked builds, on a CPU, of one block in 2" in found.detail
    assert (f"block ({block}, 0, 0)" in found.detail) is (status is Status.FAULT)
