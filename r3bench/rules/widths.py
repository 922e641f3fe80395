"""The rule that counts in 32 bits where arrays are small enough."""

from __future__ import annotations

import re

from r3bench.rules.analysis.declared import words
from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import Variable, holds
from r3bench.rules.subject import Subject
from r3bench.syntax import Edit, Node, apply, is_field, side, text_of, walk

_NARROW = {"int64": "int", "uint64": "unsigned int"}
_COMPARES = words("< <= > >= == !=")
_SUMS = words("+ - * / %")
_OTHER = words("subscript_expression pointer_expression conditional_expression call_expression")
_SMALL = re.compile(r"\d{1,9}[uUlL]*")


def index32(subject: Subject) -> str:
    """64-bit variables and casts that only find places in arrays of less than 2^31 bytes become 32-bit ones."""
    if not subject.small:
        return subject.text
    for name in ("", *subject.reachable()):
        facts = subject.facts(name)
        if facts.movable:
            subject = subject.edited(apply(subject.text, _edits(facts)))
    return subject.text


def _edits(facts: Facts) -> list[Edit]:
    narrow = _narrow(facts)
    edits = []
    for variable in narrow:
        assert variable.node is not None
        kind = side(variable.node, "type")
        edits.append(Edit(kind.start_byte, kind.end_byte, _NARROW[str(facts.known.dtype(variable.written_type))]))
    for cast in (n for n in walk(facts.function.body) if n.type == "cast_expression"):
        width, kind = facts.dtype(cast), side(cast, "type")
        if width in _NARROW and _is_index(facts, cast, narrow) and _is_whole(facts, side(cast, "value")):
            edits.append(Edit(kind.start_byte, kind.end_byte, _NARROW[str(width)]))
    return edits


def _narrow(facts: Facts) -> set[Variable]:
    """The 64-bit locals all of whose uses are indices, comparisons, or values of others of them."""
    found = {v for v in facts.variables if _is_candidate(facts, v)}
    while True:
        uses = {v: [n for n in walk(facts.function.body) if facts.variable(n) is v] for v in found}
        kept = {v for v in found if all(_is_index(facts, n, found) or _declares(v, n) for n in uses[v])}
        if kept == found:
            return kept
        found = kept


def _declares(variable: Variable, node: Node) -> bool:
    return variable.node is not None and holds(variable.node, node) and _is_head(variable.node, node)


def _is_head(declaration: Node, node: Node) -> bool:
    heads = declaration.children_by_field_name("declarator")
    names = (h.child_by_field_name("declarator") if h.type == "init_declarator" else h for h in heads)
    return any(name is not None and name.id == node.id for name in names)


def _is_candidate(facts: Facts, variable: Variable) -> bool:
    plain = not (variable.pointer or variable.reference or variable.escaped or variable.volatile)
    alone = variable.node is not None and len(variable.node.children_by_field_name("declarator")) == 1
    narrow = facts.known.dtype(variable.written_type) in _NARROW and variable.place == "local"
    return plain and alone and narrow and bool(variable.sources) and all(_is_whole(facts, s) for s in variable.sources)


def _is_whole(facts: Facts, node: Node) -> bool:
    """Whether a value is a sum or product of whole numbers, without a difference where there is no sign."""
    for part in walk(node):
        if part.type in ("binary_expression", "unary_expression"):
            operator = text_of(side(part, "operator"))
            if operator not in _SUMS or ("-" in operator and (facts.dtype(part) or "").startswith("uint64")):
                return False
        elif part.type in _OTHER or (part.type == "number_literal" and _SMALL.fullmatch(text_of(part)) is None):
            return False
    return True


def _is_index(facts: Facts, node: Node, narrow: set[Variable]) -> bool:
    """Whether a value ends up in an index, a comparison, or one of these variables, by sums and products alone."""
    inner = node
    for holder in facts.inside_out(node):
        if holder.type == "subscript_expression":
            wraps = facts.dtype(node) == "uint64" and "-" in text_of(inner)
            return not is_field(holder, inner, "argument") and not wraps
        if holder.type == "binary_expression":
            operator = text_of(side(holder, "operator"))
            if operator in _COMPARES:
                return True
            if operator not in _SUMS or ("-" in operator and (facts.dtype(holder) or "").startswith("uint64")):
                return False
        elif holder.type == "init_declarator":
            return facts.variable(side(holder, "declarator")) in narrow
        elif holder.type in ("update_expression", "assignment_expression"):
            return _counts(facts, holder, narrow)
        elif holder.type not in ("parenthesized_expression", "cast_expression", "subscript_argument_list"):
            return False
        inner = holder
    return False


def _counts(facts: Facts, node: Node, narrow: set[Variable]) -> bool:
    """Whether this is the update of a loop's counter that is one of these variables."""
    target = node.child_by_field_name("argument") or node.child_by_field_name("left")
    plain = node.type == "update_expression" or text_of(side(node, "operator")) in ("+=", "=")
    loop = facts.parent[node.id]
    return (
        plain and facts.variable(target) in narrow and loop.type == "for_statement" and is_field(loop, node, "update")
    )
