"""How long a recorded kernel takes alone, beside what it took in its application."""

from __future__ import annotations

from dataclasses import dataclass

from r3bench.devices import Device
from r3bench.model import Capture, Variant
from r3bench.replay import Builder, Failure, Placement, attempt, build, read_material
from r3bench.stats import block_statistic
from r3bench.windows import Arm, fit, procedure_for, warm, window

_WINDOWS = 9


@dataclass(frozen=True, slots=True)
class Times:
    """Microseconds of a launch: in the application, if that is known; alone, on a GPU with cold caches; and there in
    place, with warm ones, where that gives the same. ``caches``: how many times the caches its memory takes. From 2 on
    the cold time is the application's; below, that depends on what ran before. ``cold_us`` is the least of the windows,
    as in contests, ``most_us`` the largest."""

    there_us: float | None
    cold_us: float
    warm_us: float | None
    caches: float
    most_us: float

    def __str__(self) -> str:
        between = f" in the fastest of {_WINDOWS} windows, {self.most_us:.1f} us in the slowest"
        told = f"{self.cold_us:.1f} us alone{self._against(self.cold_us)}{between}"
        if self.warm_us is not None and self.caches < 2:
            told += f", with cold caches; {self.warm_us:.1f} us{self._against(self.warm_us)} with warm ones"
        if self.there_us is not None:
            told = f"{self.there_us:.1f} us in the application, {told}"
        size = f"is {self.caches:.1f} times the caches" if self.caches >= 1 else "fits into the caches"
        return f"{told}; its memory {size}"

    def _against(self, time_us: float) -> str:
        return f" ({100 * (time_us / self.there_us - 1):+.1f} %)" if self.there_us else ""


def times(capture: Capture, device: Device, compiler: Builder, there_us: float | None = None) -> Times | str:
    """Time the recorded kernel on the first unit, or say why that cannot be done.

    ``there_us`` replaces what was recorded of the application's launch.
    """
    found = attempt(lambda: _times(capture, device, compiler, there_us))
    return f"not timed: {found.verdict.detail}" if isinstance(found, Failure) else found


def _times(capture: Capture, device: Device, compiler: Builder, there_us: float | None) -> Times:
    material, procedure = read_material(capture, 0), procedure_for(device.target)
    original = build(material, Variant(), device.target, compiler)
    placement = Placement(device, material, original)
    try:
        arm = Arm(device.load(original.result().binary), material.unit.launch)
        placement.classify(arm, procedure.timeout_s)
        clones, (samples,) = fit([arm], placement.ring, procedure)
        samples += [window(arm, placement.ring, clones, procedure.timeout_s) for _ in range(_WINDOWS - len(samples))]
        hot = None
        if placement.ring.idempotent:
            hot = warm(arm, placement.ring, clones, placement.check, procedure) / 1e3
        recorded = dict(capture.recorded_on).get("launch_us")
        there = there_us or (float(recorded) if recorded else None)
        caches = placement.ring.clone_bytes / device.cache_bytes
        return Times(there, block_statistic(samples) / 1e3, hot, caches, max(samples) / 1e3)
    finally:
        placement.release()
