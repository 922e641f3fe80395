"""A kernel as one resumable step: cut where threads wait for each other, with what lives across the cuts kept in memory.

``r3.step(state, thread, ...)`` runs one thread from ``state`` (0: the kernel's start, k: behind suspend point k) to the
next suspend point and returns its number, or one of the codes below. Called with a constant state and inlined, all
that cannot be reached from there vanishes, so each region between suspend points becomes a loop over threads.

What lives across a suspend point is computed anew at every start where it is a pure function of arguments and
indices; otherwise it is kept in the thread's context, one array per value (structure of arrays). Local arrays live
there too, one after the other per thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from r3bench.errors import BuildError, Unsupported
from r3bench.lowering import nvvm
from r3bench.lowering.collectives import kept_operands, result_lines, result_type, widened
from r3bench.lowering.ir import (
    LOCAL,
    Function,
    call_arguments,
    callee,
    incoming,
    leading_type,
    operand,
    phi_type,
    result_and_opcode,
    split_list,
    successors,
)
from r3bench.lowering.layout import round_up, size_and_align

EXIT, ASSERT, TRAP = -1, -2, -3
"""What a step returns when the thread ended, failed an assertion, or executed a trap."""

_PURE = frozenset(
    "add sub mul shl lshr ashr and or xor icmp select zext sext trunc getelementptr ptrtoint bitcast fneg fadd fsub fmul fcmp "
    "sitofp uitofp fpext fptrunc extractvalue insertvalue extractelement insertelement shufflevector".split()
)
_PURE_CALLS = re.compile(
    r"@llvm\.(?:[us](?:min|max)|abs|fma|fmuladd|fabs|ctpop|ctlz|cttz|bitreverse|bswap|fshl|fshr)\."
)
_MEMORY = frozenset(("load", "store"))
_LIFETIME = re.compile(r"@llvm\.(?:lifetime|invariant)\.")


@dataclass(slots=True)
class Suspend:
    """A suspend point: its number (the state behind it), the intrinsic called, its operands, the result's name or None."""

    state: int
    intrinsic: str
    operands: list[str]
    result: str | None


@dataclass(slots=True)
class Segment:
    """A basic block, or the piece of one between suspend points. ``ends`` suspends it instead of a terminator; ``behind`` is the label it resumes at."""

    label: str
    lines: list[str] = field(default_factory=list)
    starts: Suspend | None = None
    ends: Suspend | None = None
    behind: str = ""


@dataclass(slots=True)
class Context:
    """Bytes of a thread's context: arrays by name, each ``offset * threads`` into the context."""

    offsets: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    def place(self, wanted: Mapping[str, tuple[int, int]]) -> None:
        """Place arrays of (size, alignment), widest alignment first: threads come in multiples of 32, so all stay aligned."""
        for name, (size, align) in sorted(wanted.items(), key=lambda item: -item[1][1]):
            self.offsets[name] = self.bytes
            self.sizes[name] = round_up(size, align)
            self.bytes += self.sizes[name]


@dataclass(slots=True)
class Step:
    """The step function's text, its suspend points and the context they need; ``exits[k]`` is what state k can return."""

    text: str
    suspends: list[Suspend]
    context: Context
    exits: list[frozenset[int]]
    parallel: bool


def build_step(
    kernel: Function, head: str, types: Mapping[str, str], own: Mapping[str, tuple[int, int]], group: str
) -> Step:
    """Cut ``kernel``. ``head`` declares the step's parameters, ``own`` are arrays the driver keeps in the context.

    ``group`` is the metadata id of the access group that marks accesses of different threads as independent.
    """
    return _Cutter(kernel, head, types, own, group).build()


class _Cutter:
    def __init__(
        self, kernel: Function, head: str, types: Mapping[str, str], own: Mapping[str, tuple[int, int]], group: str
    ) -> None:
        self.kernel, self.head, self.types, self.own, self.group = kernel, head, types, own, group
        self.suspends: list[Suspend] = []
        self.pieces = 0
        self.last: dict[str, str] = {}
        self.context = Context()
        self.segments = [segment for block in kernel.blocks for segment in self._cut(block.label, block.lines)]
        self.allocas = self._take_allocas() if self.suspends else {}
        self.definitions = {name: line for name, line in self._defined()}

    # -- cutting ------------------------------------------------------------------------------------------------

    def _cut(self, label: str, lines: list[str]) -> Iterator[Segment]:
        segment = Segment(label)
        for line in lines:
            name = callee(line) if "call " in line else None
            if name in nvvm.SUSPENDS:
                suspend = Suspend(len(self.suspends) + 1, name, call_arguments(line), result_and_opcode(line)[0])
                self.suspends.append(suspend)
                segment.ends, segment.behind = suspend, self._piece(label)
                yield segment
                segment = Segment(segment.behind, starts=suspend)
            elif (code := _end_of_thread(name)) is not None:
                segment.lines.append(f"ret i32 {code}")
                yield segment
                segment = Segment(self._piece(label))
            else:
                segment.lines.append(_plain(line, name))
        self.last[label] = segment.label
        yield segment

    def _piece(self, label: str) -> str:
        self.pieces += 1
        return f"{label}.r3.{self.pieces}"

    def _take_allocas(self) -> dict[str, tuple[int, int]]:
        """Local arrays by name, with size and alignment; they move from the stack to the context."""
        taken = {}
        for segment in self.segments:
            kept = []
            for line in segment.lines:
                name, opcode = result_and_opcode(line)
                if opcode == "alloca" and name:
                    taken[name] = _alloca_size(line, self.types)
                elif not (opcode == "call" and _LIFETIME.search(line)):
                    kept.append(line)
            segment.lines = kept
        return taken

    def _defined(self) -> Iterator[tuple[str, str]]:
        for segment in self.segments:
            for line in segment.lines:
                name = result_and_opcode(line)[0]
                if name:
                    yield name, line

    # -- what lives across --------------------------------------------------------------------------------------

    def build(self) -> Step:
        live = _Liveness(self.segments, self.last)
        across = live.across(set(self.definitions) | {s.result for s in self.suspends if s.result})
        again = self._recomputed(across)
        kept = sorted(across - set(again))
        kinds = {name: self._kind(name) for name in kept}
        wanted = {name: _slot_size(kind, self.types) for name, kind in kinds.items()}
        self.context.place({**self.own, **wanted, **self.allocas})
        text = _StepText(self, live, kinds, again)
        return Step(
            text.write(), self.suspends, self.context, _exits(self.segments, self.suspends, self.last), self._parallel()
        )

    def _parallel(self) -> bool:
        """Threads share the stack of the loop they run in: an array left there ties them to their order."""
        return not any(result_and_opcode(line)[1] == "alloca" for segment in self.segments for line in segment.lines)

    def _recomputed(self, across: set[str]) -> list[str]:
        """Values to compute at every start instead of keeping, each behind what it needs."""
        results = {suspend.result for suspend in self.suspends}
        pure: dict[str, bool] = {}
        order: list[str] = []

        def visit(name: str) -> bool:
            stack = [name]
            while stack:
                current = stack[-1]
                line = self.definitions.get(current)
                needed = self._operands(line) if line and _is_pure(line) else []
                waiting = [item for item in needed if item not in pure]
                if waiting and current not in pure:
                    stack += waiting
                    continue
                stack.pop()
                if current not in pure:
                    known = _is_pure(line) if line else current not in results
                    pure[current] = known and all(pure[item] for item in needed)
                    if line and pure[current]:
                        order.append(current)
            return pure[name]

        wanted = {name for name in across if visit(name)}
        needed = set(wanted)
        for name in reversed(order):
            if name in needed:
                needed.update(self._operands(self.definitions[name]))
        return [name for name in order if name in needed]

    def _operands(self, line: str) -> list[str]:
        names = LOCAL.findall(line.split(" = ", 1)[1])
        return [name for name in names if name in self.definitions or name not in self.types]

    def _kind(self, name: str) -> str:
        for suspend in self.suspends:
            if suspend.result == name:
                return result_type(suspend.intrinsic)
        return value_type(self.definitions[name])


def _end_of_thread(name: str | None) -> int | None:
    if name in ("@llvm.trap", "@llvm.ubsantrap"):
        return TRAP
    if name == "@__assertfail":
        return ASSERT
    return EXIT if name == "@llvm.nvvm.exit" else None


def _plain(line: str, name: str | None) -> str:
    """Reads of indices become values of the step; a thread's return becomes its code."""
    if line == "ret void":
        return f"ret i32 {EXIT}"
    if name in nvvm.INDICES:
        return f"{result_and_opcode(line)[0]} = add i32 {nvvm.INDICES[name]}, 0"
    if name in nvvm.PLACES:
        kind, value = nvvm.PLACES[name]
        same = f"add {kind} {value}, 0" if kind != "ptr" else f"getelementptr i8, ptr {value}, i64 0"
        return f"{result_and_opcode(line)[0]} = {same}"
    return line


def _alloca_size(line: str, types: Mapping[str, str]) -> tuple[int, int]:
    rest = line.split(" alloca ", 1)[1].removeprefix("inalloca ")
    kind = leading_type(rest)
    size, align = size_and_align(kind, types)
    for part in split_list(rest)[1:]:
        if part.startswith("align "):
            align = max(align, int(part[6:]))
        elif match := re.fullmatch(r"i\d+ (\d+)", part):
            size *= int(match[1])
        elif not part.startswith("!"):
            raise Unsupported("a local array whose size is not a constant is not supported by the CPU device")
    if align > 32:
        raise Unsupported(
            f"a local array aligned to {align} bytes is not supported by the CPU device; align it to at most 32"
        )
    return max(size, 1), align


def _slot_size(kind: str, types: Mapping[str, str]) -> tuple[int, int]:
    size, align = size_and_align("i8" if kind == "i1" else kind, types)
    return size, min(align, 32)


def _is_pure(line: str) -> bool:
    """Whether an instruction may be executed anywhere, any number of times, with the same value."""
    opcode = result_and_opcode(line)[1]
    if opcode == "load":
        return "!invariant.load" in line and "@r3_slot." in line.replace('"', "")
    if opcode == "call":
        return bool(_PURE_CALLS.search(line))
    return opcode in _PURE


# -- types of values ------------------------------------------------------------------------------------------------


def value_type(line: str) -> str:
    """The type of the value an instruction defines, from its text."""
    opcode = result_and_opcode(line)[1]
    rest = line.split(" = ", 1)[1]
    if opcode == "call":
        head = re.sub(
            r"\b(?:range|dereferenceable|dereferenceable_or_null|nofpclass)\([^)]*\) ", "", rest.split("@", 1)[0]
        )
        words = r"(?:tail|musttail|notail|call|nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|noundef|nonnull|zeroext|signext|noalias|inreg)"
        return leading_type(re.sub(rf"^(?:(?:{words}|align \d+) )*", "", head))
    if opcode == "phi":
        return phi_type(line)
    if opcode in (
        "zext",
        "sext",
        "trunc",
        "fptrunc",
        "fpext",
        "fptoui",
        "fptosi",
        "uitofp",
        "sitofp",
        "ptrtoint",
        "bitcast",
    ):
        return leading_type(rest.rsplit(" to ", 1)[1])
    return _operand_type(opcode, rest[rest.index(opcode) + len(opcode) + 1 :])


_FLAGS = re.compile(
    r"^(?:(?:nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|nuw|nsw|nusw|exact|disjoint|samesign|inbounds|volatile|atomic|weak) )+"
)


def _operand_type(opcode: str, rest: str) -> str:
    rest = _FLAGS.sub("", rest)
    parts = split_list(rest)
    if opcode in ("icmp", "fcmp"):
        return _comparison_type(leading_type(rest.split(" ", 1)[1].removeprefix("samesign ")))
    if opcode == "load":
        return leading_type(parts[0])
    if opcode == "select":
        return leading_type(parts[1])
    if opcode == "getelementptr":
        return leading_type(parts[1])
    if opcode == "cmpxchg":
        return f"{{ {leading_type(parts[1])}, i1 }}"
    if opcode == "atomicrmw":
        return leading_type(parts[1])
    if opcode == "extractelement":
        return leading_type(parts[0])[1:-1].split(" x ", 1)[1].strip()
    if opcode == "extractvalue":
        return _member(leading_type(parts[0]), [int(part) for part in parts[1:] if part.isdigit()])
    if opcode == "shufflevector":
        count = leading_type(parts[2])[1:-1].split(" x ")[0]
        return f"<{count} x {leading_type(parts[0])[1:-1].split(' x ', 1)[1].strip()}>"
    return "ptr" if opcode == "alloca" else leading_type(parts[0])


def _comparison_type(kind: str) -> str:
    return f"<{kind[1:-1].split(' x ')[0]} x i1>" if kind.startswith("<") else "i1"


def _member(kind: str, path: list[int]) -> str:
    for index in path:
        if kind.startswith("["):
            kind = kind[1:-1].split(" x ", 1)[1].strip()
        elif kind.startswith("{"):
            kind = split_list(kind[1:-1].strip())[index]
        else:
            raise Unsupported(f"a value of type {kind} across a barrier is not supported by the CPU device")
    return kind


# -- data flow ------------------------------------------------------------------------------------------------------


class _Liveness:
    """Which values are needed behind each suspend point. Sets are bits of integers: kernels have thousands of values."""

    def __init__(self, segments: list[Segment], last: Mapping[str, str]) -> None:
        self.segments = segments
        self.names = [name for s in segments for name in _definitions(s)]
        self.bit = {name: 1 << index for index, name in enumerate(self.names)}
        self.home = {name: s.label for s in segments for name in _definitions(s)}
        self.index = {segment.label: number for number, segment in enumerate(segments)}
        self.next = [_next_labels(segment) for segment in segments]
        self.used = [0] * len(segments)
        self.phis: dict[tuple[str, str], int] = {}
        self.defined = [self._bits(_definitions(s)) for s in segments]
        for number, segment in enumerate(segments):
            self._scan(number, segment, last)
        self.live_in = [0] * len(segments)
        self._solve()

    def _bits(self, names: list[str]) -> int:
        found = 0
        for name in names:
            found |= self.bit[name]
        return found

    def _scan(self, number: int, segment: Segment, last: Mapping[str, str]) -> None:
        """Uses of a phi belong to the end of the block the value comes from."""
        seen = self.bit[segment.starts.result] if segment.starts and segment.starts.result else 0
        for line in segment.lines:
            name, opcode = result_and_opcode(line)
            if opcode == "phi":
                for value, label in incoming(line):
                    if value in self.bit:
                        source = last[label]
                        self.phis[source, segment.label] = self.phis.get((source, segment.label), 0) | self.bit[value]
            else:
                self.used[number] |= self._bits([use for use in LOCAL.findall(line) if use in self.bit]) & ~seen
            if name:
                seen |= self.bit[name]
        if segment.ends:
            text = " ".join(segment.ends.operands)
            self.used[number] |= self._bits([use for use in LOCAL.findall(text) if use in self.bit]) & ~seen

    def _solve(self) -> None:
        before: dict[str, list[int]] = {}
        for number, labels in enumerate(self.next):
            for label in labels:
                before.setdefault(label, []).append(number)
        waiting = list(range(len(self.segments)))
        while waiting:
            number = waiting.pop()
            out = self.live_out(number)
            found = self.used[number] | (out & ~self.defined[number])
            if found != self.live_in[number]:
                self.live_in[number] = found
                waiting += before.get(self.segments[number].label, [])

    def live_out(self, number: int) -> int:
        out, label = 0, self.segments[number].label
        for follower in self.next[number]:
            out |= self.live_in[self.index[follower]] | self.phis.get((label, follower), 0)
        return out

    def behind(self, suspend: Suspend) -> int:
        """What is live where ``suspend`` resumes, without its own result."""
        own = self.bit[suspend.result] if suspend.result else 0
        return next(self.live_in[n] for n, s in enumerate(self.segments) if s.starts is suspend) & ~own

    def across(self, candidates: set[str]) -> set[str]:
        bits = 0
        for segment in self.segments:
            if segment.ends:
                bits |= self.behind(segment.ends)
        return {name for name in candidates if bits & self.bit[name]}


def _definitions(segment: Segment) -> list[str]:
    names = [segment.starts.result] if segment.starts and segment.starts.result else []
    return names + [name for line in segment.lines if (name := result_and_opcode(line)[0])]


def _next_labels(segment: Segment) -> list[str]:
    if segment.ends:
        return [segment.behind]
    return successors(segment.lines[-1]) if segment.lines else []


def _exits(segments: list[Segment], suspends: list[Suspend], last: Mapping[str, str]) -> list[frozenset[int]]:
    """For each state, every value the step can return from there."""
    by_label = {segment.label: segment for segment in segments}
    starts = {segment.starts.state: segment for segment in segments if segment.starts}
    return [_returns(starts[state] if state else segments[0], by_label) for state in range(len(suspends) + 1)]


def _returns(start: Segment, by_label: Mapping[str, Segment]) -> frozenset[int]:
    waiting, seen, found = [start], {start.label}, set()
    while waiting:
        segment = waiting.pop()
        if segment.ends:
            found.add(segment.ends.state)
            continue
        final = segment.lines[-1] if segment.lines else ""
        if match := re.fullmatch(r"ret i32 (-?\d+)", final):
            found.add(int(match[1]))
        for label in successors(final):
            if label not in seen:
                seen.add(label)
                waiting.append(by_label[label])
    return frozenset(found)


# -- text -----------------------------------------------------------------------------------------------------------


class _StepText:
    """Writes the step: kept values go through stack slots, which LLVM turns back into registers within a region."""

    def __init__(self, cutter: _Cutter, live: _Liveness, kinds: Mapping[str, str], again: list[str]) -> None:
        self.cutter, self.live, self.kinds, self.again = cutter, live, kinds, set(again)
        self.order = again
        self.fresh = 0
        self.fed = _fed_phis(cutter.segments, cutter.last, kinds)

    def write(self) -> str:
        lines = ["r3.entry:"]
        lines += [f"  {_slot(name)} = alloca {_stored(kind)}" for name, kind in self.kinds.items()]
        lines += self._addresses()
        lines += [f"  {self.cutter.definitions[name]}" for name in self.order]
        lines += self._switch()
        for segment in self.cutter.segments:
            lines += self._segment(segment)
        return f"{self.cutter.head} {{\n" + "\n".join(lines) + "\n}"

    def _addresses(self) -> Iterator[str]:
        """Where each array of the context has this thread's element; a local array is that element."""
        context = self.cutter.context
        if context.bytes:
            yield "  %r3.linear = zext nneg i32 %r3.thread to i64"
        for name, offset in context.offsets.items():
            plain = _address(name)
            yield f"  {plain}.o = mul i64 %r3.padded, {offset}"
            yield f"  {plain}.a = getelementptr i8, ptr %r3.context, i64 {plain}.o"
            yield f"  {plain}.i = mul i64 %r3.linear, {context.sizes[name]}"
            target = name if name in self.cutter.allocas else plain
            yield f"  {target} = getelementptr i8, ptr {plain}.a, i64 {plain}.i"

    def _switch(self) -> Iterator[str]:
        first = self.cutter.segments[0].label
        cases = " ".join(f"i32 {s.state}, label %r3.resume.{s.state}" for s in self.cutter.suspends)
        yield f"  switch i32 %r3.state, label %{first} [ {cases} ]" if cases else f"  br label %{first}"
        for segment in self.cutter.segments:
            if segment.starts:
                yield from self._resume(segment.starts, segment.label)

    def _resume(self, suspend: Suspend, label: str) -> Iterator[str]:
        yield f"r3.resume.{suspend.state}:"
        behind = self.live.behind(suspend)
        for name, kind in self.kinds.items():
            if behind & self.live.bit[name]:
                yield from self._move(_stored(kind), _address(name), _slot(name))
        yield f"  br label %{label}"

    def _move(self, kind: str, source: str, target: str) -> Iterator[str]:
        self.fresh += 1
        group = self.cutter.group
        yield f"  %r3.m{self.fresh} = load {kind}, ptr {source}, !llvm.access.group {group}"
        yield f"  store {kind} %r3.m{self.fresh}, ptr {target}, !llvm.access.group {group}"

    def _segment(self, segment: Segment) -> Iterator[str]:
        yield f"{segment.label}:"
        self.here: dict[str, str] = {}
        phis = [line for line in segment.lines if result_and_opcode(line)[1] == "phi"]
        rest = segment.lines[len(phis) :]
        for line in phis:
            yield f"  {self._phi(line)}"
        if segment.starts and segment.starts.result:
            yield from self._result(segment.starts)
        for line in phis:
            yield from self._keep(result_and_opcode(line)[0])
        for line in rest[:-1] if not segment.ends else rest:
            yield from self._instruction(line)
        yield from self._feed(segment)
        if segment.ends:
            yield from self._suspend(segment.ends)
        elif rest:
            yield from self._instruction(rest[-1])

    def _phi(self, line: str) -> str:
        """Predecessors are the last pieces of their blocks; kept values were loaded at their ends."""
        pairs = []
        for value, label in incoming(line):
            source = self.cutter.last[label]
            pairs.append(f"[ {self.fed.get((source, value), value)}, %{source} ]")
        start = line.index("[", line.index(" phi ") + 5 + len(phi_type(line)))
        return line[:start] + ", ".join(pairs)

    def _feed(self, segment: Segment) -> Iterator[str]:
        for (label, value), name in self.fed.items():
            if label == segment.label:
                yield from self._load(value, name)

    def _instruction(self, line: str) -> Iterator[str]:
        name, opcode = result_and_opcode(line)
        if name in self.again:
            return
        if self.kinds:
            for use in dict.fromkeys(LOCAL.findall(line)):
                if use in self.kinds and use != name and use not in self.here:
                    self.fresh += 1
                    yield from self._load(use, f"%r3.u{self.fresh}")
                    self.here[use] = f"%r3.u{self.fresh}"
            line = LOCAL.sub(lambda match: self.here.get(match[0], match[0]), line) if self.here else line
        if (
            opcode in _MEMORY
            and " volatile " not in line
            and " atomic " not in line
            and "!llvm.access.group" not in line
        ):
            line += f", !llvm.access.group {self.cutter.group}"
        yield f"  {line}"
        if name:
            yield from self._keep(name)

    def _keep(self, name: str | None) -> Iterator[str]:
        if name in self.kinds:
            self.here[name] = name
            yield from self._store(name, self.kinds[name])

    def _store(self, name: str, kind: str) -> Iterator[str]:
        value = name
        if kind == "i1":
            self.fresh += 1
            value = f"%r3.w{self.fresh}"
            yield f"  {value} = zext i1 {name} to i8"
        yield f"  store {_stored(kind)} {value}, ptr {_slot(name)}"

    def _load(self, value: str, name: str) -> Iterator[str]:
        kind = self.kinds[value]
        if kind != "i1":
            yield f"  {name} = load {kind}, ptr {_slot(value)}"
            return
        yield f"  {name}.w = load i8, ptr {_slot(value)}"
        yield f"  {name} = trunc i8 {name}.w to i1"

    # -- suspend points -----------------------------------------------------------------------------------------

    def _suspend(self, suspend: Suspend) -> Iterator[str]:
        group = self.cutter.group
        for array, kind, argument in kept_operands(suspend.intrinsic, suspend.operands, self.cutter.context.sizes):
            value = operand(argument)
            if value in self.kinds and value not in self.here:
                self.fresh += 1
                yield from self._load(value, f"%r3.u{self.fresh}")
                value = f"%r3.u{self.fresh}"
            else:
                value = self.here.get(value, value)
            self.fresh += 1
            yield from widened(f"%r3.k{self.fresh}", leading_type(argument), kind, value)
            yield f"  store {kind} %r3.k{self.fresh}, ptr {_address(array)}, !llvm.access.group {group}"
        behind = self.live.behind(suspend)
        for name, kind in self.kinds.items():
            if behind & self.live.bit[name]:
                yield from self._move(_stored(kind), _slot(name), _address(name))
        yield f"  ret i32 {suspend.state}"

    def _result(self, suspend: Suspend) -> Iterator[str]:
        yield from result_lines(suspend.intrinsic, suspend.operands, suspend.result or "", self.cutter.group)
        yield from self._keep(suspend.result)


def _fed_phis(segments: list[Segment], last: Mapping[str, str], kinds: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """(segment, kept value) -> the name under which the segment loads it at its end, for the phis behind."""
    homes = {name: s.label for s in segments for name in _definitions(s)}
    fed: dict[tuple[str, str], str] = {}
    for segment in segments:
        for line in segment.lines:
            if " = phi " not in line:
                continue
            for value, label in incoming(line):
                source = last[label]
                if value in kinds and homes[value] != source:
                    fed.setdefault((source, value), f"%r3.f{len(fed)}")
    return fed


def _slot(name: str) -> str:
    return f"{name}.r3slot"


def _address(name: str) -> str:
    """Where the context holds a value of the kernel, or one of the arrays that suspend points use."""
    return f"{name}.r3at" if name.startswith("%") else f"%r3.at.{name}"


def _stored(kind: str) -> str:
    return "i8" if kind == "i1" else kind
