"""Makes a failing program smaller: statements are dropped, one after the other, as long as it fails.

A barrier that stands alone stays, since the statements behind it may rely on it; one inside a dropped statement goes
with it, because every compound statement leaves shared memory in the mode it found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.fuzz.program import Program
from tests.fuzz.statements import Barrier, Body, Count, Statement


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """``program``, changed in place."""
    while any(_dropped(program, body, index, fails) for body, index in _places(program)):
        pass
    return program


def _dropped(program: Program, body: Body, index: int, fails: Callable[[Program], bool]) -> bool:
    if index >= len(body) or isinstance(body[index], (Barrier, Count)):
        return False
    statement = body.pop(index)
    if fails(program):
        return True
    body.insert(index, statement)
    return _hoisted(program, body, index, fails)


def _hoisted(program: Program, body: Body, index: int, fails: Callable[[Program], bool]) -> bool:
    """Put the statements of one inner body in the place of a compound statement, where they do not jump."""
    statement = body[index]
    for inner in statement.bodies():
        if len(statement.bodies()) == 1 or not inner or type(statement).__name__ != "If":
            continue
        body[index : index + 1] = inner
        if fails(program):
            return True
        body[index : index + len(inner)] = [statement]
    return False


def _places(program: Program) -> list[tuple[Body, int]]:
    """Every statement by its list and index, the last first."""
    lists = [program.body, *(body for statement in program.body for body in _inside(statement))]
    return [(body, index) for body in lists for index in reversed(range(len(body)))]


def _inside(statement: Statement) -> Iterator[Body]:
    for body in statement.bodies():
        yield body
        for inner in body:
            yield from _inside(inner)
