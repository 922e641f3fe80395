"""Lowering: threads that wait for each other in every way, forward and in full reverse, against closed forms."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from lowered import Array, Kernel, compiled

from r3bench import frontend

Run = Callable[..., Array]
I4, F4 = np.int32, np.float32


@cache
def source() -> str:
    return compiled((Path(__file__).parent / "lowering.cu").read_text())


@cache
def kernel(name: str) -> Kernel:
    return Kernel(source(), name)


@pytest.fixture(params=["forward", "reverse"])
def order(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def check(
    name: str, order: str, grid: int | tuple[int, ...], block: int | tuple[int, ...], *arguments: object, **more: int
) -> None:
    whole = [(value,) if isinstance(value, int) else value for value in (grid, block)]
    assert kernel(name)(*whole, *arguments, order=order, **more) == 0


# -- barriers -------------------------------------------------------------------------------------------------------


def test_number_of_barriers_depends_on_the_block(order: str) -> None:
    rounds, out = np.array([0, 1, 4, 9], I4), np.zeros((4, 50), I4)
    check("trips", order, 4, 50, rounds, out, shared_bytes=200)
    for block, count in enumerate(rounds):
        assert (out[block] == np.roll(np.arange(50), -count) + count * (count - 1) // 2).all()


def test_barrier_in_each_case_of_a_switch(order: str) -> None:
    out, t = np.zeros((4, 128), I4), np.arange(128)
    check("cases", order, 4, 128, np.array([0, 1, 2, 3], I4), out)
    inner = 3 * (t ^ 1)
    assert (out == [127 - t, inner + inner[t ^ 2], np.full(128, -1), np.full(128, 7)]).all()


def test_different_barriers_meet(order: str) -> None:
    out, t = np.zeros(64, I4), np.arange(64)
    check("parted", order, 1, 64, out)
    middle = np.where(t < 20, 63 - t, 163 - t)
    assert (out == middle[(t + 5) & 63]).all()


def test_threads_leave_before_between_and_after_barriers(order: str, random: np.random.Generator) -> None:
    n = 600
    x, out = random.integers(0, 1000, n).astype(I4), np.zeros(n, I4)
    check("leavers", order, 3, 256, x, out, I4(n))
    padded = np.zeros(768, I4)
    padded[:n] = x
    right = np.concatenate([np.roll(part, -3) for part in padded.reshape(3, 256)])[:n]
    assert (out == np.select([x % 5 == 0, x % 7 == 0], [-5, -7], right)).all()


def test_reductions_at_a_barrier(order: str, random: np.random.Generator) -> None:
    x, out = random.integers(-3, 5, (3, 100)).astype(I4), np.zeros((3, 100), I4)
    x[1] = np.abs(x[1])
    x[2, 0], x[2, 1:][x[2, 1:] == 3] = -200, 4
    check("counted", order, 3, 100, x, out)
    for block in range(3):
        v = x[block]
        count, every, some, left = (v > 2).sum(), (v > -100).all(), (v == 3).any(), (v >= 0).sum()
        assert (out[block] == np.where(v < 0, 0, count * 100 + every * 10 + some + 1000 * left)).all()


def test_barrier_inside_a_function_that_is_called_twice(order: str) -> None:
    out, t = np.zeros(96, F4), np.arange(96)
    check("nested", order, 1, 96, out)
    assert (out == (95 - (95 - t)) * 0.5 + 1).all()


def test_three_dimensions(order: str) -> None:
    out, t = np.zeros((12, 120), I4), np.arange(120)
    check("boxes", order, (3, 2, 2), (6, 5, 4), out, shared_bytes=480)
    assert (out == (119 - t) + (119 - t) * 10 + np.arange(12)[:, None] * 10000).all()


@pytest.mark.parametrize("r", [1, 3])
def test_local_array_across_barriers(order: str, r: int, random: np.random.Generator) -> None:
    x, out = random.integers(0, 50, (64, 8)).astype(F4), np.zeros(64, F4)
    check("arrays", order, 1, 64, x, out, I4(r))
    k = np.arange(8)
    buffer = np.zeros((64, 8))
    buffer[:, (k * r) & 7] = x
    buffer[:, (r + 1) & 7] += buffer[::-1, r & 7].copy()
    expected = np.zeros(64)
    for step in range(8):
        expected = expected * 2 + buffer[:, (step + r) & 7]
    assert (out == expected).all()


def test_values_of_every_type_across_a_barrier(order: str, random: np.random.Generator) -> None:
    x, out, t = random.integers(0, 8, 32) / 4.0, np.zeros(32), np.arange(32)
    check("mixed_values", order, 1, 32, x, out, np.int64(1 << 40), np.bool_(True), np.int16(-5))
    bits = np.where((x > 0.5) != True, 1000, 0)  # noqa: E712
    expected = 2 * x[31 - t] + x + 1 + (1 << 40) * t + (t - 5) + bits + (t - 16) + x[t ^ 3] + t + x
    assert (out == expected).all()


def test_named_barriers_of_parts_of_a_block(order: str) -> None:
    out, t = np.zeros(128, I4), np.arange(128)
    check("two_teams", order, 1, 128, out)
    s = np.where(t < 64, (t + 5) & 63, 64 + ((t + 3) & 63))
    assert (out == s + 1000 * s[127 - t]).all()


def test_threads_stop(order: str) -> None:
    out, t = np.zeros(32, I4), np.arange(32)
    check("stops", order, 1, 32, out)
    assert (out == np.where(t % 3 == 0, 1, 1 + 21)).all()


# -- warps ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [32, 48, 256, 1000])
def test_scan(order: str, block: int, random: np.random.Generator) -> None:
    n = 2 * block - 5
    x, out = random.integers(-9, 9, n).astype(I4), np.zeros(n, I4)
    check("scan", order, 2, block, x, out, I4(n))
    assert (out == np.concatenate([np.cumsum(x[:block]), np.cumsum(x[block:])])).all()


def test_shuffles(order: str, random: np.random.Generator) -> None:
    x, out, t = random.integers(0, 100, 64).astype(I4), np.zeros((6, 64), I4), np.arange(64)
    floats, longs = np.zeros(64, F4), np.zeros(64, np.int64)
    check("shuffles", order, 1, 64, x, out, floats, longs)
    warp, lane = t & ~31, t & 31
    sources = [
        warp + 5,
        (t & ~7) + ((t * 7) & 7),
        np.where((lane & 15) >= 3, t - 3, t),
        np.where((lane & 15) + 3 <= 15, t + 3, t),
        t ^ 9,
        np.where((lane & 16) == 0, t, t ^ 17),
    ]
    assert (out == [x[source] for source in sources]).all()
    assert (floats == x[t ^ 1] * 0.5).all()
    assert (longs == x[np.where(lane == 31, t, np.minimum(t + 1, 63))].astype(np.int64) * 10000000000).all()


def test_votes_and_matches(order: str, random: np.random.Generator) -> None:
    x, out = random.integers(0, 100, 64).astype(I4), np.zeros((6, 64), np.uint32)
    x[32:] = 95
    check("votes", order, 1, 64, x, out)
    bits = np.uint64(1) << np.arange(32, dtype=np.uint64)
    for warp in (slice(0, 32), slice(32, 64)):
        v = x[warp]

        def mask(true: Array) -> int:
            return int(bits[true].sum())

        assert (out[0, warp] == mask(v & 1 == 1)).all()
        assert (out[1, warp] == (v > 90).any() + 2 * (v >= 0).all() + 4 * (v & 1 == 1).all()).all()
        assert (out[2, warp] == [mask(v & 3 == own & 3) for own in v]).all()
        assert (out[3, warp] == 0).all()  # all lanes: the mask of all, plus one
        same = (v == v[0]).all()
        assert (out[4, warp] == ((0xFFFFFFFF if same else 0) + 100 * same) % (1 << 32)).all()
        assert (out[5, warp] == [mask(v % 3 == own % 3) for own in v]).all()


def test_warp_reductions(order: str, random: np.random.Generator) -> None:
    x, out = random.integers(0, 100, 64).astype(I4), np.zeros((8, 64), I4)
    check("reductions", order, 1, 64, x, out)
    for warp in (slice(0, 32), slice(32, 64)):
        v = x[warp]
        unsigned = (v - 50).astype(np.uint32)
        every = [
            v.sum(), v.min() - 50, v.max() - 50, unsigned.max().astype(I4), np.bitwise_and.reduce(v | 64),
            np.bitwise_or.reduce(v), np.bitwise_xor.reduce(v), unsigned.min().astype(I4),
        ]  # fmt: skip
        assert (out[:, warp] == np.array(every)[:, None]).all()


def test_lanes_part_and_meet_again(order: str, random: np.random.Generator) -> None:
    x, out, total = random.integers(0, 100, 96).astype(I4), np.zeros(96, I4), np.zeros(1, I4)
    check("parted_warps", order, 1, 96, x, out, total)
    odd = x & 1 == 1
    assert total[0] == odd.sum()
    r = np.zeros(96, int)
    for w in range(3):
        lanes = slice(32 * w, 32 * w + 32)
        r[lanes] = np.where(odd[lanes], (odd & (x > 50))[lanes].sum() + 1000, 0)
        r[lanes] += 100000 * (r[lanes] > 0).sum()
    assert (out == r).all()


def test_collectives_of_parts_of_a_warp(order: str, random: np.random.Generator) -> None:
    x, out, lane = random.integers(0, 100, 32).astype(I4), np.zeros(32, I4), np.arange(32)
    check("submasks", order, 1, 32, x, out)
    second = x[16:]
    for _ in range(3):
        second = np.roll(second, -1)
    quarters = np.repeat(lane.reshape(4, 8).sum(axis=1), 8)
    assert (out == np.concatenate([np.full(16, x[:16].sum()), second]) + 1000 * quarters).all()


def test_lanes_go_round_a_loop_unequally_often(order: str, random: np.random.Generator) -> None:
    x, out = random.integers(0, 12, 64).astype(I4), np.zeros(64, I4)
    x[[0, 32]] = 12
    check("uneven", order, 1, 64, x, out)
    assert (out == x + x * (x - 1) // 2 + 32000).all()


@pytest.mark.parametrize("block", [(8, 8), (16, 3), (64, 2), (5, 13)])
def test_lanes_follow_the_linear_index(order: str, block: tuple[int, int]) -> None:
    count = block[0] * block[1]
    out = np.zeros(count, np.uint32)
    check("lanes", order, 1, block, out)
    assert (out == np.arange(count) % 32).all()


def test_warps_at_different_places_meet_at_the_barrier(order: str, random: np.random.Generator) -> None:
    x, out = random.integers(-2, 3, 160).astype(I4), np.zeros(160, I4)
    check("vote_and_barrier", order, 1, 160, x, out)
    ballots = np.repeat((x.reshape(5, 32) > 0).sum(axis=1), 32)
    assert (out - ballots == 0 + 1 + 20 + 3 + 40).all()


# -- what never completes, and what fails ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["stuck", "wrong_mask"])
def test_a_deadlock_is_told(order: str, name: str) -> None:
    assert kernel(name)((1,), (64,), np.zeros(64, I4), order=order) == 1


@pytest.mark.parametrize(("name", "code"), [("traps", 3), ("asserts", 2), ("traps_later", 3)])
def test_a_failing_thread_is_told(order: str, name: str, code: int) -> None:
    out = np.zeros(64, I4)
    assert kernel(name)((2,), (32,), out, I4(40), order=order) == 0
    assert kernel(name)((2,), (32,), out, I4(17), order=order) == code


# -- memory ---------------------------------------------------------------------------------------------------------


def test_device_and_constant_variables(order: str) -> None:
    run = kernel("variables")
    table, weights, counter = np.zeros(8, F4), np.array([5, 6, 7, 8], F4), np.array([100], I4)
    before = [run.slot(name).value for name in ("_ZL5table", "weights", "counter")]
    out, t = np.zeros(16, F4), np.arange(16)
    assert run((1,), (16,), out, order=order) == 0
    assert (out == 2 * np.array([1, 2, 3, 4])[(7 - (t & 7)) & 3] + 2).all()
    for name, array in (("_ZL5table", table), ("weights", weights), ("counter", counter)):
        run.slot(name).value = array.ctypes.data
    assert run((2,), (16,), out, order=order) == 0
    for name, address in zip(("_ZL5table", "weights", "counter"), before, strict=True):
        run.slot(name).value = address
    assert (out == 2 * weights[(7 - (t & 7)) & 3] + 6).all()
    assert (table == 2 * weights[np.arange(8) & 3]).all()
    assert counter[0] == 132


def test_variables_are_listed() -> None:
    listed = {variable.symbol: variable for variable in kernel("variables").lowered.globals}
    assert set(listed) == {"_ZL5table", "weights", "counter"}
    assert (listed["weights"].nbytes, listed["weights"].dtype, listed["weights"].shape) == (16, "float32", (4,))
    assert [listed[name].constant for name in ("weights", "counter")] == [True, False]


def settings(scale: float, n: int, w: list[float], x: Array) -> bytes:
    kind = np.dtype([("scale", "f8"), ("n", "i4"), ("w", "f4", 3), ("x", "u8")], align=True)
    return np.array([(scale, n, w, x.ctypes.data)], kind).tobytes()


def test_struct_by_value(order: str, random: np.random.Generator) -> None:
    x, y = random.integers(0, 9, 100).astype(F4), np.zeros(100, F4)
    check("by_value", order, 4, 32, settings(2.0, 100, [1, 2, 3], x), y)
    padded = np.pad(x, 1)
    assert (y == 2 * (padded[:-2] + 2 * padded[1:-1] + 3 * padded[2:])).all()


def test_every_thread_changes_its_own_copy_of_a_struct(order: str) -> None:
    y, t = np.zeros(40, F4), np.arange(40)
    check("own_copy", order, 1, 40, settings(0, 7, [1, 2, 3], y), y)
    w = [np.where(t % 3 == k, k + 1 + t, k + 1) for k in range(3)]
    assert (y == w[0] * 10000 + w[1] * 100 + w[2] + 7 - t).all()


def test_fields_of_a_large_struct(order: str, random: np.random.Generator) -> None:
    v, t, out = random.integers(0, 1000, 100).astype("i4"), np.arange(32), np.zeros(32, "i4")
    check("large_struct", order, 1, 32, np.append(np.int32(20), v).astype("i4").tobytes(), out)
    s = np.where(t < 20, v[t], v[99])
    assert (out == s[::-1] + v[(t + 20) % 100] + t % 2 * v[7]).all()


def test_a_pointer_into_a_struct_waits(order: str, random: np.random.Generator) -> None:
    x, t, out = random.random(40, F4), np.arange(40), np.zeros(40, F4)
    check("place_in_struct", order, 1, 40, settings(0, 0, [1, 2, 3], x), out)
    assert (out == np.where(t % 2, t % 3 + 1, x)).all()


def test_fields_of_a_packed_struct(order: str) -> None:
    kind, out = np.dtype([("c", "i1"), ("n", "i4"), ("d", "f8")]), np.zeros(40)
    check("packed_struct", order, 1, 40, np.array([(-3, 30, 0.25)], kind).tobytes(), out)
    assert (out == np.where(np.arange(40) < 30, -3 + 0.25 * np.arange(40), 0)).all()


def test_small_arguments_lie_where_cuda_puts_them() -> None:
    out = np.zeros(3)
    arguments = (
        np.int8(-3),
        np.bool_(True),
        np.int16(-300),
        np.float64(0.5),
        np.uint8(200),
        np.int64(1 << 40),
        F4(0.25),
    )
    check("small_arguments", "forward", 1, 3, *arguments, out)
    assert (out == -3 + 100 - 300 + 0.5 + 200 + (1 << 40) + 0.25 + 2 * np.arange(3)).all()


def test_atomics(order: str) -> None:
    n, t = 96, np.arange(96)
    i, u, w = (
        np.array([0, 0, 99, -99, 0], I4),
        np.array([2**32 - 1, 0, 0, 0, 0, 0, 0], np.uint32),
        np.zeros(3, np.uint64),
    )
    f, d = np.zeros(2, F4), np.zeros(1)
    check("atomics", order, 3, 32, i, u, w, f, d)
    assert i.tolist() == [t.sum(), -t.sum(), 50 - 95, 95 - 50, 77]
    assert u.tolist() == [0, 2**32 - 1, np.bitwise_xor.reduce(t), n % 10, (-n) % 10, 2**32 - 1, 2 * n]
    assert w.tolist() == [t.sum() << 33, 2**64 - 1, 3 * n]
    assert (f[0], f[1], d[0]) == (0.5 * n, 1.5, 0.25 * n)


def test_threads_do_not_share_local_arrays(order: str, random: np.random.Generator) -> None:
    x, out, t = random.integers(0, 1000, 256).astype(I4), np.zeros(256, I4), np.arange(256)
    check("local_only", order, 4, 64, x, out)
    windows = np.sort(x[(t[:, None] + np.arange(16)) & 255], axis=1)
    assert (out == windows[t, x & 15]).all()


def test_shared_memory_is_known_by_its_address(order: str) -> None:
    out = np.zeros(8, I4)
    check("in_shared", order, 1, 8, out)
    assert (out == 1).all()


def test_static_shared_memory_is_reported() -> None:
    assert kernel("boxes").lowered.shared_bytes == 480
    assert kernel("atomics").lowered.shared_bytes == 0


def test_debug_information_does_no_harm() -> None:
    text = (Path(__file__).parent / "lowering.cu").read_text()
    out, t = np.zeros(96, F4), np.arange(96)
    assert Kernel(frontend.compile_ir({"k.cu": text}, "k.cu", debug=True), "nested")((1,), (96,), out) == 0
    assert (out == t * 0.5 + 1).all()


def test_libm_functions_are_listed() -> None:
    text = 'extern "C" __global__ void k(float* x, double* y) { *x = expf(*x) + fmodf(*x, 2.0f); *y = rcbrt(*y); }'
    assert set(Kernel(compiled(text), "k").lowered.math) >= {"expf", "fmodf", "cbrt"}
