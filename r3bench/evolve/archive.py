"""MAP-Elites on islands: the best program of every cell, apart from each other but for a few that migrate.

Mouret and Clune, "Illuminating search spaces by mapping elites" (2015); islands as in Romera-Paredes et al.,
"Mathematical discoveries from program search with large language models" (Nature 2024). Failures have a table of their
own: they are never parents, and are shown as what was tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from r3bench.evolve.program import Program

Cell = tuple[int, ...]
Move = tuple[str, int, int]
"""A program's id, the island it comes from and the one it goes to."""

_EXPLORE = 0.3  # of the parents are drawn from all elites alike, the others by rank
_BEST, _OTHERS, _FAILURES = 2, 2, 3  # shown beside a parent
_ROUNDS = 4  # in which an island shows the same others


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one proposal is made from: the parent, other programs of its island, and its ancestors (oldest first).

    ``failures`` are failed programs, those made from this parent last. ``seen`` counts what the island had received.
    """

    step: int
    parent: Program
    island: int = 0
    seen: int = 0
    others: tuple[Program, ...] = ()
    failures: tuple[Program, ...] = ()
    line: tuple[Program, ...] = ()


@dataclass(slots=True)
class Island:
    """The elites of one island by cell; ``received`` counts every program that came to be judged here."""

    elites: dict[Cell, Program] = field(default_factory=dict)
    received: int = 0

    @property
    def best(self) -> Program:
        return max(self.elites.values(), key=_gain)

    def ranked(self) -> list[Program]:
        """The elites, best first; equally good ones in the order in which they came."""
        return sorted(self.elites.values(), key=_gain, reverse=True)

    def add(self, program: Program, population: int) -> bool:
        """Keep a program that is the best of its cell; whether it stays. The worst leaves a population too large."""
        assert program.cell is not None
        held = self.elites.get(program.cell)
        if held is not None and _gain(held) >= _gain(program):
            return False
        self.elites[program.cell] = program
        if len(self.elites) > population:
            worst = min(self.elites, key=lambda cell: _gain(self.elites[cell]))
            del self.elites[worst]
        return program.cell in self.elites


class Archive:
    """The programs of one kernel. Equal seeds and equal programs in equal order give equal draws."""

    def __init__(self, first: Program, *, islands: int, population: int, migrate: int, seed: int | str) -> None:
        self.programs: dict[str, Program] = {first.id: first}
        self.failures: list[Program] = []
        self.exhausted: set[str] = set()
        """Programs of which nothing more can be made: parents only where there is no other."""
        self.islands = [Island() for _ in range(islands)]
        self._population, self._migrate, self._seed = population, migrate, seed
        for island in self.islands:
            island.add(first, population)

    @property
    def first(self) -> Program:
        """The text that the search began with."""
        return next(iter(self.programs.values()))

    @property
    def best(self) -> Program:
        """The best of all islands; the older one of equals."""
        return max((island.best for island in self.islands), key=lambda program: (_gain(program), -program.step))

    @property
    def cells(self) -> dict[Cell, Program]:
        """The best program of every cell that is filled, over all islands."""
        found: dict[Cell, Program] = {}
        for cell, program in (pair for island in self.islands for pair in island.elites.items()):
            if cell not in found or _gain(program) > _gain(found[cell]):
                found[cell] = program
        return found

    # -- drawing --

    def draw(self, step: int) -> Draw:
        """A parent of the island whose turn it is, with what is shown beside it."""
        number = step % len(self.islands)
        island, random = self.islands[number], Random(f"{self._seed} {step}")
        ranked = island.ranked()
        parent = _parent([p for p in ranked if p.id not in self.exhausted] or ranked, random)
        rest = [program for program in ranked if program is not parent]
        others = rest[:_BEST] + sorted(rest[_BEST:], key=self._turn(step))[:_OTHERS]
        return Draw(
            step=step,
            parent=parent,
            island=number,
            seen=island.received,
            others=tuple(others),
            failures=self._failures_near(parent),
            line=self.line(parent),
        )

    def _turn(self, step: int) -> Callable[[Program], float]:
        """An order of programs by lot that stays for some rounds, so that prompts begin alike and are cached."""
        number, again = step % len(self.islands), step // len(self.islands) // _ROUNDS
        return lambda program: Random(f"{self._seed} {number} {again} {program.id}").random()

    def line(self, program: Program) -> tuple[Program, ...]:
        """A program's ancestors, oldest first."""
        found: list[Program] = []
        while program.parent is not None:
            program = self.programs[program.parent]
            found.append(program)
        return tuple(reversed(found))

    def _failures_near(self, parent: Program) -> tuple[Program, ...]:
        ordered = sorted(self.failures, key=lambda failed: failed.parent == parent.id)
        return tuple(ordered[-_FAILURES:])

    # -- adding --

    def add(self, program: Program, draw: Draw) -> Program:
        """Judge a program; what comes back says its island, its lag, and its cell if it was kept there."""
        island = self.islands[draw.island]
        program = replace(program, island=draw.island, lag=island.received - draw.seen)
        island.received += 1
        if program.status != "matched":
            self.failures.append(program)
        elif not island.add(program, self._population):
            program = replace(program, cell=None)
        self.programs[program.id] = program
        return program

    def migrate(self, step: int) -> Sequence[Move]:
        """Every so many steps the best of each island goes to the next one in the ring, where it is not there yet."""
        if step % self._migrate or len(self.islands) == 1:
            return []
        count, moves = len(self.islands), list[Move]()
        for number, best in enumerate([island.best for island in self.islands]):
            target = self.islands[(number + 1) % count]
            known = any(_same(best, held) for held in target.elites.values())
            if not known and target.add(best, self._population):
                moves.append((best.id, number, (number + 1) % count))
        return moves


def _gain(program: Program) -> float:
    assert program.speedup is not None, f"{program.id} failed and cannot be an elite"
    return program.speedup


def _parent(ranked: Sequence[Program], random: Random) -> Program:
    """By rank (the n-th best with weight 1/n), now and then any."""
    if random.random() < _EXPLORE:
        return random.choice(ranked)
    return random.choices(ranked, weights=[1 / rank for rank in range(1, len(ranked) + 1)])[0]


def _same(one: Program, other: Program) -> bool:
    return one.id == other.id or one.files == other.files
