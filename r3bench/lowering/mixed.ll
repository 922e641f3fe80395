; The way through a block whose threads part. Each section becomes part of a kernel's module when the kernel needs it.
; %env is the address of everything that is known of block, grid and arguments; $ENTER reads from it. $state, $warps and
; so on are offsets of the context's arrays, in bytes per thread. $SMALL are attributes: none of this is worth unrolling.
;
; Arrays: `state` is where each thread waits (negative when it has ended). `warps` holds for each warp the mask of its
; living lanes and, half way in, the mask of those that are ready to run.

;; enter: fill in who lives and who is ready; the result is the code of a fault that has happened, or 0
define internal i32 @r3.enter(ptr %env, i1 %fresh) $SMALL {
entry:
$ENTER  %state.at = mul i64 %r3.padded, $state
  %state = getelementptr i8, ptr %r3.context, i64 %state.at
  %alive.at = mul i64 %r3.padded, $warps
  %alive = getelementptr i8, ptr %r3.context, i64 %alive.at
  %half = lshr i64 %r3.padded, 3
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
  store i32 -1, ptr %p
  br label %known
known:
  %s = phi i32 [ 0, %start ], [ %was, %old ], [ -1, %outside ]
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
  %bad = icmp slt i32 %least, -1
  %code = call i32 @r3.code(i32 %least)
  %result = select i1 %bad, i32 %code, i32 0
  ret i32 %result
}

;; mixed: rounds of warps until no thread is left or none can go on; %fresh begins a block, else its threads have parted
define internal i32 @r3.mixed(ptr %env, i1 %back, i1 %fresh) $SMALL {
entry:
$ENTER  %fault = call i32 @r3.enter(ptr %env, i1 %fresh)
  %failed = icmp ne i32 %fault, 0
  %padded32 = trunc i64 %r3.padded to i32
  %count = lshr i32 %padded32, 5
  %top = sub i32 %count, 1
  br i1 %failed, label %stop, label %first
stop:
  ret i32 %fault
first:
  br i1 %fresh, label %round, label %meet
round:
  br label %warp
warp:
  %i = phi i32 [ 0, %round ], [ %i1, %next ]
  %mirror = sub i32 %top, %i
  %w = select i1 %back, i32 %mirror, i32 %i
  %code = call i32 @r3.warp(ptr %env, i32 %w, i1 %back)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %broken, label %next
broken:
  ret i32 %code
next:
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, %count
  br i1 %more, label %warp, label %meet
meet:
  %met = call i32 @r3.barrier(ptr %env)
  switch i32 %met, label %round [
    i32 0, label %ended
    i32 1, label %dead
  ]
ended:
  ret i32 0
dead:
  ret i32 1
}

;; warp: run ready lanes, complete collectives, and again, until every lane waits for other warps or has ended
define internal i32 @r3.warp(ptr %env, i32 %w, i1 %back) $SMALL {
entry:
$ENTER  %base = shl i32 %w, 5
  %state.at = mul i64 %r3.padded, $state
  %state.all = getelementptr i8, ptr %r3.context, i64 %state.at
  %state = getelementptr i32, ptr %state.all, i32 %base
  %alive.at = mul i64 %r3.padded, $warps
  %alive = getelementptr i8, ptr %r3.context, i64 %alive.at
  %half = lshr i64 %r3.padded, 3
  %ready = getelementptr i8, ptr %alive, i64 %half
  %ap = getelementptr i32, ptr %alive, i32 %w
  %rp = getelementptr i32, ptr %ready, i32 %w
  %q = udiv i32 %base, %r3.ntid.x
  %qx = mul i32 %q, %r3.ntid.x
  %x = sub i32 %base, %qx
  %z = udiv i32 %q, %r3.ntid.y
  %zy = mul i32 %z, %r3.ntid.y
  %y = sub i32 %q, %zy
  %z1 = add i32 %z, 1
  br label %again
again:
  %can = load i32, ptr %rp
  store i32 0, ptr %rp
  %idle = icmp eq i32 %can, 0
  br i1 %idle, label %settle, label %whole

; All living lanes ready, the first ones of the warp, and in the same state: run them as one box if they are one.
whole:
  %living = load i32, ptr %ap
  %everyone = icmp eq i32 %can, %living
  %above = add i32 %can, 1
  %gaps = and i32 %can, %above
  %first = icmp eq i32 %gaps, 0
  %candidate = and i1 %everyone, %first
  %forward = xor i1 %back, true
  %try = and i1 %candidate, %forward
  br i1 %try, label %compare, label %lane
compare:
  %states = load <32 x i32>, ptr %state, align 4
  %s0 = extractelement <32 x i32> %states, i64 0
  %s.one = insertelement <32 x i32> poison, i32 %s0, i64 0
  %s.all = shufflevector <32 x i32> %s.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %equal = icmp eq <32 x i32> %states, %s.all
  %equal.bits = bitcast <32 x i1> %equal to i32
  %equal.can = and i32 %equal.bits, %can
  %together = icmp eq i32 %equal.can, %can
  br i1 %together, label %shape, label %lane
shape:
  %lanes = call i32 @llvm.ctpop.i32(i32 %can)
  %x.end = add i32 %x, %lanes
  %in.row = icmp ule i32 %x.end, %r3.ntid.x
  %rows = udiv i32 %lanes, %r3.ntid.x
  %rest.x = urem i32 %lanes, %r3.ntid.x
  %y.end = add i32 %y, %rows
  %from.0 = icmp eq i32 %x, 0
  %no.rest = icmp eq i32 %rest.x, 0
  %in.plane = icmp ule i32 %y.end, %r3.ntid.y
  %c0 = and i1 %from.0, %no.rest
  %in.rows = and i1 %c0, %in.plane
  %is.box = or i1 %in.row, %in.rows
  br i1 %is.box, label %box, label %lane
box:
  %bx = select i1 %in.row, i32 %x.end, i32 %r3.ntid.x
  %y1 = add i32 %y, 1
  %by = select i1 %in.row, i32 %y1, i32 %y.end
  %ways = call i64 @r3.box(ptr %env, i32 %s0, i32 %x, i32 %bx, i32 %y, i32 %by, i32 %z, i32 %z1)
  %all = trunc i64 %ways to i32
  %upper = lshr i64 %ways, 32
  %any = trunc i64 %upper to i32
  %same = icmp eq i32 %all, %any
  br i1 %same, label %agree, label %differ
agree:
  %way.one = insertelement <32 x i32> poison, i32 %all, i64 0
  %way.all = shufflevector <32 x i32> %way.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %ran = bitcast i32 %can to <32 x i1>
  %after = select <32 x i1> %ran, <32 x i32> %way.all, <32 x i32> %states
  store <32 x i32> %after, ptr %state, align 4
  br label %differ
differ:
  %now = load <32 x i32>, ptr %state, align 4
  %wait = icmp sge <32 x i32> %now, zeroinitializer
  %wait.bits = bitcast <32 x i1> %wait to i32
  store i32 %wait.bits, ptr %ap
  %fault = icmp slt <32 x i32> %now, splat (i32 -1)
  %fault.bits = bitcast <32 x i1> %fault to i32
  %faulty.box = icmp ne i32 %fault.bits, 0
  br i1 %faulty.box, label %failed, label %settle
failed:
  %culprit = call i32 @llvm.cttz.i32(i32 %fault.bits, i1 true)
  %culprit.at = getelementptr i32, ptr %state, i32 %culprit
  %culprit.way = load i32, ptr %culprit.at
  %culprit.code = call i32 @r3.code(i32 %culprit.way)
  ret i32 %culprit.code

; One lane after the other.
lane:
  %left = phi i32 [ %can, %whole ], [ %can, %compare ], [ %can, %shape ], [ %rest, %next ]
  %up = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %zeros = call i32 @llvm.ctlz.i32(i32 %left, i1 true)
  %down = sub i32 31, %zeros
  %l = select i1 %back, i32 %down, i32 %up
  %bit = shl i32 1, %l
  %others = xor i32 %bit, -1
  %rest = and i32 %left, %others
  %t = add i32 %base, %l
  %sp = getelementptr i32, ptr %state, i32 %l
  %s = load i32, ptr %sp
  %n = call i32 @r3.single(ptr %env, i32 %s, i32 %t)
  store i32 %n, ptr %sp
  %waits = icmp sge i32 %n, 0
  br i1 %waits, label %next, label %ends
ends:
  %before = load i32, ptr %ap
  %fewer = and i32 %before, %others
  store i32 %fewer, ptr %ap
  %faulty = icmp ne i32 %n, -1
  br i1 %faulty, label %broken, label %next
broken:
  %code = call i32 @r3.code(i32 %n)
  ret i32 %code
next:
  %more = icmp ne i32 %rest, 0
  br i1 %more, label %lane, label %settle

settle:
  %freed = call i64 @r3.settle(ptr %env, i32 %w)
  %wrong = icmp slt i64 %freed, 0
  br i1 %wrong, label %lost, label %fine
lost:
  ret i32 1
fine:
  %free = trunc i64 %freed to i32
  store i32 %free, ptr %rp
  %stuck = icmp eq i32 %free, 0
  br i1 %stuck, label %out, label %again
out:
  ret i32 0
}

;; settle.none: a kernel without collectives has nothing to complete within a warp
define internal i64 @r3.settle(ptr %env, i32 %w) $SMALL {
  ret i64 0
}

;; settle: complete every collective whose lanes have all arrived; the lanes set free, or -1 where a mask misses its caller
; When none completes, the lanes at one place that asks who is active are those that are active there.
define internal i64 @r3.settle(ptr %env, i32 %w) $SMALL {
entry:
$ENTER  %base = shl i32 %w, 5
  %state.at = mul i64 %r3.padded, $state
  %state.all = getelementptr i8, ptr %r3.context, i64 %state.at
  %state = getelementptr i32, ptr %state.all, i32 %base
  %alive.at = mul i64 %r3.padded, $warps
  %alive = getelementptr i8, ptr %r3.context, i64 %alive.at
  %ap = getelementptr i32, ptr %alive, i32 %w
  %mask.at = mul i64 %r3.padded, $mask
  %mask.all = getelementptr i8, ptr %r3.context, i64 %mask.at
  %mask = getelementptr i32, ptr %mask.all, i32 %base
  %value.at = mul i64 %r3.padded, $value
  %value.all = getelementptr i8, ptr %r3.context, i64 %value.at
  %value = getelementptr i64, ptr %value.all, i32 %base
  %lane.at = mul i64 %r3.padded, $lane
  %lane.all = getelementptr i8, ptr %r3.context, i64 %lane.at
  %lane = getelementptr i32, ptr %lane.all, i32 %base
  %clamp.at = mul i64 %r3.padded, $clamp
  %clamp.all = getelementptr i8, ptr %r3.context, i64 %clamp.at
  %clamp = getelementptr i32, ptr %clamp.all, i32 %base
  %result.at = mul i64 %r3.padded, $result
  %result.all = getelementptr i8, ptr %r3.context, i64 %result.at
  %result = getelementptr i64, ptr %result.all, i32 %base
  %flag.at = mul i64 %r3.padded, $flag
  %flag.all = getelementptr i8, ptr %r3.context, i64 %flag.at
  %flag = getelementptr i32, ptr %flag.all, i32 %base
  %living = load i32, ptr %ap
  %empty = icmp eq i32 %living, 0
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
  %waits = icmp ule i8 %o, 1
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

; Members of the group must wait in an equal operation with an equal mask; mostly they wait at the same place.
members:
  %group = and i32 %m, %living
  %states = load <32 x i32>, ptr %state, align 4
  %s.one = insertelement <32 x i32> poison, i32 %s, i64 0
  %s.all = shufflevector <32 x i32> %s.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %s.eq = icmp eq <32 x i32> %states, %s.all
  %masks = load <32 x i32>, ptr %mask, align 4
  %m.one = insertelement <32 x i32> poison, i32 %m, i64 0
  %m.all = shufflevector <32 x i32> %m.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %m.eq = icmp eq <32 x i32> %masks, %m.all
  %m.bits = bitcast <32 x i1> %m.eq to i32
  %m.group = and i32 %m.bits, %group
  %m.same = icmp eq i32 %m.group, %group
  br i1 %m.same, label %places, label %pass
places:
  %s.bits = bitcast <32 x i1> %s.eq to i32
  %s.group = and i32 %s.bits, %group
  %s.same = icmp eq i32 %s.group, %group
  br i1 %s.same, label %complete, label %member
member:
  %mleft = phi i32 [ %group, %places ], [ %mrest, %same ]
  %j = call i32 @llvm.cttz.i32(i32 %mleft, i1 true)
  %mless = sub i32 %mleft, 1
  %mrest = and i32 %mleft, %mless
  %jsp = getelementptr i32, ptr %state, i32 %j
  %js = load i32, ptr %jsp
  %jop = getelementptr i8, ptr @r3.operations, i32 %js
  %jo = load i8, ptr %jop
  %eq = icmp eq i8 %jo, %o
  br i1 %eq, label %same, label %pass
same:
  %more = icmp ne i32 %mrest, 0
  br i1 %more, label %member, label %complete
complete:
$DISPATCH
completed:
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
  %is = icmp eq i8 %ao, 1
  br i1 %is, label %gather, label %other
other:
  %amore = icmp ne i32 %arest, 0
  br i1 %amore, label %active, label %nothing
gather:
  %g.states = load <32 x i32>, ptr %state, align 4
  %g.one = insertelement <32 x i32> poison, i32 %as, i64 0
  %g.all = shufflevector <32 x i32> %g.one, <32 x i32> poison, <32 x i32> zeroinitializer
  %g.eq = icmp eq <32 x i32> %g.states, %g.all
  %g = bitcast <32 x i1> %g.eq to i32
  %g.wide = zext i32 %g to i64
  br label %tell
tell:
  %tleft = phi i32 [ %g, %gather ], [ %trest, %tell ]
  %ti = call i32 @llvm.cttz.i32(i32 %tleft, i1 true)
  %tless = sub i32 %tleft, 1
  %trest = and i32 %tleft, %tless
  %tp = getelementptr i64, ptr %result, i32 %ti
  store i64 %g.wide, ptr %tp
  %tmore = icmp ne i32 %trest, 0
  br i1 %tmore, label %tell, label %told
told:
  ret i64 %g.wide
}

;; barrier: the block's own barrier; 2: its threads are ready, 0: no thread is left, 1: some wait for what never comes
define internal i32 @r3.barrier(ptr %env) $SMALL {
entry:
$ENTER  %state.at = mul i64 %r3.padded, $state
  %state = getelementptr i8, ptr %r3.context, i64 %state.at
  %alive.at = mul i64 %r3.padded, $warps
  %alive = getelementptr i8, ptr %r3.context, i64 %alive.at
  %half = lshr i64 %r3.padded, 3
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
  %here = icmp eq i8 %o, 0
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
$COUNT
  call void @llvm.memcpy.p0.p0.i64(ptr %ready, ptr %alive, i64 %half, i1 false)
  ret i32 2
}

;; count: into the first cell how many predicates of waiting threads are true, into the second how many threads wait
define internal void @r3.count(ptr %env, i1 %all) $SMALL {
entry:
$ENTER  %state.at = mul i64 %r3.padded, $state
  %state = getelementptr i8, ptr %r3.context, i64 %state.at
  %predicate.at = mul i64 %r3.padded, $predicate
  %predicate = getelementptr i8, ptr %r3.context, i64 %predicate.at
  %n = zext i32 %r3.threads to i64
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
}

;; barrier.named: barriers by number; one completes when as many threads wait at it as it asks for (0: all that live)
define internal i32 @r3.barrier(ptr %env) $SMALL {
entry:
$ENTER  %waiting = alloca [16 x i32], align 16
  %needed = alloca [16 x i32], align 16
  call void @llvm.memset.p0.i64(ptr %waiting, i8 0, i64 64, i1 false)
  call void @llvm.memset.p0.i64(ptr %needed, i8 0, i64 64, i1 false)
  call void @llvm.memset.p0.i64(ptr %r3.cells, i8 0, i64 128, i1 false)
  %state.at = mul i64 %r3.padded, $state
  %state = getelementptr i8, ptr %r3.context, i64 %state.at
  %alive.at = mul i64 %r3.padded, $warps
  %alive = getelementptr i8, ptr %r3.context, i64 %alive.at
  %barrier.at = mul i64 %r3.padded, $barrier
  %barrier = getelementptr i8, ptr %r3.context, i64 %barrier.at
  %count.at = mul i64 %r3.padded, $count
  %count = getelementptr i8, ptr %r3.context, i64 %count.at
  %predicate.at = mul i64 %r3.padded, $predicate
  %predicate = getelementptr i8, ptr %r3.context, i64 %predicate.at
  %half = lshr i64 %r3.padded, 3
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
  %at = icmp eq i8 %o, 0
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
  %pp = getelementptr i32, ptr %predicate, i64 %t
  %true = load i32, ptr %pp
  %cell = getelementptr [2 x i32], ptr %r3.cells, i32 %id
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
  %fat = icmp eq i8 %fo, 0
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
}
