"""The arithmetic type of an expression.

Types are named as NumPy does (``float64``, ``int32``). None always means "not known", and a rule that needs to know
leaves such an expression alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from r3bench.rules.analysis.declared import INDEX_NAMES, MATH, Declared
from r3bench.syntax import Node, text_of

C_NAMES = {
    "bool": "bool",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}
"""How a type is written in CUDA C++."""

FLOATS = ("float32", "float64")
_RANKS = ("bool", "int32", "uint32", "int64", "uint64", *FLOATS)


def literal_type(text: str) -> str:
    """The type of a number as written: ``1.0f`` is float32, ``1e3`` float64, ``4u`` uint32."""
    low = text.lower()
    if not low.startswith("0x") and ("." in low or "e" in low or low.endswith("f")):
        return "float32" if low.endswith("f") else "float64"
    suffix = re.sub(r".*?([ul]*)$", r"\1", low)
    return ("uint" if "u" in suffix else "int") + ("64" if "l" in suffix else "32")


def common(first: str | None, second: str | None) -> str | None:
    """The usual arithmetic conversions."""
    if first is None or second is None:
        return None
    pair = [kind if kind in _RANKS and kind != "bool" else "int32" for kind in (first, second)]
    return max(pair, key=_RANKS.index)


def expression_type(node: Node, known: Declared, variable: Callable[[Node], str | None]) -> str | None:
    """The arithmetic type of an expression; ``variable`` gives the written type that an identifier's value or, where it
    is a pointer or array, its element has."""
    return _Types(known, variable).of(node)


@dataclass
class _Types:
    known: Declared
    variable: Callable[[Node], str | None]

    def of(self, node: Node | None) -> str | None:
        """Dispatch on the kind of node."""
        if node is None:
            return None
        reader = getattr(self, "_" + node.type, None)
        return reader(node) if reader is not None else None

    def _number_literal(self, node: Node) -> str | None:
        return literal_type(text_of(node))

    def _identifier(self, node: Node) -> str | None:
        name = text_of(node)
        written = self.variable(node) or self.known.constants.get(name) or self.known.variables.get(name)
        if written is not None:
            return self.known.dtype(written)
        macro = self.known.macros.get(name)
        body = macro.body.strip("() ") if macro and macro.parameters is None else ""
        return literal_type(body.lstrip("-+")) if re.fullmatch(r"[-+]?[\d.][\w.]*", body) else None

    def _parenthesized_expression(self, node: Node) -> str | None:
        return self.of(node.named_children[0]) if node.named_child_count == 1 else None

    def _binary_expression(self, node: Node) -> str | None:
        operator = _text(node, "operator")
        if operator in ("<", ">", "<=", ">=", "==", "!=", "&&", "||"):
            return "bool"
        left, right = (self.of(node.child_by_field_name(side)) for side in ("left", "right"))
        return common(left, "int32") if operator in ("<<", ">>") else common(left, right)

    def _unary_expression(self, node: Node) -> str | None:
        inner = self.of(node.child_by_field_name("argument"))
        return "bool" if _text(node, "operator") == "!" else common(inner, "int32")

    def _conditional_expression(self, node: Node) -> str | None:
        first = self.of(node.child_by_field_name("consequence"))
        return common(first, self.of(node.child_by_field_name("alternative")))

    def _cast_expression(self, node: Node) -> str | None:
        return self.known.dtype(_text(node, "type"))

    def _subscript_expression(self, node: Node) -> str | None:
        return self._element(node.child_by_field_name("argument"))

    def _pointer_expression(self, node: Node) -> str | None:
        return self._element(node.child_by_field_name("argument")) if text_of(node).startswith("*") else None

    def _element(self, node: Node | None) -> str | None:
        """The type that a pointer expression points to: that of the one pointer in it."""
        while node is not None and node.type in (
            "subscript_expression",
            "parenthesized_expression",
            "binary_expression",
        ):
            node = node.child_by_field_name("argument") or node.child_by_field_name("left") or node.named_children[0]
        if node is None or node.type != "identifier":
            return None
        written = self.variable(node) or self.known.variables.get(text_of(node))
        return self.known.dtype(written) if written else None

    def _field_expression(self, node: Node) -> str | None:
        owner = node.child_by_field_name("argument")
        while owner is not None and owner.type in ("subscript_expression", "parenthesized_expression"):
            owner = owner.child_by_field_name("argument") or owner.named_children[0]
        if owner is None or owner.type != "identifier":
            return None
        if text_of(owner) in INDEX_NAMES:
            return "uint32"
        written = self.variable(owner) or self.known.variables.get(text_of(owner))
        return self.known.field_type(written, _text(node, "field")) if written else None

    def _call_expression(self, node: Node) -> str | None:
        callee = node.child_by_field_name("function")
        listed = node.child_by_field_name("arguments")
        if callee is None or listed is None:
            return None
        name = text_of(callee)
        cast = re.fullmatch(r"(?:static_cast|const_cast|reinterpret_cast)\s*<(.*)>", name, re.DOTALL)
        if cast or self.known.dtype(name):
            return self.known.dtype(cast[1] if cast else name)
        kinds = [self.of(argument) for argument in listed.named_children]
        own = self.known.functions.get(name)
        if own is not None:
            return self.known.dtype(_text(own.node, "type"))
        return self._called(name.removeprefix("std::"), kinds)

    def _called(self, name: str, kinds: list[str | None]) -> str | None:
        if name == "__ldg" or not kinds:
            return None
        if name.removesuffix("f") in MATH and name.endswith("f") and name not in MATH:
            return "float32"
        widest = kinds[0]
        for kind in kinds[1:]:
            widest = common(widest, kind)
        if name in MATH:
            return None if widest is None else widest if widest in FLOATS else "float64"
        return common(widest, "int32") if name in ("min", "max", "abs") else None


def _text(node: Node, name: str) -> str:
    child = node.child_by_field_name(name)
    return text_of(child).strip() if child is not None else ""
