"""The rule that says more about a kernel's pointers: ``const`` and ``__restrict__``."""

from __future__ import annotations

import re

from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import Variable
from r3bench.rules.subject import Subject
from r3bench.syntax import Edit, Node, apply, text_of, walk


def restrict(subject: Subject) -> str:
    """``const`` and ``__restrict__`` on pointers; the latter only where arguments are known to be disjoint."""
    facts, edits = subject.facts(), list[Edit]()
    pointers = [p for p in facts.function.parameters if p.pointer and not p.volatile and p.name]
    free = _signature_is_free(subject, facts)
    for parameter in pointers:
        variable = next(v for v in facts.variables if v.name == parameter.name)
        if free and not parameter.const and _only_read(facts, variable):
            edits.append(Edit(parameter.start, parameter.start, "const "))
        if subject.disjoint and not parameter.restrict:
            edits.append(Edit(parameter.name_at, parameter.name_at, "__restrict__ "))
    return apply(subject.text, edits)


def _signature_is_free(subject: Subject, facts: Facts) -> bool:
    """Whether const may be added: a C++ symbol spells its parameter types, and a prototype would contradict."""
    name = re.escape(facts.function.name)
    before = subject.text.encode()[: facts.function.body.start_byte].decode()
    own = re.findall(rf"\b{name}\s*\(", before)
    others = [m for text in subject.context for m in re.findall(rf"\b{name}\s*\([^;{{]*\)\s*;", text)]
    return len(own) == 1 and not others and _is_extern_c(subject, facts)


def _is_extern_c(subject: Subject, facts: Facts) -> bool:
    node: Node | None = facts.function.node
    if 'extern "C"' in text_of(facts.function.node).split("(")[0]:
        return True
    while node is not None:
        if node.type == "linkage_specification" and '"C"' in text_of(node).split("{")[0]:
            return True
        node = node.parent
    return False


def _only_read(facts: Facts, variable: Variable) -> bool:
    if not facts.movable or variable.sources or not facts.never_written(frozenset((variable,))):
        return False
    uses = [n for n in walk(facts.function.body) if facts.variable(n) is variable]
    return all(_reads_through(facts, use) for use in uses)


def _reads_through(facts: Facts, use: Node) -> bool:
    """Whether a pointer is only dereferenced here, or copied to a pointer to const."""
    inner = use
    for holder in facts.inside_out(use):
        if holder.type == "subscript_expression":
            argument = holder.child_by_field_name("argument")
            return argument is not None and argument.id == inner.id
        if holder.type == "pointer_expression":
            return text_of(holder).startswith("*")
        if holder.type == "init_declarator":
            return re.match(r"\s*(const\b|\w+\s+const\b)", text_of(facts.parent[holder.id])) is not None
        if holder.type not in ("parenthesized_expression", "binary_expression"):
            return holder.type == "argument_list" and text_of(facts.parent[holder.id]).startswith("__ldg")
        inner = holder
    return False
