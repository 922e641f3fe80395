"""Quotients of variables, of which LLVM must not see that they are the same for all passes of a loop.

LLVM 22 takes an address that does not change in a loop from the first lane of a vector alone. Where the address comes
from a division, and threads divide only under a condition (dividing by zero is undefined), the first lane may be one
that does not: then the others read or write anywhere. So every quotient goes through a mask that has all bits set,
which only who runs the kernel knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from r3bench.lowering.ir import Function

_DIVISION = re.compile(r"(%\S+) = ([us](?:div|rem) (?:exact )?i(\d+) [^,]+, %.*)")
_WORD = 32


def hide_quotients(kernel: Function) -> None:
    """Rewrite, in place, every division by a variable."""
    for block in kernel.blocks:
        block.lines = [new for line in block.lines for new in _hidden(line)]


def _hidden(line: str) -> Iterator[str]:
    match = _DIVISION.fullmatch(line)
    if match is None:
        yield line
        return
    name, division, bits = match[1], match[2], int(match[3])
    mask = f"{name}.r3mask"
    yield f"{name}.r3all = call i32 @r3.all.bits()"
    if bits != _WORD:
        yield f"{mask} = {'sext' if bits > _WORD else 'trunc'} i32 {name}.r3all to i{bits}"
    yield f"{name}.r3quotient = {division}"
    yield f"{name} = and i{bits} {name}.r3quotient, {mask if bits != _WORD else f'{name}.r3all'}"
