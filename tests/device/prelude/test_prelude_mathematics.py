"""Values of the prelude's mathematics, on the CPU device, against NumPy and closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.device.expressions import CTYPES, assert_close, evaluate
from tests.device.run_kernel import Array, Runner


def integral(function: Callable[[Array], Array]) -> float:
    """The mean over a half period, by the trapezoidal rule, which is exact to rounding for these functions."""
    t = np.linspace(0, np.pi, 401).astype("g")
    y = function(t)
    return float((y.sum() - (y[0] + y[-1]) / 2) / 400)


def bessel_j(order: int, x: float) -> float:
    return integral(lambda t: np.cos(order * t - np.longdouble(x) * np.sin(t)))


def per_element(function: Callable[..., float]) -> Callable[..., Array]:
    return lambda *arrays: np.array([function(*map(float, values)) for values in zip(*arrays, strict=True)])


def scaled_erfc(x: float) -> Any:
    return np.exp(np.longdouble(x) ** 2) * math.erfc(x)


ANY = (-4.0, 4.0)
# name: (reference, range of the argument, ulp in float, ulp in double)
MATH1: dict[str, tuple[Callable[..., Any], tuple[float, float], float, float]] = {
    "sqrt": (np.sqrt, (0, 9), 0.5, 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), (0.1, 9), 2, 2),
    "cbrt": (np.cbrt, ANY, 2, 4),
    "rcbrt": (lambda x: 1 / np.cbrt(x), (0.1, 9), 2, 4),
    "exp": (np.exp, ANY, 2, 2),
    "exp2": (np.exp2, ANY, 2, 2),
    "exp10": (lambda x: np.exp(x * np.log(np.longdouble(10))), ANY, 2, 2),
    "expm1": (np.expm1, ANY, 2, 2),
    "log": (np.log, (0.01, 9), 2, 2),
    "log2": (np.log2, (0.01, 9), 2, 2),
    "log10": (np.log10, (0.01, 9), 2, 2),
    "log1p": (np.log1p, (-0.9, 9), 2, 2),
    "logb": (lambda x: np.floor(np.log2(x)), (0.01, 9), 0, 0),
    "sin": (np.sin, ANY, 2, 2),
    "cos": (np.cos, ANY, 2, 2),
    "tan": (np.tan, (-1.5, 1.5), 2, 2),
    "sinpi": (
        lambda x: np.sin(x * np.longdouble(math.pi) + x * np.longdouble(1.2246467991473532e-16)),
        (-0.9, 0.9),
        2,
        3,
    ),
    "cospi": (lambda x: np.cos(x * np.longdouble(math.pi)), (-0.4, 0.4), 2, 3),
    "asin": (np.arcsin, (-1, 1), 2, 2),
    "acos": (np.arccos, (-1, 1), 2, 2),
    "atan": (np.arctan, ANY, 2, 2),
    "sinh": (np.sinh, ANY, 2, 2),
    "cosh": (np.cosh, ANY, 2, 2),
    "tanh": (np.tanh, ANY, 2, 2),
    "asinh": (np.arcsinh, ANY, 2, 2),
    "acosh": (np.arccosh, (1.1, 9), 2, 2),
    "atanh": (np.arctanh, (-0.9, 0.9), 2, 2),
    "erf": (per_element(math.erf), ANY, 2, 2),
    "erfc": (per_element(math.erfc), ANY, 3, 4),
    "erfcx": (per_element(scaled_erfc), (0.0, 4), 3, 8),
    "normcdf": (per_element(lambda x: 0.5 * math.erfc(-x / math.sqrt(2))), (-3, 3), 3, 24),
    "tgamma": (per_element(math.gamma), (0.5, 6), 3, 6),
    "lgamma": (per_element(math.lgamma), (3, 9), 3, 12),
    "j0": (per_element(lambda x: bessel_j(0, x)), (0, 2), 4, 8),
    "j1": (per_element(lambda x: bessel_j(1, x)), (0.1, 3), 4, 8),
    "floor": (np.floor, ANY, 0, 0),
    "ceil": (np.ceil, ANY, 0, 0),
    "trunc": (np.trunc, ANY, 0, 0),
    "rint": (np.rint, ANY, 0, 0),
    "nearbyint": (np.rint, ANY, 0, 0),
    "round": (lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), ANY, 0, 0),
    "fabs": (np.abs, ANY, 0, 0),
}
MATH2: dict[str, tuple[Callable[..., Any], float, float]] = {
    "pow": (np.power, 2, 2),
    "atan2": (np.arctan2, 2, 2),
    "hypot": (np.hypot, 2, 2),
    "rhypot": (lambda x, y: 1 / np.hypot(x, y), 2, 2),
    "fmod": (np.fmod, 0, 0),
    "remainder": (per_element(math.remainder), 0, 0),
    "fdim": (lambda x, y: np.maximum(x - y, 0), 0.5, 0.5),
    "fmin": (np.minimum, 0, 0),
    "fmax": (np.maximum, 0, 0),
    "copysign": (np.copysign, 0, 0),
}


@pytest.mark.parametrize(("ctype", "suffix"), [("float", "f"), ("double", "")])
def test_mathematics_of_one_argument(build: Callable[..., Runner], ctype: str, suffix: str) -> None:
    unit = np.linspace(0.001, 0.999, 200)
    names = list(MATH1)
    spans = {name: MATH1[name][1] for name in names}
    texts = [f"{name}{suffix}(({ctype})({low} + {high - low} * x))" for name, (low, high) in spans.items()]
    x = unit.astype(CTYPES[ctype])
    exact_inputs = evaluate(build, ctype, [f"({ctype})({low} + {high - low} * x)" for low, high in spans.values()], x=x)
    for name, actual, argument in zip(names, evaluate(build, ctype, texts, x=x), exact_inputs, strict=True):
        assert_close(actual, MATH1[name][0](argument.astype("g")), MATH1[name][2 if suffix else 3], name)


@pytest.mark.parametrize(("ctype", "suffix"), [("float", "f"), ("double", "")])
def test_mathematics_of_two_arguments(build: Callable[..., Runner], ctype: str, suffix: str) -> None:
    random = np.random.default_rng(2)
    x, y = (random.uniform(0.1, 5, 300).astype(CTYPES[ctype]) for _ in "xy")
    for name, actual in zip(
        MATH2, evaluate(build, ctype, [f"{n}{suffix}(x, y)" for n in MATH2], x=x, y=y), strict=True
    ):
        assert_close(actual, MATH2[name][0](x.astype("g"), y.astype("g")), MATH2[name][1 if suffix else 2], name)


def test_inverses_and_identities(build: Callable[..., Runner]) -> None:
    x = np.linspace(0.05, 0.95, 100)
    expressions = [
        "erf(erfinv(x))",
        "erfc(erfcinv(x))",
        "normcdf(normcdfinv(x))",
        "x * (j1(x) * y0(x) - j0(x) * y1(x))",
    ]
    expressions += [
        "nextafter(x, 2.0) - x",
        "norm3d(x, 2 * x, 2 * x) / 3",
        "1 / rnorm4d(x, x, x, x) / 2",
        "exp(lgamma(x)) / tgamma(x)",
    ]
    expected = [x, x, x, np.full(100, 2 / np.pi), np.spacing(x), x, x, np.ones(100)]
    for text, actual, exact in zip(expressions, evaluate(build, "double", expressions, x=x), expected, strict=True):
        np.testing.assert_allclose(actual, exact, rtol=3e-15, err_msg=text)


def test_overloads_choose_the_precision_of_their_arguments(build: Callable[..., Runner]) -> None:
    x = np.linspace(0.5, 2, 50).astype("f4")
    pairs = {
        "exp(x)": np.exp(x.astype("f8")).astype("f4"),
        "std::exp(x)": np.exp(x.astype("f8")).astype("f4"),
        "pow(x, 2)": x.astype("f8") ** 2,
        "std::pow(2, x)": 2 ** x.astype("f8"),
        "sqrt(2)": np.full(50, math.sqrt(2)),
        "min(x, 1.0)": np.minimum(x.astype("f8"), 1),
        "max(x, 1.0f)": np.maximum(x, np.float32(1)),
        "abs(-x)": x,
        "std::abs(-3) + abs(-4LL)": np.full(50, 7.0),
        "fmaf(x, x, x)": (x.astype("g") * x + x).astype("f4"),
        "fma((double)x, (double)x, 1.0)": (x.astype("g") * x + 1).astype("f8"),
        "min(5u, 3) + max(-2, 7)": np.full(50, 10.0),
        "isnan(NAN) + isinf(INFINITY) + isfinite(x) + signbit(-x) + isnan(x)": np.full(50, 4.0),
    }
    for (text, exact), actual in zip(pairs.items(), evaluate(build, "double", list(pairs), x=x), strict=True):
        np.testing.assert_allclose(actual, exact, rtol=2.5e-7 if "exp" in text else 3e-16, err_msg=text)


def test_functions_with_several_results(build: Callable[..., Runner]) -> None:
    x = np.linspace(-7, 7, 99)
    head = """__device__ double both(double s, double c) { return s + 1000 * c; }
    __device__ double circle(double x) { double s, c; sincos(x, &s, &c); return both(s, c); }
    __device__ double circlepi(double x) { double s, c; sincospi(x, &s, &c); return both(s, c); }
    __device__ float circlef(float x) { float s, c; sincosf(x, &s, &c); return s * s + c * c; }
    __device__ double parts(double x) { double whole, rest = modf(x, &whole); return both(rest, whole); }
    __device__ double binary(double x) { int e; double m = frexp(x, &e); return both(m, e); }
    __device__ double quotient(double x) { int q; double r = remquo(x, 2.0, &q); return both(r, q & 7); }
    __device__ double length(double x) { double v[3] = {x, 2 * x, 2 * x}; return norm(3, v); }"""
    pairs = {
        "circle(x)": np.sin(x) + 1000 * np.cos(x),
        "circlepi(x)": np.sin(np.pi * x) + 1000 * np.cos(np.pi * x),
        "circlef(x)": np.ones(99),
        "parts(x)": np.modf(x)[0] + 1000 * np.modf(x)[1],
        "binary(x)": np.frexp(x)[0] + 1000.0 * np.frexp(x)[1],
        "quotient(x)": np.array(
            [math.remainder(v, 2) + 1000 * (abs(round(v / 2)) * (1 if v > 0 else -1) & 7) for v in x]
        ),
        "length(x)": 3 * np.abs(x),
        "ldexp(x, 3) + scalbn(x, -1)": 8.5 * x,
        "ilogb(x) + lrint(x) + llround(x)": np.array(
            [math.frexp(v)[1] - 1 + np.rint(v) + math.copysign(math.floor(abs(v) + 0.5), v) if v else 0 for v in x]
        ),
        "jn(2, fabs(x))": per_element(lambda v: bessel_j(2, v))(np.abs(x)),
    }
    for (text, exact), actual in zip(pairs.items(), evaluate(build, "double", list(pairs), head, x=x), strict=True):
        nonzero = x != 0 if text.startswith("ilogb") else slice(None)
        np.testing.assert_allclose(
            actual[nonzero], exact[nonzero], rtol=1e-6 if "f(" in text else 1e-12, atol=1e-13, err_msg=text
        )


def test_fast_intrinsics(build: Callable[..., Runner]) -> None:
    x = np.linspace(0.1, 3, 64).astype("f4")
    wide = x.astype("f8")
    pairs = {
        "__expf(x)": np.exp(wide),
        "__exp10f(x)": 10**wide,
        "__logf(x + 2)": np.log(wide + 2),
        "__log2f(x + 2)": np.log2(wide + 2),
        "__log10f(x + 2)": np.log10(wide + 2),
        "__sinf(x)": np.sin(wide),
        "__cosf(x) + 2": np.cos(wide) + 2,
        "__tanf(x / 3)": np.tan(wide / 3),
        "__powf(x, 2.5f)": wide**2.5,
        "__fdividef(1.0f, x)": 1 / wide,
        "__frcp_rn(x)": 1 / wide,
        "__fsqrt_rn(x)": np.sqrt(wide),
        "__frsqrt_rn(x)": 1 / np.sqrt(wide),
        "__fmaf_rn(x, x, 1.0f)": wide * wide + 1,
        "__saturatef(x - 1)": np.clip(wide - 1, 0, 1),
        "__fdiv_rn(x, 3.0f)": wide / 3,
        "fdividef(x, 3.0f)": wide / 3,
    }
    for flags in ((), ("--use_fast_math",)):
        for (text, exact), actual in zip(
            pairs.items(), evaluate(build, "float", list(pairs), flags=flags, x=x), strict=True
        ):
            np.testing.assert_allclose(actual, exact, rtol=1e-6, atol=2e-7, err_msg=text)


def test_fast_math_stays_close(build: Callable[..., Runner]) -> None:
    x = np.linspace(0.1, 3, 64).astype("f4")
    (actual,) = evaluate(
        build, "float", ["expf(-x) * sin(x) + powf(x, 1.5f) / tanhf(x)"], flags=["-use_fast_math"], x=x
    )
    wide = x.astype("f8")
    np.testing.assert_allclose(actual, np.exp(-wide) * np.sin(wide) + wide**1.5 / np.tanh(wide), rtol=2e-6)
