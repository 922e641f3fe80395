"""The way through a block whose threads part: warp by warp, lane by lane where lanes differ. Its code is mixed.ll.

Lanes run until each waits or has ended; collectives complete whose lanes have all arrived; then, when no warp can go
on, barriers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from string import Template

from r3bench.lowering import nvvm
from r3bench.lowering.collectives import ACTIVE, BARRIER, completion
from r3bench.lowering.cut import Cut
from r3bench.lowering.signature import Signature

SMALL = "noinline optnone nounwind"
"""Attributes of functions that are called often and do little."""


@cache
def _sections() -> dict[str, Template]:
    """The functions of mixed.ll by the name in their heading, ``;; name: what it does``."""
    parts = files("r3bench.lowering").joinpath("mixed.ll").read_text().split("\n;; ")[1:]
    return {part.split(":", 1)[0]: Template(part.split("\n", 1)[1]) for part in parts}


def mixed_functions(cut: Cut, signed: Signature) -> Iterator[str]:
    """What the kernel needs of mixed.ll, with its parameters and the places of its arrays filled in."""
    intrinsics = [suspend.intrinsic for suspend in cut.suspends]
    collectives = sorted({*intrinsics} & nvvm.COLLECTIVES)
    numbers = {name: n for n, name in enumerate(collectives, ACTIVE + 1) if "activemask" not in name}
    codes = [BARRIER, *(BARRIER if name in nvvm.BARRIERS else numbers.get(name, ACTIVE) for name in intrinsics)]
    yield f"@r3.operations = internal constant [{len(codes)} x i8] [{', '.join(f'i8 {code}' for code in codes)}]"
    values = {name: str(offset) for name, offset in cut.context.offsets.items() if not name.startswith("%")}
    values |= {"SMALL": SMALL, "ENTER": signed.often(), "COUNT": "", "DISPATCH": _dispatch(numbers)}
    if "predicate" in values:
        values["COUNT"] = "  call void @r3.count(ptr %env, i1 false)"
    for name in _wanted(bool(collectives), "barrier" in values, "predicate" in values):
        yield _sections()[name].substitute(values)
    for name, number in numbers.items():
        yield completion(name, f"@r3.complete.{number}")


def _wanted(collectives: bool, named: bool, predicates: bool) -> Iterator[str]:
    yield from ("enter", "mixed", "warp")
    yield "settle" if collectives else "settle.none"
    yield "barrier.named" if named else "barrier"
    if predicates:
        yield "count"


def _dispatch(numbers: dict[str, int]) -> str:
    """Complete the operation numbered ``%o`` for ``%group``."""
    cases = " ".join(f"i8 {n}, label %do.{n}" for n in numbers.values())
    arguments = "i32 %group, ptr %value, ptr %lane, ptr %clamp, ptr %result, ptr %flag"
    calls = (f"do.{n}:\n  call void @r3.complete.{n}({arguments})\n  br label %completed\n" for n in numbers.values())
    return f"  switch i8 %o, label %completed [ {cases} ]\n{''.join(calls)}"
