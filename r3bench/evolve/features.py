"""Where a program belongs in the archive: what is counted of its code, put between fixed edges.

Edges are fixed because running minima and maxima leave a third of the cells stale. The distance of two codes is taken
from their instructions, since it follows differences in time (rank correlation 0.54), which distances between texts
or syntax trees do not.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from r3bench.syntax import tokens

Files = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """What the features of a program are taken from: its texts, and the facts of its default build."""

    files: Files
    facts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of the archive: ``value`` of a code and of the code the search began with, and the fixed edges."""

    words: str
    edges: tuple[float, ...]
    value: Callable[[Code, Code], float]

    def place(self, code: Code, first: Code) -> int:
        return bisect_right(self.edges, self.value(code, first))


def distance(code: Code, first: Code) -> float:
    """Bray-Curtis dissimilarity of two codes from 0 to 1: of their instructions by opcode, or of the trigrams of their
    texts where one was built without counting any."""
    ours, theirs = _opcodes(code.facts), _opcodes(first.facts)
    if not ours or not theirs:
        ours, theirs = _trigrams(code.files), _trigrams(first.files)
    both = ours.total() + theirs.total()
    return 1.0 - 2 * (ours & theirs).total() / both if both else 0.0


def _opcodes(facts: Mapping[str, int]) -> Counter[object]:
    return Counter({name: count for name, count in facts.items() if name.startswith("op_")})


@lru_cache(maxsize=16)
def _trigrams(files: Files) -> Counter[object]:
    words = [token for _, text in files for token in tokens(text)]
    return Counter((a, b, c) for (a, b), (_, c) in pairwise(pairwise(words)))


def _fact(name: str) -> Callable[[Code, Code], float]:
    return lambda code, first: code.facts.get(name, 0)


AXES: Mapping[str, Axis] = {
    "instructions": Axis(
        "instructions of the optimized IR (log2)", tuple(2 ** (n / 2) for n in range(8, 29)), _fact("ir_instructions")
    ),
    "distance": Axis("distance of the instructions to the recorded kernel's", (0.02, 0.05, 0.1, 0.2, 0.4), distance),
    "registers": Axis("registers per thread", tuple(range(24, 256, 16)), _fact("registers")),
    "shared": Axis("shared memory per block (log2)", tuple(2**n for n in range(8, 17)), _fact("shared_bytes")),
    "spills": Axis("bytes spilled per thread (log2)", tuple(2**n for n in range(10)), _fact("spill_store_bytes")),
}
"""What an archive's axes may be, by the name that ``--r3-axes`` takes."""


def cell(axes: Sequence[str], code: Code, first: Code) -> tuple[int, ...]:
    """The cell of a code: one index per axis."""
    return tuple(AXES[name].place(code, first) for name in axes)
