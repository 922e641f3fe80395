"""What an object holds around its regions: ``r3.run``, which runs a box of threads from any place, and the table that
tells devices/cpu/blocks.c, which decides whose turn it is, about the kernel."""

from __future__ import annotations

from collections.abc import Sequence

from r3bench.lowering import nvvm
from r3bench.lowering.cut import Cut
from r3bench.lowering.regions import Region
from r3bench.lowering.signature import ARGUMENTS_AT, Signature

_ARRAYS = ("own", "state", "predicate", "barrier", "count", "mask", "value", "lane", "clamp", "result", "flag")
_ABSENT = -1
_ENTRIES = """define i64 @r3_frame_bytes(ptr %launch) nounwind {
  %bytes = call i64 @__r3_frame_bytes(ptr @r3.kernel.table, ptr %launch)
  ret i64 %bytes
}
define i32 @r3_run_block(ptr %args, ptr %launch, ptr %index, ptr %frame) nounwind {
  %code = call i32 @__r3_run_block(ptr %args, ptr %launch, ptr %index, ptr %frame, ptr @r3.kernel.table)
  ret i32 %code
}
declare i64 @__r3_frame_bytes(ptr, ptr)
declare i32 @__r3_run_block(ptr, ptr, ptr, ptr, ptr)"""
_DECLARED = """declare i32 @llvm.umin.i32(i32, i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i128 @llvm.smin.i128(i128, i128)
declare i128 @llvm.smax.i128(i128, i128)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"""


def write_driver(cut: Cut, regions: Sequence[Region], signed: Signature, static_bytes: int) -> str:
    """All of it. Static shared memory, padded to ``static_bytes``, comes first in a frame."""
    return "\n".join([_run(regions, signed), _table(cut, static_bytes), _ENTRIES, _DECLARED])


def _table(cut: Cut, static_bytes: int) -> str:
    """``struct kernel`` of blocks.c."""
    places = [0, *(nvvm.OPERATIONS[suspend.intrinsic] for suspend in cut.suspends)]
    offsets = [cut.context.offsets.get(name, _ABSENT) for name in _ARRAYS]
    numbers = [len(places), static_bytes, cut.context.bytes, cut.uniform.bytes, *offsets]
    fields = ["ptr @r3.run", *(f"i32 {number}" for number in numbers)]
    codes = f"[{len(places)} x i8] [{', '.join(f'i8 {place}' for place in places)}]"
    kinds = f"{{ ptr, {', '.join(['i32'] * len(numbers))}, [{len(places)} x i8] }}"
    return f"@r3.kernel.table = internal constant {kinds} {{ {', '.join(fields)}, {codes} }}"


def _run(regions: Sequence[Region], signed: Signature) -> str:
    """A loop over the rows of a box around the regions, which run a row."""
    bounds = "".join(
        f"  %{axis}.{end}.p = getelementptr i32, ptr %box, i64 {number}\n"
        f"  %{axis}.{end} = load i32, ptr %{axis}.{end}.p\n"
        for number, (end, axis) in enumerate((end, axis) for end in ("first", "end") for axis in "xyz")
    )
    cases = " ".join(f"i32 {region.state}, label %from.{region.state}" for region in regions[1:])
    calls = "".join(_call(region, signed) for region in regions)
    ways = ", ".join(f"[ %ways.{region.state}, %from.{region.state} ]" for region in regions)
    return f"""define internal i64 @r3.run(ptr %block, i32 %place, ptr %box, ptr %r3.in, ptr %r3.out) nounwind {{
entry:
{bounds}  %arguments.p = getelementptr i8, ptr %block, i64 {ARGUMENTS_AT}
  %arguments = load ptr, ptr %arguments.p
  br label %plane
plane:
  %z = phi i32 [ %z.first, %entry ], [ %z1, %planes ]
  %all.z = phi i64 [ -1, %entry ], [ %all1, %planes ]
  %any.z = phi i64 [ 0, %entry ], [ %any1, %planes ]
  br label %row
row:
  %y = phi i32 [ %y.first, %plane ], [ %y1, %rows ]
  %all = phi i64 [ %all.z, %plane ], [ %all1, %rows ]
  %any = phi i64 [ %any.z, %plane ], [ %any1, %rows ]
  switch i32 %place, label %from.0 [ {cases} ]
{calls}rows:
  %ways = phi i64 {ways}
  %all1 = and i64 %all, %ways
  %any1 = or i64 %any, %ways
  %y1 = add i32 %y, 1
  %y.more = icmp ult i32 %y1, %y.end
  br i1 %y.more, label %row, label %planes
planes:
  %z1 = add i32 %z, 1
  %z.more = icmp ult i32 %z1, %z.end
  br i1 %z.more, label %plane, label %done
done:
  %low = and i64 %all1, 4294967295
  %high = and i64 %any1, -4294967296
  %result = or disjoint i64 %low, %high
  ret i64 %result
}}"""


def _call(region: Region, signed: Signature) -> str:
    k = region.state
    passed, loads = signed.passed(region.used, k)
    shared = "".join(f"ptr {name}, " for name in ("%r3.in", "%r3.out") if name in region.used)
    row = "i32 %x.first, i32 %x.end, i32 %y, i32 %z"
    return f"""from.{k}:
{loads}  %ways.{k} = call i64 @r3.region.{k}({passed}{shared}{row})
  br label %rows
"""
