"""Statements of random programs: what each writes as CUDA C++ beside what it does to the interpreter's state.

``write(text, mask)`` gets the C++ expression of the warp mask that holds at this place. ``run(machine, mask)`` gets the
threads that are here and may go on. ``bodies()`` are the lists of statements inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.fuzz.expressions import C_TYPES, Expression, u32
from tests.fuzz.machine import Machine, Mask, bits_of

Body = list["Statement"]


class Text:
    """Lines of a function, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def put(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def block(self, head: str, body: Body, mask: str, tail: str = "}") -> None:
        self.put(head)
        self.depth += 1
        for statement in body:
            statement.write(self, mask)
        self.depth -= 1
        self.put(tail)


class Statement:
    def write(self, text: Text, mask: str) -> None:
        raise NotImplementedError

    def run(self, machine: Machine, mask: Mask) -> None:
        raise NotImplementedError

    def bodies(self) -> list[Body]:
        return []


# -- memory ---------------------------------------------------------------------------------------------------------


@dataclass
class Assign(Statement):
    target: str
    value: Expression

    def write(self, text: Text, mask: str) -> None:
        clamped = f"clamp{self.value.type}({self.value.text()})" if self.value.type in "fd" else self.value.text()
        text.put(f"{self.target} = {clamped};")

    def run(self, machine: Machine, mask: Mask) -> None:
        machine.assign(self.target, machine.value(self.value), mask)


@dataclass
class Store(Statement):
    """Write an element that belongs to the thread."""

    array: str
    size: int
    index: Expression
    value: Expression

    def write(self, text: Text, mask: str) -> None:
        text.put(f"{self.array}[{self.index.text()} % {self.size}u] = {self.value.text()};")

    def run(self, machine: Machine, mask: Mask) -> None:
        index = machine.value(self.index) % np.uint32(self.size)
        machine.store(self.array, index, machine.value(self.value), mask)


ATOMICS: dict[str, tuple[str, Any]] = {
    "add": ("atomicAdd({0}, {1})", np.add),
    "sub": ("atomicSub({0}, {1})", np.subtract),
    "xor": ("atomicXor({0}, {1})", np.bitwise_xor),
    "or": ("atomicOr({0}, {1})", np.bitwise_or),
    "and": ("atomicAnd({0}, {1})", np.bitwise_and),
    "min": ("atomicMin({0}, {1})", np.minimum),
    "max": ("atomicMax({0}, {1})", np.maximum),
    "cas": (
        "for (unsigned o = atomicCAS({0}, 7u, 7u), q = ~o; q != o;) {{ q = o; o = atomicCAS({0}, q, q + {1}); }}",
        np.add,
    ),
}


@dataclass
class Atomic(Statement):
    """Change one of the array's elements from ``first`` on, which no other operation changes and nobody reads now."""

    kind: str
    array: str
    first: int
    size: int
    index: Expression
    value: Expression

    def write(self, text: Text, mask: str) -> None:
        place = f"&{self.array}[{self.first} + {self.index.text()} % {self.size}u]"
        if self.kind == "cas":  # its operands are evaluated more than once
            text.put(f"{{ unsigned *at = {place}, by = {self.value.text()};")
            text.put("  " + ATOMICS["cas"][0].format("at", "by") + " }")
        else:
            text.put(ATOMICS[self.kind][0].format(place, self.value.text()) + ";")

    def run(self, machine: Machine, mask: Mask) -> None:
        index = self.first + (machine.value(self.index) % np.uint32(self.size)).astype(np.int64)[mask]
        value = machine.value(self.value)[mask]
        change = ATOMICS[self.kind][1]
        if self.array in machine.shared:
            change.at(machine.shared[self.array], (machine.block[mask], index), value)
        else:
            change.at(machine.everywhere[self.array], index, value)


@dataclass
class Ticket(Statement):
    """Each thread draws a number; their sum does not depend on the order."""

    def write(self, text: Text, mask: str) -> None:
        text.put("atomicAdd(&total[49], atomicAdd(&total[48], 1u));")

    def run(self, machine: Machine, mask: Mask) -> None:
        total = machine.everywhere["total"]
        drawn, more = int(total[48]), int(mask.sum())
        total[48] = (drawn + more) & 0xFFFFFFFF
        total[49] = (int(total[49]) + more * drawn + more * (more - 1) // 2) & 0xFFFFFFFF


# -- waiting --------------------------------------------------------------------------------------------------------


@dataclass
class Barrier(Statement):
    def write(self, text: Text, mask: str) -> None:
        text.put("__syncthreads();")

    def run(self, machine: Machine, mask: Mask) -> None:
        pass


@dataclass
class Count(Statement):
    """A barrier that counts, or tells whether all or any agree; the target may be equal for the whole block."""

    kind: str
    target: str
    condition: Expression

    def write(self, text: Text, mask: str) -> None:
        text.put(f"{self.target} = {self.target} * 3u + (unsigned)__syncthreads_{self.kind}({self.condition.text()});")

    def run(self, machine: Machine, mask: Mask) -> None:
        true = machine.sums(machine.block, machine.blocks, machine.value(self.condition), mask)
        there = machine.sums(machine.block, machine.blocks, mask, mask)
        answer = {"count": true, "and": (true == there).astype(np.int64), "or": (true > 0).astype(np.int64)}[self.kind]
        held = machine.variables[self.target]
        machine.assign(self.target, held * np.uint32(3) + u32(answer[machine.block]), mask)


@dataclass
class SyncWarp(Statement):
    def write(self, text: Text, mask: str) -> None:
        text.put(f"__syncwarp({mask});")

    def run(self, machine: Machine, mask: Mask) -> None:
        pass


@dataclass
class Shuffle(Statement):
    """What a lane outside of the mask would give is undefined, so the thread keeps its own value then."""

    kind: str
    target: str
    value: Expression
    by: Expression
    width: int
    number: int

    def write(self, text: Text, mask: str) -> None:
        k, w, kind = self.number, self.width, C_TYPES[self.value.type]
        name = {"idx": ""}.get(self.kind, f"_{self.kind}")
        source = {
            "idx": f"(lane & {32 - w}u) + (b{k} & {w - 1}u)",
            "up": f"(lane & {w - 1}u) < b{k} ? lane : lane - b{k}",
            "down": f"(lane & {w - 1}u) + b{k} >= {w}u ? lane : lane + b{k}",
            "xor": f"lane ^ b{k}",
        }[self.kind]
        text.put(f"{{ unsigned b{k} = {self.by.text()} & {w - 1}u, from{k} = {source};")
        text.put(f"  {kind} own{k} = {self.value.text()}, got{k} = __shfl{name}_sync({mask}, own{k}, b{k}, {w});")
        chosen = f"({mask} >> from{k} & 1u) && t - lane + from{k} < {THREADS} ? got{k} : own{k}"
        if self.value.type in "fd":
            chosen = f"clamp{self.value.type}({chosen})"
        text.put(f"  {self.target} = {chosen}; }}")

    def run(self, machine: Machine, mask: Mask) -> None:
        own = machine.value(self.value)
        w, lane = self.width, machine.lane
        by = (machine.value(self.by) & np.uint32(w - 1)).astype(np.int64)
        source = {
            "idx": (lane & (32 - w)) + (by & (w - 1)),
            "up": np.where((lane & (w - 1)) < by, lane, lane - by),
            "down": np.where((lane & (w - 1)) + by >= w, lane, lane + by),
            "xor": lane ^ by,
        }[self.kind]
        values, there = machine.among(own, mask)
        rows = np.arange(machine.count)
        machine.assign(self.target, np.where(there[rows, source], values[rows, source], own), mask)


THREADS = "threads"
"""The C++ name of the number of threads in a block."""


@dataclass
class Vote(Statement):
    kind: str
    target: str
    condition: Expression

    def write(self, text: Text, mask: str) -> None:
        text.put(f"{self.target} = (unsigned)__{self.kind}_sync({mask}, {self.condition.text()});")

    def run(self, machine: Machine, mask: Mask) -> None:
        votes, there = machine.among(machine.value(self.condition), mask)
        votes &= there
        answer = {
            "ballot": bits_of(votes),
            "any": u32(votes.any(axis=1)),
            "all": u32((votes == there).all(axis=1)),
        }[self.kind]
        machine.assign(self.target, answer, mask)


REDUCTIONS: dict[str, tuple[Any, int]] = {
    "add": (np.add, 0),
    "min": (np.minimum, 0xFFFFFFFF),
    "max": (np.maximum, 0),
    "and": (np.bitwise_and, 0xFFFFFFFF),
    "or": (np.bitwise_or, 0),
    "xor": (np.bitwise_xor, 0),
}


@dataclass
class Reduce(Statement):
    kind: str
    target: str
    value: Expression

    def write(self, text: Text, mask: str) -> None:
        text.put(f"{self.target} = __reduce_{self.kind}_sync({mask}, {self.value.text()});")

    def run(self, machine: Machine, mask: Mask) -> None:
        values, there = machine.among(machine.value(self.value), mask)
        change, neutral = REDUCTIONS[self.kind]
        filled = np.where(there, values, np.uint32(neutral))
        machine.assign(self.target, u32(change.reduce(filled, axis=1)), mask)


@dataclass
class Match(Statement):
    """Lanes that hold the same value: ``any`` finds the caller's, ``all`` whether there is one value only."""

    kind: str
    target: str
    value: Expression
    number: int

    def write(self, text: Text, mask: str) -> None:
        value = f"{self.value.text()} & 3u"
        if self.kind == "any":
            text.put(f"{self.target} = __match_any_sync({mask}, {value});")
        else:
            text.put(f"{{ int all{self.number}; unsigned got = __match_all_sync({mask}, {value}, &all{self.number});")
            text.put(f"  {self.target} = got ^ (all{self.number} ? 5u : 0u); }}")

    def run(self, machine: Machine, mask: Mask) -> None:
        own = machine.value(self.value) & np.uint32(3)
        values, there = machine.among(own, mask)
        same = there & (values == own[:, None])
        bits = bits_of(same)
        if self.kind == "all":
            all_same = (same == there).all(axis=1)
            bits = np.where(all_same, bits ^ np.uint32(5), np.uint32(0))
        machine.assign(self.target, bits, mask)
