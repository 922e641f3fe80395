"""Sizes and alignments of LLVM types as CUDA and the host agree on them, and where kernel arguments lie."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r3bench.errors import Unsupported
from r3bench.lowering.ir import Parameter, closing, split_list

_SCALARS = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
_DTYPES = {"half": "float16", "float": "float32", "double": "float64", "ptr": "uint64"}
_BYVAL = re.compile(r"byval\(")


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel parameter in CUDA's argument block; ``type`` is the pointee's where it is passed by value."""

    name: str
    type: str
    attributes: str
    offset: int
    size: int
    align: int
    by_value: bool


def size_and_align(kind: str, types: Mapping[str, str]) -> tuple[int, int]:
    """Bytes from one element to the next in an array of ``kind``, and its natural alignment."""
    if kind in _SCALARS:
        return _SCALARS[kind], _SCALARS[kind]
    if kind[0] == "i" and kind[1:].isdigit():
        return _integer(int(kind[1:]))
    if kind in types:
        return size_and_align(types[kind], types)
    if kind.startswith(("[", "<")) and not kind.startswith("<{"):
        return _sequence(kind, types)
    if kind.startswith(("{", "<{")):
        return _struct(kind, types)
    raise Unsupported(f"the CPU device cannot lay out values of LLVM type {kind}")


def _integer(bits: int) -> tuple[int, int]:
    size = 1
    while size * 8 < bits:
        size *= 2
    return size, min(size, 16)


def _sequence(kind: str, types: Mapping[str, str]) -> tuple[int, int]:
    count, element = kind[1:-1].split(" x ", 1)
    size, align = size_and_align(element.strip(), types)
    if kind[0] == "[":
        return int(count) * size, align
    whole = 1
    while whole < int(count) * (size if element.strip() != "i1" else 1):
        whole *= 2
    return whole, whole


def _struct(kind: str, types: Mapping[str, str]) -> tuple[int, int]:
    packed = kind.startswith("<{")
    inside = kind[2:-2] if packed else kind[1:-1]
    offset, whole = 0, 1
    for member in split_list(inside.strip()):
        size, align = size_and_align(member, types)
        align = 1 if packed else align
        offset = round_up(offset, align) + size
        whole = max(whole, align)
    return round_up(offset, whole), whole


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def arguments(parameters: Sequence[Parameter], types: Mapping[str, str]) -> list[Argument]:
    """Where each kernel parameter lies in the argument block: in order, each at its natural alignment."""
    placed, offset = [], 0
    for parameter in parameters:
        by_value = _BYVAL.search(parameter.attributes)
        kind = parameter.type
        if by_value:
            end = closing(parameter.attributes, by_value.end() - 1)
            kind = parameter.attributes[by_value.end() : end]
        size, align = size_and_align(kind, types)
        if by_value and (stated := re.search(r"\balign (\d+)", parameter.attributes)):
            align = int(stated[1])
        offset = round_up(offset, align)
        placed.append(Argument(parameter.name, kind, parameter.attributes, offset, size, align, bool(by_value)))
        offset += size
    return placed


def shape_and_dtype(kind: str) -> tuple[tuple[int, ...], str]:
    """How NumPy views a variable of this type; anything but (arrays of) numbers is bytes."""
    shape = []
    while match := re.fullmatch(r"\[(\d+) x (.*)\]", kind):
        shape.append(int(match[1]))
        kind = match[2]
    if kind in _DTYPES:
        return tuple(shape), _DTYPES[kind]
    if kind in ("i8", "i16", "i32", "i64"):
        return tuple(shape), f"int{kind[1:]}"
    return (), "uint8"
