"""The way through a block whose threads part: warp by warp, lane by lane where lanes differ.

Lanes run until each waits or has ended; collectives complete whose lanes have all arrived; then, when no warp can go
on, barriers. ``r3.mixed`` begins with a fresh block, or goes on where the threads of a block went different ways.
Arrays of the context: ``state`` is where each thread waits, ``warps`` holds a mask of living lanes per warp, and
behind these a mask of lanes that are ready to run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from r3bench.lowering import nvvm
from r3bench.lowering.collectives import ACTIVE, BARRIER, completion
from r3bench.lowering.cut import EXIT, Cut
from r3bench.lowering.regions import Region
from r3bench.lowering.signature import Signature

SMALL = "noinline minsize optsize nounwind"


def mixed_functions(cut: Cut, regions: Sequence[Region], signed: Signature) -> list[str]:
    return list(_Mixed(cut, signed).functions())


class _Mixed:
    """Writes the functions for one kernel."""

    def __init__(self, cut: Cut, signed: Signature) -> None:
        self.cut, self.signed = cut, signed
        self.intrinsics = [suspend.intrinsic for suspend in cut.suspends]
        self.collectives = sorted({*self.intrinsics} & nvvm.COLLECTIVES)
        self.numbers = {name: n for n, name in enumerate(self.collectives, ACTIVE + 1) if "activemask" not in name}

    def functions(self) -> Iterator[str]:
        sizes = self.cut.context.sizes
        yield from (self._operations(), self._enter(), self._mixed(), self._warp())
        if self.collectives:
            yield self._settle()
            yield from (completion(name, f"@r3.complete.{number}") for name, number in self.numbers.items())
        if "barrier" in sizes:
            yield self._named_barrier("predicate" in sizes)
        else:
            yield self._block_barrier("predicate" in sizes)
            if "predicate" in sizes:
                yield self._count()

    def _array(self, name: str, target: str) -> str:
        """Instructions for the address of one of the context's arrays."""
        offset = self.cut.context.offsets[name]
        return f"  {target}.o = mul i64 %r3.padded, {offset}\n  {target} = getelementptr i8, ptr %r3.context, i64 {target}.o\n"

    def _operations(self) -> str:
        """For each state, the number of the operation the thread waits in: equal for equal intrinsics."""
        codes = [BARRIER, *(self._number(name) for name in self.intrinsics)]
        values = ", ".join(f"i8 {code}" for code in codes)
        return f"@r3.operations = internal constant [{len(codes)} x i8] [{values}]"

    def _number(self, intrinsic: str) -> int:
        return BARRIER if intrinsic in nvvm.BARRIERS else self.numbers.get(intrinsic, ACTIVE)

    def _enter(self) -> str:
        """Fill in who is alive and ready; the lowest state tells of a fault (then the result is its code)."""
        return f"""define internal i32 @r3.enter({self.signed.parameters}, i1 %fresh) {SMALL} {{
entry:
{self._array("state", "%state")}{self._array("warps", "%alive")}  %half = lshr i64 %r3.padded, 3
  %ready = getelementptr i8, ptr %alive, i64 %half
  %n = zext i32 %r3.threads to i64
  br label %thread
thread:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %mask = phi i32 [ 0, %entry ], [ %kept, %next ]
  %low = phi i32 [ 0, %entry ], [ %least, %next ]
  %p = getelementptr i32, ptr %state, i64 %t
  %there = icmp ult i64 %t, %n
  br i1 %there, label %inside, label %outside
inside:
  br i1 %fresh, label %start, label %old
start:
  store i32 0, ptr %p
  br label %known
old:
  %was = load i32, ptr %p
  br label %known
outside:
  store i32 {EXIT}, ptr %p
  br label %known
known:
  %s = phi i32 [ 0, %start ], [ %was, %old ], [ {EXIT}, %outside ]
  %least = call i32 @llvm.smin.i32(i32 %low, i32 %s)
  %lives = icmp sge i32 %s, 0
  %one = zext i1 %lives to i32
  %t32 = trunc i64 %t to i32
  %lane = and i32 %t32, 31
  %bit = shl i32 %one, %lane
  %new = or i32 %mask, %bit
  %last = icmp eq i32 %lane, 31
  br i1 %last, label %warp, label %next
warp:
  %w = lshr i64 %t, 5
  %ap = getelementptr i32, ptr %alive, i64 %w
  %rp = getelementptr i32, ptr %ready, i64 %w
  store i32 %new, ptr %ap
  %can = select i1 %fresh, i32 %new, i32 0
  store i32 %can, ptr %rp
  br label %next
next:
  %kept = phi i32 [ %new, %known ], [ 0, %warp ]
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %r3.padded
  br i1 %more, label %thread, label %done
done:
  %bad = icmp slt i32 %least, {EXIT}
  %code = call i32 @r3.code(i32 %least)
  %result = select i1 %bad, i32 %code, i32 0
  ret i32 %result
}}"""

    def _mixed(self) -> str:
        """Rounds of warps until no thread is left, or until none can go on."""
        args = self.signed.arguments
        return f"""define internal i32 @r3.mixed({self.signed.parameters}, i1 %back, i1 %fresh) {SMALL} {{
entry:
  %fault = call i32 @r3.enter({args}, i1 %fresh)
  %failed = icmp ne i32 %fault, 0
  %padded32 = trunc i64 %r3.padded to i32
  %count = lshr i32 %padded32, 5
  %top = sub i32 %count, 1
  br i1 %failed, label %stop, label %first
first:
  br i1 %fresh, label %round, label %meet
stop:
  ret i32 %fault
round:
  br label %warp
warp:
  %i = phi i32 [ 0, %round ], [ %i1, %next ]
  %mirror = sub i32 %top, %i
  %w = select i1 %back, i32 %mirror, i32 %i
  %code = call i32 @r3.warp({args}, i32 %w, i1 %back)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %broken, label %next
broken:
  ret i32 %code
next:
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %count
  br i1 %more, label %warp, label %meet
meet:
  %met = call i32 @r3.barrier({args})
  switch i32 %met, label %round [
    i32 0, label %ended
    i32 1, label %dead
  ]
ended:
  ret i32 0
dead:
  ret i32 1
}}"""

    def _warp(self) -> str:
        """Run a warp's ready lanes, complete collectives, and again, until every lane waits for other warps or ended."""
        return f"""define internal i32 @r3.warp({self.signed.parameters}, i32 %w, i1 %back) {SMALL} {{
entry:
{self._array("state", "%state")}{self._array("warps", "%alive")}  %half = lshr i64 %r3.padded, 3
  %ready = getelementptr i8, ptr %alive, i64 %half
  %ap = getelementptr i32, ptr %alive, i32 %w
  %rp = getelementptr i32, ptr %ready, i32 %w
  %base = shl i32 %w, 5
  br label %again
again:
  %can = load i32, ptr %rp
  store i32 0, ptr %rp
  %idle = icmp eq i32 %can, 0
  br i1 %idle, label %settle, label %lane
lane:
  %left = phi i32 [ %can, %again ], [ %rest, %next ]
  %up = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %zeros = call i32 @llvm.ctlz.i32(i32 %left, i1 true)
  %down = sub i32 31, %zeros
  %l = select i1 %back, i32 %down, i32 %up
  %bit = shl i32 1, %l
  %others = xor i32 %bit, -1
  %rest = and i32 %left, %others
  %t = add i32 %base, %l
  %sp = getelementptr i32, ptr %state, i32 %t
  %s = load i32, ptr %sp
  %n = call i32 @r3.single({self.signed.arguments}, i32 %s, i32 %t)
  store i32 %n, ptr %sp
  %waits = icmp sge i32 %n, 0
  br i1 %waits, label %next, label %ends
ends:
  %living = load i32, ptr %ap
  %fewer = and i32 %living, %others
  store i32 %fewer, ptr %ap
  %faulty = icmp ne i32 %n, {EXIT}
  br i1 %faulty, label %fault, label %next
fault:
  %code = call i32 @r3.code(i32 %n)
  ret i32 %code
next:
  %more = icmp ne i32 %rest, 0
  br i1 %more, label %lane, label %settle
settle:
{self._settle_call()}}}"""

    def _settle_call(self) -> str:
        if not self.collectives:
            return "  ret i32 0\n"
        return f"""  %freed = call i64 @r3.settle({self.signed.arguments}, i32 %w)
  %wrong = icmp slt i64 %freed, 0
  br i1 %wrong, label %lost, label %fine
lost:
  ret i32 1
fine:
  %now = trunc i64 %freed to i32
  store i32 %now, ptr %rp
  %stuck = icmp eq i32 %now, 0
  br i1 %stuck, label %out, label %again
out:
  ret i32 0
"""

    def _settle(self) -> str:
        """Complete every collective whose lanes have all arrived; lanes set free, -1 where a mask misses its caller.

        When none completes, lanes at the same activemask are what is active there.
        """
        names = ("mask", "value", "lane", "clamp", "result", "flag")
        arrays = "".join(self._array(name, f"%{name}.all") for name in names)
        bytes_of = {"value": 3, "result": 3}
        at = "".join(
            f"  %{name}.s = shl i64 %base64, {bytes_of.get(name, 2)}\n  %{name} = getelementptr i8, ptr %{name}.all, i64 %{name}.s\n"
            for name in names
        )
        return f"""define internal i64 @r3.settle({self.signed.parameters}, i32 %w) {SMALL} {{
entry:
{self._array("state", "%state.all")}{self._array("warps", "%alive")}{arrays}  %ap = getelementptr i32, ptr %alive, i32 %w
  %living = load i32, ptr %ap
  %base = shl i32 %w, 5
  %base64 = zext i32 %base to i64
  %state = getelementptr i32, ptr %state.all, i64 %base64
{at}  %empty = icmp eq i32 %living, 0
  br i1 %empty, label %nothing, label %look
nothing:
  ret i64 0
look:
  %left = phi i32 [ %living, %entry ], [ %rest, %next ]
  %free = phi i32 [ 0, %entry ], [ %freed, %next ]
  %i = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %bit = shl i32 1, %i
  %others = xor i32 %bit, -1
  %sp = getelementptr i32, ptr %state, i32 %i
  %s = load i32, ptr %sp
  %op = getelementptr i8, ptr @r3.operations, i32 %s
  %o = load i8, ptr %op
  %waits = icmp ule i8 %o, {ACTIVE}
  br i1 %waits, label %pass, label %check
pass:
  %skip = and i32 %left, %others
  br label %next
check:
  %mp = getelementptr i32, ptr %mask, i32 %i
  %m = load i32, ptr %mp
  %own = and i32 %m, %bit
  %misses = icmp eq i32 %own, 0
  br i1 %misses, label %wrong, label %members
wrong:
  ret i64 -1
members:
  %group = and i32 %m, %living
  br label %member
member:
  %mleft = phi i32 [ %group, %members ], [ %mrest, %same ]
  %j = call i32 @llvm.cttz.i32(i32 %mleft, i1 true)
  %mless = sub i32 %mleft, 1
  %mrest = and i32 %mleft, %mless
  %jsp = getelementptr i32, ptr %state, i32 %j
  %js = load i32, ptr %jsp
  %jop = getelementptr i8, ptr @r3.operations, i32 %js
  %jo = load i8, ptr %jop
  %eq = icmp eq i8 %jo, %o
  br i1 %eq, label %alike, label %pass
alike:
  %jmp = getelementptr i32, ptr %mask, i32 %j
  %jm = load i32, ptr %jmp
  %meq = icmp eq i32 %jm, %m
  br i1 %meq, label %same, label %pass
same:
  %more = icmp ne i32 %mrest, 0
  br i1 %more, label %member, label %complete
complete:
{self._dispatch()}completed:
  %done = xor i32 %group, -1
  %after = and i32 %left, %done
  br label %next
next:
  %rest = phi i32 [ %skip, %pass ], [ %after, %completed ]
  %gain = phi i32 [ 0, %pass ], [ %group, %completed ]
  %freed = or i32 %free, %gain
  %again = icmp ne i32 %rest, 0
  br i1 %again, label %look, label %looked
looked:
  %some = icmp ne i32 %freed, 0
  br i1 %some, label %give, label %active
give:
  %given = zext i32 %freed to i64
  ret i64 %given
active:
  %aleft = phi i32 [ %living, %looked ], [ %arest, %other ]
  %ai = call i32 @llvm.cttz.i32(i32 %aleft, i1 true)
  %aless = sub i32 %aleft, 1
  %arest = and i32 %aleft, %aless
  %asp = getelementptr i32, ptr %state, i32 %ai
  %as = load i32, ptr %asp
  %aop = getelementptr i8, ptr @r3.operations, i32 %as
  %ao = load i8, ptr %aop
  %is = icmp eq i8 %ao, {ACTIVE}
  br i1 %is, label %gather, label %other
other:
  %amore = icmp ne i32 %arest, 0
  br i1 %amore, label %active, label %nothing
gather:
  %gi = phi i32 [ 0, %active ], [ %gi1, %gather ]
  %gm = phi i32 [ 0, %active ], [ %gm1, %gather ]
  %gsp = getelementptr i32, ptr %state, i32 %gi
  %gs = load i32, ptr %gsp
  %geq = icmp eq i32 %gs, %as
  %gone = zext i1 %geq to i32
  %gbit = shl i32 %gone, %gi
  %gm1 = or i32 %gm, %gbit
  %gi1 = add i32 %gi, 1
  %gmore = icmp ult i32 %gi1, 32
  br i1 %gmore, label %gather, label %tell
tell:
  %ti = phi i32 [ 0, %gather ], [ %ti1, %told ]
  %tb = shl i32 1, %ti
  %tm = and i32 %tb, %gm1
  %tin = icmp ne i32 %tm, 0
  br i1 %tin, label %say, label %told
say:
  %tp = getelementptr i64, ptr %result, i32 %ti
  %tv = zext i32 %gm1 to i64
  store i64 %tv, ptr %tp
  br label %told
told:
  %ti1 = add i32 %ti, 1
  %tmore = icmp ult i32 %ti1, 32
  br i1 %tmore, label %tell, label %all
all:
  %av = zext i32 %gm1 to i64
  ret i64 %av
}}"""

    def _dispatch(self) -> str:
        cases = " ".join(f"i8 {n}, label %do.{n}" for n in self.numbers.values())
        arguments = "i32 %group, ptr %value, ptr %lane, ptr %clamp, ptr %result, ptr %flag"
        calls = "".join(
            f"do.{n}:\n  call void @r3.complete.{n}({arguments})\n  br label %completed\n"
            for n in self.numbers.values()
        )
        return f"  switch i8 %o, label %completed [ {cases} ]\n{calls}"

    def _block_barrier(self, reduces: bool) -> str:
        """2: the barrier completed and its threads are ready; 0: no thread is left; 1: some wait for what never comes."""
        count = f"  call void @r3.count({self.signed.arguments}, i1 false)\n" if reduces else ""
        return f"""define internal i32 @r3.barrier({self.signed.parameters}) {SMALL} {{
entry:
{self._array("state", "%state")}{self._array("warps", "%alive")}  %half = lshr i64 %r3.padded, 3
  %ready = getelementptr i8, ptr %alive, i64 %half
  br label %thread
thread:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %found = phi i1 [ false, %entry ], [ %any, %next ]
  %p = getelementptr i32, ptr %state, i64 %t
  %s = load i32, ptr %p
  %lives = icmp sge i32 %s, 0
  %any = or i1 %found, %lives
  br i1 %lives, label %where, label %next
where:
  %op = getelementptr i8, ptr @r3.operations, i32 %s
  %o = load i8, ptr %op
  %here = icmp eq i8 %o, {BARRIER}
  br i1 %here, label %next, label %dead
dead:
  ret i32 1
next:
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %r3.padded
  br i1 %more, label %thread, label %all
all:
  br i1 %any, label %release, label %ended
ended:
  ret i32 0
release:
{count}  call void @llvm.memcpy.p0.p0.i64(ptr %ready, ptr %alive, i64 %half, i1 false)
  ret i32 2
}}"""

    def _count(self) -> str:
        """How many predicates of the threads that wait at the block's barrier are true, and how many threads wait."""
        return f"""define internal void @r3.count({self.signed.parameters}, i1 %all) {SMALL} {{
entry:
{self._array("predicate", "%predicate")}{self._array("state", "%state")}  %n = zext i32 %r3.threads to i64
  %second = getelementptr i32, ptr %r3.cells, i64 1
  br label %thread
thread:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %true = phi i32 [ 0, %entry ], [ %true1, %next ]
  %here = phi i32 [ 0, %entry ], [ %here1, %next ]
  br i1 %all, label %counts, label %alive
alive:
  %sp = getelementptr i32, ptr %state, i64 %t
  %s = load i32, ptr %sp
  %lives = icmp sge i32 %s, 0
  br i1 %lives, label %counts, label %next
counts:
  %p = getelementptr i32, ptr %predicate, i64 %t
  %v = load i32, ptr %p
  br label %next
next:
  %one = phi i32 [ 0, %alive ], [ 1, %counts ]
  %add = phi i32 [ 0, %alive ], [ %v, %counts ]
  %true1 = add i32 %true, %add
  %here1 = add i32 %here, %one
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %n
  br i1 %more, label %thread, label %done
done:
  store i32 %true1, ptr %r3.cells
  store i32 %here1, ptr %second
  ret void
}}"""

    def _named_barrier(self, reduces: bool) -> str:
        """Barriers by number: one completes when as many threads wait as it asks for (0: all that live)."""
        predicate = "  %true = load i32, ptr %pp\n" if reduces else "  %true = add i32 0, 0\n"
        array = self._array("predicate", "%predicate") if reduces else ""
        address = "  %pp = getelementptr i32, ptr %predicate, i64 %t\n" if reduces else ""
        return f"""define internal i32 @r3.barrier({self.signed.parameters}) {SMALL} {{
entry:
  %waiting = alloca [16 x i32], align 16
  %needed = alloca [16 x i32], align 16
  call void @llvm.memset.p0.i64(ptr %waiting, i8 0, i64 64, i1 false)
  call void @llvm.memset.p0.i64(ptr %needed, i8 0, i64 64, i1 false)
  call void @llvm.memset.p0.i64(ptr %r3.cells, i8 0, i64 128, i1 false)
{self._array("state", "%state")}{self._array("warps", "%alive")}{self._array("barrier", "%barrier")}{self._array("count", "%count")}{array}  %half = lshr i64 %r3.padded, 3
  %ready = getelementptr i8, ptr %alive, i64 %half
  br label %thread
thread:
  %t = phi i64 [ 0, %entry ], [ %t1, %next ]
  %living = phi i32 [ 0, %entry ], [ %living1, %next ]
  %p = getelementptr i32, ptr %state, i64 %t
  %s = load i32, ptr %p
  %lives = icmp sge i32 %s, 0
  br i1 %lives, label %look, label %next
look:
  %op = getelementptr i8, ptr @r3.operations, i32 %s
  %o = load i8, ptr %op
  %at = icmp eq i8 %o, {BARRIER}
  br i1 %at, label %here, label %next
here:
  %bp = getelementptr i32, ptr %barrier, i64 %t
  %wide = load i32, ptr %bp
  %id = and i32 %wide, 15
  %wp = getelementptr i32, ptr %waiting, i32 %id
  %w0 = load i32, ptr %wp
  %w1 = add i32 %w0, 1
  store i32 %w1, ptr %wp
  %cp = getelementptr i32, ptr %count, i64 %t
  %c = load i32, ptr %cp
  %np = getelementptr i32, ptr %needed, i32 %id
  %n0 = load i32, ptr %np
  %n1 = call i32 @llvm.umax.i32(i32 %n0, i32 %c)
  store i32 %n1, ptr %np
{address}{predicate}  %cell = getelementptr [2 x i32], ptr %r3.cells, i32 %id
  %k0 = load i32, ptr %cell
  %k1 = add i32 %k0, %true
  store i32 %k1, ptr %cell
  %cell2 = getelementptr i32, ptr %cell, i32 1
  store i32 %w1, ptr %cell2
  br label %next
next:
  %one = phi i32 [ 0, %thread ], [ 1, %look ], [ 1, %here ]
  %living1 = add i32 %living, %one
  %t1 = add i64 %t, 1
  %more = icmp ult i64 %t1, %r3.padded
  br i1 %more, label %thread, label %counted
counted:
  %none = icmp eq i32 %living1, 0
  br i1 %none, label %ended, label %barriers
ended:
  ret i32 0
barriers:
  %i = phi i32 [ 0, %counted ], [ %i1, %barriers ]
  %done = phi i32 [ 0, %counted ], [ %done1, %barriers ]
  %iwp = getelementptr i32, ptr %waiting, i32 %i
  %iw = load i32, ptr %iwp
  %inp = getelementptr i32, ptr %needed, i32 %i
  %in = load i32, ptr %inp
  %whole = icmp eq i32 %in, 0
  %want = select i1 %whole, i32 %living1, i32 %in
  %met = icmp uge i32 %iw, %want
  %bit = zext i1 %met to i32
  %placed = shl i32 %bit, %i
  %done1 = or i32 %done, %placed
  %i1 = add i32 %i, 1
  %imore = icmp ult i32 %i1, 16
  br i1 %imore, label %barriers, label %judge
judge:
  %dead = icmp eq i32 %done1, 0
  br i1 %dead, label %stuck, label %free
stuck:
  ret i32 1
free:
  %u = phi i64 [ 0, %judge ], [ %u1, %onward ]
  %fp = getelementptr i32, ptr %state, i64 %u
  %fs = load i32, ptr %fp
  %fl = icmp sge i32 %fs, 0
  br i1 %fl, label %might, label %onward
might:
  %fop = getelementptr i8, ptr @r3.operations, i32 %fs
  %fo = load i8, ptr %fop
  %fat = icmp eq i8 %fo, {BARRIER}
  br i1 %fat, label %which, label %onward
which:
  %fbp = getelementptr i32, ptr %barrier, i64 %u
  %fid = load i32, ptr %fbp
  %fid4 = and i32 %fid, 15
  %shifted = lshr i32 %done1, %fid4
  %fbit = and i32 %shifted, 1
  %u32 = trunc i64 %u to i32
  %lane = and i32 %u32, 31
  %set = shl i32 %fbit, %lane
  %warp = lshr i64 %u, 5
  %rp = getelementptr i32, ptr %ready, i64 %warp
  %r0 = load i32, ptr %rp
  %r1 = or i32 %r0, %set
  store i32 %r1, ptr %rp
  br label %onward
onward:
  %u1 = add i64 %u, 1
  %umore = icmp ult i64 %u1, %r3.padded
  br i1 %umore, label %free, label %released
released:
  ret i32 2
}}"""
