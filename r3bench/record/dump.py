"""What the preload library leaves on disk: one folder a process, with recorded launches, images and counts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.errors import RecordError

PAGE = 4096
# As stripes.h lays them out.
_STRIPES, _STRIPE_PAGES = 16, (8 << 20) // PAGE
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
    """Pages in stripes over several files."""

    files: tuple[Path, ...]

    def read(self, first: int, count: int) -> Bytes:
        """The bytes of ``count`` pages from ``first`` on; zeros behind the end of a file."""
        found = np.zeros(count * PAGE, np.uint8)
        done = 0
        while done < count:
            stripe, within = divmod(first + done, _STRIPE_PAGES)
            part = min(count - done, _STRIPE_PAGES - within)
            with open(self.files[stripe % _STRIPES], "rb") as file:
                file.seek((stripe // _STRIPES * _STRIPE_PAGES + within) * PAGE)
                file.readinto(found[done * PAGE : (done + part) * PAGE].data)
            done += part
        return found


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

    def pages(self) -> Pages:
        """All pages of the launch, not read yet."""
        return Pages(tuple(self.path.with_suffix(f".bin.{stripe}") for stripe in range(_STRIPES)))

    @property
    def nbytes(self) -> int:
        """What its memory takes on disk."""
        return sum(file.stat().st_size for file in self.pages().files)


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


def filled(runs: Sequence[Run], pages: Pages, into: Bytes, start: int = 0) -> Bytes:
    """Put the pages of runs into ``into``, which begins ``start`` bytes (whole pages) behind the buffer's start."""
    first, end = start // PAGE, (start + into.size + PAGE - 1) // PAGE
    for run in runs:
        low, high = max(run.first, first), min(run.first + run.count, end)
        if low >= high:
            continue
        target = into[(low - first) * PAGE : (high - first) * PAGE]
        if run.place < 0:
            target[:] = 0
            continue
        place = run.place + (low - run.first) * run.step
        data = pages.read(place, high - low) if run.step else np.tile(pages.read(place, 1), high - low)
        target[:] = data[: target.size]
    return into


def coverage(folder: Path) -> list[dict[str, Any]]:
    """What became of every launch, by process; processes that launched nothing are left out.

    Of a graph only the first launch is timed: the seconds of its kernels are those of all launches, by their mean.
    """
    processes = [_parsed(path) for path in sorted(folder.glob("process-*/coverage.json"))]
    for kernel in (kernel for process in processes for kernel in process["kernels"]):
        kernel["gpu_seconds"] *= kernel["launches"] / max(kernel["timed"], 1)
    return processes
