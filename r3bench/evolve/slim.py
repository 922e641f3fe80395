"""A winner's configuration without its ballast: settings whose absence leaves every machine code as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from r3bench.evolve.evaluate import Evaluator
from r3bench.model import Configuration, Specialization, Variant

Part = tuple[str, Any]
"""A field, and which of its elements; of a specialization, a part of that."""

S = TypeVar("S", Configuration, Specialization)


def slim(evaluator: Evaluator, variant: Variant) -> Variant:
    """The same code on all recorded launches from fewer settings. What was measured of a variant holds for it, too."""
    if variant.configuration is None:
        return variant
    units = range(len(evaluator.capture.units))
    code = [_codes(evaluator, [variant], unit)[0] for unit in units]
    idle = list(_parts(variant.configuration))
    for unit in units:
        codes = _codes(evaluator, [_less(variant, [part]) for part in idle], unit)
        idle = [part for part, one in zip(idle, codes, strict=True) if one == code[unit]]

    def alike(other: Variant) -> bool:
        return all(_codes(evaluator, [other], unit) == [code[unit]] for unit in units)

    kept = _less(variant, idle)
    if not alike(kept):  # some of them matter where others are gone
        kept = variant
        for part in idle:
            fewer = _less(kept, [part])
            kept = fewer if alike(fewer) else kept
    return kept


def _codes(evaluator: Evaluator, variants: Sequence[Variant], unit: int) -> list[str | None]:
    """The machine code of each variant for a unit, by its hash."""
    pending = [evaluator.submit(each, "winner's parts", unit=unit, timing="none") for each in variants]
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
