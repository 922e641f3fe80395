"""A candidate's failure becomes a verdict here, and nowhere else.

Everything else that can be raised stops the run: it is not the candidate's fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from r3bench.errors import BuildError, CandidateFailure, LaunchError, ReplayTimeout, Unsupported, WorkerLost
from r3bench.model import Status, Verdict
from r3bench.windows import ArmFailed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    """A verdict that is not a match, and the arm it belongs to (empty if only one was at work)."""

    verdict: Verdict
    arm: str = ""


def again(action: Callable[[], T], tries: int = 3) -> T:
    """What ``action`` gives; begun anew where a worker is lost, which is nobody's fault."""
    try:
        return action()
    except WorkerLost:
        if tries == 1:
            raise
    return again(action, tries - 1)


def by_chance(error: BaseException | None) -> bool:
    """Whether this is no candidate's fault: a worker was killed, be it at every try."""
    return error is not None and (not isinstance(error, CandidateFailure) or isinstance(error.__cause__, WorkerLost))


def attempt(action: Callable[[], T]) -> T | Failure:
    """What ``action`` gives, or the verdict on a candidate that failed in it; begun anew where a worker is lost."""
    try:
        return blamed(lambda: again(action))
    except WorkerLost as lost:
        # Whoever killed it, the candidate did not, unless it happens again and again.
        return Failure(Verdict(status=Status.FAULT, detail=str(lost)))


def blamed(action: Callable[[], T]) -> T | Failure:
    """What ``action`` gives, or the verdict on a candidate that failed in it; WorkerLost is not its fault."""
    try:
        return action()
    except CandidateFailure as failure:
        return Failure(_verdict(failure))
    except ArmFailed as failed:
        cause = failed.failure
        return Failure(cause if isinstance(cause, Verdict) else _verdict(cause), failed.arm)


def _verdict(failure: CandidateFailure) -> Verdict:
    for kind, status in (
        (Unsupported, Status.UNSUPPORTED),
        (BuildError, Status.BUILD_FAILED),
        (LaunchError, Status.LAUNCH_FAILED),
        (ReplayTimeout, Status.TIMEOUT),
    ):
        if isinstance(failure, kind):
            return Verdict(status=status, detail=str(failure))
    return Verdict(status=Status.FAULT, detail=str(failure))
