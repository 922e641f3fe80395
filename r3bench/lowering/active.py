"""Collectives of those that are there: ``__ballot_sync(__activemask(), x)`` asks twice for what one place can tell.

Where the mask of a collective is what ``activemask`` gave just before, and serves nothing else, both are one place: the
lanes of a warp that are at it take part (``@r3.here.*``).
"""

from __future__ import annotations

from collections.abc import Sequence

from r3bench.lowering import nvvm
from r3bench.lowering.ir import LOCAL, Function, call_arguments, callee, operand, result_and_opcode

_ACTIVE = "@llvm.nvvm.activemask"


def merge_active(kernel: Function) -> None:
    """Rewrite, in place, every such pair within a block."""
    for block in kernel.blocks:
        for line in [line for line in block.lines if f"{_ACTIVE}(" in line]:
            name = result_and_opcode(line)[0]
            at = _next(block.lines, block.lines.index(line) + 1)
            if name and at is not None and _masks(block.lines[at], name) and _uses(kernel, name) == 1:
                block.lines[at] = _here(block.lines[at], name)
                block.lines.remove(line)


def _here(line: str, mask: str) -> str:
    """The collective without its mask, which a mask of all lanes stands in for."""
    collective = callee(line) or ""
    line = line.replace(f"{collective}(", f"{nvvm.here(collective)}(")
    return LOCAL.sub(lambda match: "-1" if match[0] == mask else match[0], line)


def _next(lines: Sequence[str], start: int) -> int | None:
    """The first place at or behind ``start`` where threads wait."""
    return next((at for at in range(start, len(lines)) if nvvm.waits(lines[at])), None)


def _masks(line: str, name: str) -> bool:
    if callee(line) not in nvvm.COLLECTIVES or f"{_ACTIVE}(" in line:
        return False
    arguments = call_arguments(line)
    return operand(arguments[1 if ".redux." in line else 0]) == name


def _uses(kernel: Function, name: str) -> int:
    return sum(LOCAL.findall(line).count(name) for line in kernel.lines()) - 1
