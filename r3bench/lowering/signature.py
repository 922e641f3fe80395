"""What every function around a kernel is called with: places of block and grid, then the kernel's own arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

AXES = "xyz"
_RANGES = {
    "ntid": "range(i32 1, 1025)",
    "ctaid": "range(i32 0, 2147483647)",
    "nctaid": "range(i32 1, -2147483648)",
}
_PLACES = (
    *((f"%r3.{register}.{axis}", "i32", known) for register, known in _RANGES.items() for axis in AXES),
    ("%r3.threads", "i32", "range(i32 1, 1025)"),
    ("%r3.padded", "i64", "range(i64 32, 1025)"),
    ("%r3.shared", "ptr", "noundef"),
    ("%r3.shared.dynamic", "i32", "noundef"),
    ("%r3.shared.static", "i32", "noundef"),
    ("%r3.context", "ptr", "noundef"),
    ("%r3.cells", "ptr", "noundef"),
)
"""``threads`` of the block, ``padded`` to warps; shared memory; the threads' context; the cells of barriers."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The common parameters. ``kernel`` holds (name, type, attributes) of the kernel's parameters.

    Only regions use the kernel's names; the driver's functions have others, which cannot meet names of their own.
    """

    kernel: tuple[tuple[str, str, str], ...]

    def own(self) -> list[tuple[str, str, str]]:
        return [(f"%r3.p{n}", kind, attributes) for n, (_, kind, attributes) in enumerate(self.kernel)]

    @property
    def region_parameters(self) -> str:
        return _declared((*_PLACES, *self.kernel))

    @property
    def parameters(self) -> str:
        return _declared((*_PLACES, *self.own()))

    @property
    def arguments(self) -> str:
        return ", ".join(f"{kind} {name}" for name, kind, _ in (*_PLACES, *self.own()))


def _declared(parameters: Sequence[tuple[str, str, str]]) -> str:
    return ", ".join(f"{kind} {attributes} {name}" for name, kind, attributes in parameters)
