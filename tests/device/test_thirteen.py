"""Thirteen kernels with every kind of control flow against NumPy: on the CPU device, both ways around, and on CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from run_kernel import Array, Runner

from r3bench.devices import open_device
from r3bench.toolchain import Compiler

TEXT = (Path(__file__).parent / "thirteen.cu").read_text()


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    compiler = Compiler(1)
    yield compiler
    compiler.close()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("cpu", {"threads": 1}), id="1 thread"),
        pytest.param(("cpu", {"threads": 2}), id="2 threads"),
        pytest.param(("cuda", {}), id="cuda", marks=pytest.mark.gpu),
    ],
)
def runner(request: pytest.FixtureRequest, compiler: Compiler) -> Iterator[Runner]:
    name, options = request.param
    device = open_device(name, **options)
    yield Runner(compiler, device, TEXT)
    device.close()


@pytest.fixture(params=["forward", "reverse"])
def order(request: pytest.FixtureRequest, runner: Runner) -> str:
    if request.param not in runner.device.orders:
        pytest.skip(f"a GPU runs threads in an order of its own, not {request.param}")
    return str(request.param)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(13)


def assert_within(ulp: float, actual: Array, exact: Array, scale: Array | None = None) -> None:
    """``actual`` is at most ``ulp`` units in the last place of ``scale`` from ``exact``, given in more digits."""
    spacing = np.spacing(np.abs(exact if scale is None else scale).astype(actual.dtype))
    errors = np.abs(actual.astype(exact.dtype) - exact) / spacing
    assert errors.max() <= ulp, f"{errors.max():.2f} ulp at {np.unravel_index(errors.argmax(), errors.shape)}"


def test_saxpy(runner: Runner, order: str, random: np.random.Generator) -> None:
    n = 5000
    x, y = random.random(n, "f4"), random.random(n, "f4")
    after = runner("saxpy", (20,), (256,), n - 7, 2.5, x, y, order=order)
    assert_within(1, after[1][:-7], 2.5 * x[:-7].astype("f8") + y[:-7])
    assert (after[1][-7:] == y[-7:]).all()
    assert (after[0] == x).all()


def test_stencil5(runner: Runner, order: str, random: np.random.Generator) -> None:
    n = 3000
    u, v = random.random(n), np.full(n, -1.0)
    after = runner("stencil5", (24,), (128,), u, v, n, 0.5, order=order)[1]
    weights = np.array([-1, 16, -30, 16, -1], "g")
    windows = np.lib.stride_tricks.sliding_window_view(u.astype("g"), 5)
    exact = 0.5 * windows @ weights
    assert_within(3, after[2:-2], exact, 0.5 * windows @ np.abs(weights))
    assert (after[[0, 1, -2, -1]] == -1).all()


def test_lap2d(runner: Runner, order: str, random: np.random.Generator) -> None:
    ny, nx = 37, 53
    u = random.random((ny, nx))
    after = runner("lap2d", (4, 5), (16, 8), u, np.zeros((ny, nx)), nx, ny, 0.25, order=order)[1]
    wide = u.astype("g")
    exact = -60 * wide[2:-2, 2:-2]
    for axis in (0, 1):
        for shift, weight in ((-2, -1), (-1, 16), (1, 16), (2, -1)):
            exact = exact + weight * np.roll(wide, -shift, axis)[2:-2, 2:-2]
    assert_within(3, after[2:-2, 2:-2], 0.25 * exact, np.full(exact.shape, 0.25 * 128))
    assert (after[:2] == 0).all()
    assert (after[:, -2:] == 0).all()


def test_matmul(runner: Runner, order: str, random: np.random.Generator) -> None:
    n = 64
    a, b = random.random((n, n), "f4"), random.random((n, n), "f4")
    after = runner("matmul", (4, 4), (16, 16), a, b, np.zeros((n, n), "f4"), n, order=order)[2]
    assert_within(16, after, a.astype("f8") @ b.astype("f8"))


def per_block(x: Array, n: int, blocks: int, threads: int) -> Array:
    """Sums over what each block of a grid-stride loop visits."""
    owner = np.arange(n) // threads % blocks
    return np.bincount(owner, x[:n].astype("f8"), blocks)


def test_reduce(runner: Runner, order: str, random: np.random.Generator) -> None:
    x = random.random(10000, "f4")
    after = runner("reduce", (6,), (128,), x, np.zeros(6, "f4"), 9999, order=order)[1]
    assert_within(8, after, per_block(x, 9999, 6, 128))


def test_reduce_dyn(runner: Runner, order: str, random: np.random.Generator) -> None:
    x = random.random(10000, "f4")
    after = runner("reduce_dyn", (6,), (64,), x, np.zeros(6, "f4"), 9999, shared_bytes=256, order=order)[1]
    assert_within(16, after, per_block(x, 9999, 6, 64))


def test_hist(runner: Runner, order: str, random: np.random.Generator) -> None:
    x = random.integers(0, 256, 5000).astype("u1")
    after = runner("hist", (40,), (128,), x, np.ones(256, "i4"), 4990, order=order)[1]
    assert (after == 1 + np.bincount(x[:4990], minlength=256)).all()


def test_hist_sh(runner: Runner, order: str, random: np.random.Generator) -> None:
    x = random.integers(0, 256, 5000).astype("u1")
    after = runner("hist_sh", (5,), (96,), x, np.zeros(256, "i4"), 4990, order=order)[1]
    assert (after == np.bincount(x[:4990], minlength=256)).all()


def steps_to_one(value: int) -> int:
    if value == 0:
        return -1
    steps = 0
    while value != 1:
        value = (3 * value + 1) % 2**32 if value & 1 else value >> 1
        steps += 1
    return steps


def test_collatz(runner: Runner, order: str) -> None:
    x = np.arange(1000, dtype="u4")
    after = runner("collatz", (8,), (128,), x, np.zeros(1000, "i4"), 995, order=order)[1]
    assert after.tolist() == [steps_to_one(v) for v in range(995)] + [0] * 5


@pytest.mark.parametrize("n", [700, pytest.param(1024, id="a page, before which there is nothing")])
def test_structk(runner: Runner, order: str, random: np.random.Generator, n: int) -> None:
    w = np.array([0.25, 0.5, 0.125], "f4")
    par = np.zeros((), [("a", "f8"), ("n", "i4"), ("w", "f4", 3), ("x", "u8")])
    par["a"], par["n"], par["w"] = 1.5, n, w
    x = random.random(n, "f4")
    after = runner("structk", (-(-n // 128),), (128,), {"bytes": par.tobytes(), 24: x}, np.zeros(n, "f4"), order=order)[
        1
    ]
    wide = np.pad(x.astype("f8"), 1)
    exact = 1.5 * (w[0] * wide[:-2] + w[1] * wide[1:-1] + w[2] * wide[2:])
    assert_within(3, after, exact)


def test_mathk(runner: Runner, order: str, random: np.random.Generator) -> None:
    n = 2000
    x = random.uniform(-4, 4, n).astype("f4")
    after = runner("mathk", (8,), (256,), x, np.zeros(n, "f4"), n, order=order)[1]
    wide = x.astype("f8")
    terms = np.array([np.exp(-wide * wide) * np.sin(wide), np.sqrt(wide * wide + 1), np.tanh(wide)])
    assert_within(4, after, terms.sum(0), np.abs(terms).sum(0))


def test_earlyexit(runner: Runner, order: str, random: np.random.Generator) -> None:
    n, threads = 300, 128
    x = random.integers(-5, 6, 384).astype("i4")
    after = runner("earlyexit", (3,), (threads,), x, np.full(384, -7, "i4"), n, order=order)[1]
    positive = [int((x[start : min(start + threads, n)] > 0).sum()) for start in range(0, 384, threads)]
    assert (after[:n] == np.repeat(positive, threads)[:n]).all()
    assert (after[n:] == -7).all()


@pytest.mark.parametrize("r", [1, 3, 21])
def test_localarr(runner: Runner, order: str, random: np.random.Generator, r: int) -> None:
    n, threads = 768, 256
    x = random.random(n, "f4")
    after = runner("localarr", (3,), (threads,), x, np.zeros(n, "f4"), n, r, order=order)[1]
    k = np.arange(16)
    buffers = np.empty((n, 16), "f4")
    buffers[:, (k * r) & 15] = x[(np.arange(n)[:, None] + k) % n]
    neighbour = np.roll(buffers[:, 3].reshape(-1, threads), -1, axis=1).reshape(-1)
    assert (after == buffers[:, r & 15] + neighbour).all()
