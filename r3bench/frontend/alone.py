"""A source for one kernel's sake: of the others no code is made, which takes the front end half of its time.

They become inline device functions that nobody calls: read and checked like the rest, at the same lines. This is no
parser: where a source is out of the ordinary it stays as it is, and so it does where the front end refuses the change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_QUIET = r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'"
_TOKEN = re.compile(rf"{_QUIET}|^[ \t]*#(?:\\\n|[^\n])*|\b__global__\b|[(){{;]", re.DOTALL | re.MULTILINE)
_NAME = re.compile(r"(\w+)\s*\Z")
_LONGEST = 300  # characters in which a name ends


def with_one_kernel(text: str, symbol: str) -> str:
    """A source in which only ``symbol`` is a kernel; the source itself where that is not found in it, where it launches
    kernels, and where it has raw strings, which hide what ends where."""
    heads = [] if "<<<" in text or 'R"' in text else list(_heads(text))
    if not any(_is(name, symbol) for name, _ in heads):
        return text
    pieces, at = list[str](), 0
    for name, kernel in heads:
        if not _is(name, symbol):
            pieces += [text[at : kernel.start()], "__device__ inline"]
            at = kernel.end()
    return "".join((*pieces, text[at:]))


def _is(name: str, symbol: str) -> bool:
    """Whether a function of this name may be the symbol, as it stands or mangled."""
    return name == symbol or f"{len(name)}{name}" in symbol


def _heads(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """The name of each kernel that is declared or defined, with its ``__global__``."""
    tokens = _TOKEN.finditer(text)
    for token in tokens:
        if token[0] == "__global__" and (name := _named(text, tokens)):
            yield name, token


def _named(text: str, tokens: Iterator[re.Match[str]]) -> str:
    """Reads on to a body or the end of a declaration; the name stands before the last brackets, "" if it is unclear."""
    depth, name = 0, ""
    for token in tokens:
        if token[0] == "(" and depth == 0:
            word = _NAME.search(text[max(0, token.start() - _LONGEST) : token.start()])
            name = word[1] if word else ""
        depth += (token[0] == "(") - (token[0] == ")")
        if depth == 0 and token[0] in ("{", ";"):
            break
    return "" if name.startswith("__") else name
