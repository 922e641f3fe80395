"""How often this machine calls equal work faster or slower: measured by ``r3bench calibrate``, kept per device.

The file is ``calibration.json`` in ``$XDG_STATE_HOME/r3bench``, by default ``~/.local/state/r3bench``.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from math import comb, inf
from pathlib import Path
from typing import Any

# Classes of kernels by their time a launch, in nanoseconds.
LIMITS_NS = (0.0, 1e4, 1e5, 1e6, inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What came of ``contests`` between arms of equal work that take from ``low_ns`` to ``high_ns`` a launch.

    ``first`` were claimed by one contest, ``claimed`` by its repetition in a fresh process, too: false alarms.
    ``spread`` is the largest apparent effect, as a fraction.
    """

    low_ns: float
    high_ns: float
    gate: float
    contests: int
    first: int
    claimed: int
    spread: float
    date: str

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
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        fewer = sum(comb(of, k) * rate**k * (1 - rate) ** (of - k) for k in range(found + 1))
        low, high = (rate, high) if fewer > 1 - confidence else (low, rate)
    return high


# -- the file ---------------------------------------------------------------------------------------------------------


def path() -> Path:
    """Where this user's calibration is kept."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "r3bench" / "calibration.json"


def keep(device: str, rate: Rate) -> Path:
    """Add a rate to what is known of a device; the file is the old or the new one, whatever happens."""
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    held = {known.low_ns: known for known in rates(device)}
    held[rate.low_ns] = added(held[rate.low_ns], rate) if rate.low_ns in held else rate
    plain = [{**asdict(held[low]), "high_ns": _finite(held[low].high_ns)} for low in sorted(held)]
    known = {**_read(), device: plain}
    handle, temporary = tempfile.mkstemp(dir=target.parent)
    with open(handle, "w") as file:
        file.write(json.dumps(known, indent=1) + "\n")
    os.replace(temporary, target)
    return target


def rates(device: str) -> list[Rate]:
    """What is known of a device, the shortest kernels first."""
    return [Rate(**{**held, "high_ns": held["high_ns"] or inf}) for held in _read().get(device, [])]


def rate_for(device: str, ns: float) -> Rate | None:
    """What is known of a device for kernels of so many nanoseconds."""
    return next((rate for rate in rates(device) if rate.low_ns <= ns < rate.high_ns), None)


def _finite(ns: float) -> float | None:
    return ns if ns < inf else None


def _read() -> dict[str, list[dict[str, Any]]]:
    try:
        found = json.loads(path().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
