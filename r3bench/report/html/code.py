"""Source changes with their lines and words coloured: C++ as far as a reader needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, chain, groupby

from r3bench.report.html.elements import Markup, element, join

LENGTH = 400  # characters of a line that are shown
WIDTH = 80  # as wide as lines are on average, at most

_KINDS = {" ": "same", "+": "added", "-": "removed", "@": "hunk"}
_WORDS = (
    "auto bool break case char class const constexpr continue default do double else enum extern false float for if "
    "inline int long namespace return short signed sizeof static struct switch template true typedef typename union "
    "unsigned using void volatile while __global__ __device__ __shared__ __constant__ __restrict__ __forceinline__ "
    "__launch_bounds__ threadIdx blockIdx blockDim gridDim half size_t"
)
_TOKENS = re.compile(
    r"(?P<comment>//.*|/\*.*?\*/)|(?P<string>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    r"|(?P<directive>^\s*#\s*\w+)"
    rf"|(?P<word>\b(?:{'|'.join(_WORDS.split())})\b)"
)
_ELEMENTS = {
    "comment": "em",
    "string": "samp",
    "directive": "var",
    "word": "b",
}  # short; the style sheet says how they look


def difference(diff: str, most: int) -> Markup:
    """At most so many lines of a unified diff's hunks, each with its sign: colour is not all that tells them apart."""
    lines = diff.rstrip("\n").split("\n")
    ends = accumulate(min(len(line), LENGTH) for line in lines)
    most = min(most, sum(end <= most * WIDTH for end in ends))
    runs = groupby(lines[:most], lambda line: _KINDS.get(line[:1], "same"))
    shown = [element("span", *chain(*map(_line, run)), class_=kind) for kind, run in runs]
    left = len(lines) - most
    rest = [element("p", f"{left} more lines are in the patch.", class_="note")] if left > 0 else []
    code = element(
        "pre", element("code", *shown), tabindex="0", role="group", aria_label="source change", class_="diff"
    )
    return join([code, *rest])


def _line(line: str) -> Iterator[str]:
    if line.startswith("@"):
        yield line[:LENGTH]
    else:
        yield element("i", line[:1])
        yield from _coloured(line[1:LENGTH])
    yield "\n"


def _coloured(code: str) -> Iterator[str]:
    at = 0
    for token in _TOKENS.finditer(code):
        yield code[at : token.start()]
        yield element(_ELEMENTS[token.lastgroup or ""], token[0])
        at = token.end()
    yield code[at:]
