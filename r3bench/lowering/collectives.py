"""What a thread leaves in its context when it waits, and what it finds there when it resumes.

Arrays of the context, one element per thread: ``mask`` (who takes part), ``value``, ``lane``, ``clamp`` (operands),
``result`` and ``flag``, which devices/cpu/blocks.c fills in when a collective completes.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from r3bench.errors import Unsupported
from r3bench.lowering import nvvm
from r3bench.lowering.ir import operand

_SIZES = {"state": 4, "predicate": 4, "barrier": 4, "count": 4}
_WARP_SIZES = {"mask": 4, "value": 8, "lane": 4, "clamp": 4, "result": 8, "flag": 4}


def arrays(intrinsics: Iterable[str], named: bool) -> dict[str, tuple[int, int]]:
    """Size and alignment of the arrays that these suspend points need; ``named``: barriers by number or count."""
    found = list(intrinsics)
    wanted = ["state"] if found else []
    if named:
        wanted += ["barrier", "count", "predicate"]
    elif any(".red." in name for name in found):
        wanted.append("predicate")
    sizes = {name: _SIZES[name] for name in wanted}
    if any(name in nvvm.COLLECTIVES for name in found):
        sizes |= _WARP_SIZES
    return {name: (size, size) for name, size in sizes.items()}


def is_named(intrinsic: str, operands: list[str]) -> bool:
    """Whether a barrier is another than the block's own (number 0, all threads)."""
    return intrinsic in nvvm.BARRIERS and (intrinsic.endswith(".count") or operand(operands[0]) != "0")


def kept_operands(intrinsic: str, operands: list[str], arrays: Container[str]) -> list[tuple[str, str, str]]:
    """(array, type of its elements, typed operand) for everything the thread leaves in the ``arrays`` there are."""
    if intrinsic in nvvm.BARRIERS:
        count = operands[1] if intrinsic.endswith(".count") else "i32 0"
        predicate = operands[-1] if ".red." in intrinsic else "i32 0"
        kept = [("barrier", "i32", operands[0]), ("count", "i32", count), ("predicate", "i32", predicate)]
        return [item for item in kept if item[0] in arrays]
    if ".redux." in intrinsic:
        return [("value", "i64", operands[0]), ("mask", "i32", operands[1])]
    places = (("mask", "i32"), ("value", "i64"), ("lane", "i32"), ("clamp", "i32"))
    return [(array, kind, argument) for (array, kind), argument in zip(places, operands, strict=False)]


def widened(name: str, source: str, target: str, value: str) -> Iterator[str]:
    """Instructions that make an array's element, ``name``, of an operand."""
    if source == target:
        yield f"  {name} = add {target} {value}, 0"
    elif source == "float":
        yield f"  {name}.bits = bitcast float {value} to i32"
        yield f"  {name} = zext i32 {name}.bits to {target}"
    else:
        yield f"  {name} = zext {source} {value} to {target}"


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
    bits = "i32" if simple == "float" else simple
    yield f"  {name}.r3raw = load i64, ptr %r3.at.result{attached}"
    yield f"  {value if simple != 'float' else name + '.r3bits'} = trunc i64 {name}.r3raw to {bits}"
    if simple == "float":
        yield f"  {value} = bitcast i32 {name}.r3bits to float"
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
