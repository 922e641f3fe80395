"""What a function reads and writes, and how far a computation may be moved in it without changing any value.

The analysis is on source, before types are complete: whatever it does not understand (an unknown call, a macro with a
memory access in it, ``goto``, inline assembly, ``#if`` inside the body) counts as "may write anything" or switches
motion off for the function. CUDA's memory model is used as given: between barriers and fences no other thread changes
what a thread reads without ``volatile`` or atomics.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from r3bench.rules.analysis.declared import Declared, words
from r3bench.rules.analysis.effects import Effect, effects
from r3bench.rules.analysis.names import LOOPS, Base, Names, Variable, holds, is_block
from r3bench.rules.analysis.reads import IRREGULAR, Needs, needs
from r3bench.syntax import Function, Node, text_of, walk

_CONTROL = re.compile(r"\b(return|break|continue|goto|if|else|for|while|do|switch|asm|throw)\b|[{}]|\?;")
_JUMPS = words("return_statement break_statement continue_statement throw_statement")


@dataclass(frozen=True, eq=False)
class Step:
    """One statement on the way from a use up to the function's body, in its block; ``loops`` counts loops crossed."""

    statement: Node
    loops: int


class Facts(Names):
    """The names, effects and motion of one function. ``disjoint`` says that its pointer parameters never overlap."""

    def __init__(self, function: Function, known: Declared, disjoint: bool) -> None:
        super().__init__(function, known)
        self.disjoint = disjoint
        kinds = {node.type for node in walk(function.body)}
        self.movable = not function.broken and not kinds & IRREGULAR and not self._hides_control()
        self._effects = effects(self)
        self._inside: dict[int, list[Effect]] = {}
        for effect in self._effects:
            for holder in (effect.node, *self.inside_out(effect.node)):
                self._inside.setdefault(holder.id, []).append(effect)

    def _hides_control(self) -> bool:
        """Whether a macro used here has statements in it, so that the text does not show where control goes."""
        used = self.known.spelled_out(text_of(self.function.body)) & set(self.known.macros)
        return any(_CONTROL.search(self.known.macros[name].body) for name in used)

    # -- effects --

    def effects(self, node: Node | None) -> list[Effect]:
        """Every effect in a node and below."""
        return self._inside.get(node.id, []) if node is not None else []

    def overlap(self, first: Base, second: Base) -> bool:
        """Whether two memories may be the same."""
        if first is None or second is None:
            known = first if first is not None else second
            return known is None or not all(v.private for v in known)
        return any(self._same(a, b) for a in first for b in second)

    def _same(self, a: Variable, b: Variable) -> bool:
        if a is b:
            return True
        if "array" in (a.place, b.place) or "shared" in (a.place, b.place):
            return False
        return not (self.disjoint or a.restrict or b.restrict)

    def is_fixed(self, variable: Variable) -> bool:
        """Whether this is a parameter that keeps the value it came with."""
        return (
            variable.place == "parameter"
            and not variable.escaped
            and all(effect.variable is not variable for effect in self._effects)
        )

    def never_written(self, base: Base) -> bool:
        """Whether nothing in this function, in any thread, writes this memory."""
        if base is None:
            return False
        return not any(e.memory and not e.fence and self.overlap(e.base, base) for e in self._effects)

    def kills(self, effect: Effect, needs: Needs) -> bool:
        """Whether the effect may change the value of an expression with these needs."""
        if effect.variable is not None and effect.variable in needs.variables:
            return True
        if effect.fence:
            return any(not _all_private(base) and not self.never_written(base) for base in needs.reads)
        return effect.memory and any(self.overlap(effect.base, base) for base in needs.reads)

    # -- needs of expressions --

    def needs(self, node: Node) -> Needs | None:
        """None where the value is not a plain function of variables and memory (a call, an assignment, ...)."""
        return needs(self, node)

    # -- motion --

    def statement(self, node: Node) -> Node | None:
        """The innermost statement that can have another one in front of it and holds the node."""
        for holder in (node, *self.inside_out(node)):
            above = self.parent.get(holder.id)
            if above is None:
                return None
            if _takes_statement(above, holder):
                return holder
        return None

    def steps(self, use: Node, needs: Needs) -> list[Step]:
        """The statements in front of which the expression has the value that it has at ``use``, innermost first.

        Of the statements of one block only the one that leads to the use is listed; ``reaches`` tells for the others.
        """
        found = list[Step]()
        loops, inner = 0, use
        while (statement := self.statement(inner)) is not None:
            if self._changes_before(statement, inner, use, needs):
                return found
            loops += statement.type in LOOPS and _repeats(statement, inner)
            if self.parent[statement.id].type != "case_statement":
                found.append(Step(statement, loops))
            if self._changed_earlier(statement, needs) is not None:
                return found
            inner = self.parent[statement.id]
            if inner.id == self.function.body.id:
                return found
        return found

    def _changes_before(self, statement: Node, inner: Node, use: Node, needs: Needs) -> bool:
        """Whether, from the start of the statement to the use in it, anything may change the value."""
        if statement.type == "switch_statement" or (statement.type in LOOPS and _repeats(statement, inner)):
            return any(self.kills(e, needs) for e in self.effects(statement))
        if statement.type == "if_statement":
            condition = statement.child_by_field_name("condition")
            return any(self.kills(e, needs) and not holds(e.node, use) for e in self.effects(condition))
        if is_block(statement):
            return False
        return any(self.kills(e, needs) and not holds(e.node, use) for e in self.effects(statement))

    def _changed_earlier(self, statement: Node, needs: Needs) -> Node | None:
        """The nearest statement before this one, in its block, that may change the value."""
        for earlier in reversed(self.before(statement)):
            if any(self.kills(e, needs) for e in self.effects(earlier)):
                return earlier
        return None

    def before(self, statement: Node) -> list[Node]:
        """The statements in front of this one in its block."""
        block = self.parent[statement.id]
        if not is_block(block) and block.type != "case_statement":
            return []
        return [s for s in block.named_children if s.end_byte <= statement.start_byte]

    def reaches(self, at: Node, use: Node, needs: Needs) -> bool:
        """Whether the expression, computed in front of statement ``at``, has its value at ``use``."""
        block = self.parent[at.id]
        for step in self.steps(use, needs):
            if self.parent[step.statement.id].id != block.id:
                continue
            if step.statement.id == at.id:
                return True
            if step.statement.start_byte < at.start_byte or not is_block(block):
                return False
            between = [s for s in self.before(step.statement) if s.start_byte >= at.start_byte]
            return not any(self.kills(e, needs) for s in between for e in self.effects(s))
        return False

    def always(self, at: Node, use: Node) -> bool:
        """Whether ``use`` is evaluated at least once whenever statement ``at`` is executed."""
        inner = use
        for holder in self.inside_out(use):
            if inner.id == at.id:
                return True
            if not self._surely(holder, inner):
                return False
            inner = holder
        return inner.id == at.id

    def _surely(self, holder: Node, inner: Node) -> bool:
        def is_field(*names: str) -> bool:
            return any((c := holder.child_by_field_name(n)) is not None and c.id == inner.id for n in names)

        if holder.type == "binary_expression":
            operator = holder.child_by_field_name("operator")
            return is_field("left") or text_of(operator) not in ("&&", "||") if operator is not None else False
        if holder.type in ("conditional_expression", "if_statement"):
            return is_field("condition")
        if holder.type == "for_statement":
            return is_field("initializer", "condition") or (is_field("body") and (self.trips(holder) or 0) > 0)
        if holder.type == "while_statement":
            return is_field("condition")
        if holder.type == "do_statement":
            return is_field("body")
        if holder.type in ("switch_statement", "case_statement", "else_clause", "sizeof_expression"):
            return is_field("condition") and holder.type == "switch_statement"
        if is_block(holder):
            return not any(n.type in _JUMPS for s in self.before(inner) for n in walk(s))
        return True

    # -- loops --

    def trips(self, loop: Node) -> int | None:
        """How often a counting loop runs, where that is constant."""
        counter = self.counter(loop)
        if counter is None:
            return None
        start, stop, step, operator = counter
        numbers = [self.constant(n) if n is not None else 1 for n in (start, stop, step)]
        first, last, by = numbers
        if first is None or last is None or not by or by < 0:
            return None
        return max(0, -(-(last + (operator == "<=") - first) // by))

    def counter(self, loop: Node) -> tuple[Node, Node, Node | None, str] | None:
        """Start, bound, step (None: 1) and ``<`` or ``<=`` of a loop that counts a variable of its own upwards."""
        init, condition, update = (loop.child_by_field_name(n) for n in ("initializer", "condition", "update"))
        if loop.type != "for_statement" or init is None or condition is None or update is None:
            return None
        declarator = init.child_by_field_name("declarator") if init.type == "declaration" else None
        start = declarator.child_by_field_name("value") if declarator is not None else None
        left, right = condition.child_by_field_name("left"), condition.child_by_field_name("right")
        operator = condition.child_by_field_name("operator")
        if declarator is None or start is None or left is None or right is None or operator is None:
            return None
        name = declarator.child_by_field_name("declarator")
        variable = self.variable(name) if name is not None else None
        step, counts = _step(update)
        writes = [e for e in self.effects(loop) if e.variable is variable]
        regular = counts is not None and variable is not None and len(writes) == 2 and not variable.escaped
        if not regular or {self.variable(left), self.variable(counts)} != {variable} or len(text_of(operator)) > 2:
            return None
        return (start, right, step, text_of(operator)) if text_of(operator) in ("<", "<=") else None


def _step(update: Node) -> tuple[Node | None, Node | None]:
    """The step (None: 1) and the counted identifier of ``i++`` or ``i += step``; no identifier where it is neither."""
    if update.type == "update_expression" and "++" in text_of(update):
        return None, update.child_by_field_name("argument")
    operator = update.child_by_field_name("operator")
    if update.type == "assignment_expression" and operator is not None and text_of(operator) == "+=":
        return update.child_by_field_name("right"), update.child_by_field_name("left")
    return None, None


def _all_private(base: Base) -> bool:
    return base is not None and all(v.private for v in base)


def _repeats(loop: Node, inner: Node) -> bool:
    """Whether a part of a loop runs again each time round (all but a for's initializer)."""
    init = loop.child_by_field_name("initializer")
    return init is None or not holds(init, inner)


def _takes_statement(above: Node, node: Node) -> bool:
    if is_block(above):
        return node.type != "case_statement"
    if above.type in (*LOOPS, "if_statement"):
        parts = [above.child_by_field_name(n) for n in ("body", "consequence")]
        return not is_block(node) and any(part is not None and part.id == node.id for part in parts)
    if above.type == "else_clause":
        return not is_block(node)
    return above.type == "case_statement" and node.id != _id(above.child_by_field_name("value"))


def _id(node: Node | None) -> int | None:
    return node.id if node is not None else None
