"""Loops of a thread in which neighbours read memory side by side, cut so that the loop over threads is innermost.

One thread after the other would read memory in an order that no cache likes, one value at a time: in loops that stride
by the size of the block or more, and in loops that all threads leave together. So such a loop is cut in front of each
pass (``@r3.step``) and behind it (``@r3.meet``): each pass becomes a loop over the threads. Nobody waits there, and
where threads part, or are to run one by one, each goes through on its own. The choice of loops is for speed only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations

from r3bench.lowering import nvvm
from r3bench.lowering.few import cut_behind_few
from r3bench.lowering.ir import (
    LOCAL,
    Block,
    Function,
    callee,
    incoming,
    phi_type,
    result_and_opcode,
    successors,
)
from r3bench.lowering.values import is_pure

_BRANCH = re.compile(r"br i1 (\S+), label %(\S+), label %([^\s,]+)")
_LEAST_STRIDE = 32
_MOST_BLOCKS = 300
_MOST_IN_LOOP = 8


@dataclass(frozen=True, slots=True)
class _Loop:
    """A loop that is left behind its last block only; ``inside`` are the values defined in it."""

    before: Block
    header: Block
    latch: Block
    behind: Block
    body: tuple[Block, ...]
    inside: frozenset[str | None]


def cut_strides(kernel: Function) -> None:
    """Cut, in place, the loops for which it pays."""
    if len(kernel.blocks) > _MOST_BLOCKS:
        return
    lines = {name: line for line in kernel.lines() if (name := result_and_opcode(line)[0])}
    parted = _parted(kernel, lines)
    cut_behind_few(kernel, parted)
    found = [loop for loop in _loops(kernel) if _strides(loop, lines) or _walks_together(loop, lines)]
    for loop in found:
        if loop.behind.label not in parted:
            _cut(kernel, loop, lines)


# -- which loops ------------------------------------------------------------------------------------------------------


def _loops(kernel: Function) -> Iterator[_Loop]:
    by_label = {block.label: block for block in kernel.blocks}
    sources: dict[str, list[Block]] = {label: [] for label in by_label}
    for block in kernel.blocks:
        for label in dict.fromkeys(successors(block.lines[-1])):
            sources[label].append(block)
    for latch in kernel.blocks:
        match = _BRANCH.match(latch.lines[-1])
        for head, out in permutations(match.groups()[1:]) if match else ():
            header, behind = by_label[head], by_label[out]
            before = [block for block in sources[header.label] if block is not latch]
            if len(before) != 1 or header is kernel.blocks[0] or behind is header:
                continue
            body = _body(header, latch, sources)
            if body and _is_closed(body, latch):
                inside = frozenset(result_and_opcode(line)[0] for block in body.values() for line in block.lines)
                yield _Loop(before[0], header, latch, behind, tuple(body.values()), inside)


def _body(header: Block, latch: Block, sources: Mapping[str, list[Block]]) -> dict[str, Block]:
    """The blocks from which ``latch`` is reached without passing ``header``; nothing if they are too many."""
    found = {header.label: header, latch.label: latch}
    waiting = [latch] if latch is not header else []
    while waiting:
        for block in sources[waiting.pop().label]:
            if block.label not in found:
                found[block.label] = block
                waiting.append(block)
        if len(found) > _MOST_IN_LOOP:
            return {}
    return found


def _is_closed(body: Mapping[str, Block], latch: Block) -> bool:
    """Whether the loop is left from its last block only, holds no other loop, and nobody waits in it."""
    order = list(body)
    for block in body.values():
        if block is not latch and not all(label in order for label in successors(block.lines[-1])):
            return False
        if any("call " in line and callee(line) in nvvm.OPERATIONS for line in block.lines):
            return False
    return not _is_cyclic(body, latch)


def _is_cyclic(body: Mapping[str, Block], latch: Block) -> bool:
    left = {label: set(successors(b.lines[-1])) & body.keys() if b is not latch else set() for label, b in body.items()}
    while ends := {label for label, behind in left.items() if not behind}:
        left = {label: behind - ends for label, behind in left.items() if label not in ends}
    return bool(left)


def _strides(loop: _Loop, lines: Mapping[str, str]) -> bool:
    """Whether a value grows by an amount that depends on the launch, or by at least a warp."""
    for line in loop.header.lines:
        amount = _growth(line, loop, lines) if " = phi " in line else None
        if amount is not None:
            return abs(int(amount)) >= _LEAST_STRIDE if amount.lstrip("-").isdigit() else _of_launch(amount, lines)
    return False


def _walks_together(loop: _Loop, lines: Mapping[str, str]) -> bool:
    """Whether all threads make equally many passes, not a fixed number, and in each neighbours read side by side."""
    branch = loop.latch.lines[-1]
    leading = _leading_to(LOCAL.findall(branch.split("label")[0]), lines)
    if leading <= loop.inside or not _is_uniform(branch, lines):
        return False
    counted = {result_and_opcode(line)[0] for line in loop.header.lines if " = phi " in line}
    side = _SideBySide(loop, lines)
    for block in loop.body:
        for line in block.lines:
            if result_and_opcode(line)[1] == "load":
                address = LOCAL.findall(line.split(" = ", 1)[1])[0]
                if side.apart(address) == 1 and counted & _leading_to([address], lines):
                    return True
    return False


def _leading_to(names: list[str], lines: Mapping[str, str]) -> set[str]:
    """Values from which these are computed, themselves among them."""
    waiting, seen = list(names), set(names)
    while waiting:
        line = lines.get(waiting.pop(), "")
        uses = [value for value, _ in incoming(line)] if " = phi " in line else LOCAL.findall(line.partition(" = ")[2])
        waiting += [use for use in uses if use not in seen]
        seen.update(uses)
    return {name for name in seen if name.startswith("%")}


@dataclass(slots=True)
class _SideBySide:
    """How far apart a value is for neighbours on axis x."""

    loop: _Loop
    lines: Mapping[str, str]
    known: dict[str, int | None] = field(default_factory=dict)

    def apart(self, name: str) -> int | None:
        """In elements for an address; None where that cannot be told."""
        if name not in self.lines:
            return 0
        if name not in self.known:
            self.known[name] = None
            self.known[name] = self._found(self.lines[name])
        return self.known[name]

    def _found(self, line: str) -> int | None:
        opcode = result_and_opcode(line)[1]
        if opcode == "phi":
            amount = _growth(line, self.loop, self.lines)
            start = next((value for value, label in incoming(line) if label == self.loop.before.label), None)
            return self.apart(start) if start and amount and self.apart(amount) == 0 else None
        if opcode == "call" and ".tid.x(" in line:
            return 1
        if _names_block(line) or (opcode == "call" and ".tid." in line):
            return 0
        parts = [self.apart(use) for use in LOCAL.findall(line.split(" = ", 1)[1])]
        if not is_pure(line) or None in parts:
            return None
        whole = sum(part for part in parts if part)
        if opcode == "sub" and parts:
            return None if whole else 0
        return whole if not whole or opcode in ("add", "or", "sext", "zext", "getelementptr") else None


def _of_launch(name: str, lines: Mapping[str, str]) -> bool:
    """Whether a value is made of the size of block or grid."""
    line = lines.get(name, "")
    if ".ntid." in line or "@r3.threads(" in line:
        return True
    return (
        bool(line) and is_pure(line) and any(_of_launch(use, lines) for use in LOCAL.findall(line.split(" = ", 1)[1]))
    )


def _parted(kernel: Function, lines: Mapping[str, str]) -> set[str]:
    """Blocks that some threads of a block may not come to, those that have ended apart."""
    ends = {block.label for block in kernel.blocks if block.lines[-1] == "ret void" and len(block.lines) == 1}
    following: dict[str, list[str]] = {}
    for block in kernel.blocks:
        after = successors(block.lines[-1])
        following[block.label] = [label for label in after if label not in ends] or after
    always = _always_behind(following)
    parted: set[str] = set()
    for block in kernel.blocks:
        if len(set(following[block.label])) > 1 and not _is_uniform(block.lines[-1], lines):
            waiting = list(following[block.label])
            seen: set[str] = set()
            while waiting:
                label = waiting.pop()
                if label not in seen and label not in always[block.label]:
                    seen.add(label)
                    waiting += following[label]
            parted |= seen
    return parted


def _always_behind(following: dict[str, list[str]]) -> dict[str, set[str]]:
    """For each block, those through which every way from it to an end leads, without itself."""
    everything = set(following)
    found = {label: set(everything) for label in following}
    changed = True
    while changed:
        changed = False
        for label in reversed(following):
            behind = [found[other] | {other} for other in following[label]]
            new = set.intersection(*behind) if behind else set()
            if new != found[label]:
                found[label], changed = new, True
    return found


def _is_uniform(branch: str, lines: Mapping[str, str]) -> bool:
    """Whether a branch depends on no thread's index and no memory."""
    waiting = LOCAL.findall(branch.split("label")[0])
    seen = set(waiting)
    while waiting:
        line = lines.get(waiting.pop(), "")
        phi = " = phi " in line
        if line and not phi and not is_pure(line) and not _names_block(line):
            return False
        uses = [value for value, _ in incoming(line)] if phi else LOCAL.findall(line.split(" = ", 1)[1]) if line else []
        waiting += [use for use in uses if use not in seen]
        seen.update(uses)
    return True


def _names_block(line: str) -> bool:
    name = callee(line) if "call " in line else None
    return (name in nvvm.PLACES and name != "@r3.thread") or (name in nvvm.INDICES and ".tid." not in str(name))


# -- cutting ----------------------------------------------------------------------------------------------------------


def _cut(kernel: Function, loop: _Loop, lines: Mapping[str, str]) -> None:
    """The header's phis go through memory of the thread, or are computed from the number of the pass, which all threads
    share; those behind the loop go through memory, stored on either side of the cut."""
    count = f"%{loop.header.label}.r3pass"
    first = [f"{count} = phi i32 [ 0, %{loop.before.label} ], [ {count}.next, %{loop.latch.label} ]"]
    first.append(f"call void {nvvm.STEP}()")
    loop.latch.lines[-1:-1] = [f"{count}.next = add i32 {count}, 1"]
    for line in [line for line in loop.header.lines if " = phi " in line]:
        loop.header.lines.remove(line)
        first += _counted(line, loop, lines, count) or _demoted(kernel, line)
    loop.header.lines[:0] = first
    behind = [line for line in loop.behind.lines if " = phi " in line]
    loads = [load for line in behind for load in _demoted(kernel, line)]
    loop.behind.lines = [f"call void {nvvm.MEET}()", *loads, *loop.behind.lines[len(behind) :]]


def _counted(line: str, loop: _Loop, lines: Mapping[str, str], count: str) -> list[str]:
    """A phi that grows by the same amount in each pass: its first value and so many times that amount."""
    name, kind = result_and_opcode(line)[0] or "", phi_type(line)
    amount = _growth(line, loop, lines)
    if amount is None:
        return []
    _hoist(amount, loop, lines)
    start = next(value for value, label in incoming(line) if label == loop.before.label)
    number = count if kind == "i32" else f"{name}.r3pass"
    wider = [] if kind == "i32" else [f"{number} = zext i32 {count} to i64"]
    grown = f"{name}.r3grown"
    return [*wider, f"{grown} = mul {kind} {number}, {amount}", f"{name} = add {kind} {start}, {grown}"]


def _growth(line: str, loop: _Loop, lines: Mapping[str, str]) -> str | None:
    """What is added to a phi in each pass, if that does not change within the loop."""
    name = result_and_opcode(line)[0]
    step = next((value for value, label in incoming(line) if label == loop.latch.label), "")
    match = re.search(r" = add (?:nuw |nsw )*i(?:32|64) (\S+), (\S+)$", lines.get(step, ""))
    if match is None or name not in match.groups():
        return None
    other = match[2] if match[1] == name else match[1]
    return other if _same_in_each_pass(other, loop, lines) else None


def _same_in_each_pass(name: str, loop: _Loop, lines: Mapping[str, str]) -> bool:
    """Whether a value does not change within the loop, so that it can be computed in front of it."""
    if name not in loop.inside:
        return True
    line = lines[name]
    fixed = is_pure(line) or _names_block(line)
    return fixed and all(_same_in_each_pass(use, loop, lines) for use in LOCAL.findall(line.split(" = ", 1)[1]))


def _hoist(name: str, loop: _Loop, lines: Mapping[str, str]) -> None:
    """Compute such a value in front of the loop."""
    for block in loop.body:
        if name in loop.inside and (line := lines[name]) in block.lines:
            for use in LOCAL.findall(line.split(" = ", 1)[1]):
                _hoist(use, loop, lines)
            block.lines.remove(line)
            loop.before.lines[-1:-1] = [line]


def _demoted(kernel: Function, line: str) -> list[str]:
    """Instructions that load what a phi would give."""
    by_label = {block.label: block for block in kernel.blocks}
    name, kind = result_and_opcode(line)[0] or "", phi_type(line)
    kernel.blocks[0].lines.insert(0, f"{name}.r3var = alloca {'i8' if kind == 'i1' else kind}")
    for value, label in incoming(line):
        _store(by_label[label], name, kind, value)
    return _loaded(name, kind)


def _loaded(name: str, kind: str) -> list[str]:
    if kind == "i1":
        return [f"{name}.r3bit = load i8, ptr {name}.r3var", f"{name} = trunc i8 {name}.r3bit to i1"]
    return [f"{name} = load {kind}, ptr {name}.r3var"]


def _store(block: Block, name: str, kind: str, value: str) -> None:
    new = [f"store {kind} {value}, ptr {name}.r3var"]
    if kind == "i1":
        wide = f"{name}.r3wide.{len(block.lines)}"
        new = [f"{wide} = zext i1 {value} to i8", f"store i8 {wide}, ptr {name}.r3var"]
    block.lines[-1:-1] = new
