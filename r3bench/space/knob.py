"""One choice of the search space."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | int | str


@dataclass(frozen=True, slots=True)
class Knob:
    """One choice; ``values[0]`` is the default. ``ordered`` says that neighbours in ``values`` are alike."""

    name: str
    values: tuple[Value, ...]
    ordered: bool = False

    @property
    def default(self) -> Value:
        return self.values[0]
