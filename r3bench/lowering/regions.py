"""Regions: for each suspend point, a function that takes threads from there to where they wait next.

``r3.region.k`` loops over a box of the block's threads (``first`` up to ``end`` of each axis) and runs each from state
k (0: the kernel's start) to the next suspend point. It returns the bitwise AND and OR of where the threads went, in
the low and the high half of an i64: equal halves mean that all went the same way. Where there are several ways, each
thread's own is in the context's array ``state``. Accesses of different threads are marked as independent, so that the
loop can be vectorized. Regions share nothing but the context: each is optimized as the loop without waiting it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from r3bench.lowering.collectives import kept_operands, result_lines, widened
from r3bench.lowering.cut import Cut, Segment, Suspend, phi_uses
from r3bench.lowering.ir import LOCAL, incoming, leading_type, operand, phi_type, result_and_opcode
from r3bench.lowering.ranges import Interval, copied, defined
from r3bench.lowering.updates import ORDERED

_MEMORY = frozenset(("load", "store"))
_TEST = re.compile(r"br i1 (%\S+), label %(\S+), label %([^\s,]+)(?:, !.*)?")
_RETURN = re.compile(r"ret i32 (-?\d+)")


@dataclass(frozen=True, slots=True)
class Independence:
    """Metadata ids: the access group of accesses that do not depend on other threads', and the id of their loops;
    ``plain`` is the id of loops that are not worth vectorizing."""

    group: str
    loop: str
    plain: str


@dataclass(slots=True)
class Region:
    """The region behind a suspend point (or the kernel's start): its function's text and where its threads can go."""

    state: int
    text: str
    exits: list[int]


def write_regions(cut: Cut, parameters: str, independence: Independence) -> list[Region]:
    """All regions of a cut kernel, by state; ``parameters`` are those of the driver's functions."""
    by_label = {segment.label: segment for segment in cut.segments}
    starts = {segment.starts.state: segment for segment in cut.segments if segment.starts}
    starts[0] = cut.segments[0]
    # Threads share the stack of the loop they run in: an array that stayed there ties them to their order.
    marks = Independence("", "", "") if cut.stack else independence
    taken = phi_uses(cut.segments, cut.last)
    regions = []
    for state in range(len(cut.suspends) + 1):
        segments = _reached(starts[state], by_label)
        writer = _Writer(cut, state, segments, marks, taken)
        regions.append(Region(state, writer.text(parameters), sorted(set(writer.ways.values()))))
    return regions


def _reached(start: Segment, by_label: Mapping[str, Segment]) -> list[Segment]:
    """Segments that a thread can run through from ``start`` without waiting."""
    waiting, seen = [start], {start.label: start}
    while waiting:
        segment = waiting.pop()
        for label in [] if segment.ends else segment.next:
            if label not in seen:
                seen[label] = by_label[label]
                waiting.append(by_label[label])
    return list(seen.values())


@dataclass(slots=True)
class _Writer:
    """Writes one region. ``slots`` are kept values that change within it: they go through the stack, and LLVM turns
    them into registers. Other kept values are loaded once, or defined within the region and saved at its ends."""

    cut: Cut
    state: int
    segments: list[Segment]
    marks: Independence
    taken: Mapping[str, set[str]]
    defined: set[str] = field(init=False)
    slots: set[str] = field(init=False)
    ways: dict[str, int] = field(default_factory=dict)
    fresh: int = 0

    def __post_init__(self) -> None:
        self.defined = set().union(*(segment.defines for segment in self.segments))
        self.slots = self._resumed() & self.defined
        for segment in self.segments:
            if segment.ends:
                self.ways[segment.label] = segment.ends.state
            elif segment.lines and (match := _RETURN.fullmatch(segment.lines[-1])):
                self.ways[segment.label] = int(match[1])

    def _resumed(self) -> set[str]:
        return self.cut.behind.get(self.state, set())

    def text(self, parameters: str) -> str:
        body = [line for segment in self.segments for line in self._segment(segment)]
        mentioned = set(LOCAL.findall("\n".join(body)))
        start = [*self._repeated(mentioned), *self._resume(mentioned), f"  br label %{self.segments[0].label}"]
        mentioned.update(LOCAL.findall("\n".join(start)))
        bases, places = self._addresses(mentioned)
        head = f"define internal i64 @r3.region.{self.state}({parameters}, {_BOX}) noinline nounwind {{"
        entry = [
            "r3.entry:",
            *(f"  {line}" for line in self.cut.stack),
            *(f"  {_slot(n)} = alloca {stored(self.cut.kept[n])}" for n in sorted(self.slots)),
            *bases,
        ]
        return "\n".join([head, *entry, *self._loops([*places, *start, *body]), "}"])

    def _loops(self, thread: list[str]) -> Iterator[str]:
        """Loops over the box around what a thread does."""
        guard = self._guard(thread) if self.marks.loop else None
        row = {"all": "%r3.and.y", "any": "%r3.or.y", "first": "%r3.x.first", "before": "r3.ys"}
        ends = {"all": "%r3.and", "any": "%r3.or"} if guard is None else {"all": "%r3.and.l", "any": "%r3.or.l"}
        loop = f", !llvm.loop {self.marks.loop}" if self.marks.loop else ""
        yield _OUTER.format(**ends)
        if guard is None:
            yield "  br label %r3.xs"
            yield from [_ROW.format(**row), *thread, *self._next("%r3.x.end", "r3.ye", loop)]
        else:
            yield from self._guarded(guard, thread, loop)
        yield _END.format(**ends)

    def _guarded(self, guard: tuple[Interval, str, str], thread: list[str], loop: str) -> Iterator[str]:
        """Threads that pass the first test together; those before and behind them apart."""
        interval, test, passed = guard
        yield from interval.text()
        yield _APART
        apart = {"all": "%r3.and.a", "any": "%r3.or.a", "first": "%r3.a.first", "before": "r3.apart"}
        lines = [_ROW.format(**apart), *thread, *self._next("%r3.a.end", "r3.left", f", !llvm.loop {self.marks.plain}")]
        yield from copied("\n".join(lines).splitlines(), ".r3apart")
        yield _TOGETHER
        rows = {"all": "%r3.and.l", "any": "%r3.or.l", "first": "%r3.x.low", "before": "r3.together"}
        yield from [_ROW.format(**rows), *(passed if line == test else line for line in thread)]
        yield from self._next("%r3.x.high", "r3.joined", loop)
        yield _JOINED

    def _guard(self, thread: list[str]) -> tuple[Interval, str, str] | None:
        """The interval of a row in which the first test leads to work, the test's line, and what replaces it."""
        first = self.segments[0]
        match = _TEST.fullmatch(first.lines[-1]) if first.lines and not first.ends else None
        if match is None:
            return None
        by_label = {segment.label: segment for segment in self.segments}
        idle = [_is_idle(by_label, label) for label in (match[2], match[3])]
        if idle[0] == idle[1]:
            return None
        lines = {name: line.strip() for line in thread if (name := defined(line))}
        interval = Interval(lines)
        if not interval.narrow(match[1], idle[1]) or not interval.varies:
            return None
        truth = "true" if idle[1] else "false"
        return interval, f"  {first.lines[-1]}", f"  br i1 {truth}, label %{match[2]}, label %{match[3]}"

    # -- the start of a thread ----------------------------------------------------------------------------------

    def _repeated(self, mentioned: set[str]) -> list[str]:
        """Pure functions of arguments and indices that the region needs, computed anew."""
        needed, chosen = set(mentioned), []
        for name, line in reversed(self.cut.again.items()):
            if name in needed:
                needed.update(LOCAL.findall(line))
                chosen.append(f"  {line}")
        return chosen[::-1]

    def _resume(self, mentioned: set[str]) -> Iterator[str]:
        """Kept values that the region reads or changes; others stay where they are."""
        for name in sorted(self._resumed() & (mentioned | self.slots)):
            kind = self.cut.kept[name]
            target = f"{name}.r3old" if name in self.slots else name
            yield from self._read(kind, _address(name), target)
            if name in self.slots:
                yield from self._write(kind, target, _slot(name))

    def _addresses(self, mentioned: set[str]) -> tuple[list[str], list[str]]:
        """Where each array of the context that the region uses has this thread's element: a local array is one."""
        context = self.cut.context
        bases, places = [], []
        for name, offset in context.offsets.items():
            plain = _address(name)
            target = name if name in self.cut.local_arrays else plain
            if target in mentioned or name == "state":
                bases.append(f"  {plain}.o = mul i64 %r3.padded, {offset}")
                bases.append(f"  {plain}.b = getelementptr i8, ptr %r3.context, i64 {plain}.o")
                places.append(f"  {target} = getelementptr [{context.sizes[name]} x i8], ptr {plain}.b, i64 %r3.linear")
        return bases, places

    # -- segments -----------------------------------------------------------------------------------------------

    def _segment(self, segment: Segment) -> Iterator[str]:
        yield f"{segment.label}:"
        here: dict[str, str] = {}
        phis = [line for line in segment.lines if " = phi " in line]
        rest = segment.lines[len(phis) :]
        for line in phis:
            yield f"  {self._phi(line)}"
        if segment.starts and segment.starts.result:
            yield from result_lines(
                segment.starts.intrinsic, segment.starts.operands, segment.starts.result, self.attached
            )
            yield from self._keep(segment.starts.result, here)
        for line in phis:
            yield from self._keep(result_and_opcode(line)[0] or "", here)
        final = rest.pop() if rest and not segment.ends else ""
        for line in rest:
            yield from self._instruction(line, here)
        for name in sorted(self.taken.get(segment.label, set()) & self.slots - segment.defines):
            yield from self._read(self.cut.kept[name], _slot(name), _fed(name, segment.label))
        if segment.ends:
            yield from self._suspend(segment.ends, here)
        elif segment.label in self.ways:
            yield "  br label %r3.next"
        else:
            yield from self._instruction(final, here)

    def _phi(self, line: str) -> str:
        """Predecessors are the last pieces of their blocks; those outside of the region do not count."""
        reached = {segment.label: segment for segment in self.segments}
        pairs = []
        for value, label in incoming(line):
            source = reached.get(self.cut.last[label])
            if source and not source.ends:
                fed = value in self.slots and value not in source.defines
                pairs.append(f"[ {_fed(value, source.label) if fed else value}, %{source.label} ]")
        start = line.index("[", line.index(" phi ") + 5 + len(phi_type(line)))
        return line[:start] + ", ".join(pairs)

    def _instruction(self, line: str, here: dict[str, str]) -> Iterator[str]:
        name, opcode = result_and_opcode(line)
        if name in self.cut.again:
            return
        if self.slots:
            for use in dict.fromkeys(LOCAL.findall(line)):
                if use in self.slots and use != name:
                    yield from self._fetch(use, here)
            line = LOCAL.sub(lambda match: here.get(match[0], match[0]), line)
        alone = " volatile " in line or " atomic " in line or line.endswith(ORDERED)
        yield f"  {line.removesuffix(ORDERED)}{self.attached if opcode in _MEMORY and not alone else ''}"
        if name:
            yield from self._keep(name, here)

    def _fetch(self, name: str, here: dict[str, str]) -> Iterator[str]:
        if name not in here:
            self.fresh += 1
            here[name] = f"%r3.u{self.fresh}"
            yield from self._read(self.cut.kept[name], _slot(name), here[name])

    def _keep(self, name: str, here: dict[str, str]) -> Iterator[str]:
        if name in self.slots:
            here[name] = name
            yield from self._write(self.cut.kept[name], name, _slot(name))

    def _suspend(self, suspend: Suspend, here: dict[str, str]) -> Iterator[str]:
        """Leave operands and changed values in the context, then go to the next thread."""
        for array, kind, argument in kept_operands(suspend.intrinsic, suspend.operands, self.cut.context.sizes):
            value = operand(argument)
            if value in self.slots:
                yield from self._fetch(value, here)
            self.fresh += 1
            element = f"%r3.k{self.fresh}"
            yield from widened(element, leading_type(argument), kind, here.get(value, value))
            yield f"  store {kind} {element}, ptr {_address(array)}{self.attached}"
        for name in sorted(self.cut.behind[suspend.state] & self.defined):
            if name in self.slots:
                yield from self._fetch(name, here)
            yield from self._write(self.cut.kept[name], here.get(name, name), _address(name))
        yield "  br label %r3.next"

    @property
    def attached(self) -> str:
        return f", !llvm.access.group {self.marks.group}" if self.marks.group else ""

    def _read(self, kind: str, source: str, name: str) -> Iterator[str]:
        if kind != "i1":
            yield f"  {name} = load {kind}, ptr {source}{self.attached}"
            return
        yield f"  {name}.r3byte = load i8, ptr {source}{self.attached}"
        yield f"  {name} = trunc i8 {name}.r3byte to i1"

    def _write(self, kind: str, value: str, target: str) -> Iterator[str]:
        if kind == "i1":
            self.fresh += 1
            yield f"  %r3.w{self.fresh} = zext i1 {value} to i8"
            value = f"%r3.w{self.fresh}"
        yield f"  store {stored(kind)} {value}, ptr {target}{self.attached}"

    # -- the end of a thread ------------------------------------------------------------------------------------

    def _next(self, end: str, after: str, loop: str) -> Iterator[str]:
        """Note where the thread went, and on to the next one."""
        yield "r3.next:"
        incoming_ways = ", ".join(f"[ {way}, %{label} ]" for label, way in self.ways.items())
        yield f"  %r3.way = phi i32 {incoming_ways}" if self.ways else "  %r3.way = add i32 0, 0"
        if "state" in self.cut.context.sizes and len(set(self.ways.values())) > 1:
            yield f"  store i32 %r3.way, ptr {_address('state')}{self.attached}"
        yield from _ROW_END.format(end=end, after=after, loop=loop).splitlines()


def _is_idle(by_label: Mapping[str, Segment], label: str) -> bool:
    """Whether threads do nothing from ``label`` to their end."""
    for _ in by_label:
        segment = by_label.get(label)
        if segment is None or segment.ends or any(" = phi " not in line for line in segment.lines[:-1]):
            return False
        if _RETURN.fullmatch(segment.lines[-1]):
            return True
        match = re.fullmatch(r"br label %(\S+)", segment.lines[-1])
        if match is None:
            return False
        label = match[1]
    return False


def _slot(name: str) -> str:
    return f"{name}.r3slot"


def _fed(name: str, label: str) -> str:
    """A slot's value as a phi behind segment ``label`` takes it."""
    return f"{name}.r3fed.{label}"


def _address(name: str) -> str:
    """Where the context holds a value of the kernel, or one of the arrays that suspend points use."""
    return f"{name}.r3at" if name.startswith("%") else f"%r3.at.{name}"


def stored(kind: str) -> str:
    """The type a value has in memory: single bits are bytes."""
    return "i8" if kind == "i1" else kind


BOX = tuple(f"%r3.{axis}.{end}" for axis in "xyz" for end in ("first", "end"))
"""Parameters of a region behind the driver's: the box of threads to run."""
_BOX = ", ".join(
    f"i32 {'range(i32 0, 1024)' if name.endswith('first') else 'range(i32 1, 1025)'} {name}" for name in BOX
)
_OUTER = """\
  br label %r3.zs
r3.zs:
  %r3.tid.z = phi i32 [ %r3.z.first, %r3.entry ], [ %r3.z1, %r3.ze ]
  %r3.and.z = phi i32 [ -1, %r3.entry ], [ {all}, %r3.ze ]
  %r3.or.z = phi i32 [ 0, %r3.entry ], [ {any}, %r3.ze ]
  %r3.plane = mul i32 %r3.tid.z, %r3.ntid.y
  br label %r3.ys
r3.ys:
  %r3.tid.y = phi i32 [ %r3.y.first, %r3.zs ], [ %r3.y1, %r3.ye ]
  %r3.and.y = phi i32 [ %r3.and.z, %r3.zs ], [ {all}, %r3.ye ]
  %r3.or.y = phi i32 [ %r3.or.z, %r3.zs ], [ {any}, %r3.ye ]
  %r3.line = add i32 %r3.plane, %r3.tid.y
  %r3.row = mul i32 %r3.line, %r3.ntid.x"""
_ROW = """\
r3.xs:
  %r3.tid.x = phi i32 [ {first}, %{before} ], [ %r3.x1, %r3.next ]
  %r3.and.x = phi i32 [ {all}, %{before} ], [ %r3.and, %r3.next ]
  %r3.or.x = phi i32 [ {any}, %{before} ], [ %r3.or, %r3.next ]
  %r3.thread = add nuw nsw i32 %r3.row, %r3.tid.x
  %r3.linear = zext nneg i32 %r3.thread to i64"""
_ROW_END = """\
  %r3.and = and i32 %r3.and.x, %r3.way
  %r3.or = or i32 %r3.or.x, %r3.way
  %r3.x1 = add nuw nsw i32 %r3.tid.x, 1
  %r3.xc = icmp ult i32 %r3.x1, {end}
  br i1 %r3.xc, label %r3.xs, label %{after}{loop}"""
_APART = """\
  br label %r3.apart
r3.apart:
  %r3.a.first = phi i32 [ %r3.x.first, %r3.ys ], [ %r3.x.high, %r3.joined ]
  %r3.a.end = phi i32 [ %r3.x.low, %r3.ys ], [ %r3.x.end, %r3.joined ]
  %r3.a.last = phi i1 [ false, %r3.ys ], [ true, %r3.joined ]
  %r3.and.a = phi i32 [ %r3.and.y, %r3.ys ], [ %r3.and.j, %r3.joined ]
  %r3.or.a = phi i32 [ %r3.or.y, %r3.ys ], [ %r3.or.j, %r3.joined ]
  %r3.a.any = icmp ult i32 %r3.a.first, %r3.a.end
  br i1 %r3.a.any, label %r3.xs.r3apart, label %r3.left"""
_TOGETHER = """\
r3.left:
  %r3.and.l = phi i32 [ %r3.and.a, %r3.apart ], [ %r3.and.r3apart, %r3.next.r3apart ]
  %r3.or.l = phi i32 [ %r3.or.a, %r3.apart ], [ %r3.or.r3apart, %r3.next.r3apart ]
  br i1 %r3.a.last, label %r3.ye, label %r3.together
r3.together:
  %r3.t.any = icmp ult i32 %r3.x.low, %r3.x.high
  br i1 %r3.t.any, label %r3.xs, label %r3.joined"""
_JOINED = """\
r3.joined:
  %r3.and.j = phi i32 [ %r3.and.l, %r3.together ], [ %r3.and, %r3.next ]
  %r3.or.j = phi i32 [ %r3.or.l, %r3.together ], [ %r3.or, %r3.next ]
  br label %r3.apart"""
_END = """\
r3.ye:
  %r3.y1 = add nuw nsw i32 %r3.tid.y, 1
  %r3.yc = icmp ult i32 %r3.y1, %r3.y.end
  br i1 %r3.yc, label %r3.ys, label %r3.ze
r3.ze:
  %r3.z1 = add nuw nsw i32 %r3.tid.z, 1
  %r3.zc = icmp ult i32 %r3.z1, %r3.z.end
  br i1 %r3.zc, label %r3.zs, label %r3.done
r3.done:
  %r3.low = zext i32 {all} to i64
  %r3.wide = zext i32 {any} to i64
  %r3.high = shl i64 %r3.wide, 32
  %r3.result = or disjoint i64 %r3.low, %r3.high
  ret i64 %r3.result"""
