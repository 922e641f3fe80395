"""What all threads share that wait at one place: values that are kept once for the block instead of once per thread.

A kept value is shared if every region, whatever place it starts from and wherever it leads to, computes it from
arguments, indices of the block and what its threads shared at the start. So it depends on no thread and on no memory,
and each region computes it before its loop over the threads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from r3bench.lowering.cut import Cut, Segment
from r3bench.lowering.ir import LOCAL, incoming, result_and_opcode
from r3bench.lowering.values import is_pure

_OWN = re.compile(r"%r3\.(?:tid\.[xyz]|thread|linear)$")
_MOST_SEGMENTS = 400


@dataclass(slots=True)
class Shared:
    """For a region: instructions to execute once, and for each place behind it what each shared value is there."""

    lines: list[str] = field(default_factory=list)
    found: dict[int, dict[str, str]] = field(default_factory=dict)


def share(cut: Cut, regions: Sequence[Sequence[Segment]]) -> list[Shared]:
    """Moves what is shared from the context of ``cut`` to its ``uniform``; the answer is what each region does."""
    definitions = {name: line for s in cut.segments for line in s.lines if (name := result_and_opcode(line)[0])}
    names, needed = _candidates(cut, definitions) if len(cut.segments) <= _MOST_SEGMENTS else (set(), set())
    while names:
        found = [_Walk(cut, state, region, names, needed, definitions).walked() for state, region in enumerate(regions)]
        lost = {
            name
            for shared in found
            for place, values in shared.found.items()
            for name in (cut.behind[place] & names) - values.keys()
        }
        if not lost:
            cut.keep_once(names)
            return found
        names -= lost
    cut.keep_once(names)
    return [Shared() for _ in regions]


def _candidates(cut: Cut, definitions: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """Kept values that no thread's index and no memory leads to, and all values that lead to them."""
    good: set[str] = set()
    all_of: set[str] = set()
    for name in cut.kept:
        closure = _closure(name, cut, definitions)
        if closure is not None:
            good.add(name)
            all_of |= closure
    return good, all_of


def _closure(name: str, cut: Cut, definitions: Mapping[str, str]) -> set[str] | None:
    waiting, seen = [name], {name}
    while waiting:
        current = waiting.pop()
        line = definitions.get(current)
        if line is None:
            if current in cut.results or current in cut.local_arrays or _OWN.match(current):
                return None
            continue
        if not is_pure(line) and " = phi " not in line:
            return None
        for use in LOCAL.findall(_operands(line)):
            if use not in seen:
                seen.add(use)
                waiting.append(use)
    return seen


def _operands(line: str) -> str:
    """The text of a line in which its operands stand; of a phi, without labels."""
    if " = phi " in line:
        return " ".join(value for value, _ in incoming(line))
    return line.split(" = ", 1)[1]


@dataclass(slots=True)
class _Walk:
    """Follows the shared values through one region: for each segment, what is known of them where it begins."""

    cut: Cut
    state: int
    region: Sequence[Segment]
    names: set[str]
    needed: set[str]
    definitions: Mapping[str, str]
    shared: Shared = field(default_factory=Shared)
    expressions: dict[str, str] = field(default_factory=dict)

    def walked(self) -> Shared:
        by_label = {segment.label: segment for segment in self.region}
        start = self.cut.behind.get(self.state, set()) & self.names
        known = {self.region[0].label: {name: resumed(name) for name in sorted(start)}}
        waiting = [self.region[0]]
        while waiting:
            segment = waiting.pop()
            values = self._through(segment, known[segment.label])
            if segment.ends:
                self._leave(segment.ends.state, values)
                continue
            for label in segment.next:
                behind = by_label[label]
                entered = self._entered(segment, behind, values)
                before = known.get(label)
                merged = entered if before is None else _agreed(before, entered)
                if before is None or len(merged) < len(before):
                    known[label] = merged
                    waiting.append(behind)
        return self.shared

    def _leave(self, place: int, values: Mapping[str, str]) -> None:
        here = {name: values[name] for name in self.cut.behind[place] & self.names if name in values}
        before = self.shared.found.get(place)
        self.shared.found[place] = here if before is None else _agreed(before, here)

    def _entered(self, source: Segment, target: Segment, values: dict[str, str]) -> dict[str, str]:
        entered = dict(values)
        for line in target.lines:
            if " = phi " not in line:
                break
            name = result_and_opcode(line)[0] or ""
            if name in self.needed:
                value = next(v for v, label in incoming(line) if self.cut.last[label] == source.label)
                self._define(entered, name, self._value(value, values))
        return entered

    def _through(self, segment: Segment, entered: dict[str, str]) -> dict[str, str]:
        values = dict(entered)
        for line in segment.lines:
            name = line[: line.find(" = ")] if line.startswith("%") else ""
            if name in self.needed and " = phi " not in line:
                self._define(values, name, self._expression(line, values))
        return values

    @staticmethod
    def _define(values: dict[str, str], name: str, value: str | None) -> None:
        if value is None:
            values.pop(name, None)
        else:
            values[name] = value

    def _value(self, operand: str, values: Mapping[str, str]) -> str | None:
        if not operand.startswith("%"):
            return operand
        if operand in values:
            return values[operand]
        if operand in self.cut.again:
            return self._expression(self.cut.again[operand], values)
        known = operand in self.definitions or operand in self.cut.results or _OWN.match(operand)
        return None if known else operand

    def _expression(self, line: str, values: Mapping[str, str]) -> str | None:
        """The name of a line's value, computed once per region however often it is asked for."""
        text = line.split(" = ", 1)[1]
        for use in dict.fromkeys(LOCAL.findall(text)):
            value = self._value(use, values)
            if value is None:
                return None
            text = re.sub(rf"{re.escape(use)}(?![-\w$.])", value.replace("\\", r"\\"), text)
        if text not in self.expressions:
            self.expressions[text] = f"%r3.e{len(self.expressions)}"
            self.shared.lines.append(f"  {self.expressions[text]} = {text}")
        return self.expressions[text]


def _agreed(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in one.items() if other.get(name) == value}


def resumed(name: str) -> str:
    """What a region calls a shared value as it is where the region begins."""
    return f"{name}.r3in"
