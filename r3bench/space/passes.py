"""Passes around the base pipeline as knobs: which ones run, where, and in which order.

Each of EXTRA_PASSES is off, before or after the base pipeline, or both. Those that are on are sorted by their ranks,
equal ones as they are listed: every order of them is a point. With *slots* the search makes the pipeline instead: each
slot holds one of PASSES or none, and the base pipeline that follows may be ``O0``, which only inlines what must be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from r3bench.space.knob import Knob, Value

PASSES = (
    "aggressive_dce", "aggressive_instcombine", "break_critical_edges", "dead_code_elimination",
    "dead_store_elimination", "instruction_combine", "ipsccp", "jump_threading", "lcssa", "loop_deletion",
    "loop_rotate", "loop_simplify", "loop_strength_reduce", "loop_unroll", "loop_unroll_and_jam", "lower_switch",
    "mem_copy_opt", "merge_functions", "new_gvn", "reassociate", "register_to_memory", "sccp", "simplify_cfg",
    "sinking", "sroa", "tail_call_elimination",
)  # fmt: skip
"""Single passes a configuration may name: those of llvmlite that keep a kernel's meaning."""
EXTRA_PASSES = (
    "sroa",
    "simplify_cfg",
    "instruction_combine",
    "reassociate",
    "new_gvn",
    "jump_threading",
    "loop_rotate",
    "loop_unroll",
    "loop_unroll_and_jam",
    "loop_strength_reduce",
    "sinking",
    "lower_switch",
)

Point = Mapping[str, Value]


def knobs(slots: int) -> Iterator[Knob]:
    """The base pipeline, and the extra passes with their ranks, or so many slots."""
    if slots:
        yield Knob("pipeline", ("O3", "O2", "O1", "O0"), ordered=True)
        yield from (Knob(f"slot.{number}", ("none", *PASSES)) for number in range(slots))
        return
    yield Knob("pipeline", ("O3", "O2", "O1"), ordered=True)
    yield from (Knob(f"pass.{name}", ("off", "before", "after", "both")) for name in EXTRA_PASSES)
    yield from (Knob(f"rank.{name}", tuple(range(len(EXTRA_PASSES))), ordered=True) for name in EXTRA_PASSES)


def matters(knob: Knob, point: Point) -> bool:
    """Whether a knob's value changes what a point means: the rank of a pass that is off does not."""
    kind, _, name = knob.name.partition(".")
    return kind != "rank" or point[f"pass.{name}"] != "off"


def decoded(point: Point) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The passes that a point runs before and after the base pipeline, in their order."""
    slots = [str(value) for name, value in point.items() if name.startswith("slot.") and value != "none"]
    ranked = sorted(EXTRA_PASSES, key=lambda name: int(point.get(f"rank.{name}", 0)))
    before = [name for name in ranked if point.get(f"pass.{name}") in ("before", "both")]
    after = [name for name in ranked if point.get(f"pass.{name}") in ("after", "both")]
    return (*slots, *before), tuple(after)


def encoded(before: Sequence[str], after: Sequence[str], slots: int) -> dict[str, Value]:
    """Values that mean these passes; ValueError where no order has both."""
    if slots:
        return {f"slot.{number}": name for number, name in enumerate(before)}
    places = dict.fromkeys(before, "before") | {n: "both" if n in before else "after" for n in after}
    values: dict[str, Value] = {f"pass.{name}": place for name, place in places.items()}
    return values | {f"rank.{name}": rank for name, rank in _ranks(before, after)}


def _ranks(*sequences: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The least ranks by which passes are sorted into all of these sequences."""
    last, rank = "", 0
    for name in _merged(sequences):
        rank += last != "" and EXTRA_PASSES.index(name) < EXTRA_PASSES.index(last)
        last = name
        yield name, rank


def _merged(sequences: Iterable[Sequence[str]]) -> Iterator[str]:
    """All passes in an order that agrees with each sequence, as near to that of the list as can be."""
    graph: TopologicalSorter[str] = TopologicalSorter()
    for sequence in sequences:
        for name in sequence:
            graph.add(name)
        for first, second in pairwise(sequence):
            graph.add(second, first)
    try:
        graph.prepare()
    except CycleError:
        raise ValueError("the search space does not have these extra passes in this order") from None
    ready: list[str] = []
    while graph.is_active():
        ready = sorted([*ready, *graph.get_ready()], key=_place)
        graph.done(ready[0])
        yield ready.pop(0)


def _place(name: str) -> int:
    if name not in EXTRA_PASSES:
        raise ValueError(f"the search space has no extra pass {name!r}")
    return EXTRA_PASSES.index(name)
