"""An application with its own kernels against the same application with tuned ones, in turns."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from r3bench.record import dump
from r3bench.record.application import Plan, run


@dataclass(frozen=True, slots=True)
class Trial:
    """One run. ``region_s`` is the time in the plan's NVTX ranges or, where it names none, from the first launch to the
    last wait for the device; 0 where there was nothing of the kind."""

    status: int
    seconds: float
    region_s: float
    output: bytes
    files: tuple[str, ...]
    kernels: tuple[dict[str, Any], ...]


def trial(command: Sequence[str], plan: Plan, files: Sequence[Path] = ()) -> Trial:
    """Run an application once under a plan, its standard output kept; ``files`` it writes are remembered by hash."""
    begin = time.perf_counter()
    status, output = run(command, plan, keep_output=True)
    seconds = time.perf_counter() - begin
    processes = dump.coverage(plan.folder)
    region = max((_region(process, plan) for process in processes), default=0.0)
    kernels = tuple(kernel for process in processes for kernel in process["kernels"])
    return Trial(status, seconds, max(region, 0.0), output, tuple(map(_digest, files)), kernels)


def _region(process: dict[str, Any], plan: Plan) -> float:
    if plan.region:
        return float(process["region_seconds"])
    return float(process["last_wait"] - process["first_launch"]) if process["first_launch"] else 0.0


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"


@dataclass(frozen=True, slots=True)
class Contest:
    """Runs with the application's own kernels and with the tuned ones; ``profiles`` is one run of each, timed launch
    by launch."""

    before: tuple[Trial, ...]
    after: tuple[Trial, ...]
    profiles: tuple[Trial, Trial]

    def same_output(self) -> bool:
        """Whether every run wrote the same to its standard output and files, and ended alike."""
        return len({(t.status, t.output, t.files) for t in (*self.before, *self.after)}) == 1

    def repeatable(self) -> bool:
        """Whether the application's own output is the same in every run of its own."""
        return len({(t.status, t.output, t.files) for t in self.before}) == 1

    def medians(self, what: str) -> tuple[float, float]:
        """Median seconds before and after: ``seconds`` or ``region_s``."""
        before, after = ([getattr(t, what) for t in arm] for arm in (self.before, self.after))
        return statistics.median(before), statistics.median(after)

    def ratios(self, what: str) -> list[float]:
        """Before by after in each turn; none where the region was not met."""
        pairs = [(getattr(own, what), getattr(tuned, what)) for own, tuned in zip(self.before, self.after, strict=True)]
        return [own / tuned for own, tuned in pairs if tuned]

    def substituted(self) -> int:
        """Launches of one run that ran a tuned kernel."""
        return sum(kernel["substituted"] for kernel in self.after[-1].kernels)


def contest(
    command: Sequence[str],
    folder: Path,
    substitutes: Sequence[Path],
    runs: int,
    files: Sequence[Path] = (),
    region: str = "",
) -> Contest:
    """Interleaved runs, the order turned round each time, so that what drifts does not favour one arm."""
    own = Plan(folder=folder, max_per_kernel=0, region=region)
    tuned = replace(own, substitutes=tuple(substitutes))
    found: dict[bool, list[Trial]] = {False: [], True: []}
    for index in range(runs):
        for arm in (False, True) if index % 2 == 0 else (True, False):
            plan = replace(tuned if arm else own, folder=folder / f"{index}-{int(arm)}")
            found[arm].append(trial(command, plan, files))
    timed = tuple(
        trial(command, replace(plan, folder=folder / f"timed-{index}", profile=True))
        for index, plan in enumerate((own, tuned))
    )
    return Contest(tuple(found[False]), tuple(found[True]), (timed[0], timed[1]))
