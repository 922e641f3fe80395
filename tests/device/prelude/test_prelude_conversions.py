"""Rounding, conversions and integers of the prelude, on the CPU device, against exact arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.device.expressions import CTYPES, evaluate
from tests.device.run_kernel import Runner

# -- rounding --------------------------------------------------------------------------------------------------------


def rounded(exact: Fraction, mode: str, dtype: str) -> float:
    """An exact number rounded to a floating-point type in one of CUDA's modes."""
    kind = np.dtype(dtype).type
    nearest = kind(float(exact)) if dtype == "f8" else _nearest_float(exact)
    if Fraction(float(nearest)) == exact or mode == "rn":
        return float(nearest)
    above = Fraction(float(nearest)) > exact
    up = mode == "ru" or (mode == "rz" and exact < 0)
    if above == up:
        return float(nearest)
    return float(np.nextafter(nearest, kind(np.inf if up else -np.inf)))


def _nearest_float(exact: Fraction) -> np.float32:
    guess = np.float32(float(exact))
    near = [np.nextafter(guess, np.float32(-np.inf)), guess, np.nextafter(guess, np.float32(np.inf))]
    return min(near, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view("u4")) & 1))


MODES = ("rn", "rz", "ru", "rd")
OPERATIONS: dict[str, Callable[..., Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}


@pytest.mark.parametrize("ctype", ["float", "double"])
def test_arithmetic_in_every_rounding_mode(build: Callable[..., Runner], ctype: str) -> None:
    random = np.random.default_rng(3)
    dtype, letter = CTYPES[ctype], ctype[0]
    x, y, z = ((random.normal(size=200) * 2.0 ** random.integers(-30, 30, 200)).astype(dtype) for _ in "xyz")
    cases = {f"__{letter}{op}_{mode}(x, y)": (op, mode) for op in OPERATIONS for mode in MODES}
    fma = "fmaf" if ctype == "float" else "fma"
    fused = [f"__{fma}_{mode}(x, y, z)" for mode in MODES]
    out = evaluate(build, ctype, [*cases, *fused], x=x, y=y, z=z)
    a, b, c = ([Fraction(float(v)) for v in values] for values in (x, y, z))
    for (text, (op, mode)), actual in zip(cases.items(), out, strict=False):
        assert actual.tolist() == [rounded(OPERATIONS[op](p, q), mode, dtype) for p, q in zip(a, b, strict=True)], text
    for mode, actual in zip(MODES, out[len(cases) :], strict=True):
        exact = [rounded(p * q + r, mode, dtype) for p, q, r in zip(a, b, c, strict=True)]
        assert actual.tolist() == exact, f"fma {mode}"


@pytest.mark.parametrize("ctype", ["float", "double"])
def test_roots_and_reciprocals_in_every_rounding_mode(build: Callable[..., Runner], ctype: str) -> None:
    dtype, letter = CTYPES[ctype], ctype[0]
    x = np.random.default_rng(4).uniform(0.1, 9, 100).astype(dtype)
    texts = [f"__{letter}{op}_{mode}(x)" for op in ("sqrt", "rcp") for mode in MODES]
    out = evaluate(build, ctype, texts, x=x)
    exact = [Fraction(float(v)) for v in x]
    for mode, roots, reciprocals in zip(MODES, out[:4], out[4:], strict=True):
        assert reciprocals.tolist() == [rounded(1 / v, mode, dtype) for v in exact], f"rcp {mode}"
        for value, root in zip(exact, roots.tolist(), strict=True):
            step = Fraction(float(np.spacing(np.dtype(dtype).type(root))))
            low, high = {"rn": (0.5, 0.5), "rz": (0, 1), "ru": (1, 0), "rd": (0, 1)}[mode]
            assert (
                (Fraction(root) - Fraction(low) * step) ** 2 <= value <= (Fraction(root) + Fraction(high) * step) ** 2
            ), mode


WHOLE: dict[str, Callable[[float], float]] = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}
INTEGERS = {"int": "int", "uint": "unsigned", "ll": "long long", "ull": "unsigned long long"}


@pytest.mark.parametrize("source", ["float", "double"])
@pytest.mark.parametrize("target", INTEGERS)
def test_floating_point_to_integer(build: Callable[..., Runner], source: str, target: str) -> None:
    x = np.array(
        [0.5, 1.5, 2.5, -0.5, -1.5, 2.4999, 1e6 + 0.25, -7.75, 1e30, -1e30, np.inf, -np.inf, np.nan], CTYPES[source]
    )
    limits = np.iinfo(CTYPES[INTEGERS[target]])
    nan = 0 if source == "float" and target in ("int", "uint") else (limits.min or 1 << limits.bits - 1)
    for mode, actual in zip(
        MODES, evaluate(build, INTEGERS[target], [f"__{source}2{target}_{mode}(x)" for mode in MODES], x=x), strict=True
    ):
        exact = [nan if math.isnan(v) else _clipped(WHOLE[mode](v), limits) for v in x.tolist()]
        assert actual.tolist() == exact, mode


def _clipped(value: float, limits: Any) -> int:
    return int(limits.min if value < limits.min else limits.max if value > limits.max else value)


@pytest.mark.parametrize("source", INTEGERS)
@pytest.mark.parametrize("target", ["float", "double"])
def test_integer_to_floating_point(build: Callable[..., Runner], source: str, target: str) -> None:
    limits = np.iinfo(CTYPES[INTEGERS[source]])
    random = np.random.default_rng(5).integers(limits.min, limits.max, 100, dtype=limits.dtype)
    x = np.concatenate([np.array([0, 1, limits.max, limits.min, 16777217, 33554435], limits.dtype), random])
    modes = ("rn",) if (source, target) in (("int", "double"), ("uint", "double")) else MODES
    for mode, actual in zip(
        modes, evaluate(build, target, [f"__{source}2{target}_{m}(x)" for m in modes], x=x), strict=True
    ):
        assert actual.tolist() == [rounded(Fraction(int(v)), mode, CTYPES[target]) for v in x], mode


def test_double_to_float_and_bit_patterns(build: Callable[..., Runner]) -> None:
    x = np.random.default_rng(6).normal(size=200) * 10.0 ** np.random.default_rng(7).integers(-20, 20, 200)
    for mode, actual in zip(
        MODES, evaluate(build, "float", [f"__double2float_{m}(x)" for m in MODES], x=x), strict=True
    ):
        assert actual.tolist() == [rounded(Fraction(float(v)), mode, "f4") for v in x], mode
    bits = x.view("i8")
    same = ["__hiloint2double(__double2hiint(x), __double2loint(x))", "__longlong_as_double(__double_as_longlong(x))"]
    assert all((actual.view("i8") == bits).all() for actual in evaluate(build, "double", same, x=x))
    f = x.astype("f4")
    texts = [
        "__float_as_int(x)",
        "__float_as_int(__int_as_float(__float_as_int(x)))",
        "__float_as_uint(__uint_as_float(__float_as_uint(x)))",
    ]
    assert all((actual == f.view("i4")).all() for actual in evaluate(build, "int", texts, x=f))


# -- integers --------------------------------------------------------------------------------------------------------


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def bytes_of(word: int) -> list[int]:
    return [word >> (8 * n) & 255 for n in range(4)]


def byte_perm(x: int, y: int, selector: int) -> int:
    source = bytes_of(x) + bytes_of(y)
    return sum(source[selector >> (4 * n) & 7] << (8 * n) for n in range(4))


def dot(x: int, y: int, sign: bool) -> int:
    take = (lambda b: signed(b, 8)) if sign else (lambda b: b)
    return sum(take(a) * take(b) for a, b in zip(bytes_of(x), bytes_of(y), strict=True))


def clz(value: int, bits: int = 32) -> int:
    return bits - value.bit_length()


def ffs(value: int) -> int:
    return (value & -value).bit_length()


def reverse(value: int, bits: int) -> int:
    return int(f"{value:0{bits}b}"[::-1], 2)


def test_32_bit_intrinsics(build: Callable[..., Runner]) -> None:
    random = np.random.default_rng(8)
    special = [0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF]
    x, y, z = (np.concatenate([special, random.integers(0, 2**32, 95)]).astype("u4") for _ in "xyz")
    random.shuffle(y)
    pairs: dict[str, Callable[[int, int, int], int]] = {
        "__popc(x)": lambda x, y, z: x.bit_count(),
        "__clz(x)": lambda x, y, z: clz(x),
        "__ffs(x)": lambda x, y, z: ffs(x),
        "__brev(x)": lambda x, y, z: reverse(x, 32),
        "__byte_perm(x, y, z)": byte_perm,
        "__mulhi((int)x, (int)y)": lambda x, y, z: signed(x) * signed(y) >> 32,
        "__umulhi(x, y)": lambda x, y, z: x * y >> 32,
        "__mul24(x, y)": lambda x, y, z: signed(x, 24) * signed(y, 24),
        "__umul24(x, y)": lambda x, y, z: (x & 0xFFFFFF) * (y & 0xFFFFFF),
        "__sad((int)x, (int)y, z)": lambda x, y, z: abs(signed(x) - signed(y)) + z,
        "__usad(x, y, z)": lambda x, y, z: abs(x - y) + z,
        "__hadd((int)x, (int)y)": lambda x, y, z: (signed(x) + signed(y)) >> 1,
        "__rhadd((int)x, (int)y)": lambda x, y, z: (signed(x) + signed(y) + 1) >> 1,
        "__uhadd(x, y)": lambda x, y, z: (x + y) >> 1,
        "__urhadd(x, y)": lambda x, y, z: (x + y + 1) >> 1,
        "__dp4a((int)x, (int)y, (int)z)": lambda x, y, z: dot(x, y, True) + z,
        "__dp4a(x, y, z)": lambda x, y, z: dot(x, y, False) + z,
        "__dp2a_lo((int)x, (int)y, (int)z)": lambda x, y, z: (
            signed(x, 16) * signed(y, 8) + signed(x >> 16, 16) * signed(y >> 8, 8) + z
        ),
        "__dp2a_hi(x, y, z)": lambda x, y, z: (x & 0xFFFF) * (y >> 16 & 255) + (x >> 16) * (y >> 24) + z,
        "__funnelshift_l(x, y, z)": lambda x, y, z: (y << 32 | x) << (z & 31) >> 32,
        "__funnelshift_r(x, y, z)": lambda x, y, z: (y << 32 | x) >> (z & 31),
        "__funnelshift_lc(x, y, z & 63)": lambda x, y, z: (y << 32 | x) << min(z & 63, 32) >> 32,
        "__funnelshift_rc(x, y, z & 63)": lambda x, y, z: (y << 32 | x) >> min(z & 63, 32),
        "abs((int)(x >> 1)) + umin(x, y) + max(y, z)": lambda x, y, z: (x >> 1) + min(x, y) + max(y, z),
    }
    out = evaluate(build, "unsigned", list(pairs), x=x, y=y, z=z)
    for (text, exact), actual in zip(pairs.items(), out, strict=True):
        values = zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
        assert actual.tolist() == [exact(*v) & 0xFFFFFFFF for v in values], text


def test_64_bit_intrinsics(build: Callable[..., Runner]) -> None:
    random = np.random.default_rng(9)
    special = np.array([0, 1, 2**64 - 1, 2**63, 2**63 - 1], "u8")
    x, y = (np.concatenate([special, random.integers(0, 2**64, 95, dtype="u8")]) for _ in "xy")
    random.shuffle(y)
    pairs: dict[str, Callable[[int, int], int]] = {
        "__popcll(x)": lambda x, y: x.bit_count(),
        "__clzll(x)": lambda x, y: clz(x, 64),
        "__ffsll(x)": lambda x, y: ffs(x),
        "__brevll(x)": lambda x, y: reverse(x, 64),
        "__mul64hi((long long)x, (long long)y)": lambda x, y: signed(x, 64) * signed(y, 64) >> 64,
        "__umul64hi(x, y)": lambda x, y: x * y >> 64,
        "llmin((long long)x, (long long)y)": lambda x, y: min(signed(x, 64), signed(y, 64)),
        "ullmax(x, y)": max,
        "llabs((long long)(x >> 1))": lambda x, y: x >> 1,
    }
    for (text, exact), actual in zip(
        pairs.items(), evaluate(build, "unsigned long long", list(pairs), x=x, y=y), strict=True
    ):
        assert actual.tolist() == [exact(*v) & (2**64 - 1) for v in zip(x.tolist(), y.tolist(), strict=True)], text
