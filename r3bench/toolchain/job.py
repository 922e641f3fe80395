"""One build from IR, as it travels to a compile worker."""

from __future__ import annotations

from dataclasses import dataclass

from r3bench.model import Configuration, Target
from r3bench.space import UnitFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a compile worker is asked for; ``ptx_version`` is 83 for PTX 8.3 and has no meaning on a CPU."""

    ir: str
    symbol: str
    target: Target
    configuration: Configuration
    facts: UnitFacts
    ptx_version: int
