"""An interpreter of random programs: all threads of a launch in lock step, one NumPy array per variable.

It runs the program itself, never text or code made from it. Control flow is a mask of threads: where threads part, one
side runs after the other, so a barrier has nothing to do. That is right for programs without data races only, and
the generator makes no others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fuzz.expressions import DTYPES, Array, Expression, clamp, u32

Mask = NDArray[np.bool_]
WARP = 32


@dataclass
class Machine:
    """The state of a launch. Arrays of a thread are (threads, size), of a block (blocks, size), others (size,)."""

    blocks: int
    threads: int
    private: dict[str, Array] = field(default_factory=dict)
    shared: dict[str, Array] = field(default_factory=dict)
    everywhere: dict[str, Array] = field(default_factory=dict)
    variables: dict[str, Array] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.count = self.blocks * self.threads
        self.thread = np.arange(self.count)
        self.block = self.thread // self.threads
        self.in_block = self.thread % self.threads
        self.lane = self.in_block % WARP
        warps = -(-self.threads // WARP)
        self.warp = self.block * warps + self.in_block // WARP
        self.warps = self.blocks * warps
        self.left = np.zeros(self.count, np.bool_)
        self.jumped = np.zeros(self.count, np.bool_)
        self.broke = np.zeros(self.count, np.bool_)

    # -- what expressions ask ---------------------------------------------------------------------------------------

    def name(self, name: str) -> Array:
        return self.variables[name]

    def element(self, array: str, index: Array) -> Array:
        index = np.broadcast_to(index, (self.count,))
        if array in self.private:
            return np.asarray(self.private[array][self.thread, index])
        if array in self.shared:
            return np.asarray(self.shared[array][self.block, index])
        return np.asarray(self.everywhere[array][index])

    def function(self, name: str, x: Array, y: Array) -> Array:
        return np.asarray(self.functions[name].value(self, x, y))

    # -- what statements do -----------------------------------------------------------------------------------------

    def value(self, expression: Expression) -> Array:
        with np.errstate(all="ignore"):
            found: Array = np.asarray(expression.value(self), DTYPES[expression.type])
        return np.broadcast_to(found, (self.count,))

    def live(self, mask: Mask) -> Mask:
        return mask & ~self.jumped

    def assign(self, name: str, value: Array, mask: Mask) -> None:
        held = self.variables[name]
        if held.dtype.kind == "f":
            value = clamp(value)
        self.variables[name] = np.where(mask, value, held).astype(held.dtype)

    def store(self, array: str, index: Array, value: Array, mask: Mask) -> None:
        """Write elements of which no two are the same, or the same value to the same."""
        index, value = np.broadcast_to(index, (self.count,))[mask], value[mask]
        if array in self.private:
            self.private[array][self.thread[mask], index] = value
        elif array in self.shared:
            self.shared[array][self.block[mask], index] = value
        else:
            self.everywhere[array][index] = value

    def run(self, statements: list[Any], mask: Mask) -> None:
        for statement in statements:
            live = self.live(mask)
            if not live.any():
                return
            statement.run(self, live)

    def among(self, values: Array, mask: Mask) -> tuple[Array, Array]:
        """For each thread the values of its warp's 32 lanes, and which of these lanes are in ``mask``."""
        table = np.zeros((self.warps, WARP), values.dtype)
        there = np.zeros((self.warps, WARP), np.bool_)
        table[self.warp, self.lane] = values
        there[self.warp, self.lane] = mask
        return table[self.warp], there[self.warp]

    def parts_warps(self, chosen: Array, mask: Mask) -> bool:
        """Whether a condition parts threads of one warp."""
        table, there = self.among(chosen, mask)
        return bool(((table & there).any(axis=1) & (~table & there).any(axis=1) & mask).any())

    def sums(self, groups: Array, count: int, values: Array, mask: Mask) -> Array:
        """For each group (a block, a warp) the sum of its threads' values."""
        total = np.zeros(count, np.int64)
        np.add.at(total, groups[mask], values[mask].astype(np.int64))
        return total


def bits_of(lanes: Array) -> Array:
    """A word per thread, whose bits are a row of 32 truth values."""
    return u32((lanes.astype(np.uint64) << np.arange(WARP, dtype=np.uint64)).sum(axis=1))
