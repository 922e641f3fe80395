"""The rule that keeps in registers what neighbouring outputs of a thread read alike: a window along a loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from r3bench.rules.analysis.declared import words
from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import Variable, holds, is_block
from r3bench.rules.analysis.polynomials import Polynomial, counted, is_kept, multiple, named, polynomial
from r3bench.rules.analysis.reads import Needs
from r3bench.rules.grid import condition, terms
from r3bench.rules.memory import is_load
from r3bench.rules.motion import Rewrite
from r3bench.rules.subject import Subject, repeat
from r3bench.syntax import Node, side, text_of, walk

_JUMPS = words("break_statement continue_statement return_statement goto_statement")
_LONGEST = 12  # values in a window


@dataclass(frozen=True, eq=False)
class _Load:
    """``array[slope * counter + rest]`` in a loop; the index is of type ``dtype``."""

    node: Node
    array: Variable
    slope: Polynomial
    rest: Polynomial
    dtype: str


def reuse(subject: Subject) -> str:
    """What one round of a loop reads and the next reads again, one place further on, stays in registers."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        loops = [n for n in walk(facts.function.body) if n.type == "for_statement"]
        return any(_window(facts, rewrite, loop) for loop in reversed(loops))

    return repeat(subject, once, where="for")


def _window(facts: Facts, rewrite: Rewrite, loop: Node) -> bool:
    counter, parts, body = counted(facts, loop), facts.counter(loop), side(loop, "body")
    if counter is None or parts is None or parts[2] is not None or not is_block(body):
        return False
    statements = [n for n in body.named_children if n.type != "comment"]
    loads = [load for n in walk(body) if (load := _load(facts, loop, counter, n)) is not None]
    for group in _groups(loads):
        first = next(s for s in statements if any(holds(s, load.node) for load in group.values()))
        number_of_first = statements.index(first)
        guards, rest = statements[:number_of_first], statements[number_of_first:]
        if all(_lets_through(facts, loop, counter, s) for s in guards) and not any(_jumps(s) for s in rest):
            _slide(facts, rewrite, loop, counter, text_of(parts[0]), group, first, rest[-1])
            return True
    return False


def _load(facts: Facts, loop: Node, counter: Variable, node: Node) -> _Load | None:
    """A load that every round makes, of memory that the loop does not write, at a place linear in the counter."""
    if node.type != "subscript_expression" or not is_load(facts, node):
        return None
    array, listed = facts.variable(side(node, "argument")), side(node, "indices")
    index = listed.named_children[0] if listed.named_child_count == 1 else listed
    needs, dtype = facts.needs(node), facts.dtype(index)
    place = polynomial(facts, index, within=loop)
    if array is None or not (array.pointer and facts.is_fixed(array)) or needs is None or place is None or not dtype:
        return None
    memory = Needs(frozenset(), needs.reads, True)
    parts = place.split(counter)
    if parts is None or not parts[0].terms or any(facts.kills(e, memory) for e in facts.effects(loop)):
        return None
    outside = all(_is_outside(facts, loop, v) for part in parts for v in part.variables)
    return _Load(node, array, *parts, dtype) if outside and _is_made(facts, loop, node) else None


def _is_outside(facts: Facts, loop: Node, variable: Variable) -> bool:
    inside = variable.node is not None and holds(loop, variable.node)
    return not inside and is_kept(facts, variable)


def _is_made(facts: Facts, loop: Node, node: Node) -> bool:
    statement = next(s for s in side(loop, "body").named_children if holds(s, node))
    return facts.always(statement, node)


def _groups(loads: Sequence[_Load]) -> list[dict[int, _Load]]:
    """Loads that lie a whole number of rounds apart, by that number, where they leave no gap."""
    groups: list[dict[int, _Load]] = []
    for load in loads:
        for group in groups:
            first = group[min(group)]
            apart = multiple(load.rest - first.rest, load.slope)
            if (first.array, first.slope, first.dtype) == (load.array, load.slope, load.dtype) and apart is not None:
                group.setdefault(min(group) + apart, load)
                break
        else:
            groups.append({0: load})
    return [g for g in groups if 1 < len(g) <= _LONGEST and len(g) == max(g) - min(g) + 1]


def _jumps(statement: Node) -> bool:
    return any(n.type in _JUMPS for n in walk(statement))


def _lets_through(facts: Facts, loop: Node, counter: Variable, statement: Node) -> bool:
    """Whether what stands in front of the window leaves out the last rounds only, if any."""
    if not _jumps(statement):
        return True
    plain = statement.type == "if_statement" and statement.child_by_field_name("alternative") is None
    leaves = side(statement, "consequence") if plain else statement
    inner = leaves.named_children if is_block(leaves) else [leaves]
    if len(inner) != 1 or inner[0].type != "continue_statement":
        return False
    return all(_stays_true(facts, loop, counter, part) for part in terms(condition(statement), "||"))


def _stays_true(facts: Facts, loop: Node, counter: Variable, part: Node) -> bool:
    """Whether a condition, once true in a round, is true in all later ones."""
    needs = facts.needs(part)
    if needs is None or needs.reads:
        return False
    if all(_is_outside(facts, loop, v) for v in needs.variables):
        return True
    if part.type != "binary_expression" or text_of(side(part, "operator")) not in (">", ">="):
        return False
    left, right = (polynomial(facts, side(part, name), within=loop) for name in ("left", "right"))
    parts = left.split(counter) if left is not None else None
    grows = parts is not None and set(parts[0].terms) == {()} and parts[0].terms[()] > 0
    fixed = parts is not None and right is not None and parts[1].variables | right.variables
    return grows and fixed is not False and all(_is_outside(facts, loop, v) for v in fixed or ())


def _slide(
    facts: Facts, rewrite: Rewrite, loop: Node, counter: Variable, start: str, group: dict[int, _Load], first: Node,
    last: Node,
) -> None:  # fmt: skip
    """Declare the window in front of the loop, fill it in the first round, move it on at the end of each."""
    order, kind = sorted(group), facts.c_type(group[min(group)].node)
    names = {at: rewrite.fresh(f"{group[at].array.name}_window") for at in order}
    rewrite.before(loop, f"{kind} " + ", ".join(f"{names[at]} = 0" for at in order) + ";")
    filling = " ".join(f"{names[at]} = {_spelled(facts, group[at], counter, first)};" for at in order[:-1])
    rewrite.before(first, f"if ({counter.name} == {start}) {{ {filling} }}")
    rewrite.before(first, f"{names[order[-1]]} = {_spelled(facts, group[order[-1]], counter, first)};")
    for node in walk(side(loop, "body")):
        load = _load(facts, loop, counter, node)
        at = next((at for at in order if load is not None and _same(group[at], load)), None)
        if at is not None:
            rewrite.replace(node, names[at])
    for one, following in pairwise(order):
        rewrite.after(last, f"{names[one]} = {names[following]};")


def _same(one: _Load, other: _Load) -> bool:
    return (one.array, one.slope, one.rest, one.dtype) == (other.array, other.slope, other.rest, other.dtype)


def _spelled(facts: Facts, load: _Load, counter: Variable, at: Node) -> str:
    """A load as it is written, where all its names are known in front of a statement, else by its polynomial."""
    needs = facts.needs(load.node)
    if needs is not None and all(v.node is None or v.node.start_byte < at.start_byte for v in needs.variables):
        return text_of(load.node)
    index = load.slope * named(counter.name, counter) + load.rest
    return f"{load.array.name}[{index.text(load.dtype)}]"
