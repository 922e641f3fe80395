"""One recorded launch as a test sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r3bench.model import Capture, ReplayUnit
from r3bench.store.reading import dataset

if TYPE_CHECKING:
    from xarray import Dataset


class RecordedUnit:
    """One recorded launch, for a test of the user's own: its capture, its unit, its memory as datasets."""

    def __init__(self, capture: Capture, index: int) -> None:
        self.capture = capture
        self.unit: ReplayUnit = capture.units[index]

    @property
    def before(self) -> Dataset:
        """Memory before the launch: variables named by parameter, typed, with dimensions."""
        return dataset(self.capture, self.unit.index, "before")

    @property
    def after(self) -> Dataset:
        """What the launch changed."""
        return dataset(self.capture, self.unit.index, "after")
