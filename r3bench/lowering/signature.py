"""What a kernel's regions work with: places of block and grid, and the kernel's own arguments.

Regions take what they use as parameters, so that LLVM sees values and what is known of them. ``r3.run`` reads these
from the structure that describes a block, ``struct block`` in devices/cpu/blocks.c.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from r3bench.lowering.layout import Argument

AXES = "xyz"
ARGUMENTS_AT = 8
_PLACES = (
    ("%r3.shared", "ptr", "noundef", 16),
    ("%r3.cells", "ptr", "noundef", 24),
    ("%r3.context", "ptr", "noundef", 40),
    ("%r3.padded", "i64", "range(i64 32, 1025)", 48),
    ("%r3.threads", "i32", "range(i32 1, 1025)", 56),
    *((f"%r3.ntid.{axis}", "i32", "range(i32 1, 1025)", 60 + 4 * n) for n, axis in enumerate(AXES)),
    *((f"%r3.ctaid.{axis}", "i32", "range(i32 0, 2147483647)", 72 + 4 * n) for n, axis in enumerate(AXES)),
    *((f"%r3.nctaid.{axis}", "i32", "range(i32 1, -2147483648)", 84 + 4 * n) for n, axis in enumerate(AXES)),
    ("%r3.shared.dynamic", "i32", "noundef", 96),
    ("%r3.shared.static", "i32", "noundef", 100),
)
"""Name, type, attributes, and place in ``struct block``. ``threads`` of the block, ``padded`` to warps; shared memory;
the threads' context; the cells of barriers."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The common values. ``kernel`` holds (name, type, attributes) of the kernel's parameters, which lie where
    ``arguments`` says."""

    kernel: tuple[tuple[str, str, str], ...]
    arguments: Sequence[Argument]

    def parameters(self, used: Container[str]) -> str:
        """Those of a region that uses these names."""
        known = [(name, kind, attributes) for name, kind, attributes, _ in _PLACES] + list(self.kernel)
        return "".join(f"{kind} {attributes} {name}, " for name, kind, attributes in known if name in used)

    def again(self, used: Container[str]) -> str:
        """With what such a region calls itself."""
        known = [(name, kind) for name, kind, *_ in (*_PLACES, *self.kernel)]
        return "".join(f"{kind} {name}, " for name, kind in known if name in used)

    def passed(self, used: Container[str], state: int) -> tuple[str, str]:
        """What region ``state`` is called with elsewhere, and the instructions that read it from ``%block`` and
        ``%arguments``. None of the names can be one of the kernel's."""
        lines, passed = [], []
        for number, (name, kind, _, offset) in enumerate(_PLACES):
            if name in used:
                value = f"%place.{state}.{number}"
                lines.append(_load(value, kind, "%block", offset))
                passed.append(f"{kind} {value}, ")
        for number, ((name, kind, _), argument) in enumerate(zip(self.kernel, self.arguments, strict=True)):
            if name in used:
                value = f"%argument.{state}.{number}"
                at = f"  {value} = getelementptr i8, ptr %arguments, i64 {argument.offset}\n"
                lines.append(at if argument.by_value else _load(value, kind, "%arguments", argument.offset))
                passed.append(f"{kind} {value}, ")
        return "".join(passed), "".join(lines)


def _load(name: str, kind: str, base: str, offset: int) -> str:
    place = f"  {name}.p = getelementptr i8, ptr {base}, i64 {offset}\n"
    if kind == "i1":
        return f"{place}  {name}.b = load i8, ptr {name}.p\n  {name} = trunc i8 {name}.b to i1\n"
    return f"{place}  {name} = load {kind}, ptr {name}.p\n"
