"""Types of values, from the text of the instructions that define them, and which instructions may be repeated."""

from __future__ import annotations

import re
from collections.abc import Mapping

from r3bench.errors import Unsupported
from r3bench.lowering.ir import leading_type, phi_type, result_and_opcode, split_list
from r3bench.lowering.layout import size_and_align

_PURE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "shl",
        "lshr",
        "ashr",
        "and",
        "or",
        "xor",
        "icmp",
        "select",
        "zext",
        "sext",
        "trunc",
        "getelementptr",
        "ptrtoint",
        "bitcast",
        "fneg",
        "fadd",
        "fsub",
        "fmul",
        "fcmp",
        "sitofp",
        "uitofp",
        "fpext",
        "fptrunc",
        "extractvalue",
        "insertvalue",
        "extractelement",
        "insertelement",
        "shufflevector",
    ]
)
_PURE_CALLS = re.compile(r"@llvm\.(?:[us](?:min|max)|abs|fma|fmuladd|fabs|ctpop|ctlz|cttz|bitreverse|bswap|fsh[lr])\.")
_SAFE_DIVISION = re.compile(r" = [us](?:div|rem) (?:exact )?i\d+ [^,]+, [1-9]\d*$")
_CASTS = frozenset(
    [
        "zext",
        "sext",
        "trunc",
        "fptrunc",
        "fpext",
        "fptoui",
        "fptosi",
        "uitofp",
        "sitofp",
        "ptrtoint",
        "ptrtoaddr",
        "bitcast",
    ]
)
_FLAGS = re.compile(
    r"^(?:(?:nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|nuw|nsw|nusw|nneg|exact|disjoint|samesign|inbounds|volatile|atomic"
    r"|weak|inalloca) )+"
)
_CALL_WORDS = re.compile(
    r"^(?:(?:tail|musttail|notail|call|nnan|ninf|nsz|arcp|contract|afn|reassoc|fast|noundef|nonnull|zeroext|signext"
    r"|noalias|inreg|align \d+|(?:range|dereferenceable|dereferenceable_or_null|nofpclass)\([^)]*\)) )*"
)


def is_pure(line: str) -> bool:
    """Whether an instruction may be executed anywhere, any number of times, and gives the same value."""
    opcode = result_and_opcode(line)[1]
    if opcode == "load":
        return "!invariant.load" in line and ("@r3_slot." in line or '@"r3_slot.' in line)
    if opcode == "call":
        return bool(_PURE_CALLS.search(line))
    return opcode in _PURE or bool(_SAFE_DIVISION.search(line))


def value_type(line: str) -> str:
    """The type of the value that an instruction defines."""
    opcode = result_and_opcode(line)[1]
    rest = line.split(" = ", 1)[1]
    if opcode == "call":
        return leading_type(_CALL_WORDS.sub("", rest))
    if opcode == "phi":
        return phi_type(line)
    if opcode in _CASTS:
        return leading_type(rest.rsplit(" to ", 1)[1])
    rest = _FLAGS.sub("", rest[len(opcode) + 1 :])
    return "ptr" if opcode == "alloca" else _from_operands(opcode, rest)


def _from_operands(opcode: str, rest: str) -> str:
    if opcode in ("icmp", "fcmp"):
        kind = leading_type(_FLAGS.sub("", rest.split(" ", 1)[1]))
        return f"<{kind[1:-1].split(' x ')[0]} x i1>" if kind.startswith("<") else "i1"
    parts = split_list(rest)
    if opcode in ("select", "getelementptr"):
        return leading_type(parts[1])
    if opcode == "cmpxchg":
        return f"{{ {leading_type(parts[1])}, i1 }}"
    if opcode == "atomicrmw":
        return leading_type(parts[1])
    if opcode == "extractelement":
        return _element(leading_type(parts[0]))
    if opcode == "extractvalue":
        return _member(leading_type(parts[0]), [int(part) for part in parts[1:] if part.isdigit()])
    if opcode == "shufflevector":
        return f"<{leading_type(parts[2])[1:-1].split(' x ')[0]} x {_element(leading_type(parts[0]))}>"
    return leading_type(parts[0])


def _element(kind: str) -> str:
    return kind[1:-1].split(" x ", 1)[1].strip()


def _member(kind: str, path: list[int]) -> str:
    for index in path:
        if kind.startswith("["):
            kind = _element(kind)
        elif kind.startswith("{"):
            kind = split_list(kind[1:-1].strip())[index]
        else:
            raise Unsupported(f"a value of type {kind} across a barrier is not supported by the CPU device")
    return kind


def local_array(line: str, types: Mapping[str, str]) -> tuple[int, int]:
    """Size and alignment of what an alloca makes."""
    rest = _FLAGS.sub("", line.split(" alloca ", 1)[1])
    size, align = size_and_align(leading_type(rest), types)
    for part in split_list(rest)[1:]:
        if part.startswith("align "):
            align = max(align, int(part[6:]))
        elif match := re.fullmatch(r"i\d+ (\d+)", part):
            size *= int(match[1])
        elif not part.startswith("!"):
            raise Unsupported("a local array without a constant size is not supported by the CPU device; give it one")
    if align > 32:
        raise Unsupported(f"a local array aligned to {align} bytes is not supported by the CPU device; use at most 32")
    return max(size, 1), align
