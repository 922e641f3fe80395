"""The rule that makes short branches selections."""

from __future__ import annotations

from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import is_block
from r3bench.rules.grid import condition
from r3bench.rules.motion import Rewrite
from r3bench.rules.subject import Subject, repeat
from r3bench.syntax import Node, side, text_of, walk

_MOST = 4  # assignments in a branch

Assignment = tuple[Node, str]


def select(subject: Subject) -> str:
    """``if (c) x = a; else x = b;`` becomes ``x = c ? a : b;`` where computing both does no harm."""

    def once(facts: Facts, rewrite: Rewrite) -> bool:
        branches = [n for n in walk(facts.function.body) if n.type == "if_statement"]
        return any(_select(facts, rewrite, branch) for branch in reversed(branches))

    return repeat(subject, once, where="if")


def _select(facts: Facts, rewrite: Rewrite, branch: Node) -> bool:
    test, otherwise = condition(branch), branch.child_by_field_name("alternative")
    then = _assignments(facts, side(branch, "consequence"))
    other = _assignments(facts, otherwise.named_children[-1]) if otherwise is not None else []
    needs = facts.needs(test)
    if not then or other is None or needs is None or facts.parent[branch.id].type == "else_clause":
        return False
    if len(then) == len(other) == 1 and facts.key(then[0][0]) == facts.key(other[0][0]):
        chosen = f"{text_of(then[0][0])} = ({text_of(test)}) ? {then[0][1]} : {other[0][1]};"
        rewrite.replace(branch, chosen)
        return True
    if any(facts.variable(target) is None for target, _ in (*then, *other)):
        return False
    name = rewrite.fresh("chosen")
    lines = [f"const bool {name} = {text_of(test)};"]
    lines += [f"{text_of(target)} = {name} ? {value} : {text_of(target)};" for target, value in then]
    lines += [f"{text_of(target)} = {name} ? {text_of(target)} : {value};" for target, value in other]
    rewrite.replace(branch, _fitted(facts, branch, lines))
    return True


def _fitted(facts: Facts, branch: Node, lines: list[str]) -> str:
    """The lines in the place of one statement."""
    if not is_block(facts.parent[branch.id]):
        return f"{{ {' '.join(lines)} }}"
    return ("\n" + " " * branch.start_point.column).join(lines)


def _assignments(facts: Facts, statement: Node) -> list[Assignment] | None:
    """Target and new value of each assignment, all of them harmless; None for anything else."""
    found = []
    for part in statement.named_children if is_block(statement) else [statement]:
        assignment = part.named_children[0] if part.type == "expression_statement" and part.named_children else part
        made = _assignment(facts, assignment) if assignment.type == "assignment_expression" else None
        if made is None:
            return None
        found.append(made)
    return found if len(found) <= _MOST else None


def _assignment(facts: Facts, node: Node) -> Assignment | None:
    target, value, operator = side(node, "left"), side(node, "right"), text_of(side(node, "operator"))
    variable, needs = facts.variable(target), facts.needs(value)
    kinds = {facts.dtype(target), facts.dtype(value)}
    if needs is None or not needs.safe or len(kinds) != 1 or None in kinds:
        return None
    if variable is not None:
        if variable.pointer or variable.reference or variable.escaped or variable.volatile:
            return None
        plain = operator == "="
        changed = f"{text_of(target)} {operator[:-1]} ({text_of(value)})"
        divides = operator[:-1] in ("/", "%") and "int" in str(facts.dtype(value))
        return None if divides else (target, f"({text_of(value) if plain else changed})")
    place = facts.needs(target) if target.type == "subscript_expression" and operator == "=" else None
    return (target, f"({text_of(value)})") if place is not None else None
