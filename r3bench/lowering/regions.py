"""Regions: for each suspend point, a function that takes threads from there to where they wait next.

``r3.region.k`` loops over a part of a row of the block's threads (``first`` up to ``end`` of axis x) and runs each from
state k (0: the kernel's start) to the next suspend point. It returns the bitwise AND and OR of where the threads went,
in the low and the high half of an i64: equal halves mean that all went the same way. Where there are several ways,
each thread's own is in the context's array ``state``. Accesses of different threads are marked as independent, so that
the loop can be vectorized. Regions share nothing but the context: each is optimized as the loop without waiting it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from r3bench.lowering.collectives import kept_operands, result_lines, word
from r3bench.lowering.cut import EXIT, Cut, Segment, Suspend, phi_uses
from r3bench.lowering.ir import LOCAL, incoming, leading_type, operand, phi_type, result_and_opcode
from r3bench.lowering.ranges import Interval, defined
from r3bench.lowering.rows import Guard, Independence, Row, parted
from r3bench.lowering.signature import Signature
from r3bench.lowering.uniform import Shared, resumed, share
from r3bench.lowering.updates import ORDERED
from r3bench.lowering.values import is_pure

_MEMORY = frozenset(("load", "store"))
_TEST = re.compile(r"br i1 (%\S+), label %(\S+), label %([^\s,]+)(?:, !.*)?")
_RETURN = re.compile(r"ret i32 (-?\d+)")
_LITTLE = 56  # lines of a thread; a longer region is worth its vector form even if each block runs it only once
_MOST_TESTS = 2  # that a region is taken apart for, one after the other: there is a function for either side of each


@dataclass(slots=True)
class Region:
    """The region behind a suspend point (or the kernel's start): its function's name and text."""

    name: str
    text: str


def write_regions(cut: Cut, signed: Signature, independence: Independence) -> list[Region]:
    """All regions of a cut kernel, by state, and the context placed."""
    by_label = {segment.label: segment for segment in cut.segments}
    starts = {segment.starts.state: segment for segment in cut.segments if segment.starts}
    starts[0] = cut.segments[0]
    # Threads share the stack of the loop they run in: an array that stayed there ties them to their order.
    marks = Independence("", "", "", "") if cut.stack else independence
    taken = phi_uses(cut.segments, cut.last)
    reached = [_reached(starts[state], by_label) for state in range(len(cut.suspends) + 1)]
    shared, onward = share(cut, reached), _onward(reached)
    return [
        _Writer(cut, state, str(state), segments, marks, taken, shared[state], onward).region(signed)
        for state, segments in enumerate(reached)
    ]


def _onward(reached: Sequence[Sequence[Segment]]) -> list[set[int]]:
    """The places to which threads can come from each place."""
    found = [{segment.ends.state for segment in segments if segment.ends} for segments in reached]
    for state, behind in enumerate(found):
        for places in found:
            if state in places:
                places |= behind
    return found


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
    name: str
    segments: list[Segment]
    marks: Independence
    taken: Mapping[str, set[str]]
    shared: Shared
    onward: Sequence[Set[int]]
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

    def region(self, signed: Signature) -> Region:
        body = [line for segment in self.segments for line in self._segment(segment)]
        mentioned = set(LOCAL.findall("\n".join(body)))
        start = [*self._repeated(mentioned), *self._resume(mentioned), f"  br label %{self.segments[0].label}"]
        mentioned.update(LOCAL.findall("\n".join(start)))
        bases, places = self._addresses(mentioned)
        thread = [*places, *start, *body]
        test = self._first_test() if self.marks.loop else None
        lines = {name: line.strip() for line in thread if (name := defined(line))}
        if test and self.cut.suspends and self.name.count(".") < _MOST_TESTS and Interval(lines).is_fixed(test[1]):
            return self._parted(test, Interval(lines), mentioned, signed)
        entry = [
            *(f"  {line}" for line in self.cut.stack),
            *(f"  {_slot(n)} = alloca {stored(self.cut.kept[n])}" for n in sorted(self.slots)),
            *bases,
            *self._once(mentioned),
            *self._left(),
        ]
        guard = self._guard(test, Interval(lines)) if test else None
        state = _address("state") if "state" in self.cut.context.sizes else ""
        scalar = self._is_ordered() or (len(thread) < _LITTLE and self._is_seldom())
        marks = self.marks.scalar if scalar else self.marks
        row = Row(self.name, self.ways, state, marks, guard)
        return Region(row.name, row.text(entry, thread, signed))

    def _is_ordered(self) -> bool:
        """Whether threads update memory one after the other."""
        return any(line.endswith(ORDERED) for segment in self.segments for line in segment.lines)

    def _is_seldom(self) -> bool:
        """Whether a block comes here once, while others of its regions are repeated."""
        here = any(self.state in {way, *self.onward[way]} for way in self.ways.values() if way > 0)
        return not here and any(state in places for state, places in enumerate(self.onward))

    def _parted(self, test: re.Match[str], interval: Interval, mentioned: set[str], signed: Signature) -> Region:
        """A region whose first test is the same for all threads: a function for either side of it."""
        at = next(n for n, segment in enumerate(self.segments) if segment.lines[-1:] == [test[0]])
        sides = []
        for name, label in (("true", test[2]), ("false", test[3])):
            tested = replace(
                self.segments[at], lines=[*self.segments[at].lines[:-1], f"br label %{label}"], next=[label]
            )
            by_label = {segment.label: segment for segment in self.segments} | {tested.label: tested}
            segments = _reached(by_label[self.segments[0].label], by_label)
            writer = replace(self, name=f"{self.name}.{name}", segments=segments, ways={}, fresh=0)
            sides.append(writer.region(signed))
        name = f"@r3.region.{self.name}"
        text = parted(name, [*self._once(mentioned), *interval.shared(test[1])], [side.name for side in sides], signed)
        return Region(name, "\n".join([*(side.text for side in sides), text]))

    def _first_test(self) -> re.Match[str] | None:
        """The first branch that a thread comes to, if it has done nothing until then."""
        by_label = {segment.label: segment for segment in self.segments}
        segment = self.segments[0]
        for _ in self.segments:
            if segment.ends or not all(is_pure(line) for line in segment.lines[:-1]):
                return None
            if match := _TEST.fullmatch(segment.lines[-1]):
                return match
            onward = re.fullmatch(r"br label %(\S+)", segment.lines[-1])
            if onward is None or any(" = phi " in line for line in by_label[onward[1]].lines):
                return None
            segment = by_label[onward[1]]
        return None

    # -- what all threads share -----------------------------------------------------------------------------------

    def _once(self, mentioned: set[str]) -> Iterator[str]:
        """Read before the loop: what threads share that wait here."""
        names = [name for name in sorted(self._resumed()) if name in self.cut.uniform.offsets]
        wanted = mentioned | set(LOCAL.findall(" ".join([*self.shared.lines, *self._left()])))
        for name in names:
            if resumed(name) not in wanted and name not in wanted and name not in self.slots:
                continue
            place = f"{name}.r3from"
            yield f"  {place} = getelementptr i8, ptr %r3.in, i64 {self.cut.uniform.offsets[name]}"
            yield from self._read(self.cut.kept[name], place, resumed(name), "")
            if name not in self.slots:
                kind = self.cut.kept[name]
                yield f"  {name} = bitcast {kind} {resumed(name)} to {kind}"

    def _left(self) -> list[str]:
        """Written before the loop: what threads share that go on to wait at each place."""
        lines = list(self.shared.lines)
        for place, values in sorted(self.shared.found.items()):
            if place not in self.ways.values():
                continue
            for name, value in sorted(values.items()):
                offset = place * self.cut.uniform.bytes + self.cut.uniform.offsets[name]
                target = f"{name}.r3to.{place}"
                lines.append(f"  {target} = getelementptr i8, ptr %r3.out, i64 {offset}")
                lines += self._write(self.cut.kept[name], value, target, "")
        return lines

    def _guard(self, test: re.Match[str], interval: Interval) -> Guard | None:
        """What is known of the first test, if one side of it only leads to the next place or the thread's end."""
        by_label = {segment.label: segment for segment in self.segments}
        idle = [self._idle(by_label, label) for label in test.groups()[1:]]
        if None not in idle and EXIT in idle:  # nobody has anything to do
            idle[1 - idle.index(EXIT)] = None
        if (idle[0] is None) is (idle[1] is None):
            return None
        works = idle[0] is None
        if not interval.narrow(test[1], works) or not interval.varies:
            return None
        label, way = (test[2], idle[1]) if works else (test[3], idle[0])
        reached = {self.ways[s.label] for s in _reached(by_label[label], by_label) if s.label in self.ways}
        if way is None or (way != EXIT and reached != {way}):
            return None
        passed = f"  br i1 {str(works).lower()}, label %{test[2]}, label %{test[3]}"
        return Guard(interval, f"  {test[0]}", passed, way, reached.pop() if len(reached) == 1 else None)

    def _idle(self, by_label: Mapping[str, Segment], label: str) -> int | None:
        """Where threads go from ``label`` if they do nothing on the way and leave nothing there."""
        for _ in by_label:
            segment = by_label[label]
            lines = [line for line in segment.lines if " = phi " not in line]
            if segment.ends:
                return segment.ends.state if not lines and self._leaves_nothing(segment.ends) else None
            if code := _RETURN.fullmatch(lines[0]):
                return EXIT if int(code[1]) == EXIT else None
            match = re.fullmatch(r"br label %(\S+)", lines[0])
            if match is None:
                return None
            label = match[1]
        return None

    def _leaves_nothing(self, suspend: Suspend) -> bool:
        changed = self.cut.behind[suspend.state] & self.defined - self.cut.uniform.offsets.keys()
        return not changed and not kept_operands(suspend.intrinsic, suspend.operands, self.cut.context.sizes)

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
            target = self._old(name) if name in self.slots else name
            if name not in self.cut.uniform.offsets:
                yield from self._read(kind, _address(name), target)
            if name in self.slots:
                yield from self._write(kind, target, _slot(name))

    def _old(self, name: str) -> str:
        """What a value that changes in the region is where it begins."""
        return resumed(name) if name in self.cut.uniform.offsets else f"{name}.r3old"

    def _addresses(self, mentioned: set[str]) -> tuple[list[str], list[str]]:
        """Where each array of the context that the region uses has this thread's element: a local array is one."""
        context = self.cut.context
        bases, places = [], []
        for name, offset in context.offsets.items():
            plain = _address(name)
            target = name if name in self.cut.local_arrays else plain
            if target in mentioned or name == "state":
                bases.append(f"  {plain}.b = getelementptr [{offset} x i8], ptr %r3.context, i64 %r3.padded")
                places.append(f"  {target} = getelementptr [{context.sizes[name]} x i8], ptr {plain}.b, i64 %r3.linear")
        return bases, places

    # -- segments -----------------------------------------------------------------------------------------------

    def _segment(self, segment: Segment) -> Iterator[str]:
        yield f"{segment.label}:"
        here = {name: self._old(name) for name in self.slots} if segment is self.segments[0] else {}
        phis = [line for line in segment.lines if " = phi " in line]
        rest = segment.lines[len(phis) :]
        for line in phis:
            yield f"  {self._phi(line, segment)}"
        if segment.starts and segment.starts.result:
            yield from result_lines(
                segment.starts.intrinsic, segment.starts.operands, segment.starts.result, self.marks.attached
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

    def _phi(self, line: str, segment: Segment) -> str:
        """Predecessors are the last pieces of their blocks; those from which the region does not come do not count."""
        reached = {segment.label: segment for segment in self.segments}
        pairs = []
        for value, label in incoming(line):
            source = reached.get(self.cut.last[label])
            if source and not source.ends and segment.label in source.next:
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
        yield f"  {line.removesuffix(ORDERED)}{self.marks.attached if opcode in _MEMORY and not alone else ''}"
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
        for array, argument in kept_operands(suspend.intrinsic, suspend.operands, self.cut.context.sizes):
            value = operand(argument)
            if value in self.slots:
                yield from self._fetch(value, here)
            self.fresh += 1
            element = f"%r3.k{self.fresh}"
            yield from word(array, element, leading_type(argument), here.get(value, value))
            yield f"  store i32 {element}, ptr {_address(array)}{self.marks.attached}"
        for name in sorted(self.cut.behind[suspend.state] & self.defined - self.cut.uniform.offsets.keys()):
            if name in self.slots:
                yield from self._fetch(name, here)
            yield from self._write(self.cut.kept[name], here.get(name, name), _address(name))
        yield "  br label %r3.next"

    def _read(self, kind: str, source: str, name: str, attached: str | None = None) -> Iterator[str]:
        attached = self.marks.attached if attached is None else attached
        if kind != "i1":
            yield f"  {name} = load {kind}, ptr {source}{attached}"
            return
        yield f"  {name}.r3byte = load i8, ptr {source}{attached}"
        yield f"  {name} = trunc i8 {name}.r3byte to i1"

    def _write(self, kind: str, value: str, target: str, attached: str | None = None) -> Iterator[str]:
        attached = self.marks.attached if attached is None else attached
        if kind == "i1":
            self.fresh += 1
            yield f"  %r3.w{self.fresh} = zext i1 {value} to i8"
            value = f"%r3.w{self.fresh}"
        yield f"  store {stored(kind)} {value}, ptr {target}{attached}"


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
