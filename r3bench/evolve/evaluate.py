"""Asking the replay server, through the ledger: what was evaluated before is not evaluated again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from r3bench.ledger import Failures, Ledger, named
from r3bench.model import Capture, Level, Outcome, Status, Variant, content_id
from r3bench.overrides import id_of
from r3bench.server.requests import Server, Timing
from r3bench.stats import Comparison, block_statistic

LOOKS = 2  # in a search's contests: a third takes as long as both, and what it alone would show is hardly worth a patch


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """An evaluation on its way; ``source`` is the rule that made the text, for the record and the failure table, and
    ``again`` the number of a repetition."""

    key: str
    future: Future[Outcome]
    source: str
    again: int = 0


class Evaluator:
    """Evaluations of variants of one capture. Used from one thread only, which also writes the ledger.

    ``earlier`` says of each earlier run from which outcomes were taken, by its number, after how many seconds the last
    of them had come; ``now`` how the device was when a run that began with such outcomes asked for the first of its
    own, None before. ``contests`` are those that were not held before.
    """

    def __init__(self, capture: Capture, server: Server, ledger: Ledger) -> None:
        self.capture = capture
        self.target = server.target
        self.levels = server.levels
        self.earlier: dict[int, float] = {}
        self.now: dict[str, str] | None = None
        self.contests: list[Comparison] = []
        self._asked: set[str] = set()
        self._server = server
        self._ledger = ledger
        self._failures: dict[tuple[str, str], tuple[int, str]] = {}

    def submit(
        self, variant: Variant, source: str, *, unit: int = 0, timing: Timing = "once", again: int = 0,
        capture: Capture | None = None,
    ) -> Pending:  # fmt: skip
        """Start an evaluation. ``again`` asks for a repetition by number, which is timed whatever was timed before;
        ``capture`` is another kernel's where given."""
        subject = capture or self.capture
        timing = "rank" if timing == "once" and again else timing
        key = content_id(subject.name, id_of(subject), unit, variant, self.target, timing, again)
        return self._pending(key, source, lambda: self._server.submit(subject, variant, unit, timing), again)

    async def outcome(self, variant: Variant, source: str, timing: Timing = "once") -> Outcome:
        """An evaluation of the search's unit, kept; other tasks go on meanwhile."""
        pending = self.submit(variant, source, timing=timing)
        if not pending.future.done():
            await asyncio.wrap_future(pending.future)
        return self.result(pending)

    def result(self, pending: Pending) -> Outcome:
        """Wait for an evaluation, and keep it. CaptureError and DeviceUnavailable are raised as they are."""
        outcome = pending.future.result()
        if pending.key not in self._asked:
            self._asked.add(pending.key)
            self._count(pending, outcome)
        return outcome

    def _count(self, pending: Pending, outcome: Outcome) -> None:
        """Keep an outcome that was not asked for before, and count how it failed."""
        if self._ledger.outcome(pending.key) is None:
            again = {"again": pending.again} if pending.again else {}
            self._ledger.add_outcome(pending.key, outcome, kernel=self.capture.name, source=pending.source, **again)
        status = outcome.verdict.status
        if status is not Status.MATCH:
            count, detail = self._failures.get((pending.source, status.value), (0, outcome.verdict.detail))
            self._failures[pending.source, status.value] = count + 1, detail

    @property
    def evaluations(self) -> int:
        """How many were asked for; what was asked for again and known is one of them."""
        return len(self._asked)

    def verify(
        self, variant: Variant, source: str, level: Level, *, unit: int = 0, capture: Capture | None = None
    ) -> Pending:
        """Start a verification at a level of the promotion."""
        subject = capture or self.capture
        key = content_id(subject.name, id_of(subject), unit, variant, self.target, level)
        return self._pending(key, source, lambda: self._server.verify(subject, variant, level, unit))

    def _pending(self, key: str, source: str, ask: Callable[[], Future[Outcome]], again: int = 0) -> Pending:
        known = self._ledger.outcome(key)
        if known is None:
            self._look()
            return Pending(key, ask(), source, again)
        if (came := self._ledger.came(key)) is not None:
            run, seconds = came
            self.earlier[run] = max(seconds, self.earlier.get(run, 0.0))
        done: Future[Outcome] = Future()
        done.set_result(known)
        return Pending(key, done, source, again)

    def _look(self) -> None:
        """See how the device is before it is used, where what is known says how it was in an earlier run."""
        if self.now is None:
            self.now = self._server.conditions() if self.earlier else {}

    def compare(self, baseline: Variant, candidate: Variant, gate: float, kernels: int) -> Comparison:
        """A contest on the search's unit by the full procedure, or what it came to before."""
        sides = {"baseline": named(baseline), "candidate": named(candidate)}
        key = content_id(self.capture.name, id_of(self.capture), sides, self.target, gate, kernels)
        known = self._ledger.comparison(key)
        if known is not None:
            return known
        self._look()
        future = self._server.compare(self.capture, 0, baseline, candidate, gate=gate, kernels=kernels, looks=LOOKS)
        comparison = future.result()
        self._ledger.add_comparison(key, comparison, kernel=self.capture.name, **sides)
        self.contests.append(comparison)
        return comparison

    async def profile(self) -> Mapping[str, str]:
        """What the device tells of the recorded kernel and of itself; what it told before, where that is on record."""
        known = self._ledger.find("profile", self.capture.name)
        if known is None:
            told = await asyncio.wrap_future(self._server.profile(self.capture))
            known = self._ledger.append("profile", kernel=self.capture.name, told=told)
        return dict(known["told"])

    @property
    def failures(self) -> tuple[Failures, ...]:
        """Every kind of failure of every source, most frequent first."""
        found = [
            Failures(source=source, status=status, count=count, detail=detail)
            for (source, status), (count, detail) in self._failures.items()
        ]
        return tuple(sorted(found, key=lambda f: -f.count))


def nanoseconds(outcome: Outcome) -> float | None:
    """One number to rank by: the shortest of an outcome's samples; None where it has no time, or none to the end."""
    measured = outcome.measurement
    return None if measured is None or measured.cut_ns is not None else block_statistic(measured.samples_ns)


def about(outcome: Outcome) -> float | None:
    """The shortest of an outcome's few samples, where its timing was cut off: a tuner learns from it, nothing more."""
    measured = outcome.measurement
    return None if measured is None or measured.cut_ns is None else block_statistic(measured.samples_ns)
