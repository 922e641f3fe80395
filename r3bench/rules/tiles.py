"""The rule that loads the neighbourhood of a block once: shared-memory tiles for star stencils."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from r3bench.model import Dim3
from r3bench.rules.analysis.declared import words
from r3bench.rules.analysis.facts import Facts
from r3bench.rules.analysis.names import Variable, holds, is_block
from r3bench.rules.analysis.polynomials import Polynomial, multiple, named, number, polynomial
from r3bench.rules.grid import SHARING, Index, condition, indices, is_return, terms
from r3bench.rules.memory import is_load
from r3bench.rules.motion import Rewrite
from r3bench.rules.subject import Subject
from r3bench.syntax import Node, side, text_of, walk

_MOST_BYTES = 48 * 1024  # of shared memory that a block can declare
_BYTES = {"float32": 4, "float64": 8, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8}
_LEAVES = words("return_statement goto_statement")
_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_NEGATED = {"<": ">=", ">": "<=", "<=": ">", ">=": "<"}

Offset = tuple[int, int]


@dataclass(frozen=True, eq=False)
class _Star:
    """Loads of one array by their offsets (along x, along y) from the centre, all on the two axes through it."""

    array: Variable
    loads: Mapping[Offset, Sequence[Node]]
    dtype: str
    centre: Node
    place: Sequence[Polynomial]

    def reach(self, axis: int) -> tuple[int, int]:
        """Least and greatest offset along an axis."""
        along = [offset[axis] for offset in self.loads]
        return min(along), max(along)

    def farthest(self) -> int:
        return max(abs(n) for offset in self.loads for n in offset)


@dataclass(frozen=True)
class _Range:
    """Where an index is when the kernel touches memory: from all of ``lows`` on, up to ``high`` (not included)."""

    lows: tuple[str, ...]
    high: str


def tile(subject: Subject) -> str:
    """What the threads of a block read around their elements is loaded once, into shared memory, by all of them.

    Only what some thread of the launch reads is loaded, so nothing is touched that was not touched before. A block of
    another shape than the recorded one reads as before.
    """
    facts, block = subject.facts(), subject.block
    if block is None or block[2] != 1 or not facts.movable or SHARING.search(text_of(facts.function.body)):
        return subject.text
    found = {index.axis: index for index in indices(facts) if index.kind == "int"}
    axes = [found[axis] for axis in "xy" if axis in found]
    ranges = _ranges(facts, axes)
    if "x" not in found or ranges is None or (len(axes) == 1 and block[1] != 1):
        return subject.text
    last = max(axes, key=lambda index: index.declaration.start_byte).declaration
    if any(n.type in _LEAVES and n.start_byte < last.start_byte for n in walk(facts.function.body)):
        return subject.text
    star = min(_stars(facts, axes, last), key=_Star.farthest, default=None)
    if star is None or _bytes(star, block) > _MOST_BYTES:
        return subject.text
    rewrite = Rewrite(facts, subject.text)
    _tile(facts, rewrite, star, axes, ranges, block, last)
    return rewrite.result()


def _bytes(star: _Star, block: Dim3) -> int:
    return _BYTES[star.dtype] * _size(star, block, 0) * _size(star, block, 1)


def _size(star: _Star, block: Dim3, axis: int) -> int:
    low, high = star.reach(axis)
    return block[axis] + high - low


# -- where threads are ------------------------------------------------------------------------------------------------


def _ranges(facts: Facts, axes: Sequence[Index]) -> list[_Range] | None:
    """The range of each index, where comparisons with fixed values are all that decides which threads go on."""
    lows = [[_lowest(index)] for index in axes]
    highs: list[list[str]] = [[] for _ in axes]
    for operator, left, right in _comparisons(facts):
        number_of = next((n for n, index in enumerate(axes) if facts.variable(left) is index.variable), None)
        needs = facts.needs(right)
        fixed = needs is not None and not needs.reads and all(facts.is_fixed(v) for v in needs.variables)
        if number_of is None or not fixed or operator not in _NEGATED:
            return None
        text = text_of(right) if right.child_count == 0 else f"({text_of(right)})"
        text += " + 1" if operator in ("<=", ">") else ""
        (highs if operator in ("<", "<=") else lows)[number_of].append(text)
    if not all(len(high) == 1 for high in highs):
        return None
    return [_Range(_tightest(facts, low), high[0]) for low, high in zip(lows, highs, strict=True)]


def _tightest(facts: Facts, lows: Sequence[str]) -> tuple[str, ...]:
    """The greatest of lower bounds where all are constants."""
    values = [facts.known.constant(low) for low in lows]
    known = [value for value in values if value is not None]
    return (str(max(known)),) if len(known) == len(values) else tuple(dict.fromkeys(lows))


def _lowest(index: Index) -> str:
    """The index of the grid's first thread."""
    text, start = text_of(index.value).encode(), index.value.start_byte
    return "(" + (text[: index.thread.start_byte - start] + b"0" + text[index.thread.end_byte - start :]).decode() + ")"


def _comparisons(facts: Facts) -> Iterator[tuple[str, Node, Node]]:
    """Operator, left and right of everything that holds for a thread that touches memory; an operator of no use where
    something else decides."""
    for statement in facts.function.body.named_children:
        leaves = any(n.type in _LEAVES for n in walk(statement))
        if statement.type != "if_statement" or not (leaves or statement.id == _last(facts).id):
            if leaves:
                yield "", statement, statement
            continue
        plain = statement.child_by_field_name("alternative") is None
        guard = plain and is_return(side(statement, "consequence"))
        for part in terms(condition(statement), "||" if guard else "&&"):
            if not plain or (leaves and not guard) or part.type != "binary_expression":
                yield "", statement, statement
                return
            yield _compared(facts, part, negated=guard)


def _compared(facts: Facts, part: Node, *, negated: bool) -> tuple[str, Node, Node]:
    left, right, operator = side(part, "left"), side(part, "right"), text_of(side(part, "operator"))
    if facts.variable(left) is None or facts.is_fixed(facts.variable(left)):  # type: ignore[arg-type]
        left, right, operator = right, left, _FLIPPED.get(operator, "")
    return (_NEGATED.get(operator, "") if negated else operator), left, right


def _last(facts: Facts) -> Node:
    return [n for n in facts.function.body.named_children if n.type != "comment"][-1]


# -- what they read ---------------------------------------------------------------------------------------------------


def _stars(facts: Facts, axes: Sequence[Index], last: Node) -> Iterator[_Star]:
    """Every star of at least three points, of memory that nobody writes, read by every thread that goes on."""
    loads = [n for n in walk(facts.function.body) if n.type == "subscript_expression" and is_load(facts, n)]
    arrays = dict.fromkeys(facts.variable(side(n, "argument")) for n in loads)
    guards = [n for n in facts.function.body.named_children if n.type == "if_statement"]
    start = max([last.end_byte, *(side(n, "condition").end_byte for n in guards)])
    for array in arrays:
        if array is None or not array.pointer or not facts.is_fixed(array):
            continue
        own = [n for n in loads if facts.variable(side(n, "argument")) is array]
        unwritten = facts.never_written(frozenset((array,)))
        for centre in own if unwritten and all(n.start_byte > start and _is_made(facts, n) for n in own) else ():
            star = _star(facts, axes, array, own, centre)
            if star is not None:
                yield star


def _is_made(facts: Facts, node: Node) -> bool:
    """Whether every thread that passes the guard makes this load."""
    statement = next(s for s in facts.function.body.named_children if holds(s, node))
    if statement.type == "if_statement" and statement.id == _last(facts).id:
        inner = side(statement, "consequence")
        parts = inner.named_children if is_block(inner) else [inner]
        found = next((s for s in parts if holds(s, node)), None)
        return found is not None and facts.always(found, node)
    return facts.always(statement, node)


def _star(facts: Facts, axes: Sequence[Index], array: Variable, own: Sequence[Node], centre: Node) -> _Star | None:
    middle, dtype = _place(facts, axes, centre), facts.dtype(centre)
    if middle is None or dtype not in _BYTES:
        return None
    loads: dict[Offset, list[Node]] = {}
    for node in own:
        offset = _offset(_place(facts, axes, node), middle)
        if offset is not None:
            loads.setdefault(offset, []).append(node)
    points = sum(len(nodes) for nodes in loads.values())
    return _Star(array, loads, dtype, centre, middle) if len(loads) >= 3 and points == len(own) else None


def _place(facts: Facts, axes: Sequence[Index], node: Node) -> list[Polynomial] | None:
    """Slope along each axis and the rest of an index, of fixed values alone; the slope along x is 1."""
    listed, kept = side(node, "indices"), [index.variable for index in axes]
    index = listed.named_children[0] if listed.named_child_count == 1 else listed
    rest = polynomial(facts, index, kept=kept)
    slopes = []
    for variable in kept:
        parts = rest.split(variable) if rest is not None else None
        if parts is None or any(v in kept for v in parts[0].variables):
            return None
        slopes.append(parts[0])
        rest = parts[1]
    if (
        rest is None
        or slopes[0] != number(1)
        or not all(facts.is_fixed(v) for p in (*slopes, rest) for v in p.variables)
    ):
        return None
    return [*slopes, rest]


def _offset(place: list[Polynomial] | None, centre: list[Polynomial]) -> Offset | None:
    """How far a place lies from the centre along one of the axes; None where it lies on neither."""
    if place is None or place[:-1] != centre[:-1]:
        return None
    apart = place[-1] - centre[-1]
    if (along_x := multiple(apart, number(1))) is not None:
        return along_x, 0
    along_y = multiple(apart, centre[1]) if len(centre) == 3 and centre[1].terms else None
    return (0, along_y) if along_y is not None else None


# -- the text ---------------------------------------------------------------------------------------------------------


def _tile(
    facts: Facts,
    rewrite: Rewrite,
    star: _Star,
    axes: Sequence[Index],
    ranges: Sequence[_Range],
    block: Dim3,
    last: Node,
) -> None:
    name = star.array.name
    held, fits = rewrite.fresh(f"{name}_tile"), rewrite.fresh(f"{name}_fits")
    steps = [rewrite.fresh(f"{name}_{axis.axis}") for axis in axes]
    places = [rewrite.fresh(f"{axis.name}_{name}") for axis in axes]
    sizes = [_size(star, block, axis) for axis in range(len(axes))]
    extents = "".join(f"[{size}]" for size in reversed(sizes))
    rewrite.after(last, f"__shared__ {facts.c_type(star.centre)} {held}{extents};")
    shape = " && ".join(f"blockDim.{axis.axis} == {block['xy'.index(axis.axis)]}" for axis in axes)
    rewrite.after(last, f"const bool {fits} = {shape};")
    loops = [
        f"for (int {step} = threadIdx.{axis.axis}; {step} < {size}; {step} += blockDim.{axis.axis})"
        for axis, step, size in reversed(list(zip(axes, steps, sizes, strict=True)))
    ]
    firsts = [
        f"const int {place} = {axis.name} - (int)threadIdx.{axis.axis} + {step}{_signed(star.reach(n)[0])};"
        for n, (axis, step, place) in enumerate(zip(axes, steps, places, strict=True))
    ]
    target = held + "".join(f"[{step}]" for step in reversed(steps))
    filling = [*firsts, f"if ({_needed(star, places, ranges)}) {{", f"    {target} = {_source(star, places)};", "}"]
    lines = [f"if ({fits}) {{", *_nested(loops, filling), "    __syncthreads();", "}"]
    rewrite.after(last, ("\n" + " " * last.start_point.column).join(lines))
    for offset, nodes in star.loads.items():
        along = (f"[threadIdx.{axis.axis}{_signed(offset[n] - star.reach(n)[0])}]" for n, axis in enumerate(axes))
        place = held + "".join(reversed(list(along)))
        for node in nodes:
            rewrite.replace(node, f"({fits} ? {place} : {text_of(node)})")


def _nested(loops: Sequence[str], lines: Sequence[str]) -> list[str]:
    """Loops one in the other around some lines, all of them further in."""
    if loops:
        lines = [f"{loops[0]} {{", *_nested(loops[1:], lines), "}"]
    return ["    " + line for line in lines]


def _source(star: _Star, places: Sequence[str]) -> str:
    """The centre's load at other places."""
    *slopes, total = star.place
    for slope, place in zip(slopes, places, strict=True):
        total += slope * named(place)
    return f"{star.array.name}[{total.text('int32')}]"


def _needed(star: _Star, places: Sequence[str], ranges: Sequence[_Range]) -> str:
    """Whether some thread reads a place: it lies on an axis through the element of a thread that goes on."""
    arms = []
    for arm in range(len(places)):
        parts = []
        for axis, (place, span) in enumerate(zip(places, ranges, strict=True)):
            low, high = star.reach(axis) if axis == arm else (0, 0)
            parts += [f"{place} >= {bound}{_signed(low)}" for bound in span.lows]
            parts.append(f"{place} < {span.high}{_signed(high)}")
        arms.append(" && ".join(parts))
    return " || ".join(f"({arm})" for arm in arms) if len(arms) > 1 else arms[0]


def _signed(value: int) -> str:
    return f" {'+' if value > 0 else '-'} {abs(value)}" if value else ""
