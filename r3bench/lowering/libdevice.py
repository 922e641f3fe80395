"""libdevice's functions (``__nv_*``) in terms of LLVM's intrinsics, libm and formulas.

``__nv_<name>`` takes double, ``__nv_<name>f`` float. Fast versions (``__nv_fast_*``) are the accurate ones.
"""

from __future__ import annotations

import ast
import re
from functools import cache

from r3bench.lowering.conversions import raw_functions
from r3bench.lowering.formulas import INTRINSICS, LIBM, Definitions, libm_name

_FORMULAS = """
def rsqrt(x):
    return 1 / sqrt(x)

def rcbrt(x):
    return 1 / cbrt(x)

def rhypot(x, y):
    return 1 / hypot(x, y)

def norm3d(x, y, z):
    return hypot(hypot(x, y), z)

def rnorm3d(x, y, z):
    return 1 / norm3d(x, y, z)

def norm4d(x, y, z, w):
    return hypot(hypot(x, y), hypot(z, w))

def rnorm4d(x, y, z, w):
    return 1 / norm4d(x, y, z, w)

def fdivide(x, y):
    return x / y

def saturate(x):
    return fmin(fmax(x, 0), 1)

def sinpi(x):
    q = rint(2 * x)
    t = 3.141592653589793 * (x - 0.5 * q)
    n = q - 4 * floor(0.25 * q)
    y = sin(t) if n == 0 else cos(t) if n == 1 else -sin(t) if n == 2 else -cos(t)
    return copysign(0 * x, x) if x == trunc(x) else y

def cospi(x):
    q = rint(2 * x)
    t = 3.141592653589793 * (x - 0.5 * q)
    n = q - 4 * floor(0.25 * q)
    y = cos(t) if n == 0 else -sin(t) if n == 1 else -cos(t) if n == 2 else sin(t)
    return 0 if fabs(x - trunc(x)) == 0.5 else y

def normcdf(x):
    t = -0.7071067811865476 * x
    d = fma(-0.7071067811865476, x, -t) + 4.833646656726457e-17 * x
    return 0.5 * (erfc(t) - 1.1283791670955126 * exp(-t * t) * d)

def normcdfinv(p):
    return -1.4142135623730951 * erfcinv(2 * p)

def erfcinv_start(z):
    t = sqrt(-2 * log(0.5 * z))
    return -0.70711 * ((2.30753 + t * 0.27061) / (1 + t * (0.99229 + t * 0.04481)) - t)

def erfcinv_step(x, z):
    e = erfc(x) - z
    return x + e / (1.1283791670955126 * exp(-x * x) - x * e)

def erfcinv_tail(p):
    return erfcinv_step(erfcinv_step(erfcinv_step(erfcinv_start(p), p), p), p)

def erfinv_step(y, x):
    e = erf(y) - x
    return y - e / (1.1283791670955126 * exp(-y * y) + y * e)

def erfinv(x):
    a = fabs(x)
    y = erfcinv_tail(1 - a)
    near = erfinv_step(erfinv_step(y, a), a)
    return copysign(inf if a == 1 else near if a < 0.5 else y, x)

def erfcinv(z):
    y = erfcinv_tail(z) if z < 0.5 else -erfcinv_tail(2 - z) if z > 1.5 else erfinv(1 - z)
    return inf if z == 0 else -inf if z == 2 else y

def erfcx(x):
    s = x * x
    direct = exp(s) * (1 + fma(x, x, -s)) * erfc(x)
    r = 1 / (2 * s)
    tail = r * (1 - r * (3 - r * (15 - r * (105 - r * (945 - r * (10395 - r * 135135))))))
    return 0.5641895835477563 / x * (1 - tail) if x > 25 else exp(s) * erfc(x) if x < -26 else direct

def up(s, e):
    return nextafter(s, inf) if e > 0 else s

def down(s, e):
    return nextafter(s, -inf) if e < 0 else s

def chop(s, e):
    return down(s, e) if s > 0 else up(s, e)

def add_error(x, y):
    s = x + y
    v = s - x
    return (x - (s - v)) + (y - v)

def mul_error(x, y):
    return fma(x, y, -(x * y))

def div_error(x, y):
    return fma(-(x / y), y, x) * copysign(1, y)

def sqrt_error(x):
    return fma(-sqrt(x), sqrt(x), x)

def fma_error(x, y, z):
    h = x * y + z
    return ((h - fma(x, y, z)) + add_error(x * y, z)) + mul_error(x, y)
"""
# fmt: off
_DOUBLED = frozenset((
    "normcdfinv", "erfcinv", "erfinv", "erfcx", "normcdf", "sinpi", "cospi", "rcbrt", "norm3d", "rnorm3d", "norm4d",
    "rnorm4d", "cyl_bessel_i0", "cyl_bessel_i1",
))
# fmt: on
"""Computed in double for float arguments too: a formula's rounding errors then vanish in the last conversion."""

_ROUNDED = {
    "add": ("x, y", "x + y", "add_error(x, y)"),
    "sub": ("x, y", "x - y", "add_error(x, -y)"),
    "mul": ("x, y", "x * y", "mul_error(x, y)"),
    "div": ("x, y", "x / y", "div_error(x, y)"),
    "rcp": ("x", "1 / x", "div_error(1, x)"),
    "sqrt": ("x", "sqrt(x)", "sqrt_error(x)"),
    "rsqrt": ("x", "1 / sqrt(x)", "0 * x"),
    "fma": ("x, y, z", "fma(x, y, z)", "fma_error(x, y, z)"),
}
"""Operations with a rounding mode: parameters, the value to nearest, the sign of what was rounded off."""
_DIRECTIONS = {"ru": "up", "rd": "down", "rz": "chop"}
_FAST = ("exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan", "tanh", "pow", "fdivide")


def _bessel(order: int) -> str:
    """I0 and I1: the power series up to 20, where it has 60 positive terms, and the asymptotic one beyond."""
    series = tail = "1"
    for k in range(60, 0, -1):
        series = f"1 + q * {1 / (k * (k + order))!r} * ({series})"
    for k in range(24, 0, -1):
        tail = f"1 + r * {((2 * k - 1) ** 2 - 4 * order) / (8 * k)!r} * ({tail})"
    factor, sign = ("1", "y") if order == 0 else ("0.5 * a", "copysign(y, x)")
    return f"""
def cyl_bessel_i{order}(x):
    a = fabs(x)
    q = 0.25 * a * a
    r = 1 / a
    h = exp(0.5 * a)
    far = h * (0.3989422804014327 / sqrt(a)) * h * ({tail})
    y = {factor} * ({series}) if a < 20 else far
    return {sign}
"""


@cache
def _formulas() -> dict[str, ast.FunctionDef]:
    text = _FORMULAS + _bessel(0) + _bessel(1)
    for name, (parameters, value, error) in _ROUNDED.items():
        text += f"\ndef {name}_rn({parameters}):\n    return {value}\n"
        for mode, rounding in _DIRECTIONS.items():
            text += f"\ndef {name}_{mode}({parameters}):\n    return {rounding}({value}, {error})\n"
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@cache
def _functions() -> dict[str, tuple[str, str]]:
    """libdevice name -> (name of the mathematics, type), for functions of one type."""
    kinds = (("", "double"), ("f", "float"))
    found = {f"__nv_{name}{end}": (name, kind) for name in (*INTRINSICS, *LIBM, *_NAMES) for end, kind in kinds}
    found |= {f"__nv_fast_{name}f": (name, "float") for name in _FAST}
    for name in _ROUNDED:
        for mode in ("rn", *_DIRECTIONS):
            plain = {"double": f"d{name}", "float": f"f{name}"} if name != "fma" else {"double": "fma", "float": "fmaf"}
            found |= {f"__nv_{plain[kind]}_{mode}": (f"{name}_{mode}", kind) for kind in plain}
    return found


_NAMES = (
    *("rsqrt", "rcbrt", "rhypot", "norm3d", "rnorm3d", "norm4d", "rnorm4d", "fdivide", "saturate", "sinpi", "cospi"),
    *("normcdf", "normcdfinv", "erfcinv", "erfinv", "erfcx", "cyl_bessel_i0", "cyl_bessel_i1"),
)
_TWO = frozenset(("copysign", "fmin", "fmax", "atan2", "pow", "remainder", "hypot", "fdim", "nextafter", "fmod"))


def known(name: str) -> bool:
    """Whether :func:`define` can give ``name`` (without ``@``) a body."""
    return name in _functions() or name in raw_functions()


def definitions() -> Definitions:
    """An empty set of definitions that knows the formulas."""
    return Definitions(_formulas())


def define(name: str, wanted: Definitions) -> None:
    """Add a definition of the libdevice function ``name`` and of everything it needs."""
    if name in raw_functions():
        wanted.texts[f"@{name}"] = raw_functions()[name].text(f"@{name}", wanted)
        return
    function, kind = _functions()[name]
    wanted.texts[f"@{name}"] = _wrapper(f"@{name}", function, kind, _arity(function), wanted)


def _arity(function: str) -> int:
    if function in _formulas():
        return len(_formulas()[function].args.args)
    return 3 if function == "fma" else 2 if function in _TWO else 1


def _wrapper(symbol: str, function: str, kind: str, count: int, wanted: Definitions) -> str:
    """``symbol`` calls ``function``, in double where that keeps a float formula accurate."""
    parameters = ", ".join(f"{kind} %x{n}" for n in range(count))
    head = f"define internal {kind} {symbol}({parameters}) alwaysinline nounwind {{\n"
    if kind == "double" or function not in _DOUBLED:
        target = wanted.function(function, kind, count)
        return f"{head}  %r = call {kind} {target}({parameters})\n  ret {kind} %r\n}}"
    target = wanted.function(function, "double", count)
    widened = "".join(f"  %d{n} = fpext float %x{n} to double\n" for n in range(count))
    passed = ", ".join(f"double %d{n}" for n in range(count))
    call = f"  %r = call double {target}({passed})\n  %s = fptrunc double %r to float\n  ret float %s\n}}"
    return head + widened + call


def symbols(text: str) -> tuple[str, ...]:
    """The libm functions that code made from this module may call: declared ones, and those behind intrinsics."""
    found = set(re.findall(r"^declare [^\n]*@([a-z]\w*)\(", text, re.MULTILINE))
    for name, width in re.findall(r"@llvm\.(\w+)\.(?:i\d+\.)?(?:v\d+)?(f32|f64)", text):
        found.add(libm_name(_BEHIND.get(name, name), "float" if width == "f32" else "double"))
    if re.search(r"\bfrem\b", text):
        found |= {"fmod", "fmodf"}
    return tuple(sorted(found & _exported()))


_BEHIND = {"minnum": "fmin", "maxnum": "fmax", "fmuladd": "fma"}


@cache
def _exported() -> set[str]:
    more = ("ldexp", "frexp", "modf", "remquo", "llrint", "llround", "lrint", "lround", "ilogb", "jn", "yn")
    return {libm_name(name, kind) for name in (*INTRINSICS, *LIBM, *more) for kind in ("float", "double")}
