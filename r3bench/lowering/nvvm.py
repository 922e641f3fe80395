"""NVVM intrinsics by what becomes of them: indices, fences, suspend points, and plain functions of a thread."""

from __future__ import annotations

from dataclasses import dataclass

from r3bench.lowering.ir import callee

_SREG = "llvm.nvvm.read.ptx.sreg."

INDICES = {
    f"@{_SREG}{register}.{axis}": f"%r3.{register}.{axis}"
    for register in ("tid", "ntid", "ctaid", "nctaid")
    for axis in "xyz"
}
"""Special registers that name a thread's place, and the value of the lowered kernel that holds each."""

PLACES = {
    "@r3.thread": ("i32", "%r3.thread"),
    "@r3.threads": ("i32", "%r3.threads"),
    "@r3.alone": ("i32", "%r3.alone"),
    "@r3.all.bits": ("i32", "%r3.all.bits"),
    "@r3.shared": ("ptr", "%r3.shared"),
    "@r3.shared.dynamic": ("i32", "%r3.shared.dynamic"),
    "@r3.shared.static": ("i32", "%r3.shared.static"),
}
"""Values of the lowered kernel that CUDA has no name for, as functions until the kernel is one function."""

_REGISTERS = {
    "warpsize": "  ret i32 32\n",
    "laneid": "  %t = call i32 @r3.thread()\n  %r = and i32 %t, 31\n  ret i32 %r\n",
    "warpid": "  %t = call i32 @r3.thread()\n  %r = lshr i32 %t, 5\n  ret i32 %r\n",
    "nwarpid": "  %n = call i32 @r3.threads()\n  %m = add i32 %n, 31\n  %r = lshr i32 %m, 5\n  ret i32 %r\n",
    "smid": "  ret i32 0\n",
    "nsmid": "  ret i32 1\n",
    "gridid": "  ret i32 0\n",
    "dynamic_smem_size": "  %r = call i32 @r3.shared.dynamic()\n  ret i32 %r\n",
    "total_smem_size": "  %n = call i32 @r3.shared.static()\n  %d = call i32 @r3.shared.dynamic()\n"
    "  %r = add i32 %n, %d\n  ret i32 %r\n",
    "clock": "  %c = call i64 @llvm.readcyclecounter()\n  %r = trunc i64 %c to i32\n  ret i32 %r\n",
    "clock64": "  %c = call i64 @llvm.readcyclecounter()\n  ret i64 %c\n",
    "globaltimer": "  %c = call i64 @llvm.readcyclecounter()\n  ret i64 %c\n",
}
_LANE = "  %t = call i32 @r3.thread()\n  %l = and i32 %t, 31\n"
_MASKS = {
    "eq": "  %r = shl i32 1, %l\n",
    "lt": "  %b = shl i32 1, %l\n  %r = sub i32 %b, 1\n",
    "le": "  %b = shl i32 2, %l\n  %r = sub i32 %b, 1\n",
    "gt": "  %r = shl i32 -2, %l\n",
    "ge": "  %r = shl i32 -1, %l\n",
}
_FENCE = "  fence seq_cst\n  ret void\n"
_SHARED = """  %s = call ptr @r3.shared()
  %n = call i32 @r3.shared.static()
  %d = call i32 @r3.shared.dynamic()
  %m = add i32 %n, %d
  %size = zext i32 %m to i64
  %first = ptrtoint ptr %s to i64
  %address = ptrtoint ptr %p to i64
  %offset = sub i64 %address, %first
  %r = icmp ult i64 %offset, %size
  ret i1 %r
"""


@dataclass(frozen=True, slots=True)
class Helper:
    """An intrinsic that becomes a small function: its result, parameters and body."""

    result: str
    parameters: str
    body: str

    def text(self, symbol: str) -> str:
        return f"define internal {self.result} {symbol}({self.parameters}) alwaysinline nounwind {{\n{self.body}}}"


def _permute() -> str:
    """prmt: each nibble of the selector picks a byte of two words; its top bit asks for that byte's sign instead."""
    lines = ["%aw = zext i32 %a to i64", "%bw = zext i32 %b to i64", "%bs = shl i64 %bw, 32", "%w = or i64 %aw, %bs"]
    for n in range(4):
        lines += [
            f"%n{n} = lshr i32 %c, {4 * n}",
            f"%i{n} = and i32 %n{n}, 7",
            f"%s{n} = shl i32 %i{n}, 3",
            f"%e{n} = zext i32 %s{n} to i64",
            f"%f{n} = lshr i64 %w, %e{n}",
            f"%b{n} = trunc i64 %f{n} to i8",
            f"%g{n} = ashr i8 %b{n}, 7",
            f"%h{n} = and i32 %n{n}, 8",
            f"%k{n} = icmp ne i32 %h{n}, 0",
            f"%m{n} = select i1 %k{n}, i8 %g{n}, i8 %b{n}",
            f"%v{n} = zext i8 %m{n} to i32",
            f"%u{n} = shl i32 %v{n}, {8 * n}",
        ]
    lines += ["%r1 = or i32 %u0, %u1", "%r2 = or i32 %u2, %u3", "%r = or i32 %r1, %r2", "ret i32 %r"]
    return "".join(f"  {line}\n" for line in lines)


def _high_product(kind: str, extend: str) -> Helper:
    bits = int(kind[1:])
    body = (
        f"  %x = {extend} {kind} %a to i{2 * bits}\n  %y = {extend} {kind} %b to i{2 * bits}\n"
        f"  %p = mul i{2 * bits} %x, %y\n  %h = lshr i{2 * bits} %p, {bits}\n"
        f"  %r = trunc i{2 * bits} %h to {kind}\n  ret {kind} %r\n"
    )
    return Helper(kind, f"{kind} %a, {kind} %b", body)


HELPERS = {
    "__r3_shared": Helper("ptr", "", "  %r = call ptr @r3.shared()\n  ret ptr %r\n"),  # asked for by checked builds
    **{f"{_SREG}{name}": Helper("i64" if name in ("clock64", "globaltimer") else "i32", "", body)
       for name, body in _REGISTERS.items()},
    **{f"{_SREG}lanemask.{name}": Helper("i32", "", f"{_LANE}{body}  ret i32 %r\n") for name, body in _MASKS.items()},
    **{f"llvm.nvvm.membar.{scope}": Helper("void", "", _FENCE) for scope in ("cta", "gl", "sys")},
    "llvm.nvvm.fence.sc.cluster": Helper("void", "", _FENCE),
    "llvm.nvvm.nanosleep": Helper("void", "i32 %ns", "  ret void\n"),
    "llvm.nvvm.isspacep.shared": Helper("i1", "ptr %p", _SHARED),
    "llvm.nvvm.prmt": Helper("i32", "i32 %a, i32 %b, i32 %c", _permute()),
    "llvm.nvvm.mulhi.i": _high_product("i32", "sext"),
    "llvm.nvvm.mulhi.ui": _high_product("i32", "zext"),
    "llvm.nvvm.mulhi.ll": _high_product("i64", "sext"),
    "llvm.nvvm.mulhi.ull": _high_product("i64", "zext"),
}  # fmt: skip
"""Intrinsics that are functions of one thread, as small functions that are inlined."""

BARRIERS = {
    f"@llvm.nvvm.barrier.cta.{kind}{aligned}.{who}"
    for kind in ("sync", "red.popc", "red.and", "red.or")
    for aligned in ("", ".aligned")
    for who in ("all", "count")
}
"""Barriers of a block, with and without a reduction, for all threads or a count of them."""

COLLECTIVES = {
    "@llvm.nvvm.bar.warp.sync",
    "@llvm.nvvm.activemask",
    *(
        f"@llvm.nvvm.shfl.sync.{mode}.{kind}"
        for mode in ("idx", "up", "down", "bfly")
        for kind in ("i32", "f32", "i32p", "f32p")
    ),
    *(f"@llvm.nvvm.vote.{kind}.sync" for kind in ("all", "any", "uni", "ballot")),
    *(f"@llvm.nvvm.match.any.sync.{kind}" for kind in ("i32", "i64")),
    *(f"@llvm.nvvm.match.all.sync.{kind}" for kind in ("i32p", "i64p")),
    *(f"@llvm.nvvm.redux.sync.{op}" for op in ("add", "and", "or", "xor", "min", "max", "umin", "umax")),
}
"""Warp collectives."""

_HERE = "@r3.here."


def here(collective: str) -> str:
    """The same collective of those lanes that are at its place, whatever its mask says."""
    return _HERE + collective.removeprefix("@llvm.nvvm.")


COLLECTIVES_HERE = {here(name) for name in COLLECTIVES}

SUSPENDS = BARRIERS | COLLECTIVES | COLLECTIVES_HERE
"""Calls at which a thread waits for others: the kernel is cut there."""

STEP, MEET = "@r3.step", "@r3.meet"
"""Places at which nobody waits but the kernel is cut too: in front of each pass of a loop, and behind the loop."""

_OPERATION_NAMES = (
    *("shfl.sync.idx", "shfl.sync.up", "shfl.sync.down", "shfl.sync.bfly"),
    *("vote.all", "vote.any", "vote.uni", "vote.ballot", "match.any", "match.all"),
    *(f"redux.sync.{name}" for name in ("add", "and", "or", "xor", "min", "max", "umin", "umax")),
)
OPERATIONS = {
    **dict.fromkeys(BARRIERS, 0),
    "@llvm.nvvm.activemask": 1,
    "@llvm.nvvm.bar.warp.sync": 2,
    **{
        name: number
        for number, start in enumerate(_OPERATION_NAMES, 3)
        for name in COLLECTIVES
        if name.removeprefix("@llvm.nvvm.") == start or name.startswith(f"@llvm.nvvm.{start}.")
    },
    MEET: 254,
    STEP: 255,
}
OPERATIONS |= {here(name): 64 | OPERATIONS[name] for name in COLLECTIVES}
"""Numbers of what happens where a kernel is cut, ``enum operation`` of devices/cpu/blocks.c."""


def known(name: str) -> bool:
    """Whether the intrinsic ``name`` (without ``@``) can be lowered."""
    symbol = f"@{name}"
    return symbol in INDICES or symbol in SUSPENDS or name in HELPERS or name == "llvm.nvvm.exit"


def waits(line: str) -> bool:
    """Whether a thread waits for others at an instruction."""
    return "call " in line and callee(line) in SUSPENDS
