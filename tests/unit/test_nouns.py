"""Nouns as plain data and back, whatever they hold; and data that is none of a noun's kind."""

from __future__ import annotations

import hashlib
import json
import types
from dataclasses import fields, is_dataclass
from enum import Enum
from math import inf
from random import Random
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from r3bench import model
from r3bench.nouns import decode, encode, typed, whole
from r3bench.server.requests import REQUESTS, Identity
from r3bench.stats import Comparison
from r3bench.toolchain import Built

NOUNS = [noun for noun in vars(model).values() if isinstance(noun, type) and is_dataclass(noun)]
NUMBERS = (0.0, -0.0, 1.5, 1e-300, inf, -inf)


def test_a_content_id_is_that_of_the_plain_data() -> None:
    random = Random(1)
    for noun in NOUNS:
        value = some_noun(noun, random)
        text = json.dumps([model.plain(value), [1, None], "x"], sort_keys=True, separators=(",", ":"))
        assert model.content_id(value, (1, None), "x") == hashlib.sha256(text.encode()).hexdigest()


def some(hint: Any, random: Random) -> Any:
    """A value of a type, at random."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        return some(random.choice(parts), random)
    if origin is tuple:
        kinds = [parts[0]] * random.randrange(4) if parts[-1] is Ellipsis else parts
        return tuple(some(kind, random) for kind in kinds)
    if origin is Literal:
        return random.choice(parts)
    if is_dataclass(hint):
        return some_noun(hint, random)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return random.choice(list(hint))
    return {
        bool: random.random() < 0.5,
        int: random.choice((0, 1, -1, 1 << 62)),
        float: random.choice(NUMBERS),
        str: random.choice(("", "inf", "nan", "0", "é\n\udcff")),
        bytes: random.randbytes(random.randrange(3)),
        types.NoneType: None,
    }[hint]


def some_noun(kind: Any, random: Random) -> Any:
    hints = get_type_hints(kind)
    given = {field.name: some(hints[field.name], random) for field in fields(kind)}
    if kind is model.Outcome:  # a time is of a match, and of what was verified
        given |= {"measurement": None}
    return kind(**given)


@pytest.mark.parametrize(
    "kind", [*NOUNS, *REQUESTS.values(), Identity, Comparison, Built], ids=lambda kind: kind.__name__
)
def test_a_noun_comes_back_as_it_was(kind: type) -> None:
    random = Random(7)
    for _ in range(20):
        noun = some_noun(kind, random)
        found = decode(kind, whole(noun))
        assert repr(found) == repr(noun)  # which tells 1 from True and 1.0, and 0.0 from -0.0


def test_a_configuration_comes_back_from_json() -> None:
    random = Random(3)
    for _ in range(50):
        known = some_noun(model.Configuration, random)
        assert repr(decode(model.Configuration, json.loads(json.dumps(encode(known))))) == repr(known)


@pytest.mark.parametrize("hint", [int | bool, bool | int, float | int | bool, bool | int | float | None])
@pytest.mark.parametrize("value", [0, 1, False, True])
def test_a_union_takes_the_member_of_just_this_type(hint: Any, value: object) -> None:
    assert type(typed(hint, value)) is type(value)


def test_a_union_takes_the_noun_that_fits() -> None:
    target = model.Target(device="cpu", arch="x86-64")
    assert typed(model.Pointer | model.Target | None, encode(target)) == target
    assert typed(model.Target | tuple[int, ...], [1, 2]) == (1, 2)


@pytest.mark.parametrize(
    ("hint", "data"), [(int | bool, "1"), (int | bool, None), (int | None, True), (str | int, 1.0)]
)
def test_what_fits_no_member_is_refused(hint: Any, data: object) -> None:
    with pytest.raises(TypeError, match="is no"):
        typed(hint, data)
