"""What a thread leaves in its context when it waits, and what it finds there when it resumes.

Arrays of the context, one word per thread: ``mask`` (who takes part), ``value`` and its ``high`` half, ``lane``,
``clamp`` (operands), ``result`` and ``flag``, which devices/cpu/blocks.c fills in when a collective completes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from r3bench.errors import Unsupported
from r3bench.lowering import nvvm
from r3bench.lowering.ir import operand

_WORD = (4, 4)


def arrays(intrinsics: Iterable[str], named: bool) -> dict[str, tuple[int, int]]:
    """Size and alignment of the arrays that these suspend points need; ``named``: barriers by number or count."""
    found = list(intrinsics)
    wanted = ["state"] if found else []
    if named:
        wanted += ["barrier", "count", "predicate"]
    elif any(".red." in name for name in found):
        wanted.append("predicate")
    if any(name in nvvm.COLLECTIVES | nvvm.COLLECTIVES_HERE for name in found):
        wanted += ["mask", "value", "result"]
    if any(".shfl." in name for name in found):
        wanted += ["lane", "clamp"]
    if any(".match." in name and ".i64" in name for name in found):
        wanted.append("high")
    if any(name.endswith("p") for name in found):
        wanted.append("flag")
    return dict.fromkeys(wanted, _WORD)


def is_named(intrinsic: str, operands: list[str]) -> bool:
    """Whether a barrier is another than the block's own (number 0, all threads)."""
    return intrinsic in nvvm.BARRIERS and (intrinsic.endswith(".count") or operand(operands[0]) != "0")


def kept_operands(intrinsic: str, operands: list[str], arrays: Container[str]) -> list[tuple[str, str]]:
    """(array, typed operand) for everything the thread leaves in the ``arrays`` there are."""
    if intrinsic in nvvm.BARRIERS:
        count = operands[1] if intrinsic.endswith(".count") else "i32 0"
        predicate = operands[-1] if ".red." in intrinsic else "i32 0"
        kept = [("barrier", operands[0]), ("count", count), ("predicate", predicate)]
        return [item for item in kept if item[0] in arrays]
    if ".redux." in intrinsic:
        kept = [("value", operands[0]), ("mask", operands[1])]
    elif ".match." in intrinsic and "high" in arrays:
        kept = [("mask", operands[0]), ("value", operands[1]), ("high", operands[1])]
    else:
        kept = list(zip(("mask", "value", "lane", "clamp"), operands, strict=False))
    return [item for item in kept if item[0] != "mask"] if intrinsic in nvvm.COLLECTIVES_HERE else kept


def word(array: str, name: str, kind: str, value: str) -> Iterator[str]:
    """Instructions that make an array's element, ``name``, of an operand."""
    if kind == "i32":
        yield f"  {name} = add i32 {value if array != 'high' else 0}, 0"
    elif kind == "float":
        yield f"  {name} = bitcast float {value} to i32"
    elif kind == "i64":
        yield f"  {name}.half = lshr i64 {value}, {32 if array == 'high' else 0}"
        yield f"  {name} = trunc i64 {name}.half to i32"
    else:
        yield f"  {name} = zext {kind} {value} to i32"


def result_type(intrinsic: str) -> str:
    """The type of a suspend point's result."""
    last = intrinsic.rsplit(".", 1)[1]
    if last in ("i32p", "i64p"):
        return "{ i32, i1 }"
    if last == "f32p":
        return "{ float, i1 }"
    if last == "f32":
        return "float"
    if intrinsic.endswith(("vote.all.sync", "vote.any.sync", "vote.uni.sync")) or ".red.and" in intrinsic:
        return "i1"
    return "i1" if ".red.or" in intrinsic else "i32"


def result_lines(intrinsic: str, operands: list[str], name: str, attached: str) -> Iterator[str]:
    """Instructions that define ``name`` where the thread resumes; ``attached`` is what its loads carry."""
    if intrinsic in nvvm.BARRIERS:
        yield from _barrier_result(intrinsic, operand(operands[0]), name)
        return
    kind = result_type(intrinsic)
    simple = kind[2:].split(",")[0] if kind.startswith("{") else kind
    value = name if simple == kind else f"{name}.r3value"
    raw = value if simple == "i32" else f"{name}.r3raw"
    yield f"  {raw} = load i32, ptr %r3.at.result{attached}"
    if simple == "float":
        yield f"  {value} = bitcast i32 {raw} to float"
    elif simple != "i32":
        yield f"  {value} = trunc i32 {raw} to {simple}"
    if simple != kind:
        yield f"  {name}.r3word = load i32, ptr %r3.at.flag{attached}"
        yield f"  {name}.r3flag = trunc i32 {name}.r3word to i1"
        yield f"  {name}.r3pair = insertvalue {kind} poison, {simple} {value}, 0"
        yield f"  {name} = insertvalue {kind} {name}.r3pair, i1 {name}.r3flag, 1"


def _barrier_result(intrinsic: str, number: str, name: str) -> Iterator[str]:
    """Cells of a barrier: how many predicates were true, how many threads arrived."""
    if not number.isdigit() or int(number) > 15:
        raise Unsupported("a barrier with a reduction needs a constant number from 0 to 15 on the CPU device")
    yield f"  {name}.r3cell = getelementptr i8, ptr %r3.cells, i64 {8 * int(number)}"
    true = name if ".popc." in intrinsic else f"{name}.r3true"
    yield f"  {true} = load i32, ptr {name}.r3cell"
    if ".or." in intrinsic:
        yield f"  {name} = icmp ne i32 {true}, 0"
    elif ".and." in intrinsic:
        yield f"  {name}.r3next = getelementptr i8, ptr {name}.r3cell, i64 4"
        yield f"  {name}.r3all = load i32, ptr {name}.r3next"
        yield f"  {name} = icmp eq i32 {true}, {name}.r3all"
