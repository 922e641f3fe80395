"""What a compile worker is asked for: the front end's part and the rest of a build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
    debug: bool = False

    @property
    def what(self) -> str:
        return f"compiling {self.main}"

    @property
    def role(self) -> str:
        """Which workers do it: each kind is allowed something else."""
        return "frontend"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """IR to code, with the IR of further translation units that is linked to it; ``prepared`` is what the passes began
    with in another build of it, in whose place it is not read.

    For CUDA only: ``ptx_version`` (83 for PTX 8.3), and whether machine code is to be made of it.
    """

    ir: str
    linked: tuple[str, ...] = ()
    symbol: str
    target: Target
    configuration: Configuration
    facts: UnitFacts
    ptx_version: int
    checked: bool = False
    padded: bool = False
    assemble: bool = True
    prepared: tuple[dict[str, Any], str] | None = None

    @property
    def what(self) -> str:
        return f"optimizing {self.symbol}"

    @property
    def role(self) -> str:
        return self.target.device
