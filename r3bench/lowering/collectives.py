"""What a thread leaves in its context when it waits, and how a warp's collective turns that into each lane's result.

Arrays of the context, one element per thread: ``mask`` (who takes part), ``value``, ``lane``, ``clamp`` (operands),
``result`` and ``flag``. A collective completes for a group of lanes at once, so no lane can overwrite an operand that
another still needs.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from r3bench.errors import Unsupported
from r3bench.lowering import nvvm
from r3bench.lowering.ir import operand

BARRIER, ACTIVE = 0, 1
"""Numbers of the two kinds of suspend point that are not completed by a collective's function."""

_SIZES = {"state": 4, "warps": 1, "predicate": 4, "barrier": 4, "count": 4}
_WARP_SIZES = {"mask": 4, "value": 8, "lane": 4, "clamp": 4, "result": 8, "flag": 4}


def arrays(intrinsics: Iterable[str], named: bool) -> dict[str, tuple[int, int]]:
    """Size and alignment of the arrays that these suspend points need; ``named``: barriers by number or count."""
    found = list(intrinsics)
    wanted = ["state", "warps"] if found else []
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


# -- completing a collective ----------------------------------------------------------------------------------------

_PARAMETERS = "i32 %group, ptr %value, ptr %lane, ptr %clamp, ptr %result, ptr %flag"
_REDUCTIONS = {
    "add": "0",
    "or": "0",
    "xor": "0",
    "and": "-1",
    "umin": "-1",
    "umax": "0",
    "min": "2147483647",
    "max": "-2147483648",
}
_SOURCES = {
    "up": ("%j = sub i32 %i, %b", "sge"),
    "down": ("%j = add i32 %i, %b", "sle"),
    "bfly": ("%j = xor i32 %i, %b", "sle"),
    "idx": ("%k = and i32 %b, %free\n  %j = or i32 %least, %k", "sle"),
}


def completion(intrinsic: str, symbol: str) -> str:
    """The function that completes ``intrinsic`` for the lanes in ``%group``; pointers are at the warp's first lane."""
    body = "entry:\n" + "".join(f"  {line}\n" if not line.endswith(":") else f"{line}\n" for line in _body(intrinsic))
    return f"define internal void {symbol}({_PARAMETERS}) nounwind minsize optsize {{\n{body}  ret void\n}}"


def _body(intrinsic: str) -> Iterator[str]:
    parts = intrinsic.removeprefix("@llvm.nvvm.").split(".")
    if parts[0] == "shfl":
        yield from _lanes("s", "entry", "%group", [], _shuffle(parts[2]))
    elif parts[0] == "vote":
        yield from _vote(parts[1])
    elif parts[0] == "redux":
        yield from _reduction(parts[2])
    elif parts[0] == "match":
        yield from _match_any() if parts[1] == "any" else _match_all()


def _lanes(
    prefix: str, before: str, mask: str, carried: list[tuple[str, str, str]], body: Iterable[str]
) -> Iterator[str]:
    """A loop over the lanes in ``mask`` (not empty): ``%i`` is the lane, ``%x`` the same in 64 bits.

    ``carried`` are (name, type, first value); the body defines ``<name>.next``. Ends behind label ``<prefix>.done``.
    """
    yield f"br label %{prefix}.loop"
    yield f"{prefix}.loop:"
    yield f"%{prefix}.left = phi i32 [ {mask}, %{before} ], [ %{prefix}.rest, %{prefix}.next ]"
    for name, kind, first in carried:
        yield f"{name} = phi {kind} [ {first}, %{before} ], [ {name}.next, %{prefix}.next ]"
    index = "%i" if prefix != "t" else "%m"
    yield f"{index} = call i32 @llvm.cttz.i32(i32 %{prefix}.left, i1 true)"
    yield f"%{prefix}.less = sub i32 %{prefix}.left, 1"
    yield f"%{prefix}.rest = and i32 %{prefix}.left, %{prefix}.less"
    yield from body
    yield f"br label %{prefix}.next"
    yield f"{prefix}.next:"
    yield f"%{prefix}.more = icmp ne i32 %{prefix}.rest, 0"
    yield f"br i1 %{prefix}.more, label %{prefix}.loop, label %{prefix}.done"
    yield f"{prefix}.done:"


def _get(array: str, kind: str, name: str, lane: str = "%i") -> list[str]:
    return [f"{name}.p = getelementptr {kind}, ptr %{array}, i32 {lane}", f"{name} = load {kind}, ptr {name}.p"]


def _put(array: str, kind: str, value: str) -> list[str]:
    return [f"%{array}.q = getelementptr {kind}, ptr %{array}, i32 %i", f"store {kind} {value}, ptr %{array}.q"]


def _shuffle(mode: str) -> list[str]:
    """PTX's shfl: a lane outside its segment, or one that takes no part, gives the caller's own value back."""
    source, inside = _SOURCES[mode]
    return [
        *_get("lane", "i32", "%wide"),
        *_get("clamp", "i32", "%control"),
        "%b = and i32 %wide, 31",
        "%high = lshr i32 %control, 8",
        "%segment = and i32 %high, 31",
        "%bound = and i32 %control, 31",
        "%free = xor i32 %segment, 31",
        "%least = and i32 %i, %segment",
        "%reach = and i32 %bound, %free",
        "%most = or i32 %least, %reach",
        *source.split("\n  "),
        f"%ok = icmp {inside} i32 %j, %most",
        "%from = select i1 %ok, i32 %j, i32 %i",
        "%bit = shl i32 1, %from",
        "%member = and i32 %group, %bit",
        "%there = icmp ne i32 %member, 0",
        "%source = select i1 %there, i32 %from, i32 %i",
        *_get("value", "i64", "%moved", "%source"),
        *_put("result", "i64", "%moved"),
        "%f = zext i1 %ok to i32",
        *_put("flag", "i32", "%f"),
    ]


def _answer(lines: Iterable[str], before: str) -> Iterator[str]:
    """Give ``%answer`` to every lane of the group."""
    yield from lines
    yield from _lanes("s", before, "%group", [], _put("result", "i64", "%answer"))


def _vote(kind: str) -> Iterator[str]:
    bits = [
        "%bit = trunc i64 %v to i1",
        "%one = zext i1 %bit to i32",
        "%at = shl i32 %one, %m",
        "%votes.next = or i32 %votes, %at",
    ]
    yield from _lanes("t", "entry", "%group", [("%votes", "i32", "0")], [*_get("value", "i64", "%v", "%m"), *bits])
    answers = {
        "ballot": ["%answer = zext i32 %votes.next to i64"],
        "any": ["%is = icmp ne i32 %votes.next, 0", "%answer = zext i1 %is to i64"],
        "all": ["%is = icmp eq i32 %votes.next, %group", "%answer = zext i1 %is to i64"],
        "uni": [
            "%full = icmp eq i32 %votes.next, %group",
            "%none = icmp eq i32 %votes.next, 0",
            "%is = or i1 %full, %none",
            "%answer = zext i1 %is to i64",
        ],
    }
    yield from _answer(answers[kind], "t.done")


def _reduction(operation: str) -> Iterator[str]:
    names = {"min": "smin", "max": "smax"}
    plain = operation in ("add", "or", "xor", "and")
    apply = (
        f"{operation} i32 %sum, %w"
        if plain
        else f"call i32 @llvm.{names.get(operation, operation)}.i32(i32 %sum, i32 %w)"
    )
    body = [*_get("value", "i64", "%v", "%m"), "%w = trunc i64 %v to i32", f"%sum.next = {apply}"]
    yield from _lanes("t", "entry", "%group", [("%sum", "i32", _REDUCTIONS[operation])], body)
    yield from _answer(["%answer = zext i32 %sum.next to i64"], "t.done")


def _match_any() -> Iterator[str]:
    inner = [
        *_get("value", "i64", "%other", "%m"),
        "%same = icmp eq i64 %own, %other",
        "%one = zext i1 %same to i32",
        "%at = shl i32 %one, %m",
        "%found.next = or i32 %found, %at",
    ]
    loop = list(_lanes("t", "s.loop", "%group", [("%found", "i32", "0")], inner))
    outer = [
        *_get("value", "i64", "%own"),
        *loop,
        "%answer = zext i32 %found.next to i64",
        *_put("result", "i64", "%answer"),
    ]
    yield from _lanes("s", "entry", "%group", [], outer)


def _match_all() -> Iterator[str]:
    yield "%first = call i32 @llvm.cttz.i32(i32 %group, i1 true)"
    yield from _get("value", "i64", "%own", "%first")
    body = [
        *_get("value", "i64", "%other", "%m"),
        "%same = icmp eq i64 %own, %other",
        "%equal.next = and i1 %equal, %same",
    ]
    yield from _lanes("t", "entry", "%group", [("%equal", "i1", "true")], body)
    yield "%mask = select i1 %equal.next, i32 %group, i32 0"
    yield "%answer = zext i32 %mask to i64"
    yield "%f = zext i1 %equal.next to i32"
    yield from _lanes("s", "t.done", "%group", [], [*_put("result", "i64", "%answer"), *_put("flag", "i32", "%f")])
