"""What an object holds around its regions: its entry points, and the table that tells devices/cpu/blocks.c, which
decides whose turn it is, about the kernel."""

from __future__ import annotations

from collections.abc import Sequence

from r3bench.lowering import nvvm
from r3bench.lowering.cut import Cut
from r3bench.lowering.regions import Region

_ARRAYS = ("own", "state", "predicate", "barrier", "count", "mask", "value", "high", "lane", "clamp", "result", "flag")
_ABSENT = -1
# LLVM would take a millisecond to optimize these two.
_ENTRIES = """define i64 @r3_frame_bytes(ptr %launch) nounwind noinline optnone {
  %bytes = call i64 @__r3_frame_bytes(ptr @r3.table, ptr %launch)
  ret i64 %bytes
}
define i32 @r3_run_block(ptr %args, ptr %launch, ptr %index, ptr %frame) nounwind noinline optnone {
  %code = call i32 @__r3_run_block(ptr %args, ptr %launch, ptr %index, ptr %frame, ptr @r3.table)
  ret i32 %code
}
declare i64 @__r3_frame_bytes(ptr, ptr)
declare i32 @__r3_run_block(ptr, ptr, ptr, ptr, ptr)
declare i64 @__r3_apart(ptr, ptr, ptr, i32, i32, i32, i32, ptr) nounwind
declare void @__r3_left_out(ptr, i32, i32, i32, i32, i32, i32, i32) nounwind
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @llvm.umin.i32(i32, i32)
declare i32 @llvm.umax.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i128 @llvm.smin.i128(i128, i128)
declare i128 @llvm.smax.i128(i128, i128)"""


def write_driver(cut: Cut, regions: Sequence[Region], static_bytes: int, checked: bool, strict: bool) -> str:
    """All of it. Static shared memory, padded to ``static_bytes``, comes first in a frame; ``checked``: what is
    written there is noted; ``strict``: a warp has to wait at a barrier as one."""
    operations = ["i8 0", *(f"i8 {nvvm.OPERATIONS[suspend.intrinsic]}" for suspend in cut.suspends)]
    functions = [f"ptr {region.name}" for region in regions]
    offsets = [cut.context.offsets.get(name, _ABSENT) for name in _ARRAYS]
    numbers = [len(regions), static_bytes, cut.context.bytes, cut.uniform.bytes, int(checked), int(strict), *offsets]
    kinds = ", ".join(["ptr", "ptr", *["i32"] * len(numbers)])
    fields = ", ".join(["ptr @r3.regions", "ptr @r3.operations", *(f"i32 {number}" for number in numbers)])
    return f"""@r3.operations = internal constant [{len(operations)} x i8] [{", ".join(operations)}]
@r3.regions = internal constant [{len(functions)} x ptr] [{", ".join(functions)}]
@r3.table = internal constant {{ {kinds} }} {{ {fields} }}
{_ENTRIES}"""
