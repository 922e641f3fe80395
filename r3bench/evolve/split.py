"""A winner's gain taken apart: which part each kind of change has in it, by adding one kind after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Literal

from r3bench.evolve.evaluate import Evaluator, nanoseconds
from r3bench.evolve.sources import Files
from r3bench.evolve.start import Start
from r3bench.ledger import Share
from r3bench.model import Configuration, Variant

Kind = Literal["toolchain", "source", "passes", "specialization", "launch"]
_ROUNDS = 3  # each variant's shortest time of so many counts


def split(evaluator: Evaluator, start: Start, recorded: Files, winner: Variant) -> tuple[Share, ...]:
    """The winner's gain over the baseline as a product of factors; the toolchain is one of them where another made
    the baseline.

    Each factor is what one kind of change adds to those before it, so its share depends on this order. The times are
    ranking times, taken in turns; a factor is None where one of its two variants does not match on its own.
    """
    first, *rest = _ladder(recorded, winner)
    below, ladder = (start.baseline, [first, *rest]) if start.name == "recorded image" else (first[1], rest)
    times = _times(evaluator, [below, *(variant for _, variant in ladder)])
    factors = [a / b if a is not None and b is not None else None for a, b in pairwise(times)]
    return tuple(Share(name=name, factor=factor) for (name, _), factor in zip(ladder, factors, strict=True))


def _ladder(recorded: Files, winner: Variant) -> Iterator[tuple[Kind, Variant]]:
    """From the recorded text to the winner, one kind of change more at a time."""
    whole, plain = winner.configuration or Configuration(), Configuration()
    specialized = replace(whole, bound_threads="none", min_blocks=None, max_registers=None)
    yield "toolchain", Variant(files=recorded, configuration=plain)
    yield "source", Variant(files=winner.files, configuration=plain)
    yield "passes", Variant(files=winner.files, configuration=replace(specialized, specialize=plain.specialize))
    yield "specialization", Variant(files=winner.files, configuration=specialized)
    yield "launch", winner


def _times(evaluator: Evaluator, variants: list[Variant]) -> list[float | None]:
    """The shortest time of each variant; those that are the same code in the same launch share theirs."""
    best: dict[object, float] = {}
    code: dict[Variant, object] = {}
    for again in range(1, _ROUNDS + 1):
        pending = {variant: evaluator.submit(variant, "winner's parts", again=again) for variant in variants}
        for variant, evaluation in pending.items():
            outcome = evaluator.result(evaluation)
            ns, code[variant] = nanoseconds(outcome), (outcome.binary, variant.launch)
            if ns is not None:
                best[code[variant]] = min(ns, best.get(code[variant], ns))
    return [best.get(code[variant]) for variant in variants]
