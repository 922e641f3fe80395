"""libdevice's functions of several types: rounded conversions, results through pointers, integer operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from r3bench.lowering.formulas import Definitions, libm_name, literal, suffix

_KINDS = (("", "double"), ("f", "float"))
_PLAIN = "nounwind willreturn"
_INTEGERS = {"int": ("i32", "si"), "uint": ("i32", "ui"), "ll": ("i64", "si"), "ull": ("i64", "ui")}
_ROUNDING = {"rn": "roundeven", "rz": "trunc", "ru": "ceil", "rd": "floor"}


@dataclass(frozen=True, slots=True)
class Raw:
    """A function given as IR: result, parameters, body, and what it calls: mathematics by (name, type, parameters),
    others by (symbol, result, parameter types)."""

    result: str
    parameters: str
    body: str
    mathematics: tuple[tuple[str, str, int], ...] = ()
    calls: tuple[tuple[str, str, str], ...] = field(default=())

    def text(self, symbol: str, wanted: Definitions) -> str:
        names = [wanted.function(*needed) for needed in self.mathematics]
        for called, result, parameters in self.calls:
            wanted.declare(called, result, parameters, "" if called.startswith("@llvm.") else _PLAIN)
        head = f"define internal {self.result} {symbol}({self.parameters}) alwaysinline nounwind"
        return f"{head} {{\n{self.body.format(*names)}}}"


@cache
def raw_functions() -> dict[str, Raw]:
    """All of them, by libdevice's name."""
    found = {**_float_to_integer(), **_integer_to_float(), **_narrowed()}
    for end, kind in _KINDS:
        found |= {f"__nv_{name}{end}": raw for name, raw in (_with_integer(kind) | _through_pointers(kind)).items()}
    found["__nv_fast_sincosf"] = found["__nv_sincosf"]
    return found


# -- numbers to numbers ---------------------------------------------------------------------------------------------


def _float_to_integer() -> dict[str, Raw]:
    """Rounded, then saturated. A NaN becomes 0 between 32-bit types, else the highest bit alone, as by ``cvt``."""
    found = {}
    for source in ("float", "double"):
        for name, (kind, sign) in _INTEGERS.items():
            for mode, rounding in _ROUNDING.items():
                convert = f"@llvm.fpto{sign}.sat.{kind}.{suffix(source)}"
                nan = 0 if (source, kind) == ("float", "i32") else -(2 ** (int(kind[1:]) - 1))
                body = f"""  %w = call {source} {{0}}({source} %x)
  %i = call {kind} {convert}({source} %w)
  %n = fcmp uno {source} %x, %x
  %r = select i1 %n, {kind} {nan}, {kind} %i
  ret {kind} %r
"""
                needs = ((rounding, source, 1),)
                found[f"__nv_{source}2{name}_{mode}"] = Raw(
                    kind, f"{source} %x", body, needs, ((convert, kind, source),)
                )
    return found


def _integer_to_float() -> dict[str, Raw]:
    """To nearest by the instruction; in a direction by comparing with what came of it.

    The result may be 2**63 or 2**64, which no integer holds: then it is above the source.
    """
    found = {}
    for target in ("float", "double"):
        for name, (kind, sign) in _INTEGERS.items():
            nearest = f"  %n = {sign}tofp {kind} %x to {target}\n"
            found[f"__nv_{name}2{target}_rn"] = Raw(target, f"{kind} %x", f"{nearest}  ret {target} %n\n")
            back = f"@llvm.fpto{sign}.sat.{kind}.{suffix(target)}"
            top = literal(2.0 ** (int(kind[1:]) - (sign == "si")), target)
            for mode, (towards, test, over) in {
                "ru": ("inf", f"icmp {sign[0]}gt {kind} %x, %b", "false"),
                "rd": ("-inf", f"icmp {sign[0]}lt {kind} %x, %b", "%o"),
            }.items():
                infinity = literal(float(towards), target)
                body = f"""{nearest}  %b = call {kind} {back}({target} %n)
  %o = fcmp oge {target} %n, {top}
  %t = {test}
  %f = select i1 %o, i1 {over}, i1 %t
  %a = call {target} {{0}}({target} %n, {target} {infinity})
  %r = select i1 %f, {target} %a, {target} %n
  ret {target} %r
"""
                calls = ((back, kind, target),)
                found[f"__nv_{name}2{target}_{mode}"] = Raw(
                    target, f"{kind} %x", body, (("nextafter", target, 2),), calls
                )
            found[f"__nv_{name}2{target}_rz"] = _towards_zero(target, kind, sign, nearest, back, top)
    return found


def _towards_zero(target: str, kind: str, sign: str, nearest: str, back: str, top: str) -> Raw:
    negative = f"icmp slt {kind} %x, 0" if sign == "si" else "or i1 false, false"
    body = f"""{nearest}  %b = call {kind} {back}({target} %n)
  %o = fcmp oge {target} %n, {top}
  %m = {negative}
  %h = icmp {sign[0]}gt {kind} %b, %x
  %l = icmp {sign[0]}lt {kind} %b, %x
  %u = or i1 %h, %o
  %f = select i1 %m, i1 %l, i1 %u
  %z = call {target} {{0}}({target} %n, {target} {literal(0.0, target)})
  %r = select i1 %f, {target} %z, {target} %n
  ret {target} %r
"""
    return Raw(target, f"{kind} %x", body, (("nextafter", target, 2),), ((back, kind, target),))


def _narrowed() -> dict[str, Raw]:
    """double to float in a direction: the nearest, moved where it lies on the wrong side."""
    nearest = "  %n = fptrunc double %x to float\n"
    found = {"__nv_double2float_rn": Raw("float", "double %x", f"{nearest}  ret float %n\n")}
    for mode, (towards, test) in {"ru": ("inf", "olt"), "rd": ("-inf", "ogt"), "rz": ("0", "ogt")}.items():
        sides = "  %b = fpext float %n to double\n"
        left, right = "%b", "%x"
        if mode == "rz":
            sides += "  %p = call double @llvm.fabs.f64(double %b)\n  %q = call double @llvm.fabs.f64(double %x)\n"
            left, right = "%p", "%q"
        body = f"""{nearest}{sides}  %f = fcmp {test} double {left}, {right}
  %a = call float {{0}}(float %n, float {literal(float(towards), "float")})
  %r = select i1 %f, float %a, float %n
  ret float %r
"""
        calls = (("@llvm.fabs.f64", "double", "double"),)
        found[f"__nv_double2float_{mode}"] = Raw("float", "double %x", body, (("nextafter", "float", 2),), calls)
    return found


# -- integers beside numbers ----------------------------------------------------------------------------------------


def _with_integer(kind: str) -> dict[str, Raw]:
    scaled = f"@llvm.ldexp.{suffix(kind)}.i32"
    scale = Raw(
        kind,
        f"{kind} %x, i32 %n",
        f"  %r = call {kind} {scaled}({kind} %x, i32 %n)\n  ret {kind} %r\n",
        calls=((scaled, kind, f"{kind}, i32"),),
    )
    found = {"ldexp": scale, "scalbn": scale, "powi": _powi(kind)}
    for name in ("jn", "yn"):
        called = f"@{libm_name(name, kind)}"
        body = f"  %r = call {kind} {called}(i32 %n, {kind} %x)\n  ret {kind} %r\n"
        found[name] = Raw(kind, f"i32 %n, {kind} %x", body, calls=((called, kind, f"i32, {kind}"),))
    for name, result in (("llrint", "i64"), ("llround", "i64"), ("ilogb", "i32")):
        called = f"@llvm.{name}.i64.{suffix(kind)}" if name != "ilogb" else f"@{libm_name(name, kind)}"
        body = f"  %r = call {result} {called}({kind} %x)\n  ret {result} %r\n"
        found[name] = Raw(result, f"{kind} %x", body, calls=((called, result, kind),))
    return found


def _powi(kind: str) -> Raw:
    body = f"  %y = sitofp i32 %n to {kind}\n  %r = call {kind} {{0}}({kind} %x, {kind} %y)\n  ret {kind} %r\n"
    return Raw(kind, f"{kind} %x, i32 %n", body, (("pow", kind, 2),))


def _through_pointers(kind: str) -> dict[str, Raw]:
    found = {}
    for name, parameters in (
        ("frexp", f"{kind} %x, ptr %p"),
        ("modf", f"{kind} %x, ptr %p"),
        ("remquo", f"{kind} %x, {kind} %y, ptr %p"),
    ):
        called = f"@{libm_name(name, kind)}"
        types = ", ".join(part.split(" ")[0] for part in parameters.split(", "))
        body = f"  %r = call {kind} {called}({parameters})\n  ret {kind} %r\n"
        found[name] = Raw(kind, parameters, body, calls=((called, kind, types),))
    for name, parts in (("sincos", ("sin", "cos")), ("sincospi", ("sinpi", "cospi"))):
        body = f"  %u = call {kind} {{0}}({kind} %x)\n  store {kind} %u, ptr %s\n"
        body += f"  %v = call {kind} {{1}}({kind} %x)\n  store {kind} %v, ptr %c\n  ret void\n"
        found[name] = Raw("void", f"{kind} %x, ptr %s, ptr %c", body, tuple((part, kind, 1) for part in parts))
    return found | {"norm": _norm(kind, False), "rnorm": _norm(kind, True)}


def _norm(kind: str, reciprocal: bool) -> Raw:
    """The Euclidean norm of a vector in memory, safe from overflow."""
    one = literal(1.0, kind)
    result = f"  %i = fdiv {kind} {one}, %h\n  ret {kind} %i\n" if reciprocal else f"  ret {kind} %h\n"
    body = f"""entry:
  br label %test
test:
  %k = phi i32 [ 0, %entry ], [ %k1, %next ]
  %h = phi {kind} [ {literal(0.0, kind)}, %entry ], [ %h1, %next ]
  %m = icmp slt i32 %k, %n
  br i1 %m, label %next, label %done
next:
  %p = getelementptr {kind}, ptr %x, i32 %k
  %v = load {kind}, ptr %p
  %h1 = call {kind} {{0}}({kind} %h, {kind} %v)
  %k1 = add i32 %k, 1
  br label %test
done:
{result}"""
    return Raw(kind, "i32 %n, ptr %x", body, (("hypot", kind, 2),))
