"""What PTX text says of a kernel: its part of the text, and which blocks it may be launched with.

The text of an image is what remains of a kernel whose source is not known. It can be assembled and launched otherwise,
not rewritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

MAX_THREADS = 1024

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# The directive is the first: of other text, which may be long, no more than its begin is read.
_VERSION = re.compile(rf"(?:\s|{_COMMENT.pattern})*+\.version\s+(\d+)\.(\d+)", re.DOTALL)
_ENTRY = r"\.entry\s+{}\s*\([^)]*\)(?P<directives>[^{{]*)\{{(?P<body>.*?)^\s*\}}"
# What depends on the shape of blocks beside tid, ntid and ctaid: other registers, memory and work that blocks share,
# calls, whose other end is not looked at.
_SHAPED = re.compile(
    r"%(?:nctaid|laneid|n?warpid|n?smid|gridid|lanemask|clock|globaltimer|pm\d|envreg|n?cluster|is_explicit|\w+_smem)"
    r"|\.shared\b|\.reqntid\b"
    r"|\b(?:bar|barrier|mbarrier|shfl|vote|match|activemask|redux|elect|w?mma|wgmma|tcgen05|[ls][dt]matrix|cp|call|brx"
    r"|setmaxnreg|griddepcontrol)\b"
)
_PLACE = re.compile(r"mov\.[bsu]32 (%\w+), %(tid|ntid|ctaid)\.([xyz])")
_WIDER = re.compile(r"cvt\.[su]64\.[su]32 (%\w+), (%\w+)")
_PRODUCT = re.compile(r"mul\.(?:lo|wide)\.[su](?:32|64) (%\w+), (%\w+), (%\w+)")
_SUM = re.compile(r"add\.[su](?:32|64) %\w+, (%\w+), (%\w+)")
_BOTH = re.compile(r"mad\.(?:lo|wide)\.[su](?:32|64) %\w+, (%\w+), (%\w+), (%\w+)")


def version(text: str) -> int | None:
    """90 for PTX 9.0; None for what is no PTX text."""
    found = _VERSION.match(text)
    return 10 * int(found[1]) + int(found[2]) if found else None


def defines(text: str, symbol: str) -> bool:
    return _entry(text, symbol) is not None


def block_limit(text: str, symbol: str) -> int:
    """Threads of the largest block that a kernel may have; 0 where none but the recorded one may do, or in doubt.

    As in :mod:`r3bench.remix`: all it does with its place in the grid must be ``ctaid * ntid + tid``, per axis.
    """
    entry = _entry(text, symbol)
    if entry is None or _SHAPED.search(entry["directives"] + entry["body"]) or not _is_agnostic(entry["body"]):
        return 0
    bound = re.search(r"\.maxntid\s+([\d, ]+)", entry["directives"])
    return prod(int(n) for n in bound[1].split(",")) if bound else MAX_THREADS


def _entry(text: str, symbol: str) -> re.Match[str] | None:
    return re.search(_ENTRY.format(re.escape(symbol)), _COMMENT.sub("", text), re.DOTALL | re.MULTILINE)


def _is_agnostic(body: str) -> bool:
    """Whether no register that holds a part of the thread's place is used but to make its index in the grid."""
    held: dict[str, tuple[str, str]] = {}  # register: what of the place, along which axis
    others = [statement for statement in _statements(body) if not _makes_index(statement, held)]
    return not any(register in held or register in _SPECIAL for s in others for register in re.findall(r"%[\w.]+", s))


_SPECIAL = {f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid") for axis in "xyz"}


def _statements(body: str) -> Iterator[str]:
    return (" ".join(statement.split()) for statement in body.split(";"))


def _makes_index(statement: str, held: dict[str, tuple[str, str]]) -> bool:
    """Whether a statement reads a part of the place, or puts parts together as an index does."""
    if found := _PLACE.fullmatch(statement):
        new, what = found[1], (found[2], found[3])
    elif (found := _WIDER.fullmatch(statement)) and found[2] in held:
        new, what = found[1], held[found[2]]
    elif (found := _PRODUCT.fullmatch(statement)) and (axis := _product(held.get(found[2]), held.get(found[3]))):
        new, what = found[1], ("product", axis)
    else:
        return _is_index(statement, held)
    if new in held:  # assigned twice: which value it has depends on the way there
        return False
    held[new] = what
    return True


def _is_index(statement: str, held: dict[str, tuple[str, str]]) -> bool:
    if found := _BOTH.fullmatch(statement):
        axis = _product(held.get(found[1]), held.get(found[2]))
        return bool(axis) and held.get(found[3]) == ("tid", axis)
    if found := _SUM.fullmatch(statement):
        parts = sorted(filter(None, (held.get(found[1]), held.get(found[2]))))
        return len(parts) == 2 and parts[0] == ("product", parts[1][1]) and parts[1][0] == "tid"
    return False


def _product(one: tuple[str, str] | None, other: tuple[str, str] | None) -> str:
    """The axis along which these are ``ctaid`` and ``ntid``; empty where they are not."""
    if one is None or other is None or {one[0], other[0]} != {"ctaid", "ntid"} or one[1] != other[1]:
        return ""
    return one[1]
