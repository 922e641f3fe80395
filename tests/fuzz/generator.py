"""Random programs that are valid by construction: no data race, no undefined behaviour, no deadlock.

Shared arrays are in one of two modes between barriers: in ``own`` mode a thread touches one element only, in ``read``
mode all may be read and none written (the counters: changed by atomics, or read). A barrier may change the modes. Code
with barriers runs where all threads of a block agree, code with collectives where a warp's mask is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random

from tests.fuzz.control import Function, If, Jump, Loop, Meet, Outlined, Split, Stride, Switch
from tests.fuzz.expressions import C_TYPES, OPERATORS, Expression, apply, constant, element, name
from tests.fuzz.program import COUNTERS, PRIVATE, VARIABLES, Program, Shape
from tests.fuzz.statements import (
    ATOMICS,
    REDUCTIONS,
    Assign,
    Atomic,
    Barrier,
    Body,
    Count,
    Match,
    Reduce,
    Shuffle,
    Statement,
    Store,
    SyncWarp,
    Ticket,
    Vote,
)

Modes = dict[str, str]
_BY_RESULT = {kind: [n for n, o in OPERATORS.items() if o.result == kind] for kind in C_TYPES}
# Cells of `total` that each atomic operation has for itself; 48 and 49 are the tickets'.
_CELLS = {"add": 0, "sub": 0, "xor": 8, "or": 16, "and": 20, "min": 24, "max": 32, "cas": 40}


@dataclass(frozen=True)
class Context:
    """``who`` arrives here together: the ``block``, lanes of a known mask (``warp``), or nobody for sure."""

    who: str = "block"
    depth: int = 0
    loop: str = ""
    loop_modes: tuple[tuple[str, str], ...] = ()
    can_break: bool = False
    can_return: bool = True
    waits: bool = True


class Generator:
    """Equal seeds give equal programs."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.shape = self._shape()
        self.modes: Modes = {"s": "own", "dyn": "own", "acc": "add"}
        self.slot = random.choice(["t", "(threads - 1u - t)"])
        self.words = [n for n, kind in VARIABLES.items() if kind == "u" and n != "w"]
        self.uniform_words = ["b", "n", "w"]
        self.numbers = 0
        self.functions: list[Function] = []
        self.outlined: list[Outlined] = []
        self.waits = random.random() < 0.9

    def program(self) -> Program:
        self.functions = [self._function(k) for k in range(self.random.randint(0, 2))]
        context = Context(waits=self.waits)
        body = self.statements(context, self.random.choice([1, 2, 2, 3, 3, 4, 5]))
        strided, choice = self.random.random() < 0.5, self.random.randrange(60)
        return Program(self.shape, body, self.functions, self.outlined, self.waits, strided, choice)

    def _shape(self) -> Shape:
        block = self.random.choice(
            [(1,), (7,), (32,), (33,), (48,), (64,), (64,), (96,), (100,), (8, 8), (5, 7), (16, 3, 2), (32, 3), (130,)]
        )
        return Shape(self.random.choice([(1,), (2,), (3,), (2, 2)]), block)

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _function(self, number: int) -> Function:
        x, y, k = (name("u", n) for n in "xyk")

        def some(depth: int = 0) -> Expression:
            if depth > 1 or self.random.random() < 0.3:
                return self.random.choice([x, y, k, constant("u", 9)])
            operator = self.random.choice([n for n in _BY_RESULT["u"] if set(OPERATORS[n].operands) == {"u"}])
            return apply(operator, *(some(depth + 1) for _ in OPERATORS[operator].operands))

        return Function(f"fn{number}", apply("==", some(), some()), some(), some())

    # -- expressions --

    def expression(self, kind: str = "u", depth: int = 0) -> Expression:
        if depth > 2 or self.random.random() < 0.3:
            return self._leaf(kind, depth)
        operator = self.random.choice(_BY_RESULT[kind])
        return apply(operator, *(self.expression(k, depth + 1) for k in OPERATORS[operator].operands))

    def _leaf(self, kind: str, depth: int) -> Expression:
        pick = self.random.random()
        if kind == "c":
            return apply("odd", self._leaf("u", depth))
        if pick < 0.25:
            return constant(kind, self.random.choice([0, 1, 2, 3, 5, 8, 31, 77, 255, 1000] if kind not in "fd" else
                                                     [0.0, 0.5, 1.0, 1.5, 3.0, 0.1, 1e-3, 12345.75]))  # fmt: skip
        if kind == "u" and depth < 3 and pick < 0.5:
            return self._load(depth)
        if kind == "d" and depth < 3 and pick < 0.4:
            return element("d", "g", PRIVATE["g"][1], self.expression("u", depth + 1))
        if kind == "l" and depth < 3 and pick < 0.5 and self.waits:
            return self._shared("l", "dyn", depth)
        names = [n for n, k in VARIABLES.items() if k == kind]
        return name(kind, self.random.choice(names + (self.words if kind == "u" else [])))

    def _load(self, depth: int) -> Expression:
        index = self.expression("u", depth + 1)
        choices: list[Callable[[], Expression]] = [
            lambda: element("u", "in", 256, index),
            lambda: element("u", "a", PRIVATE["a"][1], index),
            lambda: element("u", "mine", PRIVATE["mine"][1], index),
            lambda: element("u", "p.c", PRIVATE["p.c"][1], index),
        ]
        if self.functions:
            chosen = self.random.choice(self.functions).name
            choices.append(lambda: Expression("call", "u", (index, self._leaf("u", 3)), chosen))
        if self.waits:
            choices += [lambda: self._shared("u", "s", depth)] * 3
            if self.modes["acc"] == "read":
                choices.append(lambda: element("u", "acc", COUNTERS, index))
        return self.random.choice(choices)()

    def _shared(self, kind: str, array: str, depth: int) -> Expression:
        index = name("u", self.slot) if self.modes[array] == "own" else self.expression("u", depth + 1)
        return element(kind, array, self.shape.threads, index)

    def uniform(self, depth: int = 0) -> Expression:
        """An expression that is equal for all threads of a block."""
        pick = self.random.random()
        if depth > 1 or pick < 0.4:
            return name("u", self.random.choice(self.uniform_words))
        if pick < 0.55:
            return constant("u", self.random.randint(0, 6))
        if pick < 0.65:
            return element("u", "in", 256, self.uniform(depth + 1))
        if pick < 0.75 and self.waits and self.modes["acc"] == "read":
            return element("u", "acc", COUNTERS, self.uniform(depth + 1))
        return apply(self.random.choice(["+", "*", "^", "&", ">>"]), self.uniform(depth + 1), self.uniform(depth + 1))

    def condition(self, uniform: bool = False) -> Expression:
        if uniform:
            return apply(self.random.choice(["<", "=="]), self.uniform(), self.uniform())
        return self.expression("c", 1)

    # -- statements --

    def statements(self, context: Context, count: int | None = None) -> Body:
        found: Body = []
        for _ in range(count or self.random.choice([1, 1, 2, 2, 3])):
            exchange = context.waits and context.who == "block" and self.random.random() < 0.3
            found += self._exchange() if exchange else [self.statement(context)]
        return found

    def statement(self, context: Context) -> Statement:
        kinds: list[Callable[[Context], Statement]] = [*[self._assign] * 3, *[self._store] * 2, self._atomic]
        if context.waits and context.who == "block":
            kinds += [*[self._barrier] * 6, *[self._count] * 2, self._uniform_assign]
        if context.waits and context.who != "none":
            kinds += [*[self._shuffle] * 3, *[self._vote, self._reduce, self._match] * 2, self._syncwarp]
        if context.depth < 3:
            kinds += [self._if, self._switch, self._loop, self._stride] * (2 if context.depth < 1 else 1)
            if context.waits and context.who != "none":
                kinds += [self._split, self._warp_loop] * 2
            if context.waits and context.who == "block":
                kinds += [self._meet] * 2
            if context.who == "block" and context.depth == 0:
                kinds += [self._outlined]
        if context.can_return and self.random.random() < 0.25:
            kinds += [self._return]
        if self._may_jump(context):
            kinds += [self._jump] * 2
        return self.random.choice(kinds)(context)

    def _assign(self, context: Context) -> Statement:
        target = self.random.choice([n for n in VARIABLES if n != "w"])
        return Assign(target, self.expression(VARIABLES[target]))

    def _uniform_assign(self, context: Context) -> Statement:
        return Assign("w", self.uniform())

    def _store(self, context: Context) -> Statement:
        array = self.random.choice(["a", "mine", "p.c", "g"])
        own = [n for n in ("s", "dyn") if self.waits and self.modes[n] == "own"]
        if own and self.random.random() < 0.6:
            array = self.random.choice(own)
            kind = "u" if array == "s" else "l"
            return Store(array, self.shape.threads, name("u", self.slot), self.expression(kind))
        kind, size = PRIVATE[array]
        return Store(array, size, self.expression("u", 1), self.expression(kind))

    def _atomic(self, context: Context) -> Statement:
        if self.waits and self.modes["acc"] == "add" and self.random.random() < 0.6:
            return Atomic("add", "acc", 0, COUNTERS, self.expression("u", 1), self.expression("u", 1))
        if self.random.random() < 0.15:
            return Ticket()
        kind = self.random.choice(list(ATOMICS))
        size = 8 if kind not in ("or", "and") else 4
        return Atomic(kind, "total", _CELLS[kind], size, self.expression("u", 1), self.expression("u", 1))

    # -- waiting --

    def _barrier(self, context: Context) -> Statement:
        self._change_modes()
        return Barrier()

    def _exchange(self) -> Body:
        """Write the own element, wait, and read any other."""
        array, target, kind = self.random.choice([("s", "v0", "u"), ("s", "v1", "u"), ("dyn", "l0", "l")])
        body: Body = []
        if self.modes[array] == "read":
            self.modes[array] = "own"
            body.append(Barrier())
        size = self.shape.threads
        body += [Store(array, size, name("u", self.slot), self.expression(kind)), Barrier()]
        self.modes[array] = "read"
        read = element(kind, array, size, self.expression("u", 1))
        return [*body, Assign(target, apply("+" if kind == "u" else "l+", name(kind, target), read))]

    def _change_modes(self) -> None:
        for array, modes in (("s", ("own", "read")), ("dyn", ("own", "read")), ("acc", ("add", "read"))):
            if self.random.random() < 0.7:
                self.modes[array] = self.random.choice(modes)

    def _count(self, context: Context) -> Statement:
        target = self.random.choice(["w", *(n for n, kind in VARIABLES.items() if kind == "u")])
        counted = Count(self.random.choice(["count", "and", "or"]), target, self.condition())
        self._change_modes()
        return counted

    def _syncwarp(self, context: Context) -> Statement:
        return SyncWarp()

    def _word(self) -> str:
        return self.random.choice([n for n, kind in VARIABLES.items() if kind == "u" and n != "w"])

    def _shuffle(self, context: Context) -> Statement:
        kind = self.random.choice("uuifdl")
        target = self.random.choice([n for n, k in VARIABLES.items() if k == kind and n != "w"])
        how, width = self.random.choice(["idx", "up", "down", "xor"]), self.random.choice([32, 32, 32, 16, 8])
        return Shuffle(how, target, self.expression(kind), self.expression("u", 1), width, self._number())

    def _vote(self, context: Context) -> Statement:
        return Vote(self.random.choice(["ballot", "any", "all"]), self._word(), self.condition())

    def _reduce(self, context: Context) -> Statement:
        return Reduce(self.random.choice(list(REDUCTIONS)), self._word(), self.expression())

    def _match(self, context: Context) -> Statement:
        return Match(self.random.choice(["any", "all"]), self._word(), self.expression(), self._number())

    # -- control flow --

    def _inner(self, context: Context, who: str) -> Context:
        return replace(context, who=who, depth=context.depth + 1)

    def _agreed(self, context: Context) -> bool:
        """Whether what follows shall run where the whole block agrees."""
        return context.waits and context.who == "block" and self.random.random() < 0.5

    @contextmanager
    def _same_modes(self, body: Body) -> Iterator[None]:
        """Whatever happens in ``body``, the modes behind it are those before it."""
        before = dict(self.modes)
        yield
        if self.modes != before:
            self.modes = before
            body.append(Barrier())

    def _body(self, context: Context) -> Body:
        body: Body = []
        with self._same_modes(body):
            body += self.statements(context)
        return body

    def _if(self, context: Context) -> Statement:
        agreed = self._agreed(context)
        inner = self._inner(context, "block" if agreed else "none")
        no = self._body(inner) if self.random.random() < 0.6 else []
        return If(self.condition(agreed), self._body(inner), no)

    def _switch(self, context: Context) -> Statement:
        agreed = self._agreed(context)
        inner = replace(self._inner(context, "block" if agreed else "none"), can_break=False)
        value = self.uniform() if agreed else self.expression("u", 1)
        count = self.random.randint(2, 4)
        return Switch(value, [(self._body(inner), self.random.random() < 0.3) for _ in range(count)])

    def _split(self, context: Context) -> Statement:
        inner = replace(self._inner(context, "warp"), can_break=False, loop="warp")
        no = self._body(inner) if self.random.random() < 0.7 else []
        return Split(self.condition(), self._body(inner), no, self._number())

    def _meet(self, context: Context) -> Statement:
        inner = self._inner(context, "none")
        warp = apply(">>", name("u", "t"), constant("u", 5))
        condition = apply("odd", apply("+", warp, self.uniform()))
        before = dict(self.modes)
        phases = []
        for k in range(self.random.randint(2, 3)):
            if k:
                self._change_modes()
            phases.append((self.statements(inner), self.statements(inner)))
        if self.modes != before:
            self.modes = before
            phases.append(([], []))
        return Meet(condition, phases)

    def _loop(self, context: Context) -> Statement:
        agreed = self._agreed(context)
        limit = self.uniform() if agreed else self.expression("u", 1)
        modes = tuple(sorted(self.modes.items()))
        inner = replace(
            self._inner(context, "block" if agreed else "none"),
            loop="block" if agreed else "none",
            loop_modes=modes,
            can_break=True,
        )
        counter = f"k{self._number()}"
        with self._readable(counter, agreed):
            body = self._body(inner)
        return Loop(counter, limit, self.random.randint(2, 5), body, self.random.choice(["for", "for", "do"]))

    def _stride(self, context: Context) -> Statement:
        limit = self.uniform() if self.random.random() < 0.5 else self.expression("u", 1)
        jumps = self.random.random() < 0.3
        loop, can_return = "none" if jumps else "warp", jumps and context.can_return
        inner = replace(self._inner(context, "none"), loop=loop, can_break=jumps, can_return=can_return)
        counter = f"k{self._number()}"
        with self._readable(counter, False):
            body = self._body(inner)
        stride = self.random.choice([0, 0, 64])
        return Stride(counter, limit, self.random.randint(2, 4), stride or self.shape.block[0], stride > 0, body)

    def _warp_loop(self, context: Context) -> Statement:
        limit = self.expression("u", 1)
        counter = f"k{self._number()}"
        inner = replace(self._inner(context, "warp"), loop="warp", can_break=False)
        with self._readable(counter, False):
            body = self._body(inner)
        return Loop(counter, limit, self.random.randint(2, 4), body, "warp")

    @contextmanager
    def _readable(self, counter: str, uniform: bool) -> Iterator[None]:
        words, uniform_words = self.words, self.uniform_words
        self.words = [*words, counter]
        self.uniform_words = [*uniform_words, *([counter] if uniform else [])]
        yield
        self.words, self.uniform_words = words, uniform_words

    def _may_jump(self, context: Context) -> bool:
        if context.loop == "block":
            return context.who == "block" and dict(context.loop_modes) == self.modes
        return context.loop == "none"

    def _jump(self, context: Context) -> Statement:
        kind = "break" if context.can_break and self.random.random() < 0.6 else "continue"
        return Jump(kind, self.condition(context.loop == "block"))

    def _return(self, context: Context) -> Statement:
        return Jump("return", self.condition())

    def _outlined(self, context: Context) -> Statement:
        inner = replace(self._inner(context, "block"), can_return=False)
        words, uniform_words = self.words, self.uniform_words
        self.words = [n for n, kind in VARIABLES.items() if kind == "u"]
        self.uniform_words = ["b", "n", "w"]
        body = self._body(inner)
        self.words, self.uniform_words = words, uniform_words
        outlined = Outlined(f"part{self._number()}", body, [], self.random.random() < 0.5)
        self.outlined.append(outlined)
        return outlined
