"""The archive: elites of cells, failures apart, islands that trade their best, draws that repeat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from r3bench.evolve.archive import Archive, Draw
from r3bench.evolve.features import AXES, Code, cell, distance
from r3bench.evolve.program import Program
from r3bench.syntax import tokens

FIRST = Program(id="p0", files=(("k.cu", "x"),), speedup=1.0, cell=(4, 0))


def archive(islands: int = 2, population: int = 20, migrate: int = 4, seed: int = 0) -> Archive:
    return Archive(FIRST, islands=islands, population=population, migrate=migrate, seed=seed)


def program(number: int, speedup: float | None, cell: tuple[int, ...] | None = None, parent: str = "p0") -> Program:
    status = "failed" if speedup is None else "matched"
    return Program(
        id=f"p{number}", files=(("k.cu", str(number)),), parent=parent, status=status, speedup=speedup, cell=cell,
        step=number,
    )  # fmt: skip


def put(into: Archive, number: int, speedup: float | None, at: tuple[int, ...] | None = None) -> Program:
    return into.add(program(number, speedup, at), into.draw(number))


def test_the_best_of_each_cell_stays() -> None:
    kept = archive(islands=1)
    assert put(kept, 1, 1.5, (5, 0)).cell == (5, 0)
    assert put(kept, 2, 1.4, (5, 0)).cell is None
    assert put(kept, 3, 1.2, (6, 1)).cell == (6, 1)
    assert put(kept, 4, 1.6, (5, 0)).cell == (5, 0)
    assert [p.id for p in kept.islands[0].ranked()] == ["p4", "p3", "p0"]
    assert kept.best.id == "p4"
    assert {cell: p.id for cell, p in kept.cells.items()} == {(4, 0): "p0", (5, 0): "p4", (6, 1): "p3"}


def test_the_worst_leaves_a_population_that_is_too_large() -> None:
    kept = archive(islands=1, population=2)
    put(kept, 1, 1.5, (5, 0))
    put(kept, 2, 1.2, (6, 0))
    assert [p.id for p in kept.islands[0].ranked()] == ["p1", "p2"]
    assert put(kept, 3, 1.1, (7, 0)).cell is None


def test_failures_are_never_parents_and_are_shown_with_those_of_the_parent_last() -> None:
    kept = archive(islands=1)
    put(kept, 1, 1.5, (5, 0))
    kept.add(program(2, None, parent="p1"), kept.draw(2))
    for number in range(3, 6):
        kept.add(program(number, None), kept.draw(number))
    draws = [kept.draw(step) for step in range(40)]
    assert {draw.parent.id for draw in draws} == {"p0", "p1"}
    shown = {draw.parent.id: [p.id for p in draw.failures] for draw in draws}
    assert shown == {"p0": ["p3", "p4", "p5"], "p1": ["p4", "p5", "p2"]}


def test_draws_repeat_with_the_seed_and_the_step_alone() -> None:
    one, other = archive(), archive()
    for kept in (one, other):
        for number in range(1, 9):
            put(kept, number, 1 + number / 10, (number, 0))
    other.draw(3)
    assert [one.draw(step) for step in range(20)] == [other.draw(step) for step in range(20)]
    parents = [[each.draw(step).parent.id for step in range(20)] for each in (one, archive(seed=1))]
    assert parents[0] != parents[1]


def test_a_better_parent_is_drawn_more_often_and_nothing_is_shown_twice() -> None:
    kept = archive(islands=1)
    for number in range(1, 9):
        put(kept, number, 1 + number / 10, (number, 1))
    draws = [kept.draw(step) for step in range(300)]
    count = {f"p{n}": sum(d.parent.id == f"p{n}" for d in draws) for n in (8, 1)}
    assert count["p8"] > 3 * count["p1"] > 0
    assert all(len({d.parent.id, *(p.id for p in d.others)}) == 1 + len(d.others) for d in draws)


def test_the_lag_counts_what_the_island_received_since_the_parent_was_drawn() -> None:
    kept = archive(islands=1)
    early = kept.draw(1)
    put(kept, 2, 1.5, (5, 0))
    put(kept, 3, None)
    assert kept.add(program(1, 1.1, (6, 0)), early).lag == 2
    assert put(kept, 4, 1.2, (7, 0)).lag == 0


def test_the_best_migrate_around_the_ring_and_never_twice() -> None:
    kept = archive(islands=2, migrate=4)
    put(kept, 1, 1.5, (5, 0))  # to island 1
    assert kept.migrate(3) == []
    assert kept.migrate(4) == [("p1", 1, 0)], "p0 is on both islands from the start"
    assert kept.islands[0].best.id == "p1"
    assert kept.migrate(8) == []
    copy = replace(program(2, 1.7, (6, 0)), files=(("k.cu", "2"),))
    kept.islands[0].add(copy, 20)
    kept.islands[1].add(replace(copy, id="p3"), 20)
    assert kept.migrate(12) == [], "equal code under another id is the same program"


def test_the_line_of_descent_begins_with_the_first_text() -> None:
    kept = archive(islands=1)
    kept.add(program(1, 1.5, (5, 0)), kept.draw(1))
    kept.add(program(2, 1.6, (6, 0), parent="p1"), kept.draw(2))
    assert [p.id for p in kept.line(kept.programs["p2"])] == ["p0", "p1"]
    assert isinstance(kept.draw(3), Draw)


def code(text: str = "a + b", **facts: int) -> Code:
    return Code(files=(("k.cu", text),), facts=facts)


def test_the_distance_is_that_of_the_instructions_or_else_of_the_tokens() -> None:
    add, half = code(op_fadd=4, op_load=4), code(op_fadd=4, op_load=4, op_fdiv=8)
    assert distance(add, add) == 0.0
    assert distance(half, add) == pytest.approx(1 - 2 * 8 / 24)
    assert distance(code(op_fmul=1), add) == 1.0
    assert distance(code("x = a + b ;"), code("x = a + b; // the sum")) == 0.0
    assert distance(code("x = a + b"), code("x = a * b")) == pytest.approx(2 / 3), "one of three trigrams is shared"


def test_a_cell_is_one_index_per_axis_between_fixed_edges() -> None:
    first = code(ir_instructions=100, op_fadd=100)
    twice = code(ir_instructions=200, op_fadd=200, registers=64)
    assert cell(("instructions", "distance"), first, first) == (6, 0)
    assert cell(("instructions", "distance", "registers"), twice, first) == (8, 4, 3)
    assert all(list(axis.edges) == sorted(axis.edges) for axis in AXES.values())


def test_comments_and_spaces_are_no_tokens_but_lines_of_the_preprocessor_are() -> None:
    text = 'int x=1; /* one */ // two\n#  pragma   unroll 4\nfor(;;) s = "a // b";'
    assert list(tokens(text)) == [
        "int", "x", "=", "1", ";", "# pragma unroll 4", "for", "(", ";", ";", ")", "s", "=", '"a // b"', ";",
    ]  # fmt: skip
