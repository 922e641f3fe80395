"""A kernel's arguments as the bytes it is launched with, and the table of pointers among them."""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf
from typing import Any

import numpy as np

from r3bench.errors import RecordError
from r3bench.model import Parameter, Pointer
from r3bench.record.memory import Handle, Struct, address_bytes, pointer_to, view_of

_INTEGERS = "biu"


@dataclass(frozen=True, slots=True)
class Arguments:
    """The argument block, the pointers in it and the handles they come from, in order of place."""

    block: bytes
    pointers: tuple[Pointer, ...]
    handles: tuple[Handle, ...]


def pack(kernel: str, parameters: Sequence[Parameter], values: Sequence[Any]) -> Arguments:
    """The argument block for these values; RecordError, naming kernel and parameter, where one does not fit."""
    if len(values) != len(parameters):
        names = ", ".join(p.name for p in parameters)
        raise RecordError(f"kernel {kernel} takes {len(parameters)} arguments ({names}), but {len(values)} were given")
    block = bytearray(max((p.offset + p.size for p in parameters), default=0))
    held: dict[int, Handle] = {}
    for parameter, value in zip(parameters, values, strict=True):
        where = f"argument '{parameter.name}' of kernel {kernel}"
        held |= {parameter.offset + offset: handle for offset, handle in _handles(parameter, value, where).items()}
        block[parameter.offset : parameter.offset + parameter.size] = _bytes(parameter, value, where)
    for offset, handle in held.items():
        block[offset : offset + 8] = address_bytes(handle)
    places = sorted(held)
    return Arguments(bytes(block), tuple(pointer_to(held[p], p) for p in places), tuple(held[p] for p in places))


def _handles(parameter: Parameter, value: Any, where: str) -> dict[int, Handle]:
    """The handles in one argument by offset within it."""
    if isinstance(value, Handle):
        if parameter.kind != "pointer":
            raise RecordError(f"{where} is no pointer, but an array was given: pass a value of type {parameter.dtype}")
        _check_element(parameter, value, where)
        return {0: value}
    if isinstance(value, Struct):
        if not all(0 <= offset <= parameter.size - 8 for offset in value.pointers):
            raise RecordError(f"{where} has {parameter.size} bytes, and a pointer was given outside of them")
        return dict(value.pointers)
    return {}


def _check_element(parameter: Parameter, handle: Handle, where: str) -> None:
    """The array's elements must be what the parameter points to; plain bytes may go for anything."""
    array = view_of(handle).array
    held = "uint16" if array.dtype == "bfloat16" else array.dtype
    if parameter.dtype not in (None, array.dtype, held) and held != "uint8":
        raise RecordError(f"{where} points to {parameter.dtype}, but array '{array.name}' holds {array.dtype}")


def _bytes(parameter: Parameter, value: Any, where: str) -> bytes:
    if parameter.kind == "pointer":
        if value is not None and not isinstance(value, Handle):
            raise RecordError(f"{where} is a pointer: pass an array of the session or None, not {_kind(value)}")
        return bytes(8)
    if parameter.kind == "struct":
        return _struct(parameter, value, where)
    return _scalar(parameter, value, where)


def _struct(parameter: Parameter, value: Any, where: str) -> bytes:
    held = value.value if isinstance(value, Struct) else value
    if not isinstance(held, (bytes, np.void)):
        raise RecordError(f"{where} is a struct: pass its bytes, a NumPy record or a Struct, not {_kind(value)}")
    data = bytes(held) if isinstance(held, bytes) else held.tobytes()
    if len(data) != parameter.size:
        raise RecordError(f"{where} has {parameter.size} bytes, but {len(data)} were given")
    return data


def _scalar(parameter: Parameter, value: Any, where: str) -> bytes:
    name = parameter.dtype or f"int{8 * parameter.size}"
    if not isinstance(value, (bool, int, float, complex, np.generic)):
        raise RecordError(f"{where} is of type {name}: pass a number, not {_kind(value)}")
    if name == "bfloat16":
        return _brain_float(float(_number(value, "f", where)))
    dtype = np.dtype(name)
    number = _number(value, dtype.kind, where)
    if dtype.kind in _INTEGERS and dtype.kind != "b" and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        raise RecordError(f"{where} is of type {name}, which cannot hold {number}")
    with np.errstate(over="ignore"):
        packed = np.array(number).astype(dtype) if dtype.kind != "u" else np.array(number, dtype)
    if dtype.kind == "f" and bool(np.isinf(packed)) and not isinf(number):
        raise RecordError(f"{where} is of type {name}, which cannot hold {number}")
    return packed.tobytes()


def _number(value: Any, kind: str, where: str) -> Any:
    """The value as a Python number of a dtype's kind; a float never becomes an integer by rounding."""
    try:
        return operator.index(value) if kind in "iu" else {"b": bool, "f": float, "c": complex}[kind](value)
    except (TypeError, OverflowError) as error:
        raise RecordError(f"{where} takes no {_kind(value)}: {error}") from error


def _brain_float(value: float) -> bytes:
    """The nearest bfloat16, ties to even: the upper half of the float32, rounded."""
    (bits,) = struct.unpack("<I", np.float32(value).tobytes())
    if value != value:
        return struct.pack("<H", 0x7FC0)
    return struct.pack("<H", (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def _kind(value: Any) -> str:
    return type(value).__name__
