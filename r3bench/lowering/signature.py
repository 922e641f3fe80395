"""What a kernel's regions work with: places of block and grid, and the kernel's own arguments.

A region reads what it uses from the structure that describes a block, ``struct block`` in devices/cpu/blocks.c.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from r3bench.lowering.layout import Argument

AXES = "xyz"
_ARGUMENTS_AT = 8
_SMALL = 256  # bytes that a region can copy before it takes up its threads
_PLACES = (
    ("%r3.shared", "ptr", 16),
    ("%r3.cells", "ptr", 24),
    ("%r3.context", "ptr", 40),
    ("%r3.padded", "i64", 48),
    ("%r3.threads", "i32", 56),
    *((f"%r3.ntid.{axis}", "i32", 60 + 4 * n) for n, axis in enumerate(AXES)),
    *((f"%r3.ctaid.{axis}", "i32", 72 + 4 * n) for n, axis in enumerate(AXES)),
    *((f"%r3.nctaid.{axis}", "i32", 84 + 4 * n) for n, axis in enumerate(AXES)),
    ("%r3.shared.dynamic", "i32", 96),
    ("%r3.shared.static", "i32", 100),
    ("%r3.alone", "i32", 108),
    ("%r3.all.bits", "i32", 112),
)
"""Name, type and place in ``struct block``. ``threads`` of the block, ``padded`` to warps; shared memory; the threads'
context; the cells of barriers; whether one thread of the CPU runs all blocks; a word of which all
bits are set."""
RANGES = {
    "%r3.padded": "i64 32, i64 1025",
    "%r3.threads": "i32 1, i32 1025",
    **{f"%r3.ntid.{axis}": "i32 1, i32 1025" for axis in AXES},
    **{f"%r3.ctaid.{axis}": "i32 0, i32 2147483647" for axis in AXES},
    **{f"%r3.nctaid.{axis}": "i32 1, i32 -2147483648" for axis in AXES},
}
"""What is known of some of them, as LLVM's metadata has it."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The common values. ``kernel`` holds name and type of the kernel's parameters, which lie where ``arguments``
    says; ``ranges`` are ids of the metadata in RANGES. Nothing but a parameter in ``alone`` leads to its memory.
    ``whole`` says that one region is all of the kernel."""

    kernel: Sequence[tuple[str, str]]
    arguments: Sequence[Argument]
    ranges: dict[str, str]
    alone: Sequence[str]
    whole: bool

    def loaded(self, used: Container[str]) -> Iterator[str]:
        """Instructions that define those of the values that are used, from ``%r3.block``."""
        for name, kind, offset in _PLACES:
            if name in used:
                known = f", !range {self.ranges[RANGES[name]]}" if name in RANGES else ""
                yield from _load(name, kind, "%r3.block", offset, known)
        yield from _load("%r3.arguments", "ptr", "%r3.block", _ARGUMENTS_AT, "")
        for (name, kind), argument in zip(self.kernel, self.arguments, strict=True):
            if name in used and argument.by_value:
                yield from _struct(name, argument, self.whole)
            elif name in used:
                yield from _load(name, kind, "%r3.arguments", argument.offset, "")


def _struct(name: str, argument: Argument, whole: bool) -> Iterator[str]:
    """A struct passed by value; a small one as a copy, of which LLVM sees that nothing else leads to it. A copy ends
    with its region, and no pointer into it may wait for the next."""
    small = whole and argument.size <= _SMALL
    yield f"  {name}{'.r3p' * small} = getelementptr i8, ptr %r3.arguments, i64 {argument.offset}"
    if small:
        yield f"  {name} = alloca [{argument.size} x i8], align {argument.align}"
        copied = f"ptr align {argument.align} {name}, ptr align {argument.align} {name}.r3p"
        yield f"  call void @llvm.memcpy.p0.p0.i64({copied}, i64 {argument.size}, i1 false)"


def _load(name: str, kind: str, base: str, offset: int, known: str) -> Iterator[str]:
    yield f"  {name}.r3p = getelementptr i8, ptr {base}, i64 {offset}"
    if kind == "i1":
        yield f"  {name}.r3b = load i8, ptr {name}.r3p"
        yield f"  {name} = trunc i8 {name}.r3b to i1"
    else:
        yield f"  {name} = load {kind}, ptr {name}.r3p{known}"
