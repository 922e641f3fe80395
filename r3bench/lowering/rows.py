"""The function of a region: a loop over a part of a row of threads, around what one thread does.

Threads whose first test leads to nothing but their end are left out of the loop where they can be told beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from r3bench.lowering.cut import EXIT
from r3bench.lowering.ir import LOCAL
from r3bench.lowering.ranges import Interval
from r3bench.lowering.signature import Signature

_SHORT = 18  # lines of a thread; in a longer loop, its own control hardly counts


@dataclass(frozen=True, slots=True)
class Independence:
    """Metadata ids: the access group of accesses that do not depend on other threads', the id of their loops, of those
    that have little in them, and of those that are not worth a vector form."""

    group: str
    loop: str
    short: str
    rare: str

    @property
    def attached(self) -> str:
        """What an access of the group carries."""
        return f", !llvm.access.group {self.group}" if self.group else ""

    @property
    def scalar(self) -> Independence:
        """That of loops none of which is worth a vector form."""
        return replace(self, loop=self.rare, short=self.rare)


@dataclass(frozen=True, slots=True)
class Guard:
    """The interval of a row in which a test leads to work, the test's line, and what replaces it there. Other threads
    go to ``idle``, those that work to ``work`` if all go to the same place."""

    interval: Interval
    test: str
    passed: str
    idle: int
    work: int | None


@dataclass(frozen=True, slots=True)
class Row:
    """One function. ``ways`` are the places to which threads go, by the label they come from; where there are several,
    each thread's goes to ``state``, if it is not empty, unless the whole row goes the same way."""

    region: str
    ways: Mapping[str, int]
    state: str
    marks: Independence
    guard: Guard | None

    @property
    def name(self) -> str:
        return f"@r3.region.{self.region}"

    def text(self, entry: list[str], thread: list[str], signed: Signature) -> str:
        """``entry`` is executed once, ``thread`` for each thread."""
        lines = [_ROW, *entry, *self._loop(thread), "}"]
        used = set(LOCAL.findall("\n".join(lines)))
        alone = [name for name in signed.alone if name in used]
        body = [*signed.loaded(used - set(alone)), *lines]
        if not alone:
            return "\n".join([_head(self.name), *body])
        # Only a parameter can say that it leads alone to its memory; LLVM keeps that in mind when it inlines.
        passed, taken = (", ".join(f"{kind} {name}" for name in alone) for kind in ("ptr", "ptr noalias"))
        whole = _WHOLE.format(region=self.region, loads="\n".join(signed.loaded(set(alone))), passed=passed)
        return "\n".join([_head(self.name), whole, _INNER.format(region=self.region, taken=taken), *body])

    @property
    def _several(self) -> bool:
        """Whether threads can go different ways, those that are left out among them."""
        return len({*self.ways.values(), *([self.guard.idle] if self.guard else [])}) > 1

    @property
    def _noting(self) -> bool:
        """Whether each thread has to note which way it went."""
        return self._several and (self.guard is None or self.guard.work is None)

    def _loop(self, thread: list[str]) -> Iterator[str]:
        if self.guard is None:
            yield "  br label %r3.xs"
            yield from self._threads(thread, "%r3.x.first", "%r3.x.end", "r3.entry", "0")
            return
        yield from self.guard.interval.text()
        yield self._left_out(self.guard)
        known = self.guard.interval.simplified
        lines = [known(self.guard.passed if line == self.guard.test else line) for line in thread]
        yield from self._threads([_OFFSET, *lines], "%r3.x.low", "%r3.x.high", "r3.work", "%r3.idle")

    def _left_out(self, guard: Guard) -> str:
        """What becomes of threads that are left out, and where those that work go if that is known."""
        behind = "%r3.columns, 0" if guard.interval.comb else "%r3.x.high, %r3.x.end"
        parts = [_APART.format(name=_whole(self.name), behind=behind)]
        if self.state and self._several and guard.work is None:
            parts.append(_ENDED.format(which="any", low="%r3.x.high", step=1, way=EXIT))
        elif self.state and self._several:
            parts.append(_ENDED.format(which="some", low="%r3.x.low", step=guard.interval.step, way=guard.work))
        else:
            parts.append("  br label %r3.work")
        return "\n".join([*parts, _WORK])

    def _threads(self, thread: list[str], first: str, end: str, before: str, idle: str) -> Iterator[str]:
        """The loop from ``first`` to ``end``, entered from block ``before``; ``idle``: the ways of those left out."""
        yield _LOOP.format(first=first, before=before)
        if self._noting:
            yield f"  %r3.and.x = phi i32 [ -1, %{before} ], [ %r3.and, %r3.next ]"
            yield f"  %r3.or.x = phi i32 [ {idle}, %{before} ], [ %r3.or, %r3.next ]"
        yield from [_THREAD, *thread, "r3.next:"]
        if self._noting:
            yield from self._noted()
        interval = self.guard.interval if self.guard else None
        few = interval is not None and interval.is_sparse
        short = len(thread) < _SHORT and not self._several
        loop = self.marks.rare if few else self.marks.short if short else self.marks.loop
        yield _NEXT.format(step=interval.step if interval else 1, end=end, loop=_attached(loop))
        yield from self._result(before)

    def _noted(self) -> Iterator[str]:
        """Where the thread went."""
        yield f"  %r3.way = phi i32 {', '.join(f'[ {way}, %{label} ]' for label, way in self.ways.items())}"
        if self.state:
            yield f"  store i32 %r3.way, ptr {self.state}{self.marks.attached}"
        yield "  %r3.and = and i32 %r3.and.x, %r3.way"
        yield "  %r3.or = or i32 %r3.or.x, %r3.way"

    def _result(self, before: str) -> Iterator[str]:
        yield "r3.done:"
        if not self._several:
            way = next(iter(self.ways.values()), EXIT)
            yield f"  ret i64 {(way & 0xFFFFFFFF) * 0x100000001 - (1 << 64 if way < 0 else 0)}"
        elif self.guard is None:
            yield _WAYS.format(all="%r3.and", any="%r3.or")
        elif self._noting:
            yield f"  %r3.all = phi i32 [ -1, %{before} ], [ %r3.and, %r3.next ]"
            yield f"  %r3.any = phi i32 [ %r3.idle, %{before} ], [ %r3.or, %r3.next ]"
            yield _WAYS.format(all="%r3.all", any="%r3.any")
        else:
            yield f"  %r3.all = select i1 %r3.some, i32 {self.guard.work}, i32 -1"
            yield f"  %r3.any = select i1 %r3.out.any, i32 -1, i32 {self.guard.work}"
            yield _WAYS.format(all="%r3.all", any="%r3.any")


def parted(name: str, test: list[str], sides: list[str], signed: Signature) -> str:
    """A region that goes on as one of two ``sides``: the first where what ``test`` computes is true."""
    text = _PARTED.format(sides=sides)
    used = set(LOCAL.findall("\n".join([*test, text])))
    return "\n".join([_head(name), *signed.loaded(used), *test, text])


def _whole(name: str) -> str:
    """The region of which a function is a side: all of it becomes one function, since each takes LLVM a while."""
    return ".".join(name.split(".")[:3])


def _head(name: str) -> str:
    return _HEAD.format(name=name, inline="noinline" if name == _whole(name) else "alwaysinline")


def _attached(loop: str) -> str:
    return f", !llvm.loop {loop}" if loop else ""


_PARAMETERS = (
    "ptr %r3.block, ptr %r3.in, ptr %r3.out, i32 range(i32 0, 1024) %r3.x.first, i32 range(i32 1, 1025) %r3.x.end, "
    "i32 range(i32 0, 1024) %r3.tid.y, i32 range(i32 0, 64) %r3.tid.z"
)
_SAME = "ptr %r3.block, ptr %r3.in, ptr %r3.out"
_HEAD = f"define internal i64 {{name}}({_PARAMETERS}) {{inline}} nounwind {{{{\nr3.entry:"
_INNER = f"define internal i64 @r3.row.{{region}}({_PARAMETERS}, {{taken}}) alwaysinline nounwind {{{{\nr3.entry:"
_ALL = f"{_SAME}, i32 %r3.x.first, i32 %r3.x.end, i32 %r3.tid.y, i32 %r3.tid.z"
_WHOLE = f"""\
{{loads}}
  %r3.ways = call i64 @r3.row.{{region}}({_ALL}, {{passed}})
  ret i64 %r3.ways
}}}}"""
_PARTED = f"""\
  br i1 %r3.shared.test, label %r3.true, label %r3.false
r3.true:
  %r3.true.ways = call i64 {{sides[0]}}({_ALL})
  ret i64 %r3.true.ways
r3.false:
  %r3.false.ways = call i64 {{sides[1]}}({_ALL})
  ret i64 %r3.false.ways
}}}}"""
_ROW = """\
  %r3.plane = mul i32 %r3.tid.z, %r3.ntid.y
  %r3.line = add i32 %r3.plane, %r3.tid.y
  %r3.row = mul i32 %r3.line, %r3.ntid.x"""
_LOOP = """\
r3.xs:
  %r3.tid.x = phi i32 [ {first}, %{before} ], [ %r3.x1, %r3.next ]"""
_THREAD = """\
  %r3.thread = add nuw nsw i32 %r3.row, %r3.tid.x
  %r3.linear = zext nneg i32 %r3.thread to i64"""
_OFFSET = """\
  %r3.ahead = sub nuw nsw i32 %r3.tid.x, %r3.x.first
  %r3.offset = zext nneg i32 %r3.ahead to i64"""
_NEXT = """\
  %r3.x1 = add nuw nsw i32 %r3.tid.x, {step}
  %r3.xc = icmp ult i32 %r3.x1, {end}
  br i1 %r3.xc, label %r3.xs, label %r3.done{loop}"""
_APART = f"""\
  br i1 %r3.flat, label %r3.together, label %r3.apart
r3.apart:
  %r3.a.ways = call i64 @__r3_apart({_ALL}, ptr {{name}})
  ret i64 %r3.a.ways
r3.together:
  %r3.before = icmp ne i32 %r3.x.low, %r3.x.first
  %r3.behind = icmp ne i32 {{behind}}
  %r3.out.any = or i1 %r3.before, %r3.behind
  %r3.idle = sext i1 %r3.out.any to i32
  %r3.some = icmp ult i32 %r3.x.low, %r3.x.high
  %r3.out.some = and i1 %r3.out.any, %r3.some"""
_ENDED = """\
  br i1 %r3.out.{which}, label %r3.ends, label %r3.work
r3.ends:
  call void @__r3_left_out(ptr %r3.block, i32 %r3.row, i32 %r3.x.first, i32 %r3.x.end, i32 {low}, i32 %r3.x.high, \
i32 {step}, i32 {way})
  br label %r3.work"""
_WORK = """\
r3.work:
  br i1 %r3.some, label %r3.xs, label %r3.done"""
_WAYS = """\
  %r3.low = zext i32 {all} to i64
  %r3.wide = zext i32 {any} to i64
  %r3.high = shl i64 %r3.wide, 32
  %r3.result = or disjoint i64 %r3.low, %r3.high
  ret i64 %r3.result"""
