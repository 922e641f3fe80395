"""The threads of a row that pass a region's first test: where they are neighbours, their loop needs no test.

A test such as ``i < n`` holds for an interval of a row's threads if what it compares grows by one from thread to thread
without wrapping around. The interval is computed before the row's loop, which leaves the others out. Rows in which a
value does wrap around are run thread by thread.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from r3bench.lowering.ir import LOCAL, result_and_opcode
from r3bench.lowering.values import is_pure

_FLAGS = re.compile(r"\b(?:nuw|nsw|nneg|samesign|exact|inbounds|nusw|disjoint) ")
_EQUAL = re.compile(r"icmp (eq|ne) (i32|i64) (\S+), (\S+)$")
_PART = re.compile(r"(and|lshr) i(?:32|64) (\S+), (\d+)$")
_TEST = re.compile(r"icmp (?:samesign )?([su])([lg])([te]) (i32|i64) (\S+), (\S+)$")
_INVERSE = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}
_SWAPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_SUM = re.compile(r"(add|sub|or disjoint) i(?:32|64) (\S+), (\S+)$")
_WIDER = re.compile(r"(?:zext|sext) i32 (\S+) to i64$")
_WIDENED = re.compile(r"(  %\S+) = ([sz]ext) (?:nneg )?i32 (%\S+) to i64$")
_BOTH = re.compile(r"(?:and i1 (\S+), (\S+)|select i1 (\S+), i1 (\S+), i1 false)$")
_EITHER = re.compile(r"(?:or i1 (\S+), (\S+)|select i1 (\S+), i1 true, i1 (\S+))$")
_NOT = re.compile(r"xor i1 (\S+), true$")
_ROW = {"%r3.tid.x": "%r3.x.{end}", "%r3.thread": "%r3.thread.{end}"}
_VARIES, _FIXED = "varies", "fixed"
_FEW = 5  # a warp, in bits


@dataclass(frozen=True, slots=True)
class _Bound:
    """``value`` (a name that grows by one per thread) compared with ``limit``; or, without it, a fixed condition."""

    value: str
    limit: str
    kind: str
    signed: bool
    relation: str


@dataclass(frozen=True, slots=True)
class _Comb:
    """``value`` (a name that grows by one per thread) is ``rest`` modulo ``step``, a power of two."""

    value: str
    kind: str
    step: int
    rest: int


@dataclass(slots=True)
class Interval:
    """Instructions that compute ``%r3.x.low`` and ``%r3.x.high``, the row's threads for which ``condition`` is
    ``truth``: all between them, or with a ``comb`` one in each of its steps. ``few``: they are at most a warp.
    ``lines`` are the definitions that the region's threads execute, by name."""

    lines: Mapping[str, str]
    bounds: list[tuple[str, bool] | _Bound] = field(default_factory=list)
    comb: _Comb | None = None
    few: bool = False
    known: dict[str, str | None] = field(default_factory=dict)

    def narrow(self, condition: str, truth: bool) -> bool:
        """Take a condition in; False where it is no interval."""
        line = _FLAGS.sub(lambda m: m[0] if m[0] == "disjoint " else "", self._text(condition))
        if self._growth(condition) == _FIXED:
            self.bounds.append((condition, truth))
            return True
        if match := (_BOTH if truth else _EITHER).match(line):
            return all(self.narrow(part, truth) for part in match.groups() if part)
        if match := _NOT.match(line):
            return self.narrow(match[1], not truth)
        if (match := _EQUAL.match(line)) and (match[1] == "eq") is truth:
            return self._equal(*match.groups()[1:])
        test = _TEST.match(line)
        return test is not None and self._compare(test, truth)

    def _equal(self, kind: str, left: str, right: str) -> bool:
        """Take in that two values are equal."""
        part = _PART.match(self._text(left))
        if part and right.isdigit() and self._growth(part[2]) == _VARIES:
            return self._equal_part(kind, part, int(right))
        if (self._growth(left), self._growth(right)) == (_FIXED, _VARIES):
            left, right = right, left
        elif (self._growth(left), self._growth(right)) != (_VARIES, _FIXED):
            return False
        self.bounds += [_Bound(left, right, kind, False, relation) for relation in ("ge", "le")]
        self.few = True
        return True

    def _equal_part(self, kind: str, part: re.Match[str], right: int) -> bool:
        """Take in what the upper or the lower bits of a value are."""
        value, amount = part[2], int(part[3])
        if part[1] == "lshr":
            first, end = right << amount, (right + 1) << amount
            if end >> (int(kind[1:]) - 1):
                return False
            self.bounds.append(_Bound(value, str(first), kind, False, "ge"))
            self.bounds.append(_Bound(value, str(end), kind, False, "lt"))
            self.few = self.few or amount <= _FEW
            return True
        step = amount + 1
        if step & (step - 1) or right >= step or self.comb:
            return False
        self.comb = _Comb(value, kind, step, right)
        return True

    @property
    def varies(self) -> bool:
        return self.comb is not None or any(isinstance(bound, _Bound) for bound in self.bounds)

    def is_fixed(self, name: str) -> bool:
        """Whether a value is the same for all threads of a block."""
        return self._growth(name) == _FIXED

    def shared(self, name: str) -> Iterator[str]:
        """Instructions that compute such a value in front of the threads, as ``%r3.shared.test``."""
        yield from self._at(name, "first", set())
        yield f"  %r3.shared.test = and i1 {self._named(name, 'first')}, true"

    @property
    def is_sparse(self) -> bool:
        """Whether they are so few, or so far from each other, that a loop over them is better not vectorized."""
        return self.few or self.step > 1

    @property
    def step(self) -> int:
        """How far it is from one of the threads to the next."""
        return self.comb.step if self.comb else 1

    def _text(self, name: str) -> str:
        line = self.lines.get(name, "")
        return line.split(" = ", 1)[1] if line else ""

    def _compare(self, match: re.Match[str], truth: bool) -> bool:
        relation, left, right = match[2] + match[3], match[5], match[6]
        growth = (self._growth(left), self._growth(right))
        if growth == (_FIXED, _VARIES):
            relation, left, right = _SWAPPED[relation], right, left
        elif growth != (_VARIES, _FIXED):
            return False
        relation = relation if truth else _INVERSE[relation]
        self.bounds.append(_Bound(left, right, match[4], match[1] == "s", relation))
        return True

    def _growth(self, name: str) -> str | None:
        """Whether a value grows by one from each thread of a row to the next, or is the same for all; None: neither."""
        if name not in self.known:
            self.known[name] = None
            self.known[name] = self._found(name)
        return self.known[name]

    def _found(self, name: str) -> str | None:
        if name in _ROW:
            return _VARIES
        if not name.startswith("%") or (name not in self.lines and name != "%r3.linear"):
            return _FIXED
        line = self.lines.get(name)
        if line is None or not is_pure(line):
            return None
        if all(self._growth(use) == _FIXED for use in LOCAL.findall(line.split(" = ", 1)[1])):
            return _FIXED
        text = re.sub(r"\b(?:nuw|nsw|nneg) ", "", self._text(name))
        if match := _SUM.match(text):
            growth = (self._growth(match[2]), self._growth(match[3]))
            both = ((_VARIES, _FIXED),) if match[1] == "sub" else ((_VARIES, _FIXED), (_FIXED, _VARIES))
            return _VARIES if growth in both else None
        match = _WIDER.match(text)
        return _VARIES if match and self._growth(match[1]) == _VARIES else None

    # -- code -----------------------------------------------------------------------------------------------------

    def text(self) -> Iterator[str]:
        """``%r3.flat``: no value wraps around within the row, so that it is an interval. Both ends stay within the row,
        the low one at most the high one."""
        yield "  %r3.x.last = sub i32 %r3.x.end, 1"
        yield from (f"  %r3.thread.{end} = add i32 %r3.row, %r3.x.{end}" for end in ("first", "last"))
        yield "  %r3.columns = sub i32 %r3.x.last, %r3.x.first"
        done: set[str] = set()
        low, high, flat = "%r3.x.first", "%r3.x.end", "true"
        for n, bound in enumerate(self.bounds):
            if isinstance(bound, _Bound):
                # A sum of 32 bits grows by one; one of 64 may hold a part of 32 bits that wraps around.
                yield from self._at(bound.value, "last", done) if bound.kind == "i64" else ()
                yield from self._at(bound.value, "first", done)
                yield from self._at(bound.limit, "first", done)
                yield from _crossing(bound, n, self._named)
                yield f"  %r3.flat.{n} = and i1 {flat}, %r3.even.{n}"
                flat = f"%r3.flat.{n}"
                if bound.relation in ("gt", "ge"):
                    yield f"  %r3.lower.{n} = call i32 @llvm.umax.i32(i32 {low}, i32 %r3.cross.{n})"
                    low = f"%r3.lower.{n}"
                    continue
                upper = f"%r3.cross.{n}"
            else:
                yield from self._at(bound[0], "first", done)
                pair = ("%r3.x.end", "%r3.x.first") if bound[1] else ("%r3.x.first", "%r3.x.end")
                upper = f"%r3.fixed.{n}"
                yield f"  {upper} = select i1 {self._named(bound[0], 'first')}, i32 {pair[0]}, i32 {pair[1]}"
            yield f"  %r3.upper.{n} = call i32 @llvm.umin.i32(i32 {high}, i32 {upper})"
            high = f"%r3.upper.{n}"
        yield f"  %r3.flat = and i1 {flat}, true"
        yield f"  %r3.x.high = call i32 @llvm.umax.i32(i32 {low}, i32 {high})"
        yield from self._combed(low, done) if self.comb else [f"  %r3.x.low = add i32 {low}, 0"]

    def _combed(self, low: str, done: set[str]) -> Iterator[str]:
        """The first thread from ``low`` on that the comb takes in; it may lie behind the row."""
        assert self.comb
        comb, kind = self.comb, self.comb.kind
        yield from self._at(comb.value, "first", done)
        yield f"  %r3.comb.from = sub i32 {low}, %r3.x.first"
        yield f"  %r3.comb.wide = {'add i32 %r3.comb.from, 0' if kind == 'i32' else 'zext i32 %r3.comb.from to i64'}"
        yield f"  %r3.comb.at = add {kind} {self._named(comb.value, 'first')}, %r3.comb.wide"
        yield f"  %r3.comb.far = sub {kind} {comb.rest}, %r3.comb.at"
        yield f"  %r3.comb.next = and {kind} %r3.comb.far, {comb.step - 1}"
        yield f"  %r3.comb.steps = {'add i32 %r3.comb.next, 0' if kind == 'i32' else 'trunc i64 %r3.comb.next to i32'}"
        yield f"  %r3.x.low = add i32 {low}, %r3.comb.steps"

    def simplified(self, line: str) -> str:
        """A line of a thread, where it widens a value that is known not to wrap around: a sum that cannot either."""
        match = _WIDENED.match(line)
        if match:
            for n, bound in enumerate(self.bounds):
                if isinstance(bound, _Bound) and bound.value == match[3] and bound.signed == (match[2] == "sext"):
                    return f"{match[1]} = add nsw i64 %r3.wf.{n}, %r3.offset"
        return line

    def _named(self, name: str, end: str) -> str:
        if name in _ROW:
            return _ROW[name].format(end=end)
        return f"{name}.r3{end}" if name in self.lines else name

    def _at(self, name: str, end: str, done: set[str]) -> Iterator[str]:
        """What ``name`` is for the row's first or last thread. Without flags: others' values may be none at all."""
        target = self._named(name, end)
        if name not in self.lines or name in _ROW or target in done:
            return
        done.add(target)
        uses = LOCAL.findall(self._text(name))
        for use in uses:
            yield from self._at(use, end, done)
        text = self._text(name).replace("or disjoint ", "add ")
        text = _FLAGS.sub("", text)
        yield f"  {target} = {LOCAL.sub(lambda match: self._named(match[0], end), text)}"


def _crossing(bound: _Bound, n: int, named: object) -> Iterator[str]:
    """``%r3.cross.n``: the first thread for which a value is not below the limit (or is above it), within the row;
    ``%r3.flat.n``: the value does not wrap around within the row."""
    assert callable(named)
    wide = "i128" if bound.kind == "i64" else "i64"
    extend = "sext" if bound.signed else "zext"
    first = named(bound.value, "first")
    yield f"  %r3.wf.{n} = {extend} {bound.kind} {first} to {wide}"
    yield f"  %r3.wu.{n} = {extend} {bound.kind} {named(bound.limit, 'first')} to {wide}"
    yield f"  %r3.wc.{n} = zext i32 %r3.columns to {wide}"
    if bound.kind == "i32":
        yield f"  %r3.last.{n} = add i32 {first}, %r3.columns"
        yield f"  %r3.even.{n} = icmp {'s' if bound.signed else 'u'}ge i32 %r3.last.{n}, {first}"
    else:
        yield f"  %r3.wl.{n} = {extend} i64 {named(bound.value, 'last')} to {wide}"
        yield f"  %r3.grown.{n} = sub {wide} %r3.wl.{n}, %r3.wf.{n}"
        yield f"  %r3.even.{n} = icmp eq {wide} %r3.grown.{n}, %r3.wc.{n}"
    more = 1 if bound.relation in ("le", "gt") else 0
    yield f"  %r3.far.{n} = sub {wide} %r3.wu.{n}, %r3.wf.{n}"
    yield f"  %r3.further.{n} = add {wide} %r3.far.{n}, {more}"
    yield f"  %r3.positive.{n} = call {wide} @llvm.smax.{wide}({wide} %r3.further.{n}, {wide} 0)"
    yield f"  %r3.all.{n} = add {wide} %r3.wc.{n}, 1"
    yield f"  %r3.least.{n} = call {wide} @llvm.smin.{wide}({wide} %r3.positive.{n}, {wide} %r3.all.{n})"
    yield f"  %r3.steps.{n} = trunc {wide} %r3.least.{n} to i32"
    yield f"  %r3.cross.{n} = add i32 %r3.x.first, %r3.steps.{n}"


def defined(line: str) -> str | None:
    """The value or the label (with ``%``) that a line of a function defines."""
    if line.endswith(":") and not line.startswith(" "):
        return f"%{line[:-1]}"
    return result_and_opcode(line.strip())[0] if line.strip() else None
