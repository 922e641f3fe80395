"""What is asked of a replay server, whether it is in this process, behind ``r3bench serve``, or on a cluster.

:class:`Server` is what searches, items and the guard use. A request that leaves this process is a frozen noun, one
class per verb, which names its capture by an id; :class:`Asking` makes them of calls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from r3bench.model import Capture, Level, Outcome, Target, Variant
from r3bench.stats import Comparison
from r3bench.toolchain import Built

Timing = Literal["none", "rank", "once", "race"]


class Server(Protocol):
    """Replays variants of captures on one device; see :class:`r3bench.server.ReplayServer` for what each verb does."""

    @property
    def target(self) -> Target: ...

    @property
    def name(self) -> str:
        """The device's."""

    @property
    def machine(self) -> str:
        """What tells the device's machine from others, for times that are kept."""

    @property
    def at_once(self) -> int:
        """How many requests keep it busy."""

    @property
    def levels(self) -> tuple[Level, ...]: ...

    def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: Timing = "rank") -> Future[Outcome]: ...

    def verify(self, capture: Capture, variant: Variant, level: Level, unit: int = 0) -> Future[Outcome]: ...

    def profile(self, capture: Capture, unit: int = 0) -> Future[dict[str, str]]: ...

    def compare(
        self,
        capture: Capture,
        unit: int,
        baseline: Variant,
        candidate: Variant,
        gate: float = 0.05,
        kernels: int = 1,
        looks: int = 3,
    ) -> Future[Comparison]: ...

    def compiled(self, capture: Capture, variant: Variant, target: Target, unit: int = 0) -> Future[Built]: ...

    def conditions(self) -> dict[str, str]:
        """What a reader of a time must know of the device now, by name."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who serves: what does not change while it does."""

    target: Target
    name: str
    machine: str
    levels: tuple[Level, ...]
    at_once: int


def identity_of(server: Server) -> Identity:
    return Identity(
        target=server.target,
        name=server.name,
        machine=server.machine,
        levels=server.levels,
        at_once=server.at_once,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Submit:
    """``submit``, as a noun: ``capture`` is the id by which the server has it."""

    result: ClassVar[Any] = Outcome
    capture: str
    unit: int
    variant: Variant
    timing: Timing

    def ask(self, server: Server, capture: Capture) -> Future[Outcome]:
        return server.submit(capture, self.variant, self.unit, self.timing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verify:
    result: ClassVar[Any] = Outcome
    capture: str
    unit: int
    variant: Variant
    level: Level

    def ask(self, server: Server, capture: Capture) -> Future[Outcome]:
        return server.verify(capture, self.variant, self.level, self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    result: ClassVar[Any] = dict[str, str]
    capture: str
    unit: int

    def ask(self, server: Server, capture: Capture) -> Future[dict[str, str]]:
        return server.profile(capture, self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    result: ClassVar[Any] = Comparison
    capture: str
    unit: int
    baseline: Variant
    candidate: Variant
    gate: float
    kernels: int
    looks: int

    def ask(self, server: Server, capture: Capture) -> Future[Comparison]:
        arms = self.baseline, self.candidate
        return server.compare(capture, self.unit, *arms, self.gate, self.kernels, self.looks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compile:
    result: ClassVar[Any] = Built
    capture: str
    unit: int
    variant: Variant
    target: Target

    def ask(self, server: Server, capture: Capture) -> Future[Built]:
        return server.compiled(capture, self.variant, self.target, self.unit)


Request = Submit | Verify | Profile | Compare | Compile
REQUESTS: Mapping[str, type[Request]] = {
    "submit": Submit,
    "verify": Verify,
    "profile": Profile,
    "compare": Compare,
    "compile": Compile,
}
"""By the names that travel."""


class Asking(ABC):
    """A server somewhere else: its verbs make requests, and ``_ask`` carries them there."""

    identity: Identity

    @abstractmethod
    def _ask(self, request: Request, capture: Capture) -> Future[Any]:
        """Send a request of a capture, whose id it names; the future gives the request's ``result``."""

    @abstractmethod
    def _id_of(self, capture: Capture) -> str:
        """The id by which the other side has, or will have, a capture."""

    @property
    def target(self) -> Target:
        return self.identity.target

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def machine(self) -> str:
        return self.identity.machine

    @property
    def at_once(self) -> int:
        return self.identity.at_once

    @property
    def levels(self) -> tuple[Level, ...]:
        return self.identity.levels

    def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: Timing = "rank") -> Future[Outcome]:
        return self._ask(Submit(capture=self._id_of(capture), unit=unit, variant=variant, timing=timing), capture)

    def verify(self, capture: Capture, variant: Variant, level: Level, unit: int = 0) -> Future[Outcome]:
        return self._ask(Verify(capture=self._id_of(capture), unit=unit, variant=variant, level=level), capture)

    def profile(self, capture: Capture, unit: int = 0) -> Future[dict[str, str]]:
        return self._ask(Profile(capture=self._id_of(capture), unit=unit), capture)

    def compare(
        self,
        capture: Capture,
        unit: int,
        baseline: Variant,
        candidate: Variant,
        gate: float = 0.05,
        kernels: int = 1,
        looks: int = 3,
    ) -> Future[Comparison]:
        request = Compare(
            capture=self._id_of(capture),
            unit=unit,
            baseline=baseline,
            candidate=candidate,
            gate=gate,
            kernels=kernels,
            looks=looks,
        )
        return self._ask(request, capture)

    def compiled(self, capture: Capture, variant: Variant, target: Target, unit: int = 0) -> Future[Built]:
        return self._ask(Compile(capture=self._id_of(capture), unit=unit, variant=variant, target=target), capture)
