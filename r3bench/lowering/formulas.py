"""A small formula language for the mathematics that neither LLVM nor libm has: Python expressions become LLVM IR.

``def f(x): return 1 / sqrt(x)`` becomes an internal function of float or double. Names of LLVM's intrinsics and of libm
are calls; comparisons with ``a if c else b`` are selects, so a formula has no branches.
"""

from __future__ import annotations

import ast
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

INTRINSICS = {
    name: name
    for name in (
        *(
            "sqrt",
            "fabs",
            "floor",
            "ceil",
            "trunc",
            "rint",
            "nearbyint",
            "round",
            "roundeven",
            "copysign",
            "fma",
            "exp",
        ),
        *(
            "exp2",
            "exp10",
            "log",
            "log2",
            "log10",
            "sin",
            "cos",
            "tan",
            "asin",
            "acos",
            "atan",
            "atan2",
            "sinh",
            "cosh",
        ),
        *("tanh", "pow"),
    )
} | {"fmin": "minnum", "fmax": "maxnum"}
"""Names in formulas that are LLVM intrinsics; a target without the instruction calls libm for them."""

# fmt: off
LIBM = frozenset((
    "expm1", "log1p", "logb", "asinh", "acosh", "atanh", "cbrt", "erf", "erfc", "tgamma", "lgamma", "j0", "j1",
    "y0", "y1", "remainder", "hypot", "fdim", "nextafter", "fmod",
))
# fmt: on
"""Names in formulas that only libm has."""

_OPERATIONS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_COMPARISONS = {ast.Lt: "olt", ast.LtE: "ole", ast.Gt: "ogt", ast.GtE: "oge", ast.Eq: "oeq", ast.NotEq: "une"}
_ATTRIBUTES = "alwaysinline nounwind"


def literal(value: float, kind: str) -> str:
    """A constant in LLVM's spelling: a float is written as the double of the same value."""
    if kind == "float":
        (value,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"0x{bits:016X}"


def suffix(kind: str) -> str:
    return "f32" if kind == "float" else "f64"


def libm_name(name: str, kind: str) -> str:
    return name + "f" if kind == "float" else name


@dataclass
class Definitions:
    """Text of the functions asked for so far, each defined or declared once, by name with ``@``."""

    formulas: Mapping[str, ast.FunctionDef]
    texts: dict[str, str] = field(default_factory=dict)

    def declare(self, name: str, result: str, parameters: str, attributes: str) -> str:
        self.texts.setdefault(name, f"declare {result} {name}({parameters}) {attributes}")
        return name

    def function(self, name: str, kind: str, count: int) -> str:
        """The function that computes ``name`` for ``kind``: an intrinsic, libm's, or a formula's."""
        parameters = ", ".join([kind] * count)
        if name in INTRINSICS:
            return self.declare(f"@llvm.{INTRINSICS[name]}.{suffix(kind)}", kind, parameters, "")
        if name in LIBM:
            return self.declare(f"@{libm_name(name, kind)}", kind, parameters, "nounwind willreturn memory(none)")
        return self._formula(name, kind)

    def _formula(self, name: str, kind: str) -> str:
        symbol = f"@r3.{name}.{suffix(kind)}"
        if symbol not in self.texts:
            self.texts[symbol] = ""
            self.texts[symbol] = _Compiler(self, kind).compile(symbol, self.formulas[name])
        return symbol


@dataclass
class _Compiler:
    """Turns one formula into an LLVM function of ``kind``; values are (type, text)."""

    definitions: Definitions
    kind: str
    lines: list[str] = field(default_factory=list)
    values: dict[str, tuple[str, str]] = field(default_factory=dict)

    def compile(self, symbol: str, formula: ast.FunctionDef) -> str:
        names = [argument.arg for argument in formula.args.args]
        self.values = {name: (self.kind, f"%{name}") for name in names}
        for statement in formula.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self.values[statement.targets[0].id] = self._value(statement.value)
            elif isinstance(statement, ast.Return) and statement.value is not None:
                self.lines.append(f"ret {' '.join(self._value(statement.value))}")
        parameters = ", ".join(f"{self.kind} %{name}" for name in names)
        body = "".join(f"  {line}\n" for line in self.lines)
        return f"define internal {self.kind} {symbol}({parameters}) {_ATTRIBUTES} {{\n{body}}}"

    def _emit(self, kind: str, text: str) -> tuple[str, str]:
        name = f"%r3.t{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return kind, name

    def _value(self, node: ast.expr) -> tuple[str, str]:
        match node:
            case ast.Name(id="inf"):
                return self.kind, literal(math.inf, self.kind)
            case ast.Name():
                return self.values[node.id]
            case ast.Constant(value=(int() | float()) as number):
                return self.kind, literal(float(number), self.kind)
            case ast.BinOp():
                (kind, left), (_, right) = self._value(node.left), self._value(node.right)
                return self._emit(kind, f"{_OPERATIONS[type(node.op)]} {kind} {left}, {right}")
            case ast.UnaryOp(op=ast.USub()):
                kind, value = self._value(node.operand)
                return self._emit(kind, f"fneg {kind} {value}")
            case ast.Compare():
                (kind, left), (_, right) = self._value(node.left), self._value(node.comparators[0])
                return self._emit("i1", f"fcmp {_COMPARISONS[type(node.ops[0])]} {kind} {left}, {right}")
            case ast.IfExp():
                (_, test), (kind, yes), (_, no) = map(self._value, (node.test, node.body, node.orelse))
                return self._emit(kind, f"select i1 {test}, {kind} {yes}, {kind} {no}")
            case ast.Call(func=ast.Name(id=name)):
                return self._call(name, [self._value(argument) for argument in node.args])
        raise ValueError(f"formulas cannot express {ast.unparse(node)}")

    def _call(self, name: str, values: list[tuple[str, str]]) -> tuple[str, str]:
        kind = values[0][0]
        function = self.definitions.function(name, kind, len(values))
        return self._emit(kind, f"call {kind} {function}({', '.join(' '.join(value) for value in values)})")
