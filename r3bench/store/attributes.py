"""Nouns as JSON attributes and back; every value that comes from a file is checked here before anything trusts it.

Pure: no file is touched. ``where`` is the place that a message names, such as ``captures/a.zarr, unit 0, launch``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache, lru_cache
from math import isfinite, prod
from pathlib import PurePosixPath
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from r3bench.errors import CaptureError
from r3bench.model import Allocation, Capture, Global, Parameter, ReplayUnit, Source

FORMAT = 1
ADDRESS_LIMIT = 1 << 64
NBYTES_LIMIT = 1 << 48
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
MODULE_ARRAYS = ("ir", "image")


def damaged(where: str, what: str, remedy: str = "restore it from version control or record it again") -> CaptureError:
    """The error for content that cannot be right."""
    return CaptureError(f"capture {where}: {what}; {remedy}")


def storage_dtype(name: str) -> np.dtype[Any]:
    """The NumPy type that holds elements of this dtype: itself, and uint16 for bfloat16."""
    return np.dtype("uint16" if name == "bfloat16" else name)


def view_shape(buffer: Allocation | Global) -> tuple[int, ...]:
    """The shape of the array that holds a buffer: its own, or flat where none was given."""
    return buffer.shape or (buffer.nbytes // storage_dtype(buffer.dtype).itemsize,)


def buffers(unit: ReplayUnit) -> tuple[Allocation | Global, ...]:
    """Every allocation and global of a unit, in order."""
    return (*unit.allocations, *unit.globals)


# -- names of nodes -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def node_name(name: str) -> str:
    """A name as one safe path element: odd characters become %XX, long names end in a hash."""
    text = "".join(c if re.match(r"[A-Za-z0-9_.-]", c) else _percent(c) for c in name)
    if text.startswith((".", "__")) or text == "zarr.json":
        text = _percent(text[0]) + text[1:]
    if len(text) > 200:
        text = f"{text[:150]}%{hashlib.sha256(_bytes(name)).hexdigest()[:32]}"
    return text


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in _bytes(character))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# -- nouns to JSON and back -----------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """The JSON form of a noun that :func:`decode` reverses; bytes become hexadecimal digits."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return value


def decode(kind: Any, value: Any, where: str) -> Any:
    """A value of the annotated type ``kind`` from its JSON form; CaptureError if it has another type."""
    if is_dataclass(kind) and isinstance(kind, type):
        return kind(**decode_fields(kind, value, where))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return _one_of(arguments, value, where)
    if origin is tuple:
        return _decode_tuple(arguments, value, where)
    if NoneType in arguments:
        rest = next(a for a in arguments if a is not NoneType)
        return None if value is None else decode(rest, value, where)
    return _decode_scalar(kind, value, where)


def decode_fields(kind: type, value: Any, where: str, skip: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The fields of the noun ``kind`` from a JSON object, but for those in ``skip``."""
    known = {name: hint for name, hint in _hints(kind).items() if name not in skip}
    if not isinstance(value, Mapping):
        raise damaged(where, f"expected an object, found {_short(value)}")
    if unknown := sorted(set(value) - set(known)):
        raise damaged(where, f"unknown field {_short(unknown[0])}")
    missing = [f.name for f in fields(kind) if f.name in known and f.name not in value and _required(f)]
    if missing:
        raise damaged(where, f"field '{missing[0]}' is missing")
    return {name: decode(known[name], value[name], f"{where}, {name}") for name in known if name in value}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _one_of(allowed: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, str) or value not in allowed:
        raise damaged(where, f"expected one of {', '.join(allowed)}, found {_short(value)}")
    return value


def _decode_tuple(arguments: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise damaged(where, f"expected a list, found {_short(value)}")
    if arguments[-1] is Ellipsis:
        return tuple(decode(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if len(value) != len(arguments):
        raise damaged(where, f"expected {len(arguments)} items, found {len(value)}")
    return tuple(decode(kind, item, where) for kind, item in zip(arguments, value, strict=True))


def _decode_scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is bytes and type(value) is str and re.fullmatch(r"([0-9a-f]{2})*", value):
        return bytes.fromhex(value)
    if kind is float and type(value) in (int, float) and isfinite(value):
        return float(value)
    if kind is int and type(value) is int and abs(value) < ADDRESS_LIMIT:
        return value
    if kind in (str, bool) and type(value) is kind:
        return value
    raise damaged(where, f"expected {kind.__name__}, found {_short(value)}")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# -- what must hold between fields ----------------------------------------------------------------------------------


def check_capture(capture: Capture, where: str) -> None:
    """CaptureError unless the capture's fields have their types and fit together."""
    if not capture.units:
        raise damaged(where, "it holds no replay unit")
    if not capture.symbol:
        raise damaged(where, "the kernel's symbol is empty")
    if capture.source is not None:
        check_source(capture.source, where)
    for position, unit in enumerate(capture.units):
        _check_unit(unit, position, capture.parameters, f"{where}, unit {position}")


def check_source(source: Source, where: str) -> None:
    """CaptureError unless all paths stay below the application's root and the kernel's span is one."""
    for path in (source.root, source.main, *(path for path, _ in source.files)):
        check_relative(path, f"{where}, source")
    for main in (source.main, *dict(source.linked)):
        if main not in dict(source.files):
            raise damaged(where, f"main file '{main}' is not among the source's files")
    if not 1 <= source.span[0] <= source.span[1]:
        raise damaged(where, f"the kernel's span {source.span} is no range of lines")


def check_relative(path: str, where: str) -> None:
    """CaptureError if a path is absolute, climbs with ``..`` or holds characters no file name may hold."""
    parts = PurePosixPath(path).parts
    if path.startswith(("/", "~")) or ".." in parts or re.search(r"[\x00-\x1f\\]", path) or re.match("[A-Za-z]:", path):
        raise damaged(where, f"path {_short(path)} does not stay inside the application")


def _check_unit(unit: ReplayUnit, position: int, parameters: Iterable[Parameter], where: str) -> None:
    if unit.index != position:
        raise damaged(where, f"its index is {unit.index}")
    launch = unit.launch
    sizes = (*launch.grid, *launch.block, *(launch.cluster or (1,)))
    if min(sizes) < 1 or launch.shared_bytes < 0:
        raise damaged(where, f"launch {launch.grid} x {launch.block} is not positive")
    for parameter in parameters:
        if not 0 <= parameter.offset <= parameter.offset + parameter.size <= len(unit.arguments):
            raise damaged(where, f"parameter '{parameter.name}' lies outside the {len(unit.arguments)} argument bytes")
    _check_buffers(unit, where)
    _check_pointers(unit, where)


def _check_buffers(unit: ReplayUnit, where: str) -> None:
    names = [buffer_name(buffer) for buffer in buffers(unit)]
    if len({node_name(name) for name in names}) != len(names) or "" in names:
        raise damaged(where, "two allocations or globals share a name, or one has none")
    if not set(unit.written) <= set(names):
        raise damaged(where, f"written buffer {_short(sorted(set(unit.written) - set(names))[0])} is not in the unit")
    for buffer in buffers(unit):
        _check_view(buffer, f"{where}, '{buffer_name(buffer)}'")
    for allocation in unit.allocations:
        _check_allocation(allocation, f"{where}, '{allocation.name}'")
    _check_dims(unit, where)


def buffer_name(buffer: Allocation | Global) -> str:
    """The name that pointer table, contents and arrays know a buffer by."""
    return buffer.name if isinstance(buffer, Allocation) else buffer.symbol


def _check_view(buffer: Allocation | Global, where: str) -> None:
    if buffer.dtype not in DTYPES:
        raise damaged(where, f"dtype {_short(buffer.dtype)} is not one of {', '.join(DTYPES)}")
    if not 0 <= buffer.nbytes < NBYTES_LIMIT or len(buffer.shape) > 32 or min(buffer.shape, default=0) < 0:
        raise damaged(where, f"size {buffer.nbytes} or shape {_short(buffer.shape)} is out of range")
    viewed = prod(view_shape(buffer)) * storage_dtype(buffer.dtype).itemsize
    if viewed != buffer.nbytes:
        raise damaged(where, f"shape and dtype give {viewed} bytes, but it has {buffer.nbytes}")


def _check_allocation(allocation: Allocation, where: str) -> None:
    if not 0 <= allocation.address <= allocation.address + allocation.nbytes < ADDRESS_LIMIT:
        raise damaged(where, f"address {allocation.address:#x} is out of range")
    if not 1 <= allocation.align <= 1 << 40 or allocation.align & (allocation.align - 1):
        raise damaged(where, f"alignment {allocation.align} is not a power of two")
    if allocation.dims and len(allocation.dims) != len(view_shape(allocation)):
        raise damaged(where, f"{len(allocation.dims)} dimension names for {len(view_shape(allocation))} dimensions")


def _check_dims(unit: ReplayUnit, where: str) -> None:
    """CaptureError where one dimension has two sizes, or a buffer's name: xarray could not show such a unit."""
    remedy = "give the dimension another name"
    sizes: dict[str, tuple[int, str]] = {}
    for allocation in (a for a in unit.allocations if a.dims):
        if len(set(allocation.dims)) != len(allocation.dims) or "" in allocation.dims:
            raise damaged(where, f"dimensions of '{allocation.name}' are not distinct names", remedy)
        for dim, size in zip(allocation.dims, view_shape(allocation), strict=True):
            known, other = sizes.setdefault(dim, (size, allocation.name))
            if known != size:
                what = f"dimension '{dim}' is {known} in '{other}', but {size} in '{allocation.name}'"
                raise damaged(where, what, remedy)
    if both := sorted(set(sizes) & {buffer_name(buffer) for buffer in buffers(unit)}):
        raise damaged(where, f"'{both[0]}' is a buffer and a dimension", remedy)


def _check_pointers(unit: ReplayUnit, where: str) -> None:
    held = {"": len(unit.arguments), **{buffer_name(buffer): buffer.nbytes for buffer in buffers(unit)}}
    places = set()
    for pointer in unit.pointers:
        if pointer.holder not in held or not 0 <= pointer.offset <= held[pointer.holder] - 8:
            raise damaged(where, f"a pointer lies at {pointer.offset} in {_short(pointer.holder)}, which is outside")
        if not pointer.allocation or not 0 <= pointer.displacement <= held.get(pointer.allocation, -1):
            raise damaged(where, f"a pointer leads outside of {_short(pointer.allocation)}")
        places.add((pointer.holder, pointer.offset))
    if len(places) != len(unit.pointers):
        raise damaged(where, "two pointers lie at the same place")


def content_hash(root: Mapping[str, Any]) -> str:
    """SHA-256 over everything a root document says of a capture: attributes and every array with its own hash."""
    ours = {name: value for name, value in root["attributes"]["r3bench"].items() if name != "content_hash"}
    nodes = root["consolidated_metadata"]["metadata"]
    text = json.dumps([ours, nodes], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
