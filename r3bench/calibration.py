"""How often this machine calls equal work faster or slower: measured by ``r3bench calibrate``, kept per device.

The file is ``calibration.json`` in ``$XDG_STATE_HOME/r3bench``, by default ``~/.local/state/r3bench``.
"""

from __future__ import annotations

import fcntl
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import exp, fsum, inf, lgamma, log, log1p
from pathlib import Path
from typing import Any

from r3bench.files import write_text, writing
from r3bench.nouns import decode

# Classes of kernels by their time a launch, in nanoseconds.
LIMITS_NS = (0.0, 1e4, 1e5, 1e6, inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What came of ``contests`` between arms of equal work that take from ``low_ns`` to ``high_ns`` a launch.

    ``first`` were claimed by one contest, ``claimed`` by its repetition in a fresh process, too: false alarms.
    ``spread`` is the largest apparent effect, as a fraction. ValueError where that cannot be.
    """

    low_ns: float
    high_ns: float
    gate: float
    contests: int
    first: int
    claimed: int
    spread: float
    date: str

    def __post_init__(self) -> None:
        if (self.low_ns, self.high_ns) not in pairwise(LIMITS_NS):
            raise ValueError(f"there is no class of kernels from {self.low_ns} to {self.high_ns} ns")
        if not 0 <= self.claimed <= self.first <= self.contests or not self.contests:
            raise ValueError(f"{self.claimed} and {self.first} claims of {self.contests} contests cannot be")
        if not 0 < self.gate < inf or not 0 <= self.spread < inf:
            raise ValueError(f"a gate of {self.gate} and a spread of {self.spread} cannot be")

    def __str__(self) -> str:
        most = upper_bound(self.claimed, self.contests)
        found = f"{self.claimed} of {self.contests} at gate {self.gate:.0%}"
        return f"{found} ({self.date}; at most {most:.0%} at 95 % confidence)"


def added(one: Rate, other: Rate) -> Rate:
    """Two rates of one class as one; the later alone where their gates differ."""
    if one.gate != other.gate:
        return other
    return replace(
        other,
        contests=one.contests + other.contests,
        first=one.first + other.first,
        claimed=one.claimed + other.claimed,
        spread=max(one.spread, other.spread),
    )


def class_of(ns: float) -> tuple[float, float]:
    """The class that a kernel of so many nanoseconds belongs to."""
    return next((low, high) for low, high in pairwise(LIMITS_NS) if low <= ns < high)


def upper_bound(found: int, of: int, confidence: float = 0.95) -> float:
    """The largest rate under which so few are not rarer than the confidence allows (Clopper and Pearson, 1934)."""
    if found >= of:
        return 1.0
    ways = [lgamma(of + 1) - lgamma(k + 1) - lgamma(of - k + 1) for k in range(found + 1)]  # logarithms: they are many
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        fewer = fsum(exp(way + k * log(rate) + (of - k) * log1p(-rate)) for k, way in enumerate(ways))
        low, high = (rate, high) if fewer > 1 - confidence else (low, rate)
    return high


# -- the file ---------------------------------------------------------------------------------------------------------


def path() -> Path:
    """Where this user's calibration is kept."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "r3bench" / "calibration.json"


def keep(device: str, rate: Rate) -> Path:
    """Add a rate to what is known of a device; the file is the old or the new one, whatever happens. FileError
    where it cannot be written."""
    target = path()
    with ExitStack() as stack:
        stack.enter_context(writing(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = stack.enter_context(target.with_suffix(".lock").open("w"))  # two that calibrate at once lose nothing
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = {known.low_ns: known for known in rates(device)}
        held[rate.low_ns] = added(held[rate.low_ns], rate) if rate.low_ns in held else rate
        plain = [{**asdict(held[low]), "high_ns": _finite(held[low].high_ns)} for low in sorted(held)]
        known = {**_read(), device: plain}
        write_text(target, json.dumps(known, indent=1) + "\n")
    return target


def rates(device: str) -> list[Rate]:
    """What is known of a device, the shortest kernels first; what is damaged is left out with a warning."""
    return list(_rates(device))


def _rates(device: str) -> Iterator[Rate]:
    held = _read().get(device, [])
    for entry in held if isinstance(held, list) else [held]:
        try:
            yield decode(Rate, {**entry, "high_ns": "inf" if entry["high_ns"] is None else entry["high_ns"]})
        except (TypeError, ValueError, KeyError) as error:
            kind = type(error).__name__
            warnings.warn(
                f"{path()}: an entry of {device} is damaged and left out ({kind}: {error}); "
                "delete the file and run r3bench calibrate again",
                stacklevel=3,
            )


def rate_for(device: str, ns: float) -> Rate | None:
    """What is known of a device for kernels of so many nanoseconds."""
    return next((rate for rate in rates(device) if rate.low_ns <= ns < rate.high_ns), None)


def _finite(ns: float) -> float | None:
    return ns if ns < inf else None


def _read() -> dict[str, Any]:
    try:
        found = json.loads(path().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
