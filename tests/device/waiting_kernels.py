"""Random kernels whose threads wait for each other, and what must come of them by an interpreter of our own.

A program is a list of statements on 32-bit variables of a thread. It is written once as CUDA C++ and once run by
:func:`expected`, where every thread is a Python generator that yields where it waits. No program has a race: shared
memory is written at the thread's own place and read between two barriers, and collectives name who takes part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

MASK = 0xFFFFFFFF
VARIABLES = 5
Expression = tuple[Any, ...]
Statement = tuple[Any, ...]


# -- programs -------------------------------------------------------------------------------------------------------


@dataclass
class Generator:
    """Makes a random program of at most ``most`` statements; ``threads`` of a block need not be a multiple of 32."""

    random: Random
    threads: int
    most: int = 8

    def program(self) -> list[Statement]:
        return [self.statement(0, "block") for _ in range(self.random.randint(2, self.most))]

    def expression(self, depth: int = 0) -> Expression:
        pick = self.random.random()
        if depth > 2 or pick < 0.4:
            kinds = [("v", self.random.randrange(VARIABLES)), ("c", self.random.randrange(70)), ("t",), ("b",), ("n",)]
            return self.random.choice([*kinds[:1] * 4, *kinds])
        if pick < 0.9:
            return (self.random.choice("+-*^&|"), self.expression(depth + 1), self.expression(depth + 1))
        return ("?", self.condition(depth + 1), self.expression(depth + 1), self.expression(depth + 1))

    def condition(self, depth: int = 0) -> Expression:
        kinds = ["<", "==", "odd"]
        return (self.random.choice(kinds), self.expression(depth + 1), self.expression(depth + 1))

    def uniform(self) -> Expression:
        """An expression that is equal for all threads of a block."""
        return self.random.choice([("b",), ("n",), ("c", self.random.randrange(5)), ("+", ("b",), ("n",))])

    def statement(self, depth: int, who: str) -> Statement:
        """``who`` arrives together: the ``block``, the lanes in a ``warp``'s variable m, or nobody for sure."""
        target = self.random.randrange(VARIABLES)
        simple: list[Statement] = [
            ("set", target, self.expression()),
            ("array", target, self.expression(), self.expression()),
            ("add", self.expression()),
        ]
        waiting: list[Statement] = []
        if who == "block":
            waiting += [
                ("exchange", target, self.expression(), self.expression()),
                ("count", self.random.choice(["count", "and", "or"]), target, self.condition()),
                ("barrier",),
            ]
        if who != "nobody":
            waiting += [
                (
                    "shuffle",
                    self.random.choice(["idx", "up", "down", "xor"]),
                    target,
                    self.expression(),
                    self.expression(),
                ),
                ("ballot", target, self.condition()),
                ("reduce", self.random.choice(["add", "xor", "max"]), target, self.expression()),
                ("match", target, ("&", self.expression(), ("c", 3))),
                ("any", target, self.condition()),
                ("syncwarp",),
            ]
        if depth < 3:
            waiting += self.compound(depth, who)
        return self.random.choice([*simple, *waiting])

    def body(self, depth: int, who: str) -> list[Statement]:
        return [self.statement(depth + 1, who) for _ in range(self.random.randint(1, 3))]

    def compound(self, depth: int, who: str) -> list[Statement]:
        found: list[Statement] = [("if", self.condition(), self.body(depth, "nobody"), self.body(depth, "nobody"))]
        found.append(("times", self.expression(), self.body(depth, "nobody")))
        if who == "block":
            found.append(("same", self.uniform(), self.body(depth, "block"), self.body(depth, "block")))
            found.append(("loop", self.uniform(), self.body(depth, "block")))
        if who != "nobody":
            found.append(("split", self.condition(), self.body(depth, "warp"), self.body(depth, "warp")))
            found.append(("while", self.expression(), self.body(depth, "warp")))
        if depth == 0 and self.random.random() < 0.4:
            found.append(("leave", self.condition()))
        return found


# -- as CUDA C++ ----------------------------------------------------------------------------------------------------


@dataclass
class Writer:
    threads: int
    loops: int = 0
    lines: list[str] = field(default_factory=list)

    def text(self, program: list[Statement]) -> str:
        self.block(program, "~0u")
        results = " ".join(f"out[{VARIABLES + 1} * i + {k}] = v{k};" for k in range(VARIABLES))
        start = "".join(f" unsigned v{k} = x[(i + {k}) & 63];" for k in range(VARIABLES))
        body = "\n".join(self.lines)
        return f"""extern "C" __global__ void k(const unsigned* x, unsigned* out, unsigned* total, unsigned n) {{
  __shared__ unsigned s[{self.threads}];
  unsigned a[4], t = threadIdx.x + blockDim.x * threadIdx.y, b = blockIdx.x, i = b * {self.threads} + t, lane = t & 31;
  for (int k = 0; k < 4; ++k) a[k] = k;
  s[t] = 0;
 {start}
  __syncthreads();
{body}
  {results} out[{VARIABLES + 1} * i + {VARIABLES}] = a[v0 & 3];
}}
"""

    def block(self, statements: list[Statement], mask: str) -> None:
        for statement in statements:
            getattr(self, f"do_{statement[0]}")(mask, *statement[1:])

    def put(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def value(self, e: Expression) -> str:
        if e[0] in "vctbn" and len(e) <= 2:
            return {"v": f"v{e[-1]}", "c": f"{e[-1]}u"}.get(e[0], e[0])
        if e[0] == "?":
            return f"({self.value(e[1])} ? {self.value(e[2])} : {self.value(e[3])})"
        if e[0] == "odd":
            return f"((({self.value(e[1])}) ^ ({self.value(e[2])})) & 1u)"
        return f"({self.value(e[1])} {e[0]} {self.value(e[2])})"

    def do_set(self, mask: str, target: int, e: Expression) -> None:
        self.put(f"v{target} = {self.value(e)};")

    def do_array(self, mask: str, target: int, index: Expression, e: Expression) -> None:
        self.put(f"a[{self.value(index)} & 3] = {self.value(e)}; v{target} ^= a[v{target} & 3];")

    def do_add(self, mask: str, e: Expression) -> None:
        self.put(f"atomicAdd(total + b, {self.value(e)});")

    def do_exchange(self, mask: str, target: int, e: Expression, place: Expression) -> None:
        self.put(f"s[t] = {self.value(e)}; __syncthreads(); v{target} += s[{self.value(place)} % {self.threads}u];")
        self.put("__syncthreads();")

    def do_count(self, mask: str, kind: str, target: int, e: Expression) -> None:
        self.put(f"v{target} ^= __syncthreads_{kind}({self.value(e)});")

    def do_barrier(self, mask: str) -> None:
        self.put("__syncthreads();")

    def do_shuffle(self, mask: str, kind: str, target: int, e: Expression, lane: Expression) -> None:
        name = {"idx": ""}.get(kind, f"_{kind}")
        self.put(f"v{target} = __shfl{name}_sync({mask}, {self.value(e)}, {self.value(lane)} & 31);")

    def do_ballot(self, mask: str, target: int, e: Expression) -> None:
        self.put(f"v{target} = __ballot_sync({mask}, {self.value(e)});")

    def do_reduce(self, mask: str, kind: str, target: int, e: Expression) -> None:
        self.put(f"v{target} = __reduce_{kind}_sync({mask}, {self.value(e)});")

    def do_match(self, mask: str, target: int, e: Expression) -> None:
        self.put(f"v{target} += __match_any_sync({mask}, {self.value(e)});")

    def do_any(self, mask: str, target: int, e: Expression) -> None:
        self.put(f"v{target} += __any_sync({mask}, {self.value(e)}) + 2 * __all_sync({mask}, {self.value(e)});")

    def do_syncwarp(self, mask: str) -> None:
        self.put(f"__syncwarp({mask});")

    def do_if(self, mask: str, e: Expression, yes: list[Statement], no: list[Statement]) -> None:
        self.put(f"if ({self.value(e)}) {{")
        self.block(yes, mask)
        self.put("} else {")
        self.block(no, mask)
        self.put("}")

    do_same = do_if

    def do_times(self, mask: str, e: Expression, body: list[Statement]) -> None:
        self.loops += 1
        k = self.loops
        self.put(f"for (unsigned l{k} = 0, e{k} = {self.value(e)} & 3; l{k} < e{k}; ++l{k}) {{")
        self.block(body, mask)
        self.put("}")

    do_loop = do_times

    def do_split(self, mask: str, e: Expression, yes: list[Statement], no: list[Statement]) -> None:
        self.loops += 1
        m = f"m{self.loops}"
        self.put(
            f"bool c{m} = {self.value(e)}; "
            f"unsigned {m} = __ballot_sync({mask}, c{m}), r{m} = __ballot_sync({mask}, !c{m});"
        )
        self.put(f"if (c{m}) {{")
        self.block(yes, m)
        self.put("} else {")
        self.block(no, f"r{m}")
        self.put("}")

    def do_while(self, mask: str, e: Expression, body: list[Statement]) -> None:
        self.loops += 1
        m = f"m{self.loops}"
        self.put(f"unsigned e{m} = {self.value(e)} & 3, {m} = __ballot_sync({mask}, 0 < e{m});")
        self.put(f"for (unsigned l{m} = 0; l{m} < e{m};) {{")
        self.block(body, m)
        self.put(f"++l{m}; {m} = __ballot_sync({m}, l{m} < e{m});")
        self.put("}")

    def do_leave(self, mask: str, e: Expression) -> None:
        self.put(f"if ({self.value(e)}) {{ out[{VARIABLES + 1} * i] = 12345; return; }}")


# -- by interpretation ----------------------------------------------------------------------------------------------

Wait = tuple[Any, ...]


class Left(Exception):
    """The thread returned."""


@dataclass
class Thread:
    t: int
    b: int
    n: int
    shared: list[int]
    total: list[int]
    v: list[int]
    a: list[int] = field(default_factory=lambda: [0, 1, 2, 3])

    def run(self, program: list[Statement]) -> Iterator[Wait]:
        try:
            yield from self.block(program, MASK)
        except Left:
            self.v = [12345]

    def block(self, statements: list[Statement], mask: int) -> Iterator[Wait]:
        for statement in statements:
            yield from getattr(self, f"do_{statement[0]}")(mask, *statement[1:])

    def value(self, e: Expression) -> int:
        if len(e) <= 2:
            return {"v": lambda: self.v[e[-1]], "c": lambda: e[-1]}.get(e[0], lambda: getattr(self, e[0]))()
        if e[0] == "?":
            return self.value(e[2]) if self.value(e[1]) else self.value(e[3])
        x, y = self.value(e[1]), self.value(e[2])
        results = {"+": x + y, "-": x - y, "*": x * y, "^": x ^ y, "&": x & y, "|": x | y}
        results |= {"<": x < y, "==": x == y, "odd": (x ^ y) & 1}
        return int(results[e[0]]) & MASK

    def do_set(self, mask: int, target: int, e: Expression) -> Iterator[Wait]:
        self.v[target] = self.value(e)
        yield from ()

    def do_array(self, mask: int, target: int, index: Expression, e: Expression) -> Iterator[Wait]:
        self.a[self.value(index) & 3] = self.value(e)
        self.v[target] ^= self.a[self.v[target] & 3]
        yield from ()

    def do_add(self, mask: int, e: Expression) -> Iterator[Wait]:
        self.total[self.b] = (self.total[self.b] + self.value(e)) & MASK
        yield from ()

    def do_exchange(self, mask: int, target: int, e: Expression, place: Expression) -> Iterator[Wait]:
        self.shared[self.t] = self.value(e)
        yield ("barrier", 0)
        read = self.shared[self.value(place) % len(self.shared)]
        self.v[target] = (self.v[target] + read) & MASK
        yield ("barrier", 0)

    def do_count(self, mask: int, kind: str, target: int, e: Expression) -> Iterator[Wait]:
        true, there = yield ("barrier", int(self.value(e) != 0))
        self.v[target] ^= {"count": true, "and": int(true == there), "or": int(true > 0)}[kind]

    def do_barrier(self, mask: int) -> Iterator[Wait]:
        yield ("barrier", 0)

    def do_shuffle(self, mask: int, kind: str, target: int, e: Expression, place: Expression) -> Iterator[Wait]:
        value, by, lane = self.value(e), self.value(place) & 31, self.t & 31
        group = yield ("shuffle" + kind, mask, value)
        source = {"idx": by, "up": lane - by, "down": lane + by, "xor": lane ^ by}[kind]
        self.v[target] = group.get(source, value)

    def do_ballot(self, mask: int, target: int, e: Expression) -> Iterator[Wait]:
        group = yield ("ballot", mask, int(self.value(e) != 0))
        self.v[target] = sum(bit << lane for lane, bit in group.items())

    def do_reduce(self, mask: int, kind: str, target: int, e: Expression) -> Iterator[Wait]:
        group = yield ("reduce" + kind, mask, self.value(e))
        total = 0
        for value in group.values():
            total = {"add": (total + value) & MASK, "xor": total ^ value, "max": max(total, value)}[kind]
        self.v[target] = total

    def do_match(self, mask: int, target: int, e: Expression) -> Iterator[Wait]:
        own = self.value(e)
        group = yield ("match", mask, own)
        equal = sum(1 << lane for lane, value in group.items() if value == own)
        self.v[target] = (self.v[target] + equal) & MASK

    def do_any(self, mask: int, target: int, e: Expression) -> Iterator[Wait]:
        any_of = yield ("any", mask, int(self.value(e) != 0))
        all_of = yield ("all", mask, int(self.value(e) != 0))
        self.v[target] = (self.v[target] + any(any_of.values()) + 2 * all(all_of.values())) & MASK

    def do_syncwarp(self, mask: int) -> Iterator[Wait]:
        yield ("sync", mask, 0)

    def do_if(self, mask: int, e: Expression, yes: list[Statement], no: list[Statement]) -> Iterator[Wait]:
        yield from self.block(yes if self.value(e) else no, mask)

    do_same = do_if

    def do_times(self, mask: int, e: Expression, body: list[Statement]) -> Iterator[Wait]:
        for _ in range(self.value(e) & 3):
            yield from self.block(body, mask)

    do_loop = do_times

    def do_split(self, mask: int, e: Expression, yes: list[Statement], no: list[Statement]) -> Iterator[Wait]:
        chosen = self.value(e) != 0
        group = yield ("ballot", mask, int(chosen))
        yield ("ballot", mask, int(not chosen))
        same = sum(1 << lane for lane, bit in group.items() if bool(bit) == chosen)
        yield from self.block(yes if chosen else no, same)

    def do_while(self, mask: int, e: Expression, body: list[Statement]) -> Iterator[Wait]:
        end = self.value(e) & 3
        for k in range(end + 1):
            group = yield ("ballot", mask, int(k < end))
            mask = sum(bit << lane for lane, bit in group.items())
            if k < end:
                yield from self.block(body, mask)

    def do_leave(self, mask: int, e: Expression) -> Iterator[Wait]:
        if self.value(e):
            raise Left
        yield from ()


def expected(
    program: list[Statement], x: list[int], n: int, blocks: int, threads: int
) -> tuple[list[list[int]], list[int]]:
    """For every thread its variables and a[v0 & 3] (or 12345 alone if it left), and the total of each block."""
    total = [0] * blocks
    results = []
    for b in range(blocks):
        shared = [0] * threads
        all_of_block = [
            Thread(t, b, n, shared, total, [x[(b * threads + t + k) & 63] for k in range(VARIABLES)])
            for t in range(threads)
        ]
        _run(all_of_block, program)
        results += [th.v if th.v == [12345] else [*th.v, th.a[th.v[0] & 3]] for th in all_of_block]
    return results, total


def _run(threads: list[Thread], program: list[Statement]) -> None:
    """Run every thread up to where it waits; complete collectives, then barriers, until all have ended."""
    runs = {thread.t: thread.run(program) for thread in threads}
    answers: dict[int, Any] = dict.fromkeys(runs)
    waits: dict[int, Wait] = {}
    while runs:
        for t in list(answers):
            answer = answers.pop(t)
            try:
                waits[t] = runs[t].send(answer) if t in waits or answer is not None else next(runs[t])
            except StopIteration:
                waits.pop(t, None)
                del runs[t]
        if runs:
            _collectives(waits, answers)
            if not answers:
                _barrier(waits, answers)


def _collectives(waits: dict[int, Wait], answers: dict[int, Any]) -> None:
    for t, wait in waits.items():
        if wait[0] == "barrier" or t in answers:
            continue
        warp = t & ~31
        named = [u for u in waits if u & ~31 == warp and wait[1] >> (u & 31) & 1]
        if all(waits[u][:2] == wait[:2] for u in named):
            group = {u & 31: waits[u][2] for u in named}
            answers.update(dict.fromkeys(named, group))


def _barrier(waits: dict[int, Wait], answers: dict[int, Any]) -> None:
    if any(wait[0] != "barrier" for wait in waits.values()):
        raise RuntimeError(f"deadlock: {waits}")
    result = (sum(wait[1] for wait in waits.values()), len(waits))
    answers.update(dict.fromkeys(waits, result))
