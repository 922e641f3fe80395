"""Computing a value once, in front, instead of at every use: the engine of the caching and hoisting rules."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import is_block
from r3bench.rules.analysis.reads import Needs
from r3bench.syntax import Edit, Node, apply, text_of, walk

_COST = {"*": 2, "/": 8, "%": 8}
_LOOP_WEIGHT = 8  # a computation inside a loop counts as this many


class Rewrite:
    """Collects replacements, and declarations in front of statements, and applies them at once.

    A statement without braces of its own (``for (...) x = 1;``) gets them when something goes in front of it.
    """

    def __init__(self, facts: Facts, text: str) -> None:
        self._facts = facts
        self._text = text
        self._data = text.encode()
        self._taken = set(re.findall(r"\w+", text))
        self._replaced: list[tuple[Node, str]] = []
        self._before: dict[int, tuple[Node, list[str]]] = {}
        self._after: dict[int, tuple[Node, list[str]]] = {}

    def fresh(self, wish: str) -> str:
        """A name like the wished one that the file does not use."""
        name, count = wish, 0
        while name in self._taken:
            count += 1
            name = f"{wish}{count}"
        self._taken.add(name)
        return name

    def replace(self, node: Node, text: str) -> None:
        self._replaced.append((node, text))

    def before(self, statement: Node, line: str) -> None:
        self._before.setdefault(statement.id, (statement, []))[1].append(line)

    def after(self, statement: Node, line: str) -> None:
        self._after.setdefault(statement.id, (statement, []))[1].append(line)

    def touches(self, node: Node) -> bool:
        """Whether a node overlaps one that will be replaced."""
        return any(n.start_byte < node.end_byte and node.start_byte < n.end_byte for n, _ in self._replaced)

    def result(self) -> str:
        edits = [Edit(n.start_byte, n.end_byte, text) for n, text in self._replaced]
        for statement in {**self._before, **self._after}:
            edits += self._around(statement)
        return apply(self._text, edits)

    def _around(self, key: int) -> list[Edit]:
        statement = (self._before.get(key) or self._after[key])[0]
        lines = self._before.get(key, (statement, []))[1]
        behind = self._after.get(key, (statement, []))[1]
        if not is_block(self._facts.parent[statement.id]):
            start = "{ " + "".join(line + " " for line in lines)
            end = "".join(" " + line for line in behind) + " }"
            return [
                Edit(statement.start_byte, statement.start_byte, start),
                Edit(statement.end_byte, statement.end_byte, end),
            ]
        at = self._leading(statement).start_byte
        gap = self._gap(at)
        front = "".join(line + gap for line in lines)
        back = "".join((gap if gap != " " else " ") + line for line in behind)
        return [Edit(at, at, front), Edit(statement.end_byte, statement.end_byte, back)]

    def _leading(self, statement: Node) -> Node:
        """The pragma in front of a statement belongs to it."""
        previous = statement.prev_named_sibling
        pragma = previous is not None and previous.type == "preproc_call"
        return previous if pragma and previous is not None else statement

    def _gap(self, at: int) -> str:
        """What parts two statements here: a new line with this one's indentation, or a space within a line."""
        indent = self._data[self._data.rfind(b"\n", 0, at) + 1 : at].decode()
        return " " if indent.strip() else "\n" + indent


@dataclass(frozen=True, eq=False)
class _Plan:
    statement: Node
    members: list[Node]
    gain: float


def share(
    facts: Facts,
    rewrite: Rewrite,
    nodes: list[Node],
    name: Callable[[Node], str],
    *,
    loads_only: bool = False,
    division: Callable[[Node], Node] | None = None,
) -> bool:
    """Declare each value that is worth it once and use it everywhere it reaches; whether anything was changed.

    ``loads_only`` leaves values alone that read no memory others can see; ``division`` gives, for a divisor, the
    division it belongs to: the declared value is then the reciprocal.
    """
    plans = []
    for group in _groups(facts, nodes):
        needs = facts.needs(group[0])
        if needs is not None and _wanted(needs, loads_only):
            plan = _plan(facts, group, needs, bool(division))
            plans += [plan] if plan is not None else []
    chosen = False
    for plan in sorted(plans, key=lambda p: (-p.gain, p.members[0].start_byte)):
        if not any(rewrite.touches(division(n) if division else n) for n in plan.members):
            _declare(facts, rewrite, plan, name, division)
            chosen = True
    return chosen


def _groups(facts: Facts, nodes: list[Node]) -> list[list[Node]]:
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in nodes:
        groups.setdefault(facts.key(node), []).append(node)
    return list(groups.values())


def _wanted(needs: Needs, loads_only: bool) -> bool:
    if not loads_only:
        return bool(needs.variables) and not needs.reads
    outer = [b for b in needs.reads if b is None or not all(v.private for v in b)]
    return bool(outer)


def _plan(facts: Facts, group: list[Node], needs: Needs, divides: bool) -> _Plan | None:
    """The best place for a value: most uses served and loops left, and then as near to the uses as possible."""
    best: _Plan | None = None
    for leader in group:
        for step in facts.steps(leader, needs):
            if not needs.safe and not facts.always(step.statement, leader):
                break
            members = [
                n for n in group if n.start_byte >= leader.start_byte and facts.reaches(step.statement, n, needs)
            ]
            gain = _gain(facts, members, step.statement, needs, divides)
            if gain > 0 and (best is None or gain > best.gain):
                best = _Plan(step.statement, members, gain)
    return best


def _gain(facts: Facts, members: list[Node], statement: Node, needs: Needs, divides: bool) -> float:
    loops = sum(_loops_between(facts, statement, n) for n in members)
    saved = len(members) - 1 + _LOOP_WEIGHT * loops
    uniform = divides and facts.function.kernel and all(facts.is_fixed(v) for v in needs.variables)
    return cost(members[0]) * (saved + (0.5 if uniform else 0.0)) if members else 0.0


def _loops_between(facts: Facts, statement: Node, use: Node) -> int:
    """How many loops, from the statement (included) inwards, run the use again and again."""
    count = 0
    for holder in facts.inside_out(use):
        looping = holder.type in ("for_statement", "while_statement", "do_statement")
        init = holder.child_by_field_name("initializer")
        inside_init = init is not None and init.start_byte <= use.start_byte < init.end_byte
        count += looping and not inside_init
        if holder.id == statement.id:
            return count
    return 0


def _declare(
    facts: Facts, rewrite: Rewrite, plan: _Plan, name: Callable[[Node], str], division: Callable[[Node], Node] | None
) -> None:
    first = plan.members[0]
    fresh = rewrite.fresh(name(first))
    if division is None:
        rewrite.before(plan.statement, f"const {facts.c_type(first)} {fresh} = {text_of(first)};")
        for node in plan.members:
            rewrite.replace(_with_brackets(facts, node), fresh)
        return
    kind = facts.c_type(division(first))
    unit = "1.0f" if kind == "float" else "1.0"
    rewrite.before(plan.statement, f"const {kind} {fresh} = {unit} / {text_of(first)};")
    for node in plan.members:
        left = division(node).child_by_field_name("left")
        rewrite.replace(division(node), f"{text_of(left) if left is not None else ''} * {fresh}")


def _with_brackets(facts: Facts, node: Node) -> Node:
    """The node with the brackets around it where a plain name needs none."""
    above = facts.parent[node.id]
    bracketed = above.type == "parenthesized_expression" and above.named_child_count == 1
    return above if bracketed and facts.parent[above.id].type == "binary_expression" else node


def cost(node: Node) -> int:
    """A rough price of computing an expression: additions 1, products 2, divisions 8, loads 8, calls 20."""
    total = 1
    for part in walk(node):
        if part.type == "binary_expression":
            operator = part.child_by_field_name("operator")
            total += _COST.get(text_of(operator) if operator is not None else "", 1)
        total += {"subscript_expression": 8, "pointer_expression": 8, "call_expression": 20}.get(part.type, 0)
    return total


def hoistable(facts: Facts, node: Node) -> bool:
    """Whether an expression is arithmetic of some price, worth a name of its own."""
    if node.type not in ("binary_expression", "call_expression", "cast_expression"):
        return False
    if facts.dtype(node) in ("bool", None) or cost(node) < 3:
        return False
    above = facts.parent[node.id]
    return not (above.type == "init_declarator" and "const" in text_of(facts.parent[above.id]).split("=")[0])
