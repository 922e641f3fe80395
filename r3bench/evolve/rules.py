"""Source rewrites by rule: each emits CUDA C++ that compiles and computes what the kernel computed.

"The same" holds exactly but for ``reciprocal``, ``power``, ``exponential`` and ``interchange``, where it holds up to
the rounding of other floating-point operations. What a rule cannot prove it leaves alone; every proposal is verified by
replay all the same. Pure: text in, texts out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod

from r3bench.evolve.arithmetic import exponential, power, reciprocal
from r3bench.evolve.branches import select
from r3bench.evolve.constants import expose
from r3bench.evolve.facts import Facts
from r3bench.evolve.grid import coarsen, rows, stride
from r3bench.evolve.loops import interchange
from r3bench.evolve.memory import accumulate, cache, hoist
from r3bench.evolve.names import Variable
from r3bench.evolve.subject import Subject
from r3bench.evolve.tiles import tile
from r3bench.evolve.widths import index32
from r3bench.evolve.windows import reuse
from r3bench.model import Dim3
from r3bench.syntax import Edit, Node, apply, find_kernel, text_of, walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An edited text: which rule (or chain, joined by ``+``) made it, and one sentence on what changed.

    ``per_thread`` is the launch under which it pays off: the work of how many recorded threads each one does.
    """

    rule: str
    description: str
    text: str
    per_thread: Dim3 = (1, 1, 1)


Rule = Callable[[Subject], str]
Chain = tuple[str, ...]


def proposals(subject: Subject, chains: Iterable[Chain] = ()) -> Iterator[Proposal]:
    """What chains of rules (all there are, where none are given) make of a text: each text once, none equal to it.

    They are applied as they are asked for. BuildError where the text does not define the kernel.
    """
    find_kernel(subject.text, subject.kernel)
    seen = {subject.text}
    for chain in chains or ALL:
        proposal = _chain(subject, chain)
        if proposal.text not in seen:
            seen.add(proposal.text)
            yield proposal


@lru_cache(maxsize=256)
def _applied(name: str, subject: Subject) -> str:
    """What a rule makes of a text; remembered, for chains begin alike and parents are asked for again."""
    return RULES[name](subject)


def _chain(subject: Subject, names: Chain) -> Proposal:
    used, current = [], subject
    for name in names:
        text = _applied(name, current)
        if text != current.text:
            used.append(name)
            current = current.edited(text)
    sentence = "; ".join(SENTENCES[name] for name in used)
    x, y, z = (prod(PER_THREAD.get(name, (1, 1, 1))[axis] for name in used) for axis in range(3))
    return Proposal(rule="+".join(used), description=sentence, text=current.text, per_thread=(x, y, z))


# -- const and __restrict__ -------------------------------------------------------------------------------------------


def restrict(subject: Subject) -> str:
    """``const`` and ``__restrict__`` on pointers; the latter only where arguments are known to be disjoint."""
    facts, edits = subject.facts(), list[Edit]()
    pointers = [p for p in facts.function.parameters if p.pointer and not p.volatile and p.name]
    free = _signature_is_free(subject, facts)
    for parameter in pointers:
        variable = next(v for v in facts.variables if v.name == parameter.name)
        if free and not parameter.const and _only_read(facts, variable):
            edits.append(Edit(parameter.start, parameter.start, "const "))
        if subject.disjoint and not parameter.restrict:
            edits.append(Edit(parameter.name_at, parameter.name_at, "__restrict__ "))
    return apply(subject.text, edits)


def _signature_is_free(subject: Subject, facts: Facts) -> bool:
    """Whether const may be added: a C++ symbol spells its parameter types, and a prototype would contradict."""
    name = re.escape(facts.function.name)
    before = subject.text.encode()[: facts.function.body.start_byte].decode()
    own = re.findall(rf"\b{name}\s*\(", before)
    others = [m for text in subject.context for m in re.findall(rf"\b{name}\s*\([^;{{]*\)\s*;", text)]
    return len(own) == 1 and not others and _is_extern_c(subject, facts)


def _is_extern_c(subject: Subject, facts: Facts) -> bool:
    node: Node | None = facts.function.node
    if 'extern "C"' in text_of(facts.function.node).split("(")[0]:
        return True
    while node is not None:
        if node.type == "linkage_specification" and '"C"' in text_of(node).split("{")[0]:
            return True
        node = node.parent
    return False


def _only_read(facts: Facts, variable: Variable) -> bool:
    if not facts.movable or variable.sources or not facts.never_written(frozenset((variable,))):
        return False
    uses = [n for n in walk(facts.function.body) if facts.variable(n) is variable]
    return all(_reads_through(facts, use) for use in uses)


def _reads_through(facts: Facts, use: Node) -> bool:
    """Whether a pointer is only dereferenced here, or copied to a pointer to const."""
    inner = use
    for holder in facts.inside_out(use):
        if holder.type == "subscript_expression":
            argument = holder.child_by_field_name("argument")
            return argument is not None and argument.id == inner.id
        if holder.type == "pointer_expression":
            return text_of(holder).startswith("*")
        if holder.type == "init_declarator":
            return re.match(r"\s*(const\b|\w+\s+const\b)", text_of(facts.parent[holder.id])) is not None
        if holder.type not in ("parenthesized_expression", "binary_expression"):
            return holder.type == "argument_list" and text_of(facts.parent[holder.id]).startswith("__ldg")
        inner = holder
    return False


# -- loops ------------------------------------------------------------------------------------------------------------


def unroll(subject: Subject) -> str:
    """``#pragma unroll`` in front of every loop with a constant, small number of rounds."""
    return _pragma(subject, lambda facts, loop: "#pragma unroll" if 1 < (facts.trips(loop) or 0) <= 32 else "")


def unroll_by_4(subject: Subject) -> str:
    """``#pragma unroll 4`` in front of innermost counting loops whose number of rounds is not constant."""

    def line(facts: Facts, loop: Node) -> str:
        inner = [n for n in walk(loop) if n.type.endswith("_statement") and n.id != loop.id and _is_loop(n)]
        counts = facts.trips(loop) is None and not inner and loop.type == "for_statement"
        return "#pragma unroll 4" if counts else ""

    return _pragma(subject, line)


def _is_loop(node: Node) -> bool:
    return node.type in ("for_statement", "while_statement", "do_statement")


def _pragma(subject: Subject, line: Callable[[Facts, Node], str]) -> str:
    facts, data, edits = subject.facts(), subject.text.encode(), list[Edit]()
    for loop in walk(facts.function.body):
        text = line(facts, loop) if loop.type == "for_statement" else ""
        start = data.rfind(b"\n", 0, loop.start_byte) + 1
        indent = data[start : loop.start_byte].decode()
        previous = loop.prev_named_sibling
        taken = previous is not None and previous.type == "preproc_call" and "unroll" in text_of(previous)
        if text and not taken:
            lead = f"{text}\n{indent}" if not indent.strip() else f"\n{text}\n"
            edits.append(Edit(loop.start_byte, loop.start_byte, lead))
    return apply(subject.text, edits)


RULES: Mapping[str, Rule] = {
    "restrict": restrict,
    "reciprocal": reciprocal,
    "power": power,
    "exponential": exponential,
    "cache": cache,
    "hoist": hoist,
    "accumulate": accumulate,
    "unroll": unroll,
    "unroll4": unroll_by_4,
    "select": select,
    "interchange": interchange,
    "index32": index32,
    "expose": expose,
    "reuse": reuse,
    "tile": tile,
    "stride": stride,
    "coarsen2": partial(coarsen, count=2),
    "coarsen4": partial(coarsen, count=4),
    "rows2": partial(rows, count=2),
    "rows4": partial(rows, count=4),
}
PER_THREAD: Mapping[str, Dim3] = {
    "stride": (4, 1, 1),
    "coarsen2": (2, 1, 1),
    "coarsen4": (4, 1, 1),
    "rows2": (1, 2, 1),
    "rows4": (1, 4, 1),
}
"""How many recorded threads' work a thread is to do, where a rule asks for another launch."""

SENTENCES: Mapping[str, str] = {
    "restrict": "const and __restrict__ on pointers that are only read or do not overlap in any recorded launch",
    "reciprocal": "divisions by constants and repeated divisors became multiplications by the reciprocal",
    "power": "pow with a small exponent became multiplications, division by sqrt became rsqrt",
    "exponential": "pow with a fractional exponent became exp of log",
    "cache": "values loaded more than once are kept in registers",
    "hoist": "loop invariants and repeated index arithmetic are computed once",
    "accumulate": "sums are kept in a register instead of memory",
    "unroll": "loops with a constant number of rounds are unrolled",
    "unroll4": "innermost loops are unrolled by four",
    "select": "short branches became selections",
    "interchange": "two nested loops changed places",
    "index32": "indices have 32 bits, which all recorded arrays allow",
    "expose": "the recorded sizes are constants in a copy of the body that only they take",
    "reuse": "what a loop's rounds read in common slides through registers",
    "tile": "what neighbouring threads read in common is loaded once, into shared memory",
    "stride": "a grid-stride loop lets any number of threads do the work",
    "coarsen2": "each thread does two elements, a grid apart",
    "coarsen4": "each thread does four elements, a grid apart",
    "rows2": "each thread does two neighbouring rows",
    "rows4": "each thread does four neighbouring rows",
}
_ARITHMETIC = ("power", "exponential", "reciprocal")
_MEMORY = ("accumulate", "cache", "hoist")
CHAINS: tuple[Chain, ...] = (
    _ARITHMETIC,
    ("restrict", *_MEMORY),
    ("restrict", *_ARITHMETIC, *_MEMORY),
    ("restrict", *_ARITHMETIC, *_MEMORY, "unroll", "unroll4"),
    ("rows2", "reuse"),
    ("rows4", "reuse"),
    ("restrict", *_ARITHMETIC, *_MEMORY, "coarsen2"),
    ("restrict", *_ARITHMETIC, *_MEMORY, "expose"),
)


# -- what a text is valid for -----------------------------------------------------------------------------------------

CONDITIONS: Mapping[str, str] = {
    "restrict": "its pointer arguments must not overlap in any launch; they did not in those recorded",
}


def relied_on(rule: str) -> tuple[str, ...]:
    """What a changed text relies on, where it may be wrong for other launches than those recorded.

    A rule that relies on what was recorded has its condition here; what no rule made is known to be right on the
    recorded launches alone.
    """
    names = rule.split("+")
    found = [CONDITIONS[name] for name in names if name in CONDITIONS]
    if not all(name in SENTENCES for name in names):
        found.append("checked on the recorded launches only")
    return tuple(found)


ALL: tuple[Chain, ...] = (*((name,) for name in RULES), *CHAINS)
"""Every rule by itself, then the chains."""
