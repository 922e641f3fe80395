"""Atomic updates of shared memory as plain ones: a block runs on one thread of the CPU, so nobody comes between.

They stay in the order of the threads: what is written here ends in ``ORDERED``, and no loop over it is vectorized.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from r3bench.lowering.ir import Function, callee, result_and_opcode

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
        block.lines = [new for line in block.lines for new in _plain(line, shared)]


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


def _plain(line: str, shared: set[str]) -> Iterator[str]:
    match = _UPDATE.fullmatch(line)
    if match is None or match[3] not in shared:
        yield line
        return
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
        yield line
        return
    yield f"{old} = load {kind}, ptr {address}, align {align}{ORDERED}"
    yield from computed
    yield f"store {kind} {new}, ptr {address}, align {align}{ORDERED}"
