"""The search space of structured knobs, as data.

A :class:`Knob` is a name with its values, the default first; a :class:`Space` is the knobs one replay unit has on one
target. A point of the space is a plain dictionary ``{knob name: value}``, and :meth:`Space.decode` makes the
configuration and launch of it. Every point is legal by construction: where two settings exclude each other they share
one knob. The default point is the default pipeline with the recorded launch.
"""

from __future__ import annotations

from r3bench.space.facts import UnitFacts, unit_facts
from r3bench.space.knob import Knob, Value
from r3bench.space.knobs import ASSEMBLER, DRIVERS, OPTION_NAMES, OPTIONS, TUNING, Options
from r3bench.space.passes import EXTRA_PASSES, PASSES
from r3bench.space.points import Space

__all__ = [
    "ASSEMBLER",
    "DRIVERS",
    "EXTRA_PASSES",
    "OPTIONS",
    "OPTION_NAMES",
    "PASSES",
    "TUNING",
    "Knob",
    "Options",
    "Space",
    "UnitFacts",
    "Value",
    "unit_facts",
]
