"""What the preload library leaves on disk: one folder a process, with recorded launches, images and counts."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.errors import RecordError

PAGE = 4096
# As stripes.h lays them out.
STRIPES, STRIPE_BYTES = 16, 4 << 20
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Run:
    """``count`` pages from ``first`` on: in the file from page ``place`` on (step 1), all it (0), or zeros (-1)."""

    first: int
    count: int
    place: int
    step: int


@dataclass(frozen=True, slots=True)
class Held:
    """Memory that a launch could reach: a device variable (``symbol``) or an allocation. Pages count from its start."""

    address: int
    nbytes: int
    memory: str
    symbol: str | None
    before: tuple[Run, ...]
    after: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages in stripes over several files, which are mapped."""

    stripes: tuple[Bytes, ...]

    @classmethod
    def of(cls, files: Sequence[Path]) -> Pages:
        return cls(tuple(map(_mapped, files)))

    def read(self, first: int, into: Bytes) -> None:
        """Bytes from page ``first`` on; zeros behind the end of a file."""
        done = 0
        while done < into.size:
            stripe, within = divmod(first * PAGE + done, STRIPE_BYTES)
            start = stripe // STRIPES * STRIPE_BYTES + within
            part = into[done : done + STRIPE_BYTES - within]
            found = self.stripes[stripe % STRIPES][start : start + part.size]
            part[: found.size], part[found.size :] = found, 0
            done += part.size


def _mapped(file: Path) -> Bytes:
    if not file.stat().st_size:
        return np.empty(0, np.uint8)
    return np.memmap(file, np.uint8, "r")


@dataclass(frozen=True, slots=True)
class Launched:
    """One recorded launch; ``facts`` is all that was written about it but its memory."""

    path: Path
    facts: dict[str, Any]
    held: tuple[Held, ...]

    @property
    def kernel(self) -> str:
        return str(self.facts["kernel"])

    @property
    def image(self) -> Path | None:
        """The module image, if it was kept."""
        return self.path.parent / self.facts["image"] if self.facts["image"] else None

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold its pages."""
        return tuple(self.path.with_suffix(f".bin.{stripe}") for stripe in range(STRIPES))

    @property
    def nbytes(self) -> int:
        """What its memory takes on disk."""
        return sum(file.stat().st_size for file in self.files)


def launches(folder: Path) -> Iterator[Launched]:
    """Every complete recorded launch below a folder, process by process, in the order they were launched."""
    for process in sorted(folder.glob("process-*")):
        found = sorted(process.glob("unit-*.json"), key=lambda path: int(path.stem.partition("-")[2]))
        yield from map(_read, found)


def _read(path: Path) -> Launched:
    facts = _parsed(path)
    try:
        held = tuple(_held(buffer) for buffer in facts.pop("buffers"))
    except (KeyError, TypeError) as error:
        raise RecordError(f"{path} is not as the recorder writes it ({error}): record again") from error
    return Launched(path, facts, held)


def _held(buffer: dict[str, Any]) -> Held:
    runs = {moment: tuple(Run(*run) for run in buffer[moment]) for moment in ("before", "after")}
    return Held(buffer["address"], buffer["nbytes"], buffer["memory"], buffer["symbol"], runs["before"], runs["after"])


def _parsed(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read ({error}): record again") from error
    return document


def fill(runs: Sequence[Run], pages: Pages, into: Bytes, start: int = 0) -> None:
    """Put the pages of runs into ``into``, which begins ``start`` bytes (whole pages) behind the buffer's start."""
    at = bisect_right(runs, start // PAGE, key=lambda run: run.first + run.count)
    while at < len(runs) and runs[at].first * PAGE < start + into.size:
        run = runs[at]
        low, high = max(run.first * PAGE, start), min((run.first + run.count) * PAGE, start + into.size)
        _fill(run, pages, into[low - start : high - start], low - run.first * PAGE)
        at += 1


def _fill(run: Run, pages: Pages, into: Bytes, skipped: int) -> None:
    if run.place < 0:
        into[:] = 0
    elif run.step:
        pages.read(run.place + skipped // PAGE, into)
    else:
        page = np.empty(PAGE, np.uint8)
        pages.read(run.place, page)
        into[:] = np.resize(page, into.size)


def coverage(folder: Path) -> list[dict[str, Any]]:
    """What became of every launch, by process; processes that launched nothing are left out.

    Of a graph only the first launch is timed: the seconds of its kernels are those of all launches, by their mean.
    """
    processes = [_parsed(path) for path in sorted(folder.glob("process-*/coverage.json"))]
    for kernel in (kernel for process in processes for kernel in process["kernels"]):
        kernel["gpu_seconds"] *= kernel["launches"] / max(kernel["timed"], 1)
    return processes
