"""libdevice's conversions between numbers, arithmetic with a rounding mode, and functions that also write or take an
integer, as LLVM IR.

A directed rounding is the rounding to nearest, moved by one place where the sign of its error says so; the errors are
exact, but for double products and quotients below about 1e-290.
"""

from __future__ import annotations

import ast
import re
from functools import cache

from r3bench.lowering.formulas import Definitions, suffix

_INTEGERS = {"int": ("i32", "s"), "uint": ("i32", "u"), "ll": ("i64", "s"), "ull": ("i64", "u")}
_TO_WHOLE = {"rn": "rint", "rz": "trunc", "ru": "ceil", "rd": "floor"}

_FORMULAS = """
def round_rn(r, e):
    return r

def round_ru(r, e):
    return nextafter(r, 1e999) if e > 0 else r

def round_rd(r, e):
    return nextafter(r, -1e999) if e < 0 else r

def round_rz(r, e):
    return nextafter(r, 0) if copysign(1, r) * e < 0 else r

def error(r, e, largest):
    overflowed = -r if largest < 1e999 else 0
    return e if fabs(r) < 1e999 else overflowed

def sum_error(a, b, r):
    z = r - a
    return (a - (r - z)) + (b - z)

def add_error(a, b):
    return error(a + b, sum_error(a, b, a + b), fmax(fabs(a), fabs(b)))

def mul_error(a, b):
    return error(a * b, fma(a, b, -(a * b)), fmax(fabs(a), fabs(b)))

def div_error(a, b):
    e = copysign(1, b) * fma(-(a / b), b, a)
    return error(a / b, 0 if fabs(b) == 1e999 else e, fmax(fabs(a), 1e999 if b == 0 else 1))

def sqrt_error(x):
    return error(sqrt(x), fma(-sqrt(x), sqrt(x), x), x)

def fma_error(a, b, c):
    r = fma(a, b, c)
    p = a * b
    q = fma(a, b, -p)
    s = c + q
    t = sum_error(c, q, s)
    u = p + s
    v = sum_error(p, s, u)
    w = (u - r) + v
    d = w + t
    e = d if d != 0 else sum_error(w, t, d)
    return error(r, e, fmax(fmax(fabs(a), fabs(b)), fabs(c)))
"""
_ROUNDED = """
def add_{m}(a, b):
    return round_{m}(a + b, add_error(a, b))

def sub_{m}(a, b):
    return round_{m}(a - b, add_error(a, -b))

def mul_{m}(a, b):
    return round_{m}(a * b, mul_error(a, b))

def div_{m}(a, b):
    return round_{m}(a / b, div_error(a, b))

def rcp_{m}(x):
    return round_{m}(1 / x, div_error(1, x))

def sqrt_{m}(x):
    return round_{m}(sqrt(x), sqrt_error(x))

def fma_{m}(a, b, c):
    return round_{m}(fma(a, b, c), fma_error(a, b, c))
"""


@cache
def formulas() -> dict[str, ast.FunctionDef]:
    """Arithmetic by operation and rounding mode (``add_ru``), and what it needs."""
    text = _FORMULAS + "".join(_ROUNDED.format(m=mode) for mode in _TO_WHOLE)
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


@cache
def rounded() -> dict[str, tuple[str, str]]:
    """libdevice name -> (name of the formula, type) for arithmetic with a rounding mode."""
    names = [name for name in formulas() if re.fullmatch(r"(add|sub|mul|div|rcp|sqrt)_r[nzud]", name)]
    out = {f"__nv_{short}{name}": (name, kind) for name in names for short, kind in (("f", "float"), ("d", "double"))}
    for mode in _TO_WHOLE:
        out |= {f"__nv_fmaf_{mode}": (f"fma_{mode}", "float"), f"__nv_fma_{mode}": (f"fma_{mode}", "double")}
    return out


# -- conversions ------------------------------------------------------------------------------------------------------

_CAST = re.compile(r"__nv_(float|double|int|uint|ll|ull)2(float|double|int|uint|ll|ull)_(rn|rz|ru|rd)")


def _cast(symbol: str, source: str, target: str, mode: str, definitions: Definitions) -> str:
    if target in _INTEGERS:
        return _to_integer(symbol, source, target, mode, definitions)
    if source in _INTEGERS:
        return _from_integer(symbol, source, target, mode, definitions)
    body = "  %r = fptrunc double %x to float\n"
    if mode != "rn":
        body += "  %w = fpext float %r to double\n  %e = fsub double %x, %w\n"
        body += "  %i = fcmp oeq double %x, %w\n  %d = select i1 %i, double 0.0, double %e\n"
        body += _moved("double %d", "float", mode, definitions)
    return _function("float", symbol, "double %x", body + f"  ret float {'%r' if mode == 'rn' else '%m'}\n")


def _moved(error: str, kind: str, mode: str, definitions: Definitions) -> str:
    """``%m``: ``%r`` of ``kind``, moved by the sign of ``error`` (a double)."""
    function = definitions.function(f"round_{mode}", kind, 2)
    sign = f"  %p = fcmp ogt {error}, 0.0\n  %n = fcmp olt {error}, 0.0\n"
    sign += f"  %a = uitofp i1 %p to {kind}\n  %b = uitofp i1 %n to {kind}\n  %s = fsub {kind} %a, %b\n"
    return f"{sign}  %m = call {kind} {function}({kind} %r, {kind} %s)\n"


def _to_integer(symbol: str, source: str, target: str, mode: str, definitions: Definitions) -> str:
    """Saturating. A NaN becomes 0 between 32-bit types, else the lowest signed number, as in PTX's ``cvt``."""
    width, sign = _INTEGERS[target]
    whole = definitions.function(_TO_WHOLE[mode], source, 1)
    convert = f"@llvm.fpto{sign}i.sat.{width}.{suffix(source)}"
    definitions.declare(convert, width, source, "")
    body = f"  %r = call {source} {whole}({source} %x)\n  %i = call {width} {convert}({source} %r)\n"
    if (source, width) == ("float", "i32"):
        return _function(width, symbol, f"{source} %x", f"{body}  ret {width} %i\n")
    lowest = -(2 ** (int(width[1:]) - 1))
    body += f"  %n = fcmp uno {source} %x, %x\n  %s = select i1 %n, {width} {lowest}, {width} %i\n"
    return _function(width, symbol, f"{source} %x", f"{body}  ret {width} %s\n")


def _from_integer(symbol: str, source: str, target: str, mode: str, definitions: Definitions) -> str:
    width, sign = _INTEGERS[source]
    convert = f"{sign}itofp {width}"
    if mode == "rn":
        return _function(target, symbol, f"{width} %x", f"  %r = {convert} %x to {target}\n  ret {target} %r\n")
    if width == "i32":
        body = f"  %d = {convert} %x to double\n"
    else:
        # Two halves are exact doubles; the sum's error says which way it was rounded.
        shift = "ashr" if sign == "s" else "lshr"
        body = f"  %h = {shift} i64 %x, 32\n  %l = and i64 %x, 4294967295\n  %k = {convert} %h to double\n"
        body += "  %u = fmul double %k, 4294967296.0\n  %v = uitofp i64 %l to double\n"
        add = _needed(f"__nv_dadd_{mode}", definitions)
        body += f"  %d = call double {add}(double %u, double %v)\n"
    if target == "double":
        return _function(target, symbol, f"{width} %x", f"{body}  ret double %d\n")
    narrow = _needed(f"__nv_double2float_{mode}", definitions)
    return _function(target, symbol, f"{width} %x", f"{body}  %r = call float {narrow}(double %d)\n  ret float %r\n")


# -- functions of or with integers ------------------------------------------------------------------------------------


def _through(result: str, parameters: str, callee: str, definitions: Definitions, symbol: str, attributes: str) -> str:
    """A function that calls another of the same signature."""
    kinds = [parameter.split()[0] for parameter in parameters.split(", ")]
    definitions.declare(callee, result, ", ".join(kinds), attributes)
    return _function(result, symbol, parameters, f"  %r = call {result} {callee}({parameters})\n  ret {result} %r\n")


_PURE = "nounwind willreturn memory(none)"
_CALLS = {
    # name: result, parameters, callee; # is the type, $ its suffix in intrinsics, % its libm suffix.
    "llrint": ("i64", "# %x", "@llvm.llrint.i64.$"),
    "llround": ("i64", "# %x", "@llvm.llround.i64.$"),
    "ilogb": ("i32", "# %x", "@ilogb~"),
    "ldexp": ("#", "# %x, i32 %n", "@ldexp~"),
    "scalbn": ("#", "# %x, i32 %n", "@ldexp~"),
    "jn": ("#", "i32 %n, # %x", "@jn~"),
    "yn": ("#", "i32 %n, # %x", "@yn~"),
    "frexp": ("#", "# %x, ptr %e", "@frexp~"),
    "remquo": ("#", "# %x, # %y, ptr %q", "@remquo~"),
}


def _call(name: str, kind: str, symbol: str, definitions: Definitions) -> str:
    end = "f" if kind == "float" else ""
    result, parameters, callee = (
        part.replace("#", kind).replace("$", suffix(kind)).replace("~", end) for part in _CALLS[name]
    )
    attributes = "nounwind willreturn memory(argmem: write)" if "ptr" in parameters else _PURE
    return _through(result, parameters, callee, definitions, symbol, "" if callee.startswith("@llvm.") else attributes)


def _both(of_sine: str, of_cosine: str, kind: str, symbol: str, definitions: Definitions) -> str:
    """``sincos`` and ``sincospi``."""
    body = ""
    for out, name in (("s", of_sine), ("c", of_cosine)):
        callee = definitions.function(name, kind, 1)
        body += f"  %v{out} = call {kind} {callee}({kind} %x)\n  store {kind} %v{out}, ptr %{out}\n"
    return _function("void", symbol, f"{kind} %x, ptr %s, ptr %c", f"{body}  ret void\n")


def _modf(kind: str, symbol: str, definitions: Definitions) -> str:
    whole, sign = definitions.function("trunc", kind, 1), definitions.function("copysign", kind, 2)
    body = (
        f"  %t = call {kind} {whole}({kind} %x)\n  store {kind} %t, ptr %w\n  %d = fsub {kind} %x, %t\n"
        f"  %i = fcmp oeq {kind} %x, %t\n  %f = select i1 %i, {kind} 0.0, {kind} %d\n"
        f"  %r = call {kind} {sign}({kind} %f, {kind} %x)\n  ret {kind} %r\n"
    )
    return _function(kind, symbol, f"{kind} %x, ptr %w", body)


def _norm(kind: str, symbol: str, definitions: Definitions, *, reciprocal: bool) -> str:
    hypot = definitions.function("hypot", kind, 2)
    body = (
        f"  br label %head\nhead:\n  %i = phi i32 [ 0, %0 ], [ %j, %next ]\n"
        f"  %h = phi {kind} [ 0.0, %0 ], [ %g, %next ]\n  %more = icmp slt i32 %i, %n\n"
        f"  br i1 %more, label %next, label %done\nnext:\n  %p = getelementptr {kind}, ptr %x, i32 %i\n"
        f"  %v = load {kind}, ptr %p\n  %g = call {kind} {hypot}({kind} %h, {kind} %v)\n"
        f"  %j = add i32 %i, 1\n  br label %head\ndone:\n  %q = fdiv {kind} 1.0, %h\n"
        f"  ret {kind} {'%q' if reciprocal else '%h'}\n"
    )
    return _function(kind, symbol, "i32 %n, ptr %x", body)


# -- the table --------------------------------------------------------------------------------------------------------


def _function(result: str, symbol: str, parameters: str, body: str) -> str:
    return f"define internal {result} {symbol}({parameters}) alwaysinline nounwind {{\n{body}}}"


_OTHERS = (*_CALLS, "sincos", "sincospi", "modf", "norm", "rnorm")


@cache
def _others() -> dict[str, tuple[str, str]]:
    found = {f"__nv_{name}{end}": (name, kind) for name in _OTHERS for end, kind in (("", "double"), ("f", "float"))}
    return found | {"__nv_fast_sincosf": ("sincos", "float")}


def known(name: str) -> bool:
    return name in _others() or bool(_CAST.fullmatch(name))


def _needed(name: str, definitions: Definitions) -> str:
    """The symbol of another of these functions, or of rounded arithmetic, which another one calls."""
    if name in rounded():
        formula, kind = rounded()[name]
        return definitions.function(formula, kind, 2)
    if f"@{name}" not in definitions.texts:
        define(name, definitions)
    return f"@{name}"


def define(name: str, definitions: Definitions) -> None:
    """Add a definition of the libdevice function ``name`` and of everything it needs."""
    symbol = f"@{name}"
    if match := _CAST.fullmatch(name):
        definitions.texts[symbol] = _cast(symbol, match[1], match[2], match[3], definitions)
        return
    function, kind = _others()[name]
    if function in ("sincos", "sincospi"):
        pair = ("sin", "cos") if function == "sincos" else ("sinpi", "cospi")
        definitions.texts[symbol] = _both(*pair, kind, symbol, definitions)
    elif function == "modf":
        definitions.texts[symbol] = _modf(kind, symbol, definitions)
    elif function in ("norm", "rnorm"):
        definitions.texts[symbol] = _norm(kind, symbol, definitions, reciprocal=function == "rnorm")
    else:
        definitions.texts[symbol] = _call(function, kind, symbol, definitions)
