"""The same code with other code beside it that never runs: another binary of equal work.

How far two such binaries seem to differ when they are timed is what a comparison cannot tell from nothing.
"""

from __future__ import annotations

import re

from r3bench.toolchain import irtext

_INSTRUCTIONS = 24

# Jumped over where it stands: no launch has a grid without blocks, but ptxas does not know that.
_PTX = (
    "{ .reg .pred any; .reg .b32 blocks; mov.u32 blocks, %nctaid.x; setp.ne.u32 any, blocks, 0; @any bra AFTER; "
    f"{'membar.sys; ' * _INSTRUCTIONS}AFTER: }}"
)
_IN_PTX = f'  call void asm sideeffect "{_PTX}", ""()'

_STORES = "\n".join(["  store volatile i64 0, ptr %to"] * _INSTRUCTIONS)
_FUNCTION = f"define void @r3.padding(ptr %to) {{\n{_STORES}\n  ret void\n}}\n"

_LABEL = re.compile(r"[\w.]+:")


def in_kernel(ir: str, symbol: str) -> str:
    """A module for a GPU with padding at the start of its kernel, so that all the rest is moved."""
    return irtext.text_of(
        irtext.Item(item.name, _padded(item.text)) if item.name == symbol and item.is_function else item
        for item in irtext.items(ir)
    )


def _padded(function: str) -> str:
    lines = function.splitlines()
    return "\n".join([*lines[: (start := 1 + bool(_LABEL.match(lines[1])))], _IN_PTX, *lines[start:]])


def before_functions(ir: str) -> str:
    """A module for a CPU with a function that nobody calls in front of the others."""
    parts = irtext.items(ir)
    first = next(number for number, part in enumerate(parts) if part.is_function)
    return irtext.text_of([*parts[:first], irtext.Item("r3.padding", _FUNCTION), *parts[first:]])
