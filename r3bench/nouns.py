"""Nouns as plain data and back: JSON for files, and maps with bytes as they are for what travels between processes.

:func:`decode` builds a noun from data that anybody may have written: each field must be of its type.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, NewType, TypeVar, get_args, get_origin, get_type_hints

from r3bench.model import plain

T = TypeVar("T")
Finite = NewType("Finite", float)
"""A number that is read as it stands: no string for an infinity."""


def encode(noun: Any) -> Any:
    """The JSON form of a noun; infinities become strings, which :func:`decode` reads back."""
    return _finite(plain(noun))


def whole(noun: Any) -> Any:
    """As :func:`encode`, with bytes as they are: what travels, and comes back through :func:`decode`."""
    return _finite(plain(noun, bytes))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def decode(kind: type[T], data: Any) -> T:
    """The noun of a type from its JSON form. ValueError, TypeError or KeyError where it does not fit."""
    found = typed(kind, data)
    assert isinstance(found, kind)
    return found


def typed(hint: Any, data: Any) -> Any:
    """Data as what a type hint says: a noun, a tuple of them, a plain value. Raises as :func:`decode` does."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _member(parts, data)
    if origin is tuple:
        kinds = [parts[0]] * len(exactly(list, data)) if parts[-1] is Ellipsis else parts
        return tuple(typed(kind, item) for kind, item in zip(kinds, exactly(list, data), strict=True))
    if origin is dict:
        return {key: typed(parts[1], item) for key, item in exactly(dict, data).items()}
    if origin is Literal:
        if data not in parts:
            raise ValueError(f"{data!r:.80} is none of {', '.join(map(str, parts))}")
        return parts[parts.index(data)]
    if isinstance(hint, type) and is_dataclass(hint):
        hints, data = _hints(hint), exactly(dict, data)
        return hint(**{f.name: typed(hints[f.name], data[f.name]) for f in fields(hint) if f.name in data})
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    if hint in (float, Finite):
        return float(data) if hint is float and data in ("inf", "-inf", "nan") else _number(data)
    return exactly(hint, data) if hint in (int, str, bool, bytes, dict) else data


def _member(kinds: Sequence[Any], data: Any) -> Any:
    """Data as the member of a union that it fits, the one of just its type before others."""
    if data is None and type(None) in kinds:
        return None
    *others, last = sorted((kind for kind in kinds if kind is not type(None)), key=lambda kind: kind is not type(data))
    for kind in others:
        with suppress(ValueError, TypeError, KeyError):
            return typed(kind, data)
    return typed(last, data)


@cache
def _hints(noun: type) -> Mapping[str, Any]:
    return get_type_hints(noun)


def exactly(kind: type, data: Any) -> Any:
    """The data where it is of just this type; TypeError."""
    if type(data) is not kind:
        raise TypeError(f"{data!r:.80} is no {kind.__name__}")
    return data


def _number(data: Any) -> float:
    if type(data) not in (int, float) or not math.isfinite(data):
        raise TypeError(f"{data!r:.80} is no finite number")
    return float(data)
