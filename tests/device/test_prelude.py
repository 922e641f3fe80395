"""Values of everything the device prelude offers, on the CPU device, against NumPy and closed forms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from run_kernel import Array, Runner

from r3bench.devices import Device, open_device
from r3bench.toolchain import Compiler


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    compiler = Compiler(1)
    yield compiler
    compiler.close()


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = open_device("cpu", threads=2)
    yield device
    device.close()


@pytest.fixture
def build(compiler: Compiler, device: Device) -> Callable[..., Runner]:
    return lambda text, flags=(): Runner(compiler, device, text, flags)


@pytest.fixture(params=["forward", "reverse"])
def order(request: pytest.FixtureRequest) -> str:
    return str(request.param)


CTYPES = {"float": "f4", "double": "f8", "int": "i4", "unsigned": "u4", "long long": "i8", "unsigned long long": "u8"}


def evaluate(
    build: Callable[..., Runner],
    result: str,
    expressions: Sequence[str],
    head: str = "",
    flags: Sequence[str] = (),
    **inputs: Array,
) -> list[Array]:
    """Each C++ expression of the named inputs, for all of their elements; ``result`` is its C++ type."""
    names = {dtype: ctype for ctype, dtype in CTYPES.items()}
    parameters = "".join(f"const {names[a.dtype.str[1:]]}* {n}_, " for n, a in inputs.items())
    loads = "".join(f"auto {name} = {name}_[i]; " for name in inputs)
    stores = "".join(f"out[{n} * n + i] = {text}; " for n, text in enumerate(expressions))
    text = f"{head}\n__global__ void k({parameters}{result}* out, int n) {{\n"
    text += f"int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return; {loads}\n{stores} }}"
    n = len(next(iter(inputs.values())))
    out = np.zeros((len(expressions), n), CTYPES[result])
    return list(build(text, flags)("k", (-(-n // 64),), (64,), *inputs.values(), out, n)[-1])


def errors_in_ulp(actual: Array, exact: Array) -> Array:
    """Distance in units in the last place of the exact value's own binade, of ``actual``'s type."""
    with np.errstate(over="ignore", invalid="ignore"):
        spacing = np.spacing(np.abs(exact).astype(actual.dtype))
        return np.abs(actual.astype("g") - exact.astype("g")) / spacing.astype("g")


def assert_close(actual: Array, exact: Array, ulp: float, what: str) -> None:
    errors = errors_in_ulp(actual, exact)
    assert errors.max() <= ulp, f"{what}: {float(errors.max()):.1f} ulp, {actual[errors.argmax()]}"


# -- mathematics -----------------------------------------------------------------------------------------------------


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
