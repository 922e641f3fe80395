"""Nouns as plain data and back: JSON for files, and maps with bytes as they are for what travels between processes.

:func:`decode` builds a noun from data that anybody may have written: each field must be of its type.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from typing import Any, Literal, NewType, TypeVar, get_args, get_origin, get_type_hints

from r3bench.model import plain

T = TypeVar("T")
Reader = Callable[[Any], Any]
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
    return _reader(hint)(data)


@cache
def _reader(hint: Any) -> Reader:
    """What reads data as a hint says. Made once for each: a ledger has a million values of a few hundred hints."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _union(parts)
    if origin is tuple:
        return _run_of(_reader(parts[0])) if parts[-1] is Ellipsis else _row_of([_reader(part) for part in parts])
    if origin is dict:
        value = _reader(parts[1])
        return lambda data: {key: value(item) for key, item in exactly(dict, data).items()}
    if origin is Literal:
        return partial(_one_of, parts)
    if isinstance(hint, type) and is_dataclass(hint):
        return _noun(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    if hint in (float, Finite):
        return _float if hint is float else _number
    return partial(exactly, hint) if hint in (int, str, bool, bytes, dict) else lambda data: data


def _run_of(kind: Reader) -> Reader:
    return lambda data: tuple([kind(item) for item in exactly(list, data)])


def _row_of(kinds: Sequence[Reader]) -> Reader:
    return lambda data: tuple([kind(item) for kind, item in zip(kinds, exactly(list, data), strict=True)])


def _one_of(values: Sequence[Any], data: Any) -> Any:
    if data not in values:
        raise ValueError(f"{data!r:.80} is none of {', '.join(map(str, values))}")
    return values[values.index(data)]


def _noun(kind: type) -> Reader:
    """A noun's fields may be absent where they have a default; other keys are left out."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]

    def read(data: Any) -> Any:  # the readers of fields are made here: a noun may hold others of its kind
        given = exactly(dict, data)
        return kind(**{name: _reader(hints[name])(given[name]) for name in names if name in given})

    return read


def _union(kinds: Sequence[Any]) -> Reader:
    """Data as the member of a union that it fits, the one of just its type before others."""
    others = [kind for kind in kinds if kind is not type(None)]

    def read(data: Any) -> Any:
        if data is None and len(others) < len(kinds):
            return None
        *first, last = sorted(others, key=lambda kind: kind is not type(data)) if len(others) > 1 else others
        for kind in first:
            with suppress(ValueError, TypeError, KeyError):
                return _reader(kind)(data)
        return _reader(last)(data)

    return read


def exactly(kind: type, data: Any) -> Any:
    """The data where it is of just this type; TypeError."""
    if type(data) is not kind:
        raise TypeError(f"{data!r:.80} is no {kind.__name__}")
    return data


def _float(data: Any) -> float:
    return float(data) if data in ("inf", "-inf", "nan") else _number(data)


def _number(data: Any) -> float:
    if type(data) not in (int, float) or not math.isfinite(data):
        raise TypeError(f"{data!r:.80} is no finite number")
    return float(data)
