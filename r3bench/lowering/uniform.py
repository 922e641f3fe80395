"""Kernels whose threads wait only at barriers that all of them reach: what all threads share, and where to cut more.

A value is uniform if it is the same for all threads of a block; a branch on one takes all threads the same way. In a
kernel whose barriers lie under uniform branches only, the whole block goes from barrier to barrier together. Then a
uniform value is kept once for the block, and a uniform branch between barriers is taken once, between two loops over
the threads: it gets a suspend point of its own on either side (``@r3.part``). A thread's own loop with a stride of the
size of the block or more reads memory in an order that no cache likes: there each step becomes a loop over the threads
(``@r3.step`` in front of each pass, ``@r3.meet`` behind the loop).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from r3bench.lowering import nvvm
from r3bench.lowering.ir import (
    LOCAL,
    Block,
    Function,
    call_arguments,
    callee,
    incoming,
    operand,
    phi_type,
    result_and_opcode,
    successors,
)
from r3bench.lowering.nvvm import MEET, PART, STEP
from r3bench.lowering.values import is_pure

_ENDS = {"@llvm.trap", "@llvm.ubsantrap", "@__assertfail", "@llvm.nvvm.exit"}
_SAME = {"udiv", "sdiv", "urem", "srem", "fdiv", "frem", "fptosi", "fptoui"}
_SHARED_BY_ALL = {"@r3.shared", "@r3.threads", "@r3.shared.dynamic", "@r3.shared.static"}
_BRANCH = re.compile(r"br i1 (\S+), label %(\S+), label %([^\s,]+)")
_LEAST_STRIDE = 32
_MOST_BLOCKS = 300


def make_uniform(kernel: Function) -> set[str] | None:
    """The uniform values of a kernel, which is cut at more points in place; None where its threads may part."""
    if len(kernel.blocks) > _MOST_BLOCKS:
        return None
    if any(("call " in line and callee(line) in _ENDS) or line == "unreachable" for line in kernel.lines()):
        return None
    flow = _Flow(kernel)
    if not flow.ends or not all(_is_plain(line) for line in kernel.lines()):
        return None
    if any(block.label in flow.parted for block in kernel.blocks if _waits(block)):
        return None
    _split_parts(kernel, flow)
    _split_strides(kernel, flow)
    return flow.uniform


def _is_plain(line: str) -> bool:
    """Whether the line waits for nobody, or at a barrier for the whole block without a result."""
    name = callee(line) if "call " in line else None
    if name not in nvvm.SUSPENDS:
        return True
    plain = name in nvvm.BARRIERS and ".sync" in name and name.endswith(".all")
    return plain and operand(call_arguments(line)[0]) == "0"


def _waits(block: Block) -> bool:
    return any("call " in line and callee(line) in nvvm.SUSPENDS for line in block.lines)


@dataclass(slots=True)
class _Flow:
    """Uniform values, and blocks to which not all threads come (``parted``). ``ends``: every block leads to an end."""

    kernel: Function
    next: dict[str, list[str]] = field(init=False)
    after: dict[str, set[str]] = field(init=False)
    ends: bool = field(init=False)
    divergent: set[str] = field(default_factory=set)
    parted: set[str] = field(default_factory=set)
    joins: set[str] = field(default_factory=set)
    uniform: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.next = {block.label: successors(block.lines[-1]) for block in self.kernel.blocks}
        self.after = self._postdominators()
        self.ends = self._all_end()
        before = -1
        while before != len(self.divergent) + len(self.parted) + len(self.joins):
            before = len(self.divergent) + len(self.parted) + len(self.joins)
            self._pass()
        named = {name for line in self.kernel.lines() if (name := result_and_opcode(line)[0])}
        self.uniform = named - self.divergent

    def _postdominators(self) -> dict[str, set[str]]:
        """For each block, the blocks through which every way from it to the end leads, itself among them."""
        everything = set(self.next)
        found = {label: set(everything) for label in self.next}
        changed = True
        while changed:
            changed = False
            for label in reversed(self.next):
                following = [found[other] for other in self.next[label]]
                new = {label} | (set.intersection(*following) if following else set())
                if new != found[label]:
                    found[label], changed = new, True
        return found

    def _all_end(self) -> bool:
        reach = {label for label, following in self.next.items() if not following}
        while new := {label for label, following in self.next.items() if reach & set(following)} - reach:
            reach |= new
        return len(reach) == len(self.next)

    def _pass(self) -> None:
        for block in self.kernel.blocks:
            for line in block.lines:
                name, opcode = result_and_opcode(line)
                if name and name not in self.divergent and self._differs(line, opcode, block.label):
                    self.divergent.add(name)
            last = block.lines[-1]
            if len(self.next[block.label]) > 1 and self.divergent & set(LOCAL.findall(last.split("label")[0])):
                self._part(block.label)

    def _differs(self, line: str, opcode: str, label: str) -> bool:
        text = line.split(" = ", 1)[1]
        if opcode == "phi":
            return label in self.parted or label in self.joins or any(v in self.divergent for v, _ in incoming(line))
        if opcode == "call" and not is_pure(line):
            name = callee(line)
            return not (name in _SHARED_BY_ALL or (name in nvvm.INDICES and ".tid." not in str(name)))
        if opcode not in _SAME and not is_pure(line):
            return True
        return any(use in self.divergent for use in LOCAL.findall(text))

    def _part(self, label: str) -> None:
        """Threads part behind ``label`` and meet at the first block that all ways lead through."""
        waiting = list(self.next[label])
        seen: set[str] = set()
        while waiting:
            block = waiting.pop()
            if block in seen:
                continue
            seen.add(block)
            if block in self.after[label] and block != label:
                self.joins.add(block)
            else:
                self.parted.add(block)
                waiting += self.next[block]


# -- uniform branches -----------------------------------------------------------------------------------------------


def _split_parts(kernel: Function, flow: _Flow) -> None:
    """Cut both edges of each uniform branch that decides where the block waits next."""
    by_label = {block.label: block for block in kernel.blocks}
    reach = _next_waits(kernel, flow)
    for block in list(kernel.blocks):
        match = _BRANCH.match(block.lines[-1])
        if match is None or block.label in flow.parted or match[1] in flow.divergent:
            continue
        if match[2] != match[3] and reach[match[2]] != reach[match[3]]:
            for label in (match[2], match[3]):
                edge = Block(f"{block.label}.r3to.{label}", [f"call void {PART}()", f"br label %{label}"])
                kernel.blocks.append(edge)
                _replace_label(block, label, edge.label)
                _replace_source(by_label[label], block.label, edge.label)


def _next_waits(kernel: Function, flow: _Flow) -> dict[str, frozenset[str]]:
    """For each block, those with a barrier (or the end) that threads come to next, itself if it has one."""
    waits = {block.label for block in kernel.blocks if _waits(block)}
    found = {label: frozenset([label] if label in waits else [] if flow.next[label] else [""]) for label in flow.next}
    changed = True
    while changed:
        changed = False
        for label in reversed(flow.next):
            if label not in waits and flow.next[label]:
                new = frozenset().union(*(found[other] for other in flow.next[label]))
                changed |= new != found[label]
                found[label] = new
    return found


def _replace_label(block: Block, old: str, new: str) -> None:
    block.lines[-1] = re.sub(rf"label %{re.escape(old)}(?![-\w$.])", f"label %{new}", block.lines[-1])


def _replace_source(block: Block, old: str, new: str) -> None:
    pattern = re.compile(rf", %{re.escape(old)} \]")
    block.lines = [pattern.sub(f", %{new} ]", line) if " = phi " in line else line for line in block.lines]


# -- strides --------------------------------------------------------------------------------------------------------


def _split_strides(kernel: Function, flow: _Flow) -> None:
    by_label = {block.label: block for block in kernel.blocks}
    lines = {name: line for line in kernel.lines() if (name := result_and_opcode(line)[0])}
    entry = kernel.blocks[0]
    for loop in list(kernel.blocks):
        match = _BRANCH.match(loop.lines[-1])
        if match is None or loop is entry or loop.label not in match.groups()[1:] or match[1] not in flow.divergent:
            continue
        behind = by_label[match[2] if match[3] == loop.label else match[3]]
        if behind.label in flow.parted or behind is loop or _waits(loop) or not _strides(loop, lines, flow):
            continue
        before = [block for block in kernel.blocks if loop.label in successors(block.lines[-1]) and block is not loop]
        sources = {label for block in (loop, behind) for _, label in _phi_sources(block)}
        if len(before) == 1 and sources <= {loop.label, before[0].label}:
            _demote(entry, before[0], loop, (loop, behind))
            _insert(loop, f"call void {STEP}()")
            _insert(behind, f"call void {MEET}()")


def _phi_sources(block: Block) -> Iterator[tuple[str, str]]:
    for line in block.lines:
        if " = phi " in line:
            yield from incoming(line)


def _strides(loop: Block, lines: dict[str, str], flow: _Flow) -> bool:
    """Whether a value grows by a uniform amount of at least a warp, or one that depends on the launch."""
    for line in loop.lines:
        if " = phi " in line:
            name = result_and_opcode(line)[0]
            step = next((value for value, label in incoming(line) if label == loop.label), "")
            match = re.search(r" = add (?:nuw |nsw )*i(?:32|64) (\S+), (\S+)$", lines.get(step, ""))
            if match and name in match.groups():
                other = match[2] if match[1] == name else match[1]
                if other.lstrip("-").isdigit():
                    return abs(int(other)) >= _LEAST_STRIDE
                return other not in flow.divergent and _of_launch(other, lines)
    return False


def _of_launch(name: str, lines: dict[str, str]) -> bool:
    line = lines.get(name)
    if line is None:
        return False
    return ".ntid." in line or any(
        _of_launch(use, lines) for use in LOCAL.findall(line.split(" = ", 1)[1]) if is_pure(line)
    )


def _demote(entry: Block, before: Block, loop: Block, blocks: Iterable[Block]) -> None:
    """Phis of the loop and behind it go through memory of the thread: stored without a condition on either side."""
    for block in blocks:
        kept: list[str] = []
        loads: list[str] = []
        for line in block.lines:
            if " = phi " not in line:
                kept.append(line)
                continue
            name, kind = result_and_opcode(line)[0], phi_type(line)
            memory = "i8" if kind == "i1" else kind
            entry.lines.insert(0, f"{name}.r3var = alloca {memory}")
            for value, label in incoming(line):
                _store(loop if label == loop.label else before, name or "", kind, value)
            loads += _loaded(name or "", kind)
        block.lines = loads + kept


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


def _insert(block: Block, line: str) -> None:
    """In front of everything: phis are gone."""
    block.lines.insert(0, line)
