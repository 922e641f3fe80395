"""What the functions around a kernel work with: places of block and grid, then the kernel's own arguments.

Regions take all of it as parameters, so that LLVM sees values and what is known of them. The functions of the mixed way
take the address of a structure that holds them, ``%r3.environment``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
_OFTEN = frozenset(f"%r3.{name}" for name in ("ntid.x", "ntid.y", "threads", "padded", "context", "cells"))


@dataclass(frozen=True, slots=True)
class Signature:
    """The common values. ``kernel`` holds (name, type, attributes) of the kernel's parameters.

    Only regions use the kernel's names; the driver's functions have others, which cannot meet names of their own.
    """

    kernel: tuple[tuple[str, str, str], ...]

    def own(self) -> list[tuple[str, str, str]]:
        return [(f"%r3.p{n}", kind, attributes) for n, (_, kind, attributes) in enumerate(self.kernel)]

    @property
    def region_parameters(self) -> str:
        return ", ".join(f"{kind} {attributes} {name}" for name, kind, attributes in (*_PLACES, *self.kernel))

    @property
    def region_arguments(self) -> str:
        return ", ".join(f"{kind} {name}" for name, kind, _ in self._all())

    @property
    def environment(self) -> str:
        """The structure's type."""
        return f"%r3.environment = type {{ {', '.join(kind for _, kind, _ in self._all())} }}"

    def stored(self) -> str:
        """Instructions that fill ``%env`` from the values."""
        return "".join(
            f"{_field(n)}  store {kind} {name}, ptr %env.{n}\n" for n, (name, kind, _) in enumerate(self._all())
        )

    def loaded(self, names: Iterable[str] | None = None) -> str:
        """Instructions that read values from ``%env``; without ``names`` all of them."""
        chosen = None if names is None else set(names)
        return "".join(
            f"{_field(n)}  {name} = load {kind}, ptr %env.{n}\n"
            for n, (name, kind, _) in enumerate(self._all())
            if chosen is None or name in chosen
        )

    def often(self) -> str:
        """Instructions that read what most functions of the mixed way need."""
        return self.loaded(_OFTEN)

    def _all(self) -> Sequence[tuple[str, str, str]]:
        return (*_PLACES, *self.own())


def _field(number: int) -> str:
    return f"  %env.{number} = getelementptr %r3.environment, ptr %env, i64 0, i32 {number}\n"
