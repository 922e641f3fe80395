"""What a compile worker is asked for: the three parts of a build."""

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
    debug: bool = False

    @property
    def what(self) -> str:
        return f"compiling {self.main}"

    @property
    def role(self) -> str:
        """Which workers do it: each kind is allowed something else."""
        return "frontend"


@dataclass(frozen=True, slots=True, kw_only=True)
class _KernelJob:
    """What both further parts go by; workers for one device do both."""

    ir: str
    symbol: str
    target: Target
    configuration: Configuration
    facts: UnitFacts

    @property
    def role(self) -> str:
        return self.target.device


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareJob(_KernelJob):
    """IR, and that of further translation units that is ``linked`` to it, to what passes begin with; the same for all
    configurations with the same specialization."""

    linked: tuple[str, ...] = ()
    checked: bool = False

    @property
    def what(self) -> str:
        return f"preparing {self.symbol}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(_KernelJob):
    """Prepared IR to code.

    For CUDA only: ``ptx_version`` (83 for PTX 8.3), and whether machine code is to be made of it.
    """

    ptx_version: int
    padded: bool = False
    assemble: bool = True

    @property
    def what(self) -> str:
        return f"optimizing {self.symbol}"
