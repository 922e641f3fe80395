"""The rules that load and store less, and compute what stays the same once; results are equal to the last bit."""

from __future__ import annotations

from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import Variable
from r3bench.rules.analysis.reads import Needs
from r3bench.rules.motion import Rewrite, hoistable, share
from r3bench.rules.subject import Subject, repeat
from r3bench.syntax import Node, is_field, side, text_of, walk


def cache(subject: Subject) -> str:
    """Keep in a register what is loaded repeatedly from one place that nothing in between may write."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        loads = [n for n in walk(facts.function.body) if is_load(facts, n)]
        return share(facts, rewrite, loads, lambda n: _load_name(n), loads_only=True)

    return repeat(subject, once)


def is_load(facts: Facts, node: Node) -> bool:
    if node.type not in ("subscript_expression", "pointer_expression") or text_of(node).startswith("&"):
        return False
    above = facts.parent[node.id]
    if above.type == "subscript_expression" and is_field(above, node, "argument"):
        return False
    return not _is_target(facts, node)


def _is_target(facts: Facts, node: Node) -> bool:
    """Whether a place is written, or its address taken, here."""
    inner = node
    for holder in facts.inside_out(node):
        if holder.type in ("assignment_expression",):
            return is_field(holder, inner, "left")
        if holder.type in ("update_expression",):
            return True
        if holder.type == "pointer_expression":
            return text_of(holder).startswith("&")
        if holder.type not in ("parenthesized_expression", "field_expression"):
            return False
        inner = holder
    return False


def _load_name(node: Node) -> str:
    name = next((text_of(n) for n in walk(node) if n.type == "identifier"), "value")
    return f"{name}_value"


def hoist(subject: Subject) -> str:
    """Compute loop invariants and repeated subexpressions (index arithmetic) once, in front."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        found = [n for n in walk(facts.function.body) if hoistable(facts, n)]
        return share(facts, rewrite, found, lambda n: _value_name(facts, n))

    return repeat(subject, once)


def _value_name(facts: Facts, node: Node) -> str:
    return "offset" if (facts.dtype(node) or "").endswith(("int32", "int64")) else "invariant"


def accumulate(subject: Subject) -> str:
    """Sum in a register what a loop adds up in memory, and store it once behind the loop."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        loops = [n for n in walk(facts.function.body) if n.type == "for_statement"]
        return any(_accumulate(facts, rewrite, loop) for loop in loops)

    return repeat(subject, once, where="for")


def _accumulate(facts: Facts, rewrite: Rewrite, loop: Node) -> bool:
    if any(n.type == "return_statement" for n in walk(loop)) or any(e.fence for e in facts.effects(loop)):
        return False
    for node in walk(loop):
        target = node.child_by_field_name("left") if node.type == "assignment_expression" else None
        if target is not None and target.type == "subscript_expression" and _lives_in_loop(facts, loop, target):
            name = rewrite.fresh(_load_name(target).removesuffix("_value") + "_sum")
            text = text_of(target)
            for same in _same_places(facts, loop, target):
                rewrite.replace(same, name)
            rewrite.before(loop, f"{facts.c_type(target)} {name} = {text};")
            rewrite.after(loop, f"{text} = {name};")
            return True
    return False


def _same_places(facts: Facts, loop: Node, target: Node) -> list[Node]:
    return [n for n in walk(loop) if n.type == target.type and facts.key(n) == facts.key(target)]


def _lives_in_loop(facts: Facts, loop: Node, target: Node) -> bool:
    """Whether one place is all the loop touches of its memory, and it surely touches it."""
    needs = facts.needs(target)
    if needs is None or not facts.always(loop, target) or needs.reads[0] is None:
        return False
    base = needs.reads[0]
    if any(v.place == "array" for v in base):
        return False
    index = Needs(needs.variables, needs.reads[1:], True)
    same = {n.id for n in _same_places(facts, loop, target)}
    if any(facts.kills(e, index) for e in facts.effects(loop)):
        return False
    return _read_back(facts, loop, target) and all(
        n.id in same or not facts.overlap(_memory(facts, n), base) for n in walk(loop) if _touches(facts, n)
    )


def _read_back(facts: Facts, loop: Node, target: Node) -> bool:
    """Whether the place is really accumulated: read as well as written in the loop."""
    holder = facts.parent[target.id]
    compound = text_of(side(holder, "operator")) != "=" if holder.child_by_field_name("operator") else False
    return compound or len(_same_places(facts, loop, target)) > 1


def _touches(facts: Facts, node: Node) -> bool:
    if node.type == "call_expression":
        return any(e.memory and e.node.id == node.id for e in facts.effects(node))
    pointer = node.type in ("subscript_expression", "pointer_expression") and not text_of(node).startswith("&")
    return pointer or (node.type == "field_expression" and "->" in text_of(node))


def _memory(facts: Facts, node: Node) -> frozenset[Variable] | None:
    needs = facts.needs(node) if node.type != "call_expression" else None
    return needs.reads[0] if needs is not None and needs.reads else None
