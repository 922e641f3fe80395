"""Times of past runs, one file each, and where they changed for good. Informative: nothing fails by it.

A run's file is named by its time and content, so runs that write at once never meet. Times are compared on one machine
only, whose key holds the GPU's UUID. A change is looked for by binary segmentation: the place that splits the times
best by Pettitt's rank statistic (A. N. Pettitt, A non-parametric approach to the change-point problem, Applied
Statistics 28, 1979) is one if hardly any random order of the same times has as good a place; then both parts are
searched.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
from numpy.typing import NDArray

from r3bench.files import write_text
from r3bench.model import content_id
from r3bench.report.words import duration, one_line

FORMAT = 1
_SHUFFLES = 999
_SHORTEST = 4  # runs on each side of a change, at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run: UTC time, machine, commit if known, and nanoseconds per launch by kernel (``app/kernel[unit]``)."""

    created: str
    machine: str
    commit: str | None
    times_ns: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """From the run ``at`` (an index) on, times are ``ratio`` of what they were; ``p`` is the test's error."""

    at: int
    before_ns: float
    after_ns: float
    p: float

    @property
    def ratio(self) -> float:
        return self.after_ns / self.before_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One kernel's times on one machine, in order of time, and where they changed."""

    kernel: str
    machine: str
    runs: tuple[Run, ...]
    changes: tuple[Change, ...]

    @property
    def times_ns(self) -> list[float]:
        return [run.times_ns[self.kernel] for run in self.runs]


# -- files ----------------------------------------------------------------------------------------------------------


def write(folder: Path, machine: str, commit: str | None, times_ns: Mapping[str, float]) -> Path:
    """Write a run of now to a file of its own in ``folder``. FileError where it cannot be written."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    run = {"format": FORMAT, "created": created, "machine": machine, "commit": commit, "times_ns": dict(times_ns)}
    path = folder / f"{created.replace(':', '')}-{content_id(run, time.time_ns())[:8]}.json"
    write_text(path, json.dumps(run, indent=1, sort_keys=True) + "\n")
    return path


def read(folder: Path) -> tuple[list[Run], list[Path]]:
    """All runs in order of time, and the files that are none."""
    runs, damaged = [], []
    for path in sorted(folder.glob("*.json")):
        try:
            runs.append(_run(json.loads(path.read_bytes())))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            damaged.append(path)
    return sorted(runs, key=lambda run: run.created), damaged


def _run(data: Any) -> Run:
    if data["format"] > FORMAT:
        raise ValueError("of a newer r3bench")
    times = {one_line(kernel): float(ns) for kernel, ns in data["times_ns"].items()}
    if not all(math.isfinite(ns) and ns > 0 for ns in times.values()):
        raise ValueError("a time is not positive")
    commit = data["commit"]
    return Run(
        created=one_line(str(data["created"])),
        machine=one_line(str(data["machine"])),
        commit=None if commit is None else one_line(str(commit)),
        times_ns=times,
    )


def series(runs: Sequence[Run]) -> list[Series]:
    """Every kernel on every machine."""
    found = []
    for machine in sorted({run.machine for run in runs}):
        here = [run for run in runs if run.machine == machine]
        for kernel in sorted({kernel for run in here for kernel in run.times_ns}):
            own = tuple(run for run in here if kernel in run.times_ns)
            changes = tuple(change_points([run.times_ns[kernel] for run in own]))
            found.append(Series(kernel=kernel, machine=machine, runs=own, changes=changes))
    return found


# -- change points --------------------------------------------------------------------------------------------------


def change_points(times_ns: Sequence[float], error: float = 0.01, smallest: float = 0.02) -> list[Change]:
    """Where the median changed by more than ``smallest``, each with at most this ``error``, in order. Deterministic."""
    cuts = sorted(_cuts(np.asarray(times_ns, dtype=np.float64), 0, error, smallest))
    edges = [0, *(at for at, _ in cuts), len(times_ns)]
    parts = [median(times_ns[start:end]) for start, end in pairwise(edges) if end > start]
    pairs = zip(cuts, pairwise(parts), strict=True)
    return [Change(at=at, before_ns=before, after_ns=after, p=p) for (at, p), (before, after) in pairs]


def _cuts(values: NDArray[np.float64], start: int, error: float, smallest: float) -> Iterator[tuple[int, float]]:
    if len(values) < 2 * _SHORTEST:
        return
    at, p = pettitt(values)
    before, after = values[:at], values[at:]
    if p > error or abs(math.log(np.median(after) / np.median(before))) < math.log1p(smallest):
        return
    yield start + at, p
    yield from _cuts(before, start, error, smallest)
    yield from _cuts(after, start + at, error, smallest)


def pettitt(values: NDArray[np.float64]) -> tuple[int, float]:
    """Where to split best, at least ``_SHORTEST`` values on each side, and the p-value by random orders."""
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2
    statistic = _statistic(ranks[np.newaxis])[0]
    best = int(np.argmax(statistic))
    shuffled = np.random.default_rng(0).permuted(np.tile(ranks, (_SHUFFLES, 1)), axis=1)
    as_good = int(np.sum(_statistic(shuffled).max(axis=1) >= statistic[best]))
    return best + _SHORTEST, (1 + as_good) / (1 + _SHUFFLES)


def _statistic(ranks: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pettitt's |U| for each row of ranks and each allowed place of the split."""
    n = ranks.shape[1]
    place = np.arange(_SHORTEST, n - _SHORTEST + 1)
    sums = np.cumsum(ranks, axis=1)[:, _SHORTEST - 1 : n - _SHORTEST]
    found: NDArray[np.float64] = np.abs(2 * sums - place * (n + 1))
    return found


# -- shown ----------------------------------------------------------------------------------------------------------

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], most: int = 40) -> str:
    """The last values as bars between their least and largest."""
    shown = values[-most:]
    low, high = min(shown), max(shown)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)


def change_line(found: Series, change: Change) -> str:
    """A change in one line."""
    run = found.runs[change.at]
    ratio = change.ratio
    how = f"{ratio:.2f}x slower" if ratio > 1 else f"{1 / ratio:.2f}x faster"
    where = f" at {run.commit[:12]}" if run.commit else ""
    times = f"{duration(change.before_ns)} -> {duration(change.after_ns)}"
    return f"since {run.created}{where}: {how}, {times} (p = {change.p:.3f})"


_WIDTH, _HEIGHT, _MARGIN = 640, 120, 24


def svg(found: Iterable[Series]) -> str:
    """One panel per kernel and machine: times in order, medians between changes as lines. A file of its own."""
    panels = [_panel(one, number) for number, one in enumerate(found)]
    height = (_HEIGHT + 2 * _MARGIN) * max(1, len(panels))
    style = "text{font:12px sans-serif}circle{fill:#2a6fb0}line{stroke:#b03a2a;stroke-width:2}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 2 * _MARGIN} {height}">'
    return f"{head}<title>r3bench history</title><style>{style}</style>{''.join(panels)}</svg>\n"


def _panel(one: Series, number: int) -> str:
    times = one.times_ns
    low, high, last = min(times), max(times), max(1, len(times) - 1)

    def place(index: float, ns: float) -> tuple[float, float]:
        share = (ns - low) / (high - low) if high > low else 0.5
        return round(_MARGIN + _WIDTH * index / last, 1), round(_MARGIN + _HEIGHT * (1 - share), 1)

    dots = [_dot(*place(index, ns), one.runs[index], ns) for index, ns in enumerate(times)]
    edges = [0, *(change.at for change in one.changes), len(times)]
    levels = []
    for start, end in pairwise(edges):
        (left, y), (right, _) = place(start, median(times[start:end])), place(end - 1, 0.0)
        levels.append(f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}"/>')
    title = f"{one.kernel}, {one.machine}: {duration(low)} to {duration(high)}"
    top = number * (_HEIGHT + 2 * _MARGIN)
    text = f'<text x="{_MARGIN}" y="{_MARGIN - 8}">{escape(title)}</text>'
    return f'<g transform="translate(0 {top})">{text}{"".join(levels)}{"".join(dots)}</g>'


def _dot(x: float, y: float, run: Run, ns: float) -> str:
    about = f"{run.created} {(run.commit or '')[:12]} {duration(ns)}"
    return f'<circle cx="{x}" cy="{y}" r="3"><title>{escape(about)}</title></circle>'
