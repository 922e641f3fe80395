"""Entry points of the object, and the fast way through a block: region after region while all its threads agree."""

from __future__ import annotations

from collections.abc import Sequence

from r3bench.lowering import nvvm
from r3bench.lowering.cut import ASSERT, EXIT, Cut
from r3bench.lowering.layout import Argument
from r3bench.lowering.mixed import SMALL, mixed_functions
from r3bench.lowering.regions import Region
from r3bench.lowering.signature import AXES, Signature

FRAME_ALIGN = 128
CELLS_BYTES = 128
_WHOLE = "i32 0, i32 %r3.ntid.x, i32 0, i32 %r3.ntid.y, i32 0, i32 %r3.ntid.z"
_FAULT = f"""define internal i32 @r3.code(i32 %way) {SMALL} {{
  %ended = icmp eq i32 %way, {EXIT}
  %asserted = icmp eq i32 %way, {ASSERT}
  %fault = select i1 %asserted, i32 2, i32 3
  %code = select i1 %ended, i32 0, i32 %fault
  ret i32 %code
}}"""
_DECLARED = """declare i32 @llvm.cttz.i32(i32, i1)
declare i32 @llvm.ctlz.i32(i32, i1)
declare i32 @llvm.ctpop.i32(i32)
declare i32 @llvm.smin.i32(i32, i32)
declare i32 @llvm.smax.i32(i32, i32)
declare i32 @llvm.umin.i32(i32, i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i128 @llvm.smin.i128(i128, i128)
declare i128 @llvm.smax.i128(i128, i128)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"""


def write_driver(
    cut: Cut, regions: Sequence[Region], signed: Signature, arguments: Sequence[Argument], static_bytes: int
) -> str:
    """All functions around the regions. Static shared memory, padded to ``static_bytes``, comes first in a frame."""
    parts = [_FAULT, _frame_bytes(cut, static_bytes), _run_block(cut, regions, signed, arguments, static_bytes)]
    if cut.suspends:
        parts = [signed.environment, *parts, _box(regions, signed), _single(signed), *mixed_functions(cut, signed)]
    return "\n".join([*parts, _DECLARED])


# -- frame and arguments --------------------------------------------------------------------------------------------


def _frame_bytes(cut: Cut, static_bytes: int) -> str:
    """Shared memory, cells, contexts, and room to align each."""
    return f"""define i64 @r3_frame_bytes(ptr %launch) nounwind {{
{_launch_fields()}  %shared = zext i32 %r3.shared.dynamic to i64
  %contexts = mul i64 %r3.padded, {cut.context.bytes}
  %sum = add i64 %shared, %contexts
  %all = add i64 %sum, {static_bytes + CELLS_BYTES + 2 * FRAME_ALIGN}
  ret i64 %all
}}"""


def _launch_fields() -> str:
    lines = []
    for first, register in ((0, "nctaid"), (3, "ntid")):
        for n, axis in enumerate(AXES):
            lines.append(f"  %l.{register}.{axis} = getelementptr i32, ptr %launch, i64 {first + n}\n")
            lines.append(f"  %r3.{register}.{axis} = load i32, ptr %l.{register}.{axis}\n")
    for n, name in ((6, "shared.dynamic"), (7, "reverse")):
        lines.append(f"  %l.{name} = getelementptr i32, ptr %launch, i64 {n}\n  %r3.{name} = load i32, ptr %l.{name}\n")
    return (
        "".join(lines)
        + """  %t.xy = mul i32 %r3.ntid.x, %r3.ntid.y
  %r3.threads = mul i32 %t.xy, %r3.ntid.z
  %t.up = add i32 %r3.threads, 31
  %t.whole = and i32 %t.up, -32
  %r3.padded = zext i32 %t.whole to i64
"""
    )


def _block_fields(static_bytes: int) -> str:
    lines = [
        f"  %b.{axis} = getelementptr i32, ptr %block, i64 {n}\n  %r3.ctaid.{axis} = load i32, ptr %b.{axis}\n"
        for n, axis in enumerate(AXES)
    ]
    return (
        "".join(lines)
        + f"""  %f.address = ptrtoint ptr %frame to i64
  %f.back = sub i64 0, %f.address
  %f.skip = and i64 %f.back, {FRAME_ALIGN - 1}
  %r3.shared = getelementptr i8, ptr %frame, i64 %f.skip
  %r3.shared.static = add i32 {static_bytes}, 0
  %f.dynamic = zext i32 %r3.shared.dynamic to i64
  %f.up = add i64 %f.dynamic, {static_bytes + FRAME_ALIGN - 1}
  %f.cells = and i64 %f.up, -{FRAME_ALIGN}
  %r3.cells = getelementptr i8, ptr %r3.shared, i64 %f.cells
  %r3.context = getelementptr i8, ptr %r3.cells, i64 {CELLS_BYTES}
"""
    )


def _kernel_arguments(signed: Signature, arguments: Sequence[Argument]) -> str:
    lines = []
    for (name, kind, _), argument in zip(signed.own(), arguments, strict=True):
        place = f"getelementptr i8, ptr %args, i64 {argument.offset}"
        if argument.by_value:
            lines.append(f"  {name} = {place}\n")
        elif kind == "i1":
            lines.append(f"  {name}.p = {place}\n  {name}.b = load i8, ptr {name}.p\n")
            lines.append(f"  {name} = trunc i8 {name}.b to i1\n")
        else:
            lines.append(f"  {name}.p = {place}\n  {name} = load {kind}, ptr {name}.p\n")
    return "".join(lines)


# -- running a block ------------------------------------------------------------------------------------------------


def _run_block(
    cut: Cut, regions: Sequence[Region], signed: Signature, arguments: Sequence[Argument], static_bytes: int
) -> str:
    names = [suspend.intrinsic for suspend in cut.suspends]
    if not names:
        body = _independent(signed)
    elif any(name in nvvm.COLLECTIVES for name in names) or "barrier" in cut.context.sizes:
        body = "  %code = call i32 @r3.mixed(ptr %env, i1 %back, i1 true)\n  ret i32 %code\n"
    else:
        body = _together(cut, regions, signed)
    fields = _launch_fields() + _block_fields(static_bytes) + _kernel_arguments(signed, arguments)
    fields += _environment(signed) if names else ""
    return f"""define i32 @r3_run_block(ptr %args, ptr %launch, ptr %block, ptr %frame) nounwind {{
entry:
{fields}  %back = icmp ne i32 %r3.reverse, 0
{body}}}"""


def _environment(signed: Signature) -> str:
    return f"  %env = alloca %r3.environment\n{signed.stored()}"


def _independent(signed: Signature) -> str:
    """No thread ever waits: all of them in one loop, or one by one from the last to the first."""
    return f"""  br i1 %back, label %last, label %whole
whole:
  %ways = call i64 @r3.region.0({signed.region_arguments}, {_WHOLE})
  %all = trunc i64 %ways to i32
  %code = call i32 @r3.code(i32 %all)
  ret i32 %code
last:
  %left = phi i32 [ %r3.threads, %entry ], [ %t, %last ]
  %worst = phi i32 [ {EXIT}, %entry ], [ %worse, %last ]
  %t = sub i32 %left, 1
{_COORDINATES}  %one = call i64 @r3.region.0({signed.region_arguments}, {_ONE})
  %way = trunc i64 %one to i32
  %worse = and i32 %worst, %way
  %more = icmp ne i32 %t, 0
  br i1 %more, label %last, label %done
done:
  %result = call i32 @r3.code(i32 %worse)
  ret i32 %result
"""


def _together(cut: Cut, regions: Sequence[Region], signed: Signature) -> str:
    """Region after region for the whole block; as soon as its threads part, the mixed functions take over."""
    start = f"""  br i1 %back, label %apart, label %region.0
apart:
  %fresh = phi i1 [ true, %entry ], {", ".join(f"[ false, %{label} ]" for label in _partings(regions))}
  %code = call i32 @r3.mixed(ptr %env, i1 %back, i1 %fresh)
  ret i32 %code
ended:
  ret i32 0
"""
    if not _partings(regions):
        start = start.replace("[ true, %entry ], ", "[ true, %entry ]")
    return start + "".join(_region_call(cut, region, signed) for region in regions)


def _partings(regions: Sequence[Region]) -> list[str]:
    """Labels from which threads can go on apart."""
    found = []
    for region in regions:
        if not _one_way(region):
            found += [f"region.{region.state}", f"agree.{region.state}"]
    return found


def _one_way(region: Region) -> bool:
    return len(region.exits) == 1


def _region_call(cut: Cut, region: Region, signed: Signature) -> str:
    k = region.state
    reduction = k > 0 and ".red." in cut.suspends[k - 1].intrinsic
    count = "  call void @r3.count(ptr %env, i1 true)\n" if reduction else ""
    call = f"region.{k}:\n{count}  %ways.{k} = call i64 @r3.region.{k}({signed.region_arguments}, {_WHOLE})\n"
    if _one_way(region):
        return call + _go(region.exits[0], k)
    if not region.exits:
        return f"{call}  unreachable\n"
    cases = " ".join(f"i32 {way}, label %{_target(way)}" for way in region.exits if way >= EXIT)
    return f"""{call}  %all.{k} = trunc i64 %ways.{k} to i32
  %upper.{k} = lshr i64 %ways.{k}, 32
  %any.{k} = trunc i64 %upper.{k} to i32
  %same.{k} = icmp eq i32 %all.{k}, %any.{k}
  br i1 %same.{k}, label %agree.{k}, label %apart
agree.{k}:
  switch i32 %all.{k}, label %apart [ {cases} ]
"""


def _go(way: int, k: int) -> str:
    """All threads of a region go one way; where that is a fault, no thread's state was kept."""
    if way >= EXIT:
        return f"  br label %{_target(way)}\n"
    return f"  %fault.{k} = call i32 @r3.code(i32 {way})\n  ret i32 %fault.{k}\n"


def _target(way: int) -> str:
    return "ended" if way == EXIT else f"region.{way}"


# -- one thread, one box of threads ---------------------------------------------------------------------------------


def _box(regions: Sequence[Region], signed: Signature) -> str:
    """Run a box of threads from a state that is not known beforehand."""
    box = "i32 %a, i32 %b, i32 %c, i32 %d, i32 %e, i32 %f"
    cases = " ".join(f"i32 {region.state}, label %from.{region.state}" for region in regions[1:])
    calls = "".join(
        f"from.{n}:\n  %r.{n} = call i64 @r3.region.{n}({signed.region_arguments}, {box})\n  ret i64 %r.{n}\n"
        for n in range(len(regions))
    )
    head = f"define internal i64 @r3.box(ptr %env, i32 %state, {box}) {SMALL} {{\n{signed.loaded()}"
    return f"{head}  switch i32 %state, label %from.0 [ {cases} ]\n{calls}}}"


def _single(signed: Signature) -> str:
    """Run one thread, by its linear index; the result is where it went."""
    return f"""define internal i32 @r3.single(ptr %env, i32 %state, i32 %t) {SMALL} {{
{signed.often()}{_COORDINATES}  %ways = call i64 @r3.box(ptr %env, i32 %state, {_ONE})
  %way = trunc i64 %ways to i32
  ret i32 %way
}}"""


_ONE = "i32 %x, i32 %x1, i32 %y, i32 %y1, i32 %z, i32 %z1"
_COORDINATES = """  %q = udiv i32 %t, %r3.ntid.x
  %qx = mul i32 %q, %r3.ntid.x
  %x = sub i32 %t, %qx
  %z = udiv i32 %q, %r3.ntid.y
  %zy = mul i32 %z, %r3.ntid.y
  %y = sub i32 %q, %zy
  %x1 = add i32 %x, 1
  %y1 = add i32 %y, 1
  %z1 = add i32 %z, 1
"""
