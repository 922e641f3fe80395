"""Work that one thread of a block does at the start, or behind a place where all wait, cut off from what all do then.

``if (threadIdx.x == 0) count = 0;`` costs every thread a test and the loop over them its vector form. With a cut
(``@r3.meet``) behind it, its region is left for one thread alone: rows.py leaves the others out. For speed only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from r3bench.lowering import nvvm
from r3bench.lowering.ir import Block, Function, callee, result_and_opcode, successors
from r3bench.lowering.values import is_pure

_BRANCH = re.compile(r"br i1 (%\S+), label %(\S+), label %([^\s,]+)(?:, !.*)?")
_EQUAL = re.compile(r"%\S+ = icmp eq i32 (%\S+), \d+")


def cut_behind_few(kernel: Function, parted: set[str]) -> None:
    """Cut, in place, a kernel whose threads wait for each other; not where they have ``parted`` already."""
    if any(nvvm.waits(line) for line in kernel.lines()):
        lines = {name: line for line in kernel.lines() if (name := result_and_opcode(line)[0])}
        for block in [block for block in kernel.blocks if block.label not in parted]:
            if (behind := _behind(kernel, block, lines)) is not None:
                behind.lines.insert(0, f"call void {nvvm.MEET}()")


def _behind(kernel: Function, block: Block, lines: Mapping[str, str]) -> Block | None:
    """The block behind work for which ``block`` picks one thread, having done nothing itself, where a cut helps."""
    match = _BRANCH.fullmatch(block.lines[-1])
    if match is None or not _picks(match[1], lines) or not _does_nothing(kernel, block):
        return None
    work, behind = (next(b for b in kernel.blocks if b.label == label) for label in match.groups()[1:])
    from_work = _sources(kernel, work) == {block.label} and _sources(kernel, behind) == {block.label, work.label}
    waits = any(map(nvvm.waits, [*work.lines, behind.lines[0]]))
    return behind if from_work and not waits and " = phi " not in behind.lines[0] else None


def _sources(kernel: Function, block: Block) -> set[str]:
    return {other.label for other in kernel.blocks if block.label in successors(other.lines[-1])}


def _picks(name: str, lines: Mapping[str, str]) -> bool:
    match = _EQUAL.fullmatch(lines.get(name, ""))
    return match is not None and ".tid.x(" in lines.get(match[1], "")


def _does_nothing(kernel: Function, block: Block) -> bool:
    """Whether threads come to its end from the kernel's start or from where they waited, with nothing done since."""
    waited = [at for at, line in enumerate(block.lines) if nvvm.waits(line)]
    since = block.lines[waited[-1] + 1 : -1] if waited else block.lines[:-1]
    return (bool(waited) or block is kernel.blocks[0]) and all(is_pure(line) or _is_place(line) for line in since)


def _is_place(line: str) -> bool:
    return "call " in line and (callee(line) in nvvm.INDICES or callee(line) in nvvm.PLACES)
