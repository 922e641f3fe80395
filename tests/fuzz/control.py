"""Statements that contain statements, jumps, and device functions of random programs."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.expressions import Array, Expression
from tests.fuzz.machine import Machine, Mask
from tests.fuzz.statements import Body, Statement, Text


@dataclass
class If(Statement):
    """Nothing inside waits, or all threads of the block agree."""

    condition: Expression
    yes: Body
    no: Body

    def write(self, text: Text, mask: str) -> None:
        text.block(f"if ({self.condition.text()}) {{", self.yes, mask, "} else {" if self.no else "}")
        if self.no:
            text.lines.pop()
            text.block("} else {", self.no, mask)

    def run(self, machine: Machine, mask: Mask) -> None:
        chosen = machine.value(self.condition)
        machine.run(self.yes, mask & chosen)
        machine.run(self.no, mask & ~chosen)

    def bodies(self) -> list[Body]:
        return [self.yes, self.no]


@dataclass
class Split(Statement):
    """Lanes part, and each side knows who came along."""

    condition: Expression
    yes: Body
    no: Body
    number: int

    def write(self, text: Text, mask: str) -> None:
        k = self.number
        text.put(f"bool c{k} = {self.condition.text()};")
        text.put(f"unsigned y{k} = __ballot_sync({mask}, c{k}), n{k} = __ballot_sync({mask}, !c{k});")
        text.block(f"if (c{k}) {{", self.yes, f"y{k}")
        if self.no:
            text.block(f"if (!c{k}) {{" if k % 2 else "else {", self.no, f"n{k}")

    def run(self, machine: Machine, mask: Mask) -> None:
        chosen = machine.value(self.condition)
        machine.run(self.yes, mask & chosen)
        machine.run(self.no, mask & ~chosen)

    def bodies(self) -> list[Body]:
        return [self.yes, self.no]


@dataclass
class Meet(Statement):
    """Warps part, and meet at different barriers: one between each two phases, on either side."""

    condition: Expression
    phases: list[tuple[Body, Body]]

    def write(self, text: Text, mask: str) -> None:
        for side, head in ((0, f"if ({self.condition.text()}) {{"), (1, "else {")):
            text.put(head)
            text.depth += 1
            for k, phase in enumerate(self.phases):
                if k:
                    text.put("__syncthreads();")
                for statement in phase[side]:
                    statement.write(text, mask)
            text.depth -= 1
            text.put("}")

    def run(self, machine: Machine, mask: Mask) -> None:
        chosen = machine.value(self.condition).copy()
        if machine.parts_warps(chosen, mask):
            raise AssertionError("a divergent barrier: CUDA leaves open what becomes of such a warp")
        for yes, no in self.phases:
            machine.run(yes, mask & chosen)
            machine.run(no, mask & ~chosen)

    def bodies(self) -> list[Body]:
        return [body for phase in self.phases for body in phase]


@dataclass
class Switch(Statement):
    """``cases`` are (body, whether it falls through to the next); the last is the default."""

    value: Expression
    cases: list[tuple[Body, bool]]

    def write(self, text: Text, mask: str) -> None:
        text.put(f"switch ({self.value.text()} % {len(self.cases)}u) {{")
        for k, (body, falls) in enumerate(self.cases):
            head = f"case {k}: {{" if k + 1 < len(self.cases) else "default: {"
            text.block(head, body, mask, "}" if falls else "} break;")
        text.put("}")

    def run(self, machine: Machine, mask: Mask) -> None:
        chosen = machine.value(self.value) % np.uint32(len(self.cases))
        inside = np.zeros_like(mask)
        for k, (body, falls) in enumerate(self.cases):
            inside = inside | (mask & (chosen == k))
            machine.run(body, inside)
            if not falls:
                inside = np.zeros_like(mask)

    def bodies(self) -> list[Body]:
        return [body for body, _ in self.cases]


@dataclass
class Loop(Statement):
    """``counter`` runs up to a small number that is fixed before. ``warp``: who goes on is known in each round."""

    counter: str
    limit: Expression
    most: int
    body: Body
    form: str = "for"

    def write(self, text: Text, mask: str) -> None:
        k, limit = self.counter, f"{self.limit.text()} % {self.most}u"
        if self.form == "for":
            text.block(f"for (unsigned {k} = 0, end_{k} = {limit}; {k} < end_{k}; ++{k}) {{", self.body, mask)
        elif self.form == "do":
            text.put(f"unsigned {k} = 0, end_{k} = {limit};")
            text.block("do {", self.body, mask, f"}} while (++{k} < end_{k});")
        else:
            text.put(f"unsigned end_{k} = {limit}, m_{k} = __ballot_sync({mask}, 0 < end_{k});")
            text.block(f"for (unsigned {k} = 0; {k} < end_{k};) {{", self.body, f"m_{k}")
            text.lines[-1:] = [f"  ++{k}; m_{k} = __ballot_sync(m_{k}, {k} < end_{k});", text.lines[-1]]

    def run(self, machine: Machine, mask: Mask) -> None:
        outer, broke = machine.jumped, machine.broke
        end = machine.value(self.limit) % np.uint32(self.most)
        machine.broke = np.zeros_like(mask)
        for k in range(self.most):
            goes_on = mask & ~machine.left & ~machine.broke
            if k or self.form != "do":
                goes_on &= end > k
            machine.variables[self.counter] = np.full(machine.count, k, np.uint32)
            machine.jumped = outer | machine.left | machine.broke
            machine.run(self.body, goes_on)
        machine.jumped, machine.broke = outer | machine.left, broke

    def bodies(self) -> list[Body]:
        return [self.body]


@dataclass
class Stride(Statement):
    """Threads take turns at the elements up to a limit, each ``stride`` apart: ``blockDim.x``, or a constant."""

    counter: str
    limit: Expression
    most: int
    stride: int
    constant: bool
    body: Body

    def write(self, text: Text, mask: str) -> None:
        k, limit = self.counter, f"{self.limit.text()} % {self.most * self.stride + 1}u"
        step = f"{self.stride}u" if self.constant else "blockDim.x"
        text.block(f"for (unsigned {k} = t, end_{k} = {limit}; {k} < end_{k}; {k} += {step}) {{", self.body, mask)

    def run(self, machine: Machine, mask: Mask) -> None:
        outer, broke = machine.jumped, machine.broke
        end = machine.value(self.limit) % np.uint32(self.most * self.stride + 1)
        machine.broke = np.zeros_like(mask)
        for k in range(self.most):
            element = (machine.in_block + k * self.stride).astype(np.uint32)
            machine.variables[self.counter] = element
            machine.jumped = outer | machine.left | machine.broke
            machine.run(self.body, mask & ~machine.left & ~machine.broke & (element < end))
        machine.jumped, machine.broke = outer | machine.left, broke

    def bodies(self) -> list[Body]:
        return [self.body]


@dataclass
class Jump(Statement):
    """``break``, ``continue`` or ``return`` for the threads for which the condition holds."""

    kind: str
    condition: Expression

    def write(self, text: Text, mask: str) -> None:
        text.put(f"if ({self.condition.text()}) {self.kind};")

    def run(self, machine: Machine, mask: Mask) -> None:
        gone = mask & machine.value(self.condition)
        machine.jumped = machine.jumped | gone
        if self.kind == "break":
            machine.broke = machine.broke | gone
        if self.kind == "return":
            machine.left = machine.left | gone


@dataclass
class Outlined(Statement):
    """Statements in a device function of their own, which gets the thread's variables by reference."""

    name: str
    body: Body
    parameters: list[tuple[str, str]]
    inlined: bool

    def write(self, text: Text, mask: str) -> None:
        text.put(f"{self.name}({', '.join(name for _, name in self.parameters)});")

    def definition(self) -> str:
        text = Text()
        for statement in self.body:
            statement.write(text, "~0u")
        head = f"__device__ {'inline' if self.inlined else '__noinline__'} void {self.name}"
        parameters = ", ".join(f"{kind} {name}" for kind, name in self.parameters)
        return "\n".join([f"{head}({parameters}) {{", *text.lines, "}"])

    def run(self, machine: Machine, mask: Mask) -> None:
        machine.run(self.body, mask)

    def bodies(self) -> list[Body]:
        return [self.body]


@dataclass
class Function:
    """A device function of two words, with a loop that returns early."""

    name: str
    condition: Expression
    step: Expression
    result: Expression
    names: list[str] = field(default_factory=lambda: ["x", "y", "k"])

    def definition(self) -> str:
        return (
            f"__device__ unsigned {self.name}(unsigned x, unsigned y) {{\n"
            f"  for (unsigned k = 0; k < (y & 3u); ++k) {{\n    if ({self.condition.text()}) return x ^ k;\n"
            f"    x = {self.step.text()};\n  }}\n  unsigned k = 7;\n  return {self.result.text()};\n}}"
        )

    def value(self, machine: Machine, x: Array, y: Array) -> Array:
        x, y = (np.broadcast_to(v, (machine.count,)).astype(np.uint32) for v in (x, y))
        held = {name: machine.variables.get(name) for name in self.names}
        answer, done = np.zeros_like(x), np.zeros(machine.count, np.bool_)
        for k in range(3):
            machine.variables.update(x=x, y=y, k=np.full_like(x, k))
            there = ~done & ((y & np.uint32(3)) > k)
            returns = there & machine.value(self.condition)
            answer, done = np.where(returns, x ^ np.uint32(k), answer), done | returns
            x = np.where(there & ~returns, machine.value(self.step), x)
        machine.variables.update(x=x, y=y, k=np.full_like(x, 7))
        answer = np.where(done, answer, machine.value(self.result)).astype(np.uint32)
        machine.variables.update({name: value for name, value in held.items() if value is not None})
        return answer
