"""Record, remix, replay: find faster GPU kernels of a real application, checked and timed honestly.

*Record* one launch of a real run: :class:`Session`, :func:`open_capture`. *Remix* it: a :class:`Variant` says what to
run instead, source, configuration or launch. *Replay* it alone, in processes that stay warm: a :class:`ReplayServer`
checks every byte of the result against what was recorded and times the same code; what comes of it is an
:class:`Outcome`, or a :class:`Comparison` of two variants. *Evolve*: :func:`r3bench.evolve.evolve` rewrites and tunes.
*Report*: patches and speedups with their intervals. All of it is used through pytest (:mod:`r3bench.plugin`).

Importing this package loads nothing heavy; what needs NumPy, LLVM or Zarr is loaded when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from r3bench.errors import CandidateFailure, CaptureError, DeviceUnavailable, R3Error, RecordError

if TYPE_CHECKING:
    from r3bench.devices import open_device
    from r3bench.model import (
        Candidate,
        Capture,
        Configuration,
        LaunchConfig,
        LaunchRule,
        Outcome,
        Status,
        Target,
        Variant,
    )
    from r3bench.record import Session
    from r3bench.server import ReplayServer
    from r3bench.stats import Comparison, Decision
    from r3bench.store import open_capture

__all__ = [
    "Candidate",
    "CandidateFailure",
    "Capture",
    "CaptureError",
    "Comparison",
    "Configuration",
    "Decision",
    "DeviceUnavailable",
    "LaunchConfig",
    "LaunchRule",
    "Outcome",
    "R3Error",
    "RecordError",
    "ReplayServer",
    "Session",
    "Status",
    "Target",
    "Variant",
    "open_capture",
    "open_device",
]

# Even the nouns: making their dataclasses takes longer than all else that the plugin loads.
_NOUNS = (
    "Candidate", "Capture", "Configuration", "LaunchConfig", "LaunchRule", "Outcome", "Status", "Target", "Variant",
)  # fmt: skip
_HOMES = dict.fromkeys(_NOUNS, "model") | {
    "Comparison": "stats",
    "Decision": "stats",
    "ReplayServer": "server",
    "Session": "record",
    "open_capture": "store",
    "open_device": "devices",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
