"""A winner's configuration without its ballast: settings whose absence leaves every machine code as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from r3bench.evolve.evaluate import Evaluator, Pending
from r3bench.model import Configuration, Specialization, Variant

Part = tuple[str, Any]
"""A field, and which of its elements; of a specialization, a part of that."""

S = TypeVar("S", Configuration, Specialization)


def slim(evaluator: Evaluator, variant: Variant) -> Variant:
    """The same code on all recorded launches from fewer settings. What was measured of a variant holds for it, too."""
    whole = variant.configuration
    if whole is None:
        return variant
    code = _codes(evaluator, [variant])
    parts = list(_parts(whole))
    idle = [part for part, one in zip(parts, _codes(evaluator, [_less(variant, [p]) for p in parts]), strict=True)
            if one == code[0]]  # fmt: skip
    kept = _less(variant, idle)
    if _codes(evaluator, [kept]) != code:  # some of them matter where others are gone
        kept = variant
        for part in idle:
            fewer = _less(kept, [part])
            kept = fewer if _codes(evaluator, [fewer]) == code else kept
    others = range(1, len(evaluator.capture.units))
    same = all(_codes(evaluator, [kept], unit) == _codes(evaluator, [variant], unit) for unit in others)
    return kept if same else variant


def _codes(evaluator: Evaluator, variants: Sequence[Variant], unit: int = 0) -> list[str | None]:
    """The machine code of each variant for a unit, by its hash."""
    pending: list[Pending] = [evaluator.submit(v, "winner's parts", unit=unit, timing="none") for v in variants]
    return [evaluator.result(each).binary for each in pending]


def _parts(settings: Configuration | Specialization) -> Iterator[Part]:
    """Whatever is not as in the default."""
    for field in fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Specialization):
            yield from ((field.name, part) for part in _parts(value))
        elif isinstance(value, tuple):
            yield from ((field.name, each) for each in value)
        elif value != field.default:
            yield field.name, value


def _less(variant: Variant, parts: Sequence[Part]) -> Variant:
    configuration = variant.configuration or Configuration()
    for part in parts:
        configuration = _without(configuration, part)
    return replace(variant, configuration=configuration)


def _without(settings: S, part: Part) -> S:
    name, what = part
    value = getattr(settings, name)
    left: dict[str, Any] = {name: getattr(type(settings)(), name)}
    if isinstance(value, Specialization):
        left = {name: _without(value, what)}
    elif isinstance(value, tuple):
        left = {name: tuple(each for each in value if each != what)}
    elif name == "bound_threads":
        left["min_blocks"] = None  # needs a bound
    return replace(settings, **left)
