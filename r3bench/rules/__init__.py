"""Source rewrites by rule: each emits CUDA C++ that compiles and computes what the kernel computed.

    restrict                                    pointers.py
    reciprocal, power, exponential              arithmetic.py
    cache, hoist, accumulate                    memory.py
    unroll, unroll4, interchange                loops.py
    select                                      branches.py
    index32                                     widths.py
    expose                                      constants.py
    reuse                                       windows.py
    tile                                        tiles.py
    stride, coarsen2, coarsen4, rows2, rows4    grid.py

They work on a text and what is known of its launches (subject.py), move code where that changes no value (motion.py),
and know by ``analysis`` what a function reads and writes. "The same" holds exactly but for ``reciprocal``, ``power``,
``exponential`` and ``interchange``, where it holds up to the rounding of other floating-point operations. What a rule
cannot prove it leaves alone; every proposal is verified by replay all the same. Pure: text in, texts out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from math import prod

from r3bench.model import Dim3
from r3bench.rules.arithmetic import exponential, power, reciprocal
from r3bench.rules.branches import select
from r3bench.rules.constants import expose
from r3bench.rules.grid import coarsen, rows, stride
from r3bench.rules.loops import interchange, unroll, unroll_by_4
from r3bench.rules.memory import accumulate, cache, hoist
from r3bench.rules.pointers import restrict
from r3bench.rules.subject import Subject
from r3bench.rules.tiles import tile
from r3bench.rules.widths import index32
from r3bench.rules.windows import reuse
from r3bench.syntax import find_kernel


@dataclass(frozen=True, slots=True)
class Rule:
    """``rewrite`` gives the changed text, or the same one where there is nothing to do; ``sentence`` says what it did.

    ``per_thread`` is how many recorded threads' work a thread is to do, where a rule asks for another launch;
    ``relies_on`` is what a changed text needs of every launch.
    """

    rewrite: Callable[[Subject], str]
    sentence: str
    per_thread: Dim3 = (1, 1, 1)
    relies_on: str = ""


_ENOUGH = "launches must have a thread for each element that their sizes ask for; those recorded had"

RULES: Mapping[str, Rule] = {
    "restrict": Rule(
        restrict,
        "const and __restrict__ on pointers that are only read or do not overlap in any recorded launch",
        relies_on="its pointer arguments must not overlap in any launch; they did not in those recorded",
    ),
    "reciprocal": Rule(
        reciprocal, "divisions by constants and repeated divisors became multiplications by the reciprocal"
    ),
    "power": Rule(power, "pow with a small exponent became multiplications, division by sqrt became rsqrt"),
    "exponential": Rule(exponential, "pow with a fractional exponent became exp of log"),
    "cache": Rule(cache, "values loaded more than once are kept in registers"),
    "hoist": Rule(hoist, "loop invariants and repeated index arithmetic are computed once"),
    "accumulate": Rule(accumulate, "sums are kept in a register instead of memory"),
    "unroll": Rule(unroll, "loops with a constant number of rounds are unrolled"),
    "unroll4": Rule(unroll_by_4, "innermost loops are unrolled by four"),
    "select": Rule(select, "short branches became selections"),
    "interchange": Rule(interchange, "two nested loops changed places"),
    "index32": Rule(index32, "indices have 32 bits, which all recorded arrays allow"),
    "expose": Rule(expose, "the recorded sizes are constants in a copy of the body that only they take"),
    "reuse": Rule(reuse, "what a loop's rounds read in common slides through registers"),
    "tile": Rule(tile, "what neighbouring threads read in common is loaded once, into shared memory"),
    "stride": Rule(stride, "a grid-stride loop lets any number of threads do the work", (4, 1, 1), _ENOUGH),
    "coarsen2": Rule(partial(coarsen, count=2), "each thread does two elements, a grid apart", (2, 1, 1), _ENOUGH),
    "coarsen4": Rule(partial(coarsen, count=4), "each thread does four elements, a grid apart", (4, 1, 1), _ENOUGH),
    "rows2": Rule(partial(rows, count=2), "each thread does two neighbouring rows", (1, 2, 1), _ENOUGH),
    "rows4": Rule(partial(rows, count=4), "each thread does four neighbouring rows", (1, 4, 1), _ENOUGH),
}

Chain = tuple[str, ...]
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
ALL: tuple[Chain, ...] = (*((name,) for name in RULES), *CHAINS)
"""Every rule by itself, then the chains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """An edited text: which rule (or chain, joined by ``+``) made it, and one sentence on what changed.

    ``per_thread`` is the launch under which it pays off: the work of how many recorded threads each one does.
    """

    rule: str
    description: str
    text: str
    per_thread: Dim3 = (1, 1, 1)


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


def nth_proposal(subject: Subject, chains: Iterable[Chain], number: int) -> Proposal | None:
    """The proposal of that number, from 0; None where there are fewer."""
    return next(islice(proposals(subject, chains), number, None), None)


@lru_cache(maxsize=256)
def _applied(name: str, subject: Subject) -> str:
    """What a rule makes of a text; remembered, for chains begin alike and parents are asked for again."""
    return RULES[name].rewrite(subject)


def _chain(subject: Subject, names: Chain) -> Proposal:
    used, current = list[str](), subject
    for name in names:
        text = _applied(name, current)
        if text != current.text:
            used.append(name)
            current = current.edited(text)
    rules = [RULES[name] for name in used]
    sentence = "; ".join(rule.sentence for rule in rules)
    x, y, z = (prod(rule.per_thread[axis] for rule in rules) for axis in range(3))
    return Proposal(rule="+".join(used), description=sentence, text=current.text, per_thread=(x, y, z))


def relied_on(rule: str) -> tuple[str, ...]:
    """What a changed text relies on, where it may be wrong for other launches than those recorded.

    What no rule made is known to be right on the recorded launches alone.
    """
    used = [RULES.get(name) for name in rule.split("+")]
    found = dict.fromkeys(each.relies_on for each in used if each is not None and each.relies_on)
    return (*found, *(("checked on the recorded launches only",) if None in used else ()))
