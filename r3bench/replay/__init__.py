"""Capture + variant + device -> outcome: build, restore, run, compare all memory, time the same bytes, compare again.

::

    failures.py     the one place where a candidate's failure becomes a verdict
    placement.py    a recorded unit on a device: memory, what a launch must leave behind, verification
    builds.py       a variant becomes a binary: the recorded image, or what a compiler makes
    refusals.py     what a kernel may not take, keep or read
    trials.py       one variant: verified, ranked, explained
    contests.py     two variants against each other
"""

from __future__ import annotations

from r3bench.replay.builds import Builder, build, image_loads, recorded_image
from r3bench.replay.contests import compete, control
from r3bench.replay.failures import Failure, attempt
from r3bench.replay.placement import Material, Placement, read_material, without_memory
from r3bench.replay.trials import Lock, Timing, Trial, evaluate, leads, profile, replay, tried

__all__ = [
    "Builder", "Failure", "Lock", "Material", "Placement", "Timing", "Trial", "attempt", "build", "compete", "control",
    "evaluate", "image_loads", "leads", "profile", "read_material", "recorded_image", "replay", "tried",
    "without_memory",
]  # fmt: skip
