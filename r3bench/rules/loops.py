"""Rules about loops: two nested ones change places, or their rounds are unrolled."""

from __future__ import annotations

from collections.abc import Callable

from r3bench.rules.analysis.declared import words
from r3bench.rules.analysis.effects import Effect
from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import Variable, holds, is_block
from r3bench.rules.analysis.polynomials import Polynomial, counted, multiple, polynomial
from r3bench.rules.subject import Subject
from r3bench.syntax import Edit, Node, apply, side, text_of, walk

_LEAVES = words("break_statement return_statement goto_statement case_statement")
_HEAD = ("initializer", "condition", "update")


def interchange(subject: Subject) -> str:
    """The first nest of two loops, nothing between them, that may run in either order."""
    for name in ("", *subject.reachable()):
        facts = subject.facts(name)
        loops = [n for n in walk(facts.function.body) if n.type == "for_statement"]
        for outer in loops if facts.movable else ():
            inner = _inner(outer)
            if inner is not None and _may_swap(facts, outer, inner):
                return apply(subject.text, _swapped(outer, inner))
    return subject.text


def _inner(outer: Node) -> Node | None:
    """The loop that is all of another one's body."""
    body = side(outer, "body")
    parts = body.named_children if is_block(body) else [body]
    return parts[0] if len(parts) == 1 and parts[0].type == "for_statement" else None


def _swapped(outer: Node, inner: Node) -> list[Edit]:
    pairs = ((side(outer, name), side(inner, name)) for name in _HEAD)
    return [Edit(a.start_byte, a.end_byte, text_of(b)) for one, two in pairs for a, b in ((one, two), (two, one))]


def _may_swap(facts: Facts, outer: Node, inner: Node) -> bool:
    first, second, body = counted(facts, outer), counted(facts, inner), side(inner, "body")
    if first is None or second is None or any(n.type in _LEAVES for n in walk(body)):
        return False
    heads = [part for loop in (outer, inner) for part in facts.counter(loop) or () if isinstance(part, Node)]
    needs = [facts.needs(part) for part in heads]
    effects = facts.effects(body)
    for need in needs:
        if need is None or {first, second} & need.variables or any(facts.kills(e, need) for e in effects):
            return False
    return all(_is_independent(facts, outer, inner, (first, second), effect) for effect in effects)


def _is_independent(
    facts: Facts, outer: Node, inner: Node, counters: tuple[Variable, Variable], effect: Effect
) -> bool:
    """Whether a write does the same in whichever order the rounds come, but for the rounding of sums."""
    if effect.fence:
        return False
    if effect.variable is not None:
        local = effect.variable.node is not None and holds(inner, effect.variable.node)
        return (local and not effect.variable.escaped) or _is_sum(facts, inner, effect)
    node = effect.node
    target = side(node, "left") if node.type == "assignment_expression" else None
    if target is None or target.type != "subscript_expression" or effect.base is None:
        return False
    same = [n for n in walk(inner) if n.type == target.type and facts.key(n) == facts.key(target)]
    others = [n for n in walk(inner) if n.type in ("subscript_expression", "pointer_expression", "call_expression")]
    alone = all(n.id in {s.id for s in same} or not _may_meet(facts, n, effect) for n in others)
    return alone and _is_apart(facts, outer, inner, counters, target)


def _may_meet(facts: Facts, node: Node, effect: Effect) -> bool:
    """Whether a part of the body may read or write what an effect writes."""
    needs = facts.needs(node)
    return needs is None or any(facts.overlap(base, effect.base) for base in needs.reads)


def _is_sum(facts: Facts, inner: Node, effect: Effect) -> bool:
    """Whether this only adds to a variable that the loops use for nothing else."""
    if effect.node.type != "assignment_expression" or effect.memory:
        return False
    uses = [n for n in walk(inner) if n.type == "identifier" and facts.variable(n) is effect.variable]
    return text_of(side(effect.node, "operator")) in ("+=", "-=") and len(uses) == 1


def _is_apart(facts: Facts, outer: Node, inner: Node, counters: tuple[Variable, Variable], target: Node) -> bool:
    """Whether no two rounds of the nest write the same element: one counter steps over all that the other reaches."""
    listed = side(target, "indices")
    index = listed.named_children[0] if listed.named_child_count == 1 else listed
    place = polynomial(facts, index, within=inner)
    for (far, loop), near in (((counters[0], inner), counters[1]), ((counters[1], outer), counters[0])):
        parts = place.split(far) if place is not None else None
        rest = parts[1].split(near) if parts is not None else None
        if parts is not None and rest is not None and near not in parts[0].variables:
            reach = _reach(facts, loop)
            steps = multiple(parts[0], rest[0] * reach) if reach is not None and rest[0].terms else None
            if steps is not None and steps != 0:
                return True
    return False


def _reach(facts: Facts, loop: Node) -> Polynomial | None:
    """The bound of a loop that counts from 0 by 1 to below it."""
    found = facts.counter(loop)
    if found is None or facts.constant(found[0]) != 0 or found[2] is not None or found[3] != "<":
        return None
    return polynomial(facts, found[1], within=loop)


# -- unrolling ---------------------------------------------------------------------------------------------------------


def unroll(subject: Subject) -> str:
    """``#pragma unroll`` in front of every loop with a constant, small number of rounds."""
    return _pragma(subject, lambda facts, loop: "#pragma unroll" if 1 < (facts.trips(loop) or 0) <= 32 else "")


def unroll_by_4(subject: Subject) -> str:
    """``#pragma unroll 4`` in front of innermost counting loops whose number of rounds is not constant."""

    def line(facts: Facts, loop: Node) -> str:
        inner = [n for n in walk(loop) if n.type.endswith("_statement") and n.id != loop.id and _is_loop(n)]
        counts = facts.trips(loop) is None and not inner and loop.type == "for_statement"
        return "#pragma unroll 4" if counts else ""

    return _pragma(subject, line)


def _is_loop(node: Node) -> bool:
    return node.type in ("for_statement", "while_statement", "do_statement")


def _pragma(subject: Subject, line: Callable[[Facts, Node], str]) -> str:
    facts, data, edits = subject.facts(), subject.text.encode(), list[Edit]()
    for loop in walk(facts.function.body):
        text = line(facts, loop) if loop.type == "for_statement" else ""
        start = data.rfind(b"\n", 0, loop.start_byte) + 1
        indent = data[start : loop.start_byte].decode()
        previous = loop.prev_named_sibling
        taken = previous is not None and previous.type == "preproc_call" and "unroll" in text_of(previous)
        if text and not taken:
            lead = f"{text}\n{indent}" if not indent.strip() else f"\n{text}\n"
            edits.append(Edit(loop.start_byte, loop.start_byte, lead))
    return apply(subject.text, edits)
