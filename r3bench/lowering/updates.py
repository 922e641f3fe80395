"""Atomic updates as plain ones where nobody comes between: of shared memory, since a block runs on one thread of the
CPU, and of other memory where all blocks do, which is asked when the kernel runs.

They stay in the order of the threads: what is written here ends in ``ORDERED``, and no loop over it is vectorized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from r3bench.lowering.ir import Block, Function, callee, result_and_opcode, successors

ORDERED = " ; ordered"
_UPDATE = re.compile(
    r"(%\S+) = atomicrmw (\w+) ptr (%\S+), (i32|i64|float|double) (\S+) monotonic, align (\d+)(?:, !.*)?"
)
_OPERATIONS = {name: name for name in ("add", "sub", "and", "or", "xor", "fadd", "fsub")}
_CHOICES = {"max": "sgt", "min": "slt", "umax": "ugt", "umin": "ult"}


def without_atomics(kernel: Function) -> None:
    """Rewrite, in place, every update whose address is certain to lie in shared memory."""
    if not any(" = atomicrmw " in line for line in kernel.lines()):
        return
    shared = _shared_addresses(kernel)
    for block in kernel.blocks:
        block.lines = [new for line in block.lines for new in _plain_if_shared(line, shared)]


def plain_if_alone(kernel: Function) -> None:
    """Give, in place, every other update a plain form beside it."""
    for block in list(kernel.blocks):
        while (at := next((n for n, line in enumerate(block.lines) if _UPDATE.fullmatch(line)), None)) is not None:
            updated = _either(block, at)
            if updated is None:
                break
            place = kernel.blocks.index(block) + 1
            kernel.blocks[place:place] = updated
            for successor in successors(updated[-1].lines[-1]):
                _come_from(next(b for b in kernel.blocks if b.label == successor), block.label, updated[-1].label)
            block = updated[-1]


def _either(block: Block, at: int) -> list[Block] | None:
    """Ends ``block`` in front of an update; the plain one, the atomic one, and what is behind them."""
    line = block.lines[at]
    old = result_and_opcode(line)[0] or ""
    plain = list(_plain(line.replace(old, f"{old}.r3plain", 1)))
    if not plain:
        return None
    kind = line.split(", ")[1].split(" ")[0]
    one, all_of, behind = (f"{block.label}.{old[1:]}.{name}" for name in ("plain", "atomic", "done"))
    phi = f"{old} = phi {kind} [ {old}.r3plain, %{one} ], [ {old}.r3atomic, %{all_of} ]"
    made = [
        Block(one, [*plain, f"br label %{behind}"]),
        Block(all_of, [line.replace(old, f"{old}.r3atomic", 1), f"br label %{behind}"]),
        Block(behind, [phi, *block.lines[at + 1 :]]),
    ]
    alone = f"{old}.r3alone"
    block.lines[at:] = [
        f"{alone} = call i32 @r3.alone()",
        f"{alone}.is = icmp ne i32 {alone}, 0",
        f"br i1 {alone}.is, label %{one}, label %{all_of}",
    ]
    return made


def _come_from(block: Block, before: str, now: str) -> None:
    """Rename the predecessor that phis of ``block`` name."""
    old = re.compile(rf"%{re.escape(before)}(?= \])")
    block.lines = [old.sub(f"%{now}", line) if " = phi " in line else line for line in block.lines]


def _shared_addresses(kernel: Function) -> set[str]:
    """Values made from the address of shared memory by adding to it."""
    found: set[str] = set()
    steps = []
    for line in kernel.lines():
        name, opcode = result_and_opcode(line)
        if name and opcode == "call" and callee(line) == "@r3.shared":
            found.add(name)
        elif name and opcode in ("getelementptr", "bitcast") and (match := re.search(r"\bptr (%[^\s,]+)", line)):
            steps.append((name, match[1]))
    while new := {name for name, base in steps if base in found} - found:
        found |= new
    return found


def _plain_if_shared(line: str, shared: set[str]) -> Iterator[str]:
    match = _UPDATE.fullmatch(line)
    yield from (match is not None and match[3] in shared and list(_plain(line))) or [line]


def _plain(line: str) -> Iterator[str]:
    """The update without atomicity; nothing for one that has no such form here."""
    match = _UPDATE.fullmatch(line)
    assert match
    old, operation, address, kind, value, align = match.groups()
    new, computed = f"{old}.r3new", list[str]()
    if operation == "xchg":
        new = value
    elif operation in _OPERATIONS:
        computed = [f"{new} = {operation} {kind} {old}, {value}"]
    elif operation in _CHOICES:
        computed = [
            f"{old}.r3more = icmp {_CHOICES[operation]} {kind} {old}, {value}",
            f"{new} = select i1 {old}.r3more, {kind} {old}, {kind} {value}",
        ]
    else:
        return
    yield f"{old} = load {kind}, ptr {address}, align {align}{ORDERED}"
    yield from computed
    yield f"store {kind} {new}, ptr {address}, align {align}{ORDERED}"
