"""The rules that trade floating-point operations for cheaper ones; results differ by roundings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import frexp

from r3bench.rules.analysis.dtypes import FLOATS
from r3bench.rules.analysis.facts import Facts
from r3bench.rules.motion import Rewrite, share
from r3bench.rules.subject import Subject, repeat
from r3bench.syntax import Node, side, text_of, walk


def reciprocal(subject: Subject) -> str:
    """Multiply by the reciprocal where a divisor is constant or used again."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        found = [n for n in walk(facts.function.body) if _is_division(facts, n)]
        literal = [n for n in found if _is_constant(facts, side(n, "right"))]
        if literal:
            return _by_constants(facts, rewrite, literal)
        divisors = {side(n, "right").id: n for n in found}
        return share(
            facts,
            rewrite,
            [side(n, "right") for n in found],
            lambda n: "inverse_" + (re.sub(r"\W+", "_", text_of(n)).strip("_") if len(text_of(n)) < 16 else "value"),
            division=lambda n: divisors[n.id],
        )

    return repeat(subject, once, where="/")


def _is_division(facts: Facts, node: Node) -> bool:
    """A floating-point division that is neither folded by the compiler nor a reciprocal already."""
    if node.type != "binary_expression" or text_of(side(node, "operator")) != "/":
        return False
    left, right = side(node, "left"), side(node, "right")
    result, divisor = facts.dtype(node), facts.dtype(right)
    if result not in FLOATS or _is_constant(facts, left) or _is_power_of_two(facts, right):
        return False
    return divisor == result or (divisor in ("int32", "uint32") and result == "float64")


def _is_power_of_two(facts: Facts, node: Node) -> bool:
    value = facts.real(node)
    return value is not None and abs(frexp(value)[0]) == 0.5


def _is_constant(facts: Facts, node: Node) -> bool:
    needs = facts.needs(node)
    fields = any(n.type == "field_expression" for n in walk(node))
    return needs is not None and not needs.variables and not needs.reads and not fields


def _by_constants(facts: Facts, rewrite: Rewrite, found: list[Node]) -> bool:
    """``a / 12`` -> ``a * (1.0 / 12)``; the innermost ones first where divisions nest."""
    chosen: list[Node] = []
    for node in reversed(found):
        if not any(node.start_byte <= other.start_byte and other.end_byte <= node.end_byte for other in chosen):
            chosen.append(node)
            rewrite.replace(side(node, "right"), f"({one(facts, node)} / {text_of(side(node, 'right'))})")
            rewrite.replace(side(node, "operator"), "*")
    return bool(chosen)


def one(facts: Facts, node: Node) -> str:
    """The number one in the type of a floating-point expression."""
    return "1.0f" if facts.dtype(node) == "float32" else "1.0"


_POWERS: Mapping[str, str] = {
    "2": "({0} * {0})", "3": "({0} * {0} * {0})", "4": "(({0} * {0}) * ({0} * {0}))", "1": "({0})",
    "-1": "({1} / {0})", "-2": "({1} / ({0} * {0}))", "0.5": "{2}({0})", "1.5": "({0} * {2}({0}))",
}  # fmt: skip


def power(subject: Subject) -> str:
    """``pow`` with a small constant exponent as multiplications; a division by ``sqrt`` as ``rsqrt``."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        for node in reversed(list(walk(facts.function.body))):
            made = _power(facts, rewrite, node) or _root(facts, node)
            if made is not None:
                rewrite.replace(node, made)
                return True
        return False

    return repeat(subject, once, where="(", rounds=40)


def _power(facts: Facts, rewrite: Rewrite, node: Node) -> str | None:
    name, arguments = _call(node)
    if name not in ("pow", "powf") or len(arguments) != 2:
        return None
    base, exponent = arguments
    single = name == "powf" or (facts.dtype(base), facts.dtype(exponent)) == ("float32", "float32")
    if not single and facts.dtype(base) != "float64":
        return None
    written = re.sub(r"(\.0*)?[fF]?$", "", text_of(exponent)) if "." in text_of(exponent) else text_of(exponent)
    pattern = _POWERS.get(re.sub(r"[fF]$", "", written))
    if pattern is None or facts.needs(base) is None:
        return None
    text = _named(facts, rewrite, base) or f"({text_of(base)})"
    if single and facts.dtype(base) != "float32":
        text = f"(float){text}"
    return pattern.format(text, "1.0f" if single else "1.0", "sqrtf" if single else "sqrt")


def exponential(subject: Subject) -> str:
    """``pow`` with a constant exponent that is no integer as ``exp(y * log(x))``: the same for every x but in rounding.

    A negative base gives NaN either way (minus infinity too), zero and infinity the same limits.
    """

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        found = [n for n in walk(facts.function.body) if _is_broken_power(facts, n)]
        for node in found[-1:]:
            name, (base, exponent) = _call(node)
            end = "f" if name == "powf" or facts.dtype(node) == "float32" else ""
            rewrite.replace(node, f"exp{end}(({text_of(exponent)}) * log{end}({text_of(base)}))")
        return bool(found)

    return repeat(subject, once, where="pow")


def _is_broken_power(facts: Facts, node: Node) -> bool:
    name, arguments = _call(node)
    if name not in ("pow", "powf") or len(arguments) != 2:
        return False
    exponent = facts.real(arguments[1]) if facts.dtype(arguments[1]) in FLOATS else None
    kinds = {facts.dtype(a) for a in arguments}
    return exponent is not None and not exponent.is_integer() and len(kinds) == 1 and None not in kinds


def _named(facts: Facts, rewrite: Rewrite, base: Node) -> str | None:
    """A short text for a base: itself, or a name declared in front where that computes nothing needlessly."""
    if base.type in ("identifier", "number_literal", "subscript_expression"):
        return text_of(base)
    needs = facts.needs(base)
    step = next(iter(facts.steps(base, needs)), None) if needs is not None else None
    if step is None or not facts.always(step.statement, base):
        return None
    name = rewrite.fresh("base")
    rewrite.before(step.statement, f"const {facts.c_type(base)} {name} = {text_of(base)};")
    return name


def _root(facts: Facts, node: Node) -> str | None:
    if node.type != "binary_expression" or text_of(side(node, "operator")) != "/":
        return None
    name, arguments = _call(side(node, "right"))
    if name not in ("sqrt", "sqrtf") or len(arguments) != 1 or facts.dtype(node) != facts.dtype(side(node, "right")):
        return None
    inverse = "rsqrt" if facts.dtype(node) == "float64" else "rsqrtf"
    if facts.dtype(node) not in FLOATS:
        return None
    return f"{text_of(side(node, 'left'))} * {inverse}({text_of(arguments[0])})"


def _call(node: Node) -> tuple[str, list[Node]]:
    if node.type != "call_expression":
        return "", []
    return text_of(side(node, "function")).removeprefix("std::"), side(node, "arguments").named_children
