"""Expressions of random programs: each operator with its CUDA C++ text beside its meaning in NumPy.

An expression is evaluated for all threads of a launch at once; nothing in it has a side effect or can fail: divisors
are never zero, indices are masked, floating-point values are clamped before they become integers. All arithmetic is
exact or correctly rounded, so that compiled code without contraction has no freedom.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
C_TYPES = {"u": "unsigned", "i": "int", "l": "unsigned long long", "f": "float", "d": "double", "c": "bool"}
DTYPES = {"u": np.uint32, "i": np.int32, "l": np.uint64, "f": np.float32, "d": np.float64, "c": np.bool_}
LIMIT = 1e6


class Places(Protocol):
    """Where an expression finds the values of names and the elements of arrays, one per thread."""

    def name(self, name: str) -> Array: ...

    def element(self, array: str, index: Array) -> Array: ...

    def function(self, name: str, x: Array, y: Array) -> Array: ...


@dataclass(frozen=True)
class Expression:
    """``note`` is a constant's value, a name, or the array an index goes into."""

    operator: str
    type: str
    operands: tuple[Expression, ...] = ()
    note: Any = None

    def text(self) -> str:
        inner = [operand.text() for operand in self.operands]
        match self.operator:
            case "constant":
                return _constant(self.type, self.note)
            case "name":
                return str(self.note)
            case "element":
                array, size = self.note
                return f"{array}[{inner[0]} % {size}u]"
            case "call":
                return f"{self.note}({inner[0]}, {inner[1]})"
        return f"({OPERATORS[self.operator].text.format(*inner)})"

    def value(self, places: Places) -> Array:
        if self.operator == "constant":
            return np.asarray(self.note, DTYPES[self.type])
        if self.operator == "name":
            return places.name(self.note)
        values = [operand.value(places) for operand in self.operands]
        if self.operator == "element":
            array, size = self.note
            return places.element(array, values[0] % np.uint32(size))
        if self.operator == "call":
            return places.function(self.note, values[0], values[1])
        return OPERATORS[self.operator].meaning(*values)


def _constant(kind: str, value: Any) -> str:
    if kind in "fd":
        return f"{float(value)!r}{'f' if kind == 'f' else ''}"
    return f"{int(value)}{ {'u': 'u', 'l': 'ull'}.get(kind, '') }"


@dataclass(frozen=True)
class Operator:
    result: str
    operands: str
    text: str
    meaning: Callable[..., Array]


def u32(x: Any) -> Array:
    return np.asarray(x).astype(np.uint32)


def i32(x: Any) -> Array:
    return np.asarray(x).astype(np.int32)


def u64(x: Any) -> Array:
    return np.asarray(x).astype(np.uint64)


def clamp(x: Any) -> Array:
    """As ``clampf`` and ``clampd`` of the program's text do: a NaN becomes the lower limit."""
    kind = np.asarray(x).dtype.type
    return np.asarray(np.fmin(np.fmax(x, kind(-LIMIT)), kind(LIMIT)))


def _reversed(x: Array) -> Array:
    found = np.zeros_like(u32(x))
    for bit in range(32):
        found |= (u32(x) >> np.uint32(bit) & np.uint32(1)) << np.uint32(31 - bit)
    return found


def _leading_zeros(x: Array) -> Array:
    return u32(32 - np.ceil(np.log2(u32(x).astype(np.float64) + 1)))


def _quotient(x: Array, y: Array) -> Array:
    """Rounded towards zero, as C does."""
    divisor = (i32(y) & 7).astype(np.int64) + 1
    return i32(np.sign(x) * (np.abs(x.astype(np.int64)) // divisor))


def _remainder(x: Array, y: Array) -> Array:
    divisor = (i32(y) & 7).astype(np.int64) + 1
    return i32(np.sign(x) * (np.abs(x.astype(np.int64)) % divisor))


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(clamp(x)).view(np.uint32)


def _funnel(low: Array, high: Array, by: Array) -> Array:
    both = u64(high) << np.uint64(32) | u64(low)
    return u32((both << u64(u32(by) & 31)) >> np.uint64(32))


U1, U5 = np.uint32(1), np.uint32(31)

OPERATORS = {
    # 32 bits without sign
    "+": Operator("u", "uu", "{0} + {1}", lambda x, y: x + y),
    "-": Operator("u", "uu", "{0} - {1}", lambda x, y: x - y),
    "*": Operator("u", "uu", "{0} * {1}", lambda x, y: x * y),
    "&": Operator("u", "uu", "{0} & {1}", lambda x, y: x & y),
    "|": Operator("u", "uu", "{0} | {1}", lambda x, y: x | y),
    "^": Operator("u", "uu", "{0} ^ {1}", lambda x, y: x ^ y),
    "<<": Operator("u", "uu", "{0} << ({1} & 31u)", lambda x, y: x << (y & U5)),
    ">>": Operator("u", "uu", "{0} >> ({1} & 31u)", lambda x, y: x >> (y & U5)),
    "/": Operator("u", "uu", "{0} / ({1} | 1u)", lambda x, y: x // (y | U1)),
    "%": Operator("u", "uu", "{0} % (({1} & 15u) + 1u)", lambda x, y: x % ((y & np.uint32(15)) + U1)),
    "min": Operator("u", "uu", "min({0}, {1})", np.minimum),
    "max": Operator("u", "uu", "max({0}, {1})", np.maximum),
    "umulhi": Operator("u", "uu", "__umulhi({0}, {1})", lambda x, y: u32(u64(x) * u64(y) >> np.uint64(32))),
    "popc": Operator("u", "u", "(unsigned)__popc({0})", lambda x: u32(np.bitwise_count(x))),
    "clz": Operator("u", "u", "(unsigned)__clz({0})", _leading_zeros),
    "brev": Operator("u", "u", "__brev({0})", _reversed),
    "funnel": Operator("u", "uuu", "__funnelshift_l({0}, {1}, {2} & 31u)", _funnel),
    "byte": Operator("u", "u", "(unsigned)(unsigned char)({0})", lambda x: x & np.uint32(255)),
    "short": Operator("u", "u", "(unsigned)(int)(short)({0})", lambda x: u32(x.astype(np.int16))),
    "?u": Operator("u", "cuu", "{0} ? {1} : {2}", np.where),
    "c2u": Operator("u", "c", "{0} ? 1u : 0u", u32),
    "i2u": Operator("u", "i", "(unsigned){0}", u32),
    "l2u": Operator("u", "l", "(unsigned){0}", u32),
    "f2u": Operator("u", "f", "__float_as_uint(clampf({0}))", _bits),
    "d2u": Operator("u", "d", "(unsigned)(int)clampd({0})", lambda x: u32(i32(clamp(x)))),
    # 32 bits with sign
    "i+": Operator("i", "ii", "(int)((unsigned){0} + (unsigned){1})", lambda x, y: x + y),
    "i*": Operator("i", "ii", "(int)((unsigned){0} * (unsigned){1})", lambda x, y: x * y),
    "i>>": Operator("i", "iu", "{0} >> ({1} & 31u)", lambda x, y: x >> i32(y & U5)),
    "i/": Operator("i", "ii", "{0} / (({1} & 7) + 1)", _quotient),
    "i%": Operator("i", "ii", "{0} % (({1} & 7) + 1)", _remainder),
    "imin": Operator("i", "ii", "min({0}, {1})", np.minimum),
    "imax": Operator("i", "ii", "max({0}, {1})", np.maximum),
    "abs": Operator("i", "i", "abs({0} >> 1)", lambda x: np.abs(x >> np.int32(1))),
    "?i": Operator("i", "cii", "{0} ? {1} : {2}", np.where),
    "u2i": Operator("i", "u", "(int){0}", i32),
    "f2i": Operator("i", "f", "(int)clampf({0})", lambda x: i32(clamp(x))),
    "rint": Operator("i", "f", "__float2int_rn(clampf({0}))", lambda x: i32(np.rint(clamp(x)))),
    # 64 bits
    "l+": Operator("l", "ll", "{0} + {1}", lambda x, y: x + y),
    "l*": Operator("l", "ll", "{0} * {1}", lambda x, y: x * y),
    "l^": Operator("l", "ll", "{0} ^ {1}", lambda x, y: x ^ y),
    "l>>": Operator("l", "lu", "{0} >> ({1} & 63u)", lambda x, y: x >> u64(y & np.uint32(63))),
    "l<<": Operator("l", "lu", "{0} << ({1} & 63u)", lambda x, y: x << u64(y & np.uint32(63))),
    "l/": Operator("l", "ll", "{0} / ({1} | 1ull)", lambda x, y: x // (y | np.uint64(1))),
    "u2l": Operator("l", "u", "(unsigned long long){0}", u64),
    "i2l": Operator("l", "i", "(unsigned long long)(long long){0}", lambda x: u64(x.astype(np.int64))),
    # floating point
    "f+": Operator("f", "ff", "{0} + {1}", lambda x, y: x + y),
    "f-": Operator("f", "ff", "{0} - {1}", lambda x, y: x - y),
    "f*": Operator("f", "ff", "{0} * {1}", lambda x, y: x * y),
    "f/": Operator("f", "ff", "{0} / {1}", lambda x, y: x / y),
    "fabs": Operator("f", "f", "fabsf({0})", np.abs),
    "fneg": Operator("f", "f", "-{0}", lambda x: -x),
    "fsqrt": Operator("f", "f", "sqrtf(fabsf({0}))", lambda x: np.sqrt(np.abs(x))),
    "floor": Operator("f", "f", "floorf({0})", np.floor),
    "trunc": Operator("f", "f", "truncf({0})", np.trunc),
    "?f": Operator("f", "cff", "{0} ? {1} : {2}", np.where),
    "u2f": Operator("f", "u", "(float){0}", lambda x: x.astype(np.float32)),
    "i2f": Operator("f", "i", "(float){0}", lambda x: x.astype(np.float32)),
    "d2f": Operator("f", "d", "(float){0}", lambda x: x.astype(np.float32)),
    "d+": Operator("d", "dd", "{0} + {1}", lambda x, y: x + y),
    "d-": Operator("d", "dd", "{0} - {1}", lambda x, y: x - y),
    "d*": Operator("d", "dd", "{0} * {1}", lambda x, y: x * y),
    "d/": Operator("d", "dd", "{0} / {1}", lambda x, y: x / y),
    "dsqrt": Operator("d", "d", "sqrt(fabs({0}))", lambda x: np.sqrt(np.abs(x))),
    "ceil": Operator("d", "d", "ceil({0})", np.ceil),
    "f2d": Operator("d", "f", "(double){0}", lambda x: x.astype(np.float64)),
    "u2d": Operator("d", "u", "(double){0}", lambda x: x.astype(np.float64)),
    "l2d": Operator("d", "l", "(double){0}", lambda x: x.astype(np.float64)),
    # conditions
    "<": Operator("c", "uu", "{0} < {1}", lambda x, y: x < y),
    "==": Operator("c", "uu", "({0} & 3u) == ({1} & 3u)", lambda x, y: (x & np.uint32(3)) == (y & np.uint32(3))),
    "odd": Operator("c", "u", "({0} & 1u) != 0u", lambda x: (x & U1) != 0),
    "i<": Operator("c", "ii", "{0} < {1}", lambda x, y: x < y),
    "l<": Operator("c", "ll", "{0} < {1}", lambda x, y: x < y),
    "f<": Operator("c", "ff", "{0} < {1}", lambda x, y: x < y),
    "d<=": Operator("c", "dd", "{0} <= {1}", lambda x, y: x <= y),
    "&&": Operator("c", "cc", "{0} && {1}", lambda x, y: x & y),
    "||": Operator("c", "cc", "{0} || {1}", lambda x, y: x | y),
    "!": Operator("c", "c", "!{0}", lambda x: ~x),
}


def constant(kind: str, value: Any) -> Expression:
    return Expression("constant", kind, note=value)


def name(kind: str, what: str) -> Expression:
    return Expression("name", kind, note=what)


def element(kind: str, array: str, size: int, index: Expression) -> Expression:
    """``array[index % size]``."""
    return Expression("element", kind, (index,), (array, size))


def apply(operator: str, *operands: Expression) -> Expression:
    return Expression(operator, OPERATORS[operator].result, operands)
