"""Source changes with their lines and words coloured: C++ as far as a reader needs it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from r3bench.report.html.elements import Markup, element, join

LENGTH = 400  # characters of a line that are shown

_KINDS = {" ": "same", "+": "added", "-": "removed", "@": "hunk"}
_WORDS = (
    "auto bool break case char class const constexpr continue default do double else enum extern false float for if "
    "inline int long namespace return short signed sizeof static struct switch template true typedef typename union "
    "unsigned using void volatile while __global__ __device__ __shared__ __constant__ __restrict__ __forceinline__ "
    "__launch_bounds__ threadIdx blockIdx blockDim gridDim half size_t"
)
_TOKENS = re.compile(
    r"(?P<c>//.*|/\*.*?\*/)|(?P<s>\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*')"
    r"|(?P<d>^\s*#\s*\w+)"
    rf"|(?P<k>\b(?:{'|'.join(_WORDS.split())})\b)"
)


def difference(diff: str, most: int) -> Markup:
    """At most so many lines of a unified diff, each with its sign: colour is not all that tells them apart."""
    lines = diff.rstrip("\n").split("\n")[3:]  # the three that name the file are in the patch
    shown = [_line(line) for line in lines[:most]]
    left = len(lines) - most
    rest = [element("p", f"{left} more lines are in the patch.", class_="note")] if left > 0 else []
    code = element(
        "pre", element("code", *shown), tabindex="0", role="group", aria_label="source change", class_="diff"
    )
    return join([code, *rest])


def _line(line: str) -> Markup:
    kind = _KINDS.get(line[:1], "same")
    if kind == "hunk":
        return element("span", line[:LENGTH], "\n", class_=kind)
    return element("span", element("i", line[:1]), *_coloured(line[1:LENGTH]), "\n", class_=kind)


def _coloured(code: str) -> Iterator[str]:
    at = 0
    for token in _TOKENS.finditer(code):
        yield code[at : token.start()]
        yield element("span", token[0], class_=token.lastgroup)
        at = token.end()
    yield code[at:]
