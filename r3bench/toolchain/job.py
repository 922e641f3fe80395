"""What a compile worker is asked for: the front end's part and the rest of a build."""

from __future__ import annotations

from dataclasses import dataclass

from r3bench.model import Configuration, Target
from r3bench.space import UnitFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendJob:
    """Source to IR; the same for all configurations of a source."""

    files: tuple[tuple[str, str], ...]
    main: str
    flags: tuple[str, ...]
    arch: str
    timeout_s: float

    @property
    def what(self) -> str:
        return f"compiling {self.main}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """IR to code; ``ptx_version`` is 83 for PTX 8.3 and has no meaning on a CPU."""

    ir: str
    symbol: str
    target: Target
    configuration: Configuration
    facts: UnitFacts
    ptx_version: int

    @property
    def what(self) -> str:
        return f"optimizing {self.symbol}"
