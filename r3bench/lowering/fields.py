"""Fields of structs passed by value, as arguments of their own: read once for a block's threads, and known like those.

A kernel that never changes such a struct reads it from the argument block. A read that stays where it stands, behind a
test, keeps LLVM from taking it out of the loop over threads, and the loop from being vectorized.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from r3bench.lowering.ir import LOCAL, Function
from r3bench.lowering.layout import Argument, size_and_align

_STEP = re.compile(r"(%\S+) = getelementptr (?:[a-z]+ )*i8, ptr (%\S+), i64 (\d+)")
_READ = re.compile(r"(%\S+) = load (i8|i16|i32|i64|float|double|ptr), ptr (%[^\s,]+)(?:, align \d+)?(?:, !.*)?")


def split_fields(kernel: Function, arguments: Sequence[Argument]) -> list[Argument]:
    """Take the reads of such fields out of ``kernel``, in place; the arguments that stand for them."""
    places = {p.name: (p.name, a.offset, 0) for p, a in zip(kernel.parameters, arguments, strict=True) if a.by_value}
    found: dict[str, Argument] = {}
    renamed: dict[str, str] = {}
    for block in kernel.blocks if places else ():
        kept = []
        for line in block.lines:
            if (step := _STEP.fullmatch(line)) and step[2] in places:
                name, start, offset = places[step[2]]
                places[step[1]] = (name, start, offset + int(step[3]))
            read = _READ.fullmatch(line)
            field = _field(read, *places[read[3]]) if read and read[3] in places else None
            if read and field:
                found[field.name], renamed[read[1]] = field, field.name
            else:
                kept.append(line)
        block.lines = kept
    for block in kernel.blocks if renamed else ():
        block.lines = [LOCAL.sub(lambda match: renamed.get(match[0], match[0]), line) for line in block.lines]
    return list(found.values())


def _field(read: re.Match[str], name: str, start: int, offset: int) -> Argument | None:
    """What is read, if it is aligned by its nature: the argument block is."""
    kind = read[2]
    size, align = size_and_align(kind, {})
    whole = f"{name}.{offset}.{kind}"
    at = start + offset
    return None if at % align else Argument(whole, kind, "", at, size, align, by_value=False)
