"""What the search of one kernel starts from: its texts, and the baseline that everything is measured against."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from r3bench import store
from r3bench.errors import CaptureError
from r3bench.evolve.evaluate import Evaluator, nanoseconds
from r3bench.evolve.sources import is_recorded
from r3bench.ledger import KernelResult, Ledger
from r3bench.model import Capture, Outcome, Status, Target, Variant
from r3bench.nouns import decode
from r3bench.replay import image_loads

Working = Callable[[Capture], Variant | None]
"""The working tree's source of a kernel; None where it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel to be searched: its capture, where its records go, the working tree's source from which the search
    starts and to which its patch applies, and captures on which an edit of shared functions is checked."""

    capture: Capture
    ledger: Ledger
    working: Working
    neighbours: Sequence[Capture] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Texts by path, and the baseline with its ranking time; how the machine was then, or as an earlier result says."""

    texts: Mapping[str, str]
    baseline: Variant
    name: str
    ns: float
    conditions: tuple[tuple[str, str], ...]


async def begin_with(kernel: Kernel, evaluator: Evaluator) -> Start:
    """Read the source and replay the baseline. CaptureError where there is nothing to search."""
    texts, stored = read_texts(kernel)
    baseline, name = _baseline(kernel.capture, texts, evaluator.target, stored=stored)
    outcome = await evaluator.outcome(baseline, "baseline")
    ns = nanoseconds(outcome)
    if outcome.measurement is None or ns is None:
        raise CaptureError(f"the baseline ({name}) does not replay: {say(outcome)}")
    conditions = {**dict(outcome.measurement.conditions), "cores": str(len(os.sched_getaffinity(0)))}
    if evaluator.earlier and (ended := kernel.ledger.find("result", kernel.capture.name)) is not None:
        conditions |= dict(decode(KernelResult, ended["result"]).conditions)
    return Start(texts=texts, baseline=baseline, name=name, ns=ns, conditions=tuple(conditions.items()))


def read_texts(kernel: Kernel) -> tuple[Mapping[str, str], bool]:
    """The texts to begin with, and whether they are those in the capture."""
    capture = kernel.capture
    if capture.source is None:
        raise CaptureError(f"{capture.path} holds no source of {capture.symbol}; record it again with its source")
    try:
        tree = kernel.working(capture)
    except (OSError, UnicodeDecodeError) as error:
        raise CaptureError(
            f"the source of {capture.symbol} in the working tree cannot be read ({error}); repair it"
        ) from error
    return (store.sources(capture), True) if tree is None else (dict(tree.files or ()), False)


def _baseline(capture: Capture, texts: Mapping[str, str], target: Target, *, stored: bool) -> tuple[Variant, str]:
    if not stored and not is_recorded(capture, texts):
        return Variant(files=tuple(sorted(texts.items()))), "working tree, default pipeline"
    loads = image_loads(capture, target)
    return Variant(), "recorded image" if loads else "recorded source, default pipeline"


def say(outcome: Outcome) -> str:
    """What became of a variant that was not timed."""
    verdict = outcome.verdict
    status = verdict.status.value if verdict.status is not Status.MATCH else "matched but could not be timed"
    return f"{status}: {verdict.detail}" if verdict.detail else status
