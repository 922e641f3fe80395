"""A kernel cut where its threads wait for each other, and what lives across the cuts.

A value that is needed behind a suspend point is computed anew there if it is a pure function of arguments and indices;
otherwise it is kept: once for the block where all threads share it, else in the thread's context, one array per value
(structure of arrays). Local arrays live in the context too, one after the other per thread.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from r3bench.lowering import nvvm
from r3bench.lowering.collectives import result_type
from r3bench.lowering.ir import LOCAL, Function, call_arguments, callee, incoming, result_and_opcode, successors
from r3bench.lowering.layout import round_up, size_and_align
from r3bench.lowering.values import is_pure, local_array, value_type

_MOST_ALIGNED = 32
EXIT, ASSERT, TRAP = -1, -2, -4
"""Where a thread goes that ended, failed an assertion, or executed a trap; a suspend point's number otherwise.

The bitwise AND of several of them is the worst one.
"""


@dataclass(slots=True)
class Suspend:
    """A suspend point: its number from 1, the intrinsic called, its typed operands, its result's name or None."""

    state: int
    intrinsic: str
    operands: list[str]
    result: str | None


@dataclass(slots=True)
class Segment:
    """A basic block, or a piece of one between suspend points.

    ``ends`` suspends it instead of a terminator and ``behind`` is the label at which it resumes. ``defines`` are the
    values it defines and ``uses`` those it needs from other segments (without what phis take).
    """

    label: str
    lines: list[str] = field(default_factory=list)
    starts: Suspend | None = None
    ends: Suspend | None = None
    behind: str = ""
    defines: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    next: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Context:
    """Arrays of a thread's context by name: each lies ``offset`` times the (padded) number of threads into it."""

    offsets: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    def place(self, wanted: Mapping[str, tuple[int, int]]) -> None:
        """Place arrays of (size, alignment), the widest first; threads come in multiples of 32, so all stay aligned."""
        for name, (size, align) in sorted(wanted.items(), key=lambda item: -item[1][1]):
            self.bytes = round_up(self.bytes, align)
            self.offsets[name], self.sizes[name] = self.bytes, round_up(size, align)
            self.bytes += self.sizes[name]


@dataclass(slots=True)
class Cut:
    """The cut kernel. ``stack`` are allocas that stay, where nothing waits; ``local_arrays`` went to the context.
    ``kept`` values have a type and a place in the context, or in ``uniform`` what is kept once for all threads;
    ``again`` are instructions to repeat, ``results`` those of suspend points.

    ``behind[k]`` names the kept values needed behind suspend point k, ``last[label]`` the last piece of a block.
    """

    segments: list[Segment]
    suspends: list[Suspend]
    last: dict[str, str]
    local_arrays: dict[str, tuple[int, int]]
    stack: list[str]
    kept: dict[str, str]
    again: dict[str, str]
    results: dict[str, str]
    behind: dict[int, set[str]]
    own: dict[str, tuple[int, int]]
    types: Mapping[str, str]
    context: Context = field(default_factory=Context)
    uniform: Context = field(default_factory=Context)

    def keep_once(self, names: set[str]) -> None:
        """Place what is kept: ``names`` once for all threads that wait at a place, the rest once for each."""
        elements = {name: _element(kind, self.types) for name, kind in self.kept.items()}
        self.uniform.place({name: elements.pop(name) for name in sorted(names)})
        self.uniform.bytes = round_up(self.uniform.bytes, _MOST_ALIGNED)
        own = {"own": (self.uniform.bytes, _MOST_ALIGNED)} if names else {}
        self.context.place({**self.own, **own, **elements, **self.local_arrays})


def cut(kernel: Function, types: Mapping[str, str], own: Mapping[str, tuple[int, int]]) -> Cut:
    """Cut ``kernel`` at its suspend points. ``own`` are the arrays that waiting itself needs, as (size, alignment)."""
    pieces = _Pieces()
    segments = [segment for block in kernel.blocks for segment in pieces.of_block(block.label, block.lines)]
    local_arrays = _take_local_arrays(segments, types) if pieces.suspends else {}
    stack = _take_allocas(segments)
    for segment in segments:
        _note_values(segment)
    lines = {name: line for s in segments for line in s.lines if (name := result_and_opcode(line)[0])}
    results = {s.result: result_type(s.intrinsic) for s in pieces.suspends if s.result}
    live = _live_behind(segments, pieces.last)
    again = _repeatable(set().union(*live.values()), lines, results, types)
    names = sorted(set().union(*live.values()) - set(again))
    kept = {name: results.get(name) or value_type(lines[name]) for name in names}
    behind = {state: names & set(kept) for state, names in live.items()}
    return Cut(
        segments, pieces.suspends, pieces.last, local_arrays, stack, kept, again, results, behind, dict(own), types
    )


def _element(kind: str, types: Mapping[str, str]) -> tuple[int, int]:
    size, align = size_and_align("i8" if kind == "i1" else kind, types)
    return size, min(align, _MOST_ALIGNED)


# -- pieces ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Pieces:
    """Cuts blocks into segments and numbers the suspend points."""

    suspends: list[Suspend] = field(default_factory=list)
    last: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def of_block(self, label: str, lines: Iterable[str]) -> Iterator[Segment]:
        segment = Segment(label)
        for line in lines:
            name = callee(line) if "call " in line else None
            if name in nvvm.OPERATIONS:
                suspend = Suspend(len(self.suspends) + 1, name, call_arguments(line), result_and_opcode(line)[0])
                self.suspends.append(suspend)
                segment.ends, segment.behind = suspend, self._next_label(label)
                yield segment
                segment = Segment(segment.behind, starts=suspend)
            elif (code := _end_of_thread(name)) is not None:
                segment.lines.append(f"ret i32 {code}")
                yield segment
                segment = Segment(self._next_label(label))
            else:
                segment.lines.append(_plain(line, name))
        self.last[label] = segment.label
        yield segment

    def _next_label(self, label: str) -> str:
        self.count += 1
        return f"{label}.r3.{self.count}"


def _end_of_thread(name: str | None) -> int | None:
    if name in ("@llvm.trap", "@llvm.ubsantrap"):
        return TRAP
    if name == "@__assertfail":
        return ASSERT
    return EXIT if name == "@llvm.nvvm.exit" else None


def _plain(line: str, name: str | None) -> str:
    """Reads of indices become values of the lowered kernel, a thread's return becomes its code."""
    if line == "ret void":
        return f"ret i32 {EXIT}"
    if name in nvvm.INDICES:
        return f"{result_and_opcode(line)[0]} = add i32 {nvvm.INDICES[name]}, 0"
    if name in nvvm.PLACES:
        kind, value = nvvm.PLACES[name]
        same = f"add {kind} {value}, 0" if kind != "ptr" else f"getelementptr i8, ptr {value}, i64 0"
        return f"{result_and_opcode(line)[0]} = {same}"
    return line


def _take_local_arrays(segments: Iterable[Segment], types: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Local arrays leave the stack for the context; what says when they live on the stack goes."""
    taken = {}
    for segment in segments:
        kept = []
        for line in segment.lines:
            name, opcode = result_and_opcode(line)
            if opcode == "alloca" and name:
                taken[name] = local_array(line, types)
            elif not ("@llvm.lifetime." in line and opcode == "call"):
                kept.append(line)
        segment.lines = kept
    return taken


def _take_allocas(segments: Iterable[Segment]) -> list[str]:
    """Allocas leave the code, which becomes the body of a loop."""
    taken = []
    for segment in segments:
        if any(" = alloca " in line for line in segment.lines):
            taken += [line for line in segment.lines if " = alloca " in line]
            segment.lines = [line for line in segment.lines if " = alloca " not in line]
    return taken


def _note_values(segment: Segment) -> None:
    if segment.starts and segment.starts.result:
        segment.defines.add(segment.starts.result)
    for line in segment.lines:
        name, opcode = result_and_opcode(line)
        if opcode != "phi":
            segment.uses.update(use for use in LOCAL.findall(line) if use != name and use not in segment.defines)
        if name:
            segment.defines.add(name)
    if segment.ends:
        operands = LOCAL.findall(" ".join(segment.ends.operands))
        segment.uses.update(use for use in operands if use not in segment.defines)
        segment.next = [segment.behind]
    elif segment.lines:
        segment.next = successors(segment.lines[-1])


# -- data flow ------------------------------------------------------------------------------------------------------


def phi_uses(segments: Iterable[Segment], last: Mapping[str, str]) -> dict[str, set[str]]:
    """For each segment by label, the values that phis behind it take from it."""
    found: dict[str, set[str]] = {}
    for segment in segments:
        for line in segment.lines:
            if " = phi " not in line:
                break
            for value, label in incoming(line):
                found.setdefault(last[label], set()).add(value)
    return found


def _live_behind(segments: list[Segment], last: Mapping[str, str]) -> dict[int, set[str]]:
    """The values needed behind each suspend point. Sets are bits of integers: kernels have thousands of values."""
    names = list({name for segment in segments for name in segment.defines})
    bit = {name: 1 << number for number, name in enumerate(names)}
    taken = phi_uses(segments, last)
    defined = {s.label: _bits(s.defines, bit) for s in segments}
    used = {s.label: _bits(s.uses, bit) for s in segments}
    at_end = {s.label: _bits(taken.get(s.label, ()), bit) for s in segments}
    live = _solve(segments, used, at_end, defined)
    found = {}
    for segment in segments:
        if segment.starts:
            own = bit.get(segment.starts.result or "", 0)
            found[segment.starts.state] = {names[i] for i in _positions(live[segment.label] & ~own)}
    return found


def _bits(names: Iterable[str], bit: Mapping[str, int]) -> int:
    found = 0
    for name in names:
        found |= bit.get(name, 0)
    return found


def _positions(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _solve(
    segments: list[Segment], used: Mapping[str, int], at_end: Mapping[str, int], defined: Mapping[str, int]
) -> dict[str, int]:
    """What is live where each segment begins: the least solution, backwards along the control flow."""
    live = dict.fromkeys(used, 0)
    before: dict[str, list[Segment]] = {}
    for segment in segments:
        for label in segment.next:
            before.setdefault(label, []).append(segment)
    waiting = list(segments)
    while waiting:
        segment = waiting.pop()
        out = at_end[segment.label]
        for label in segment.next:
            out |= live[label]
        found = used[segment.label] | (out & ~defined[segment.label])
        if found != live[segment.label]:
            live[segment.label] = found
            waiting += before.get(segment.label, [])
    return live


def _repeatable(
    wanted: Iterable[str], lines: Mapping[str, str], results: Container[str], types: Mapping[str, str]
) -> dict[str, str]:
    """Instructions of those ``wanted`` values that are pure functions of arguments and indices, operands first."""
    pure: dict[str, bool] = {}
    order: dict[str, str] = {}
    for name in wanted:
        stack = [name]
        while stack:
            current = stack[-1]
            line = lines.get(current)
            operands = _operands(line, lines, types) if line and is_pure(line) else []
            missing = [operand for operand in operands if operand not in pure]
            if missing and current not in pure:
                stack += missing
                continue
            stack.pop()
            if current not in pure:
                known = is_pure(line) if line else current not in results
                pure[current] = known and all(pure[operand] for operand in operands)
                if line and pure[current]:
                    order[current] = line
    return _needed(order, {name for name in wanted if pure[name]}, lines, types)


def _needed(
    order: dict[str, str], wanted: set[str], lines: Mapping[str, str], types: Mapping[str, str]
) -> dict[str, str]:
    needed = set(wanted)
    for name in reversed(order):
        if name in needed:
            needed.update(_operands(order[name], lines, types))
    return {name: line for name, line in order.items() if name in needed}


def _operands(line: str, lines: Mapping[str, str], types: Mapping[str, str]) -> list[str]:
    return [name for name in LOCAL.findall(line.split(" = ", 1)[1]) if name in lines or name not in types]
