"""libdevice's functions (``__nv_*``) in terms of LLVM's intrinsics, libm and formulas.

``__nv_<name>`` takes double, ``__nv_<name>f`` float. Fast versions (``__nv_fast_*``) are the accurate ones.
"""

from __future__ import annotations

import ast
import re
from functools import cache

from r3bench.lowering import numbers
from r3bench.lowering.formulas import INTRINSICS, LIBM, Definitions, libm_name

_FORMULAS = """
def rsqrt(x):
    return 1 / sqrt(x)

def rsqrt_rn(x):
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
    return 0.5 * erfc(-0.7071067811865476 * x)

def normcdfinv(p):
    return -1.4142135623730951 * erfcinv(2 * p)

def erfcinv_start(z):
    t = sqrt(-2 * log(0.5 * z))
    return -0.70711 * ((2.30753 + t * 0.27061) / (1 + t * (0.99229 + t * 0.04481)) - t)

def erfcinv_step(x, z):
    e = erfc(x) - z
    return x + e / (1.1283791670955126 * exp(-x * x) - x * e)

def erfcinv(z):
    p = z if z < 1 else 2 - z
    x = erfcinv_step(erfcinv_step(erfcinv_step(erfcinv_start(p), p), p), p)
    y = x if z < 1 else -x
    return infinity(z) if z == 0 else -infinity(z) if z == 2 else y

def erfinv_step(y, x):
    e = erf(y) - x
    return y - e / (1.1283791670955126 * exp(-y * y) + y * e)

def erfinv(x):
    a = fabs(x)
    y = erfcinv(1 - a)
    near = erfinv_step(erfinv_step(y, a), a)
    return copysign(near if a < 0.5 else y, x)

def infinity(x):
    return 1 / (0 * fabs(x))

def erfcx(x):
    s = x * x
    direct = exp(s) * (1 + fma(x, x, -s)) * erfc(x)
    r = 1 / (2 * s)
    tail = r * (1 - r * (3 - r * (15 - r * (105 - r * (945 - r * (10395 - r * 135135))))))
    return 0.5641895835477563 / x * (1 - tail) if x > 25 else exp(s) * erfc(x) if x < -26 else direct
"""
_DOUBLED = frozenset(
    ["rsqrt_rn", "normcdfinv", "erfcinv", "erfinv", "erfcx", "normcdf", "sinpi", "cospi", "rcbrt", "norm3d", "rnorm3d", "norm4d", "rnorm4d"]
)
"""Computed in double for float arguments too: a formula's rounding errors then vanish in the last conversion."""

_NAMED = {"llrint": "i64", "llround": "i64", "ilogb": "i32"}
_FAST = ["exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan", "tanh", "pow", "fdivide"]


@cache
def _formulas() -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.parse(_FORMULAS).body if isinstance(node, ast.FunctionDef)}


@cache
def _functions() -> dict[str, tuple[str, str]]:
    """libdevice name -> (name of the mathematics, type)."""
    names = [*INTRINSICS, *LIBM, *_formulas()]
    found = {f"__nv_{name}{end}": (name, kind) for name in names for end, kind in (("", "double"), ("f", "float"))}
    fast = {f"__nv_fast_{name}f": (name, "float") for name in _FAST}
    return found | fast | {"__nv_frsqrt_rn": ("rsqrt_rn", "float")} | numbers.rounded()


def known(name: str) -> bool:
    """Whether :func:`define` can give ``name`` (without ``@``) a body."""
    return name in _functions() or numbers.known(name)


def define(name: str, definitions: Definitions) -> None:
    """Add a definition of the libdevice function ``name`` and of everything it needs."""
    definitions.formulas = formulas = _formulas() | numbers.formulas()
    if numbers.known(name):
        numbers.define(name, definitions)
        return
    function, kind = _functions()[name]
    count = len(formulas[function].args.args) if function in formulas else _arity(function)
    definitions.texts[f"@{name}"] = _wrapper(f"@{name}", function, kind, count, definitions)


def _arity(function: str) -> int:
    if function == "fma":
        return 3
    return 2 if function in (["copysign", "fmin", "fmax", "atan2", "pow", "remainder", "hypot", "fdim", "nextafter", "fmod"]) else 1


def _wrapper(symbol: str, function: str, kind: str, count: int, definitions: Definitions) -> str:
    """``symbol`` calls ``function``, in double where that keeps a float formula accurate."""
    parameters = ", ".join(f"{kind} %x{n}" for n in range(count))
    head = f"define internal {kind} {symbol}({parameters}) alwaysinline nounwind {{\n"
    if kind == "double" or function not in _DOUBLED:
        target = definitions.function(function, kind, count)
        return f"{head}  %r = call {kind} {target}({parameters})\n  ret {kind} %r\n}}"
    target = definitions.function(function, "double", count)
    widened = "".join(f"  %d{n} = fpext float %x{n} to double\n" for n in range(count))
    passed = ", ".join(f"double %d{n}" for n in range(count))
    call = f"  %r = call double {target}({passed})\n  %s = fptrunc double %r to float\n  ret float %s\n}}"
    return head + widened + call


def symbols(text: str) -> tuple[str, ...]:
    """The libm functions that code made from this module may call: declared ones, and those behind intrinsics."""
    found = {name for name in re.findall(r"^declare [^\n]*@([a-z]\w*)\(", text, re.MULTILINE)}
    for name, width in re.findall(r"@llvm\.(\w+)\.(?:v\d+)?(f32|f64)\(", text):
        found.add(libm_name(_LIBM_OF.get(name, name), "float" if width == "f32" else "double"))
    if re.search(r"\bfrem\b", text):
        found |= {"fmod", "fmodf"}
    return tuple(sorted(found & _exported()))


_LIBM_OF = {"minnum": "fmin", "maxnum": "fmax", "fmuladd": "fma"}


@cache
def _exported() -> set[str]:
    names = {
        *INTRINSICS,
        *LIBM,
        "ldexp",
        "frexp",
        "llrint",
        "llround",
        "lrint",
        "lround",
        "ilogb",
        "roundeven",
        "jn",
        "yn",
    }
    return {libm_name(name, kind) for name in names for kind in ("float", "double")}
