"""Changed inputs of a recorded launch, to tell a kernel that computes from one that fits what was recorded. Pure.

What is changed stays plausible: floats keep their sign, and zeros stay zeros; integers in memory, which may be indices,
are only put into another order; pointers are never touched. Whether the recorded kernel accepts an input is for those
to find out who run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.compare import Buffer, buffers
from r3bench.model import Parameter, ReplayUnit

Bytes = NDArray[np.uint8]
Change = Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]

_FLOATS = {"float16": "f2", "float32": "f4", "float64": "f8", "complex64": "f4", "complex128": "f8", "bfloat16": "bf"}
_SPREADS = (0.01, 0.3)
_JITTERED = "floats changed by up to {:.0%}"
# Its square does not fit 32 bits: arithmetic that overflows where the recorded kernel's does not shows.
_LARGE = 65_537
# Each changed input is a unit of its own: of a large one there are fewer, so that all of them take so many bytes.
_MOST_SCALARS, _LEAST_SCALARS, _BYTES = 24, 6, 256 << 20


@dataclass(frozen=True, slots=True)
class Input:
    """One changed input: what was changed, for a person; the unit with its arguments; memory before the launch."""

    name: str
    unit: ReplayUnit
    before: Mapping[str, Bytes]


def inputs(
    parameters: Iterable[Parameter], unit: ReplayUnit, before: Mapping[str, Bytes], seed: int = 0
) -> Iterator[Input]:
    """Changed inputs of a unit, the same ones for the same seed; what would change nothing is left out."""
    for name, change in _MEMORY.items():
        changed = _changed(unit, before, change, np.random.default_rng(seed))
        if changed is not None:
            yield Input(name, unit, changed)
    yield from _reordered(unit, before, seed)
    nbytes = 1 + sum(data.nbytes for data in before.values())
    most = min(_MOST_SCALARS, max(_LEAST_SCALARS, _BYTES // nbytes))
    for name, arguments in islice(_scalars(parameters, unit.arguments), most):
        yield Input(name, replace(unit, arguments=arguments), before)


def values(unit: ReplayUnit, before: Mapping[str, Bytes], seed: int = 0) -> Iterator[Input]:
    """Those of the changed inputs that leave a kernel as much to do as it had: floats changed, the most first, else
    integers in another order."""
    for spread in reversed(_SPREADS):
        name = _JITTERED.format(spread)
        changed = _changed(unit, before, _MEMORY[name], np.random.default_rng(seed))
        if changed is not None:
            yield Input(name, unit, changed)
    yield from _reordered(unit, before, seed)


# -- memory ---------------------------------------------------------------------------------------------------------


def _jittered(spread: float) -> Change:
    def change(values: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            moved = (values * (1 + chance.uniform(-spread, spread, values.shape))).astype(values.dtype)
        return np.where(np.isfinite(moved), moved, values)

    return change


def _some(special: Callable[[NDArray[Any]], Any]) -> Change:
    """Put a special value at one element in a hundred, and at one at least."""

    def change(values: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
        found = values.copy()
        if found.size:
            found[chance.integers(0, found.size, max(1, found.size // 100))] = special(found)
        return found

    return change


def _denormal(values: NDArray[Any]) -> Any:
    return np.finfo(values.dtype).tiny / 2


_MEMORY: dict[str, Change] = {
    **{_JITTERED.format(spread): _jittered(spread) for spread in _SPREADS},
    "denormal numbers": _some(_denormal),
    "infinities": _some(lambda values: np.inf),
    "NaN": _some(lambda values: np.nan),
}


def _changed(
    unit: ReplayUnit, before: Mapping[str, Bytes], change: Change, chance: np.random.Generator
) -> dict[str, Bytes] | None:
    """Memory with all its floats changed; None where that is as it was."""
    found = dict(before)
    for buffer in _plain_buffers(unit):
        if buffer.dtype in _FLOATS:
            found[buffer.name] = _with_floats(before[buffer.name], buffer.dtype, lambda v: change(v, chance))
    same = all(np.array_equal(found[name], before[name]) for name in before)
    return None if same else found


def _with_floats(data: Bytes, dtype: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Bytes:
    if dtype == "bfloat16":
        wide = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return _frozen((change(wide).view(np.uint32) >> 16).astype(np.uint16))
    return _frozen(change(data.view(_FLOATS[dtype])))


def _reordered(unit: ReplayUnit, before: Mapping[str, Bytes], seed: int) -> Iterator[Input]:
    shuffled = _shuffled(unit, before, np.random.default_rng(seed))
    if shuffled is not None:
        yield Input("integers in another order", unit, shuffled)


def _shuffled(unit: ReplayUnit, before: Mapping[str, Bytes], chance: np.random.Generator) -> dict[str, Bytes] | None:
    """Memory with the elements of its integer arrays in another order; None where there are none that differ."""
    found = dict(before)
    for buffer in _plain_buffers(unit):
        if buffer.dtype not in _FLOATS and buffer.dtype != "bool":
            found[buffer.name] = _frozen(chance.permutation(before[buffer.name].view(buffer.dtype)))
    same = all(np.array_equal(found[name], before[name]) for name in before)
    return None if same else found


def _plain_buffers(unit: ReplayUnit) -> Iterator[Buffer]:
    """Buffers of whole elements that hold no pointer."""
    holders = {pointer.holder for pointer in unit.pointers}
    for buffer in buffers(unit):
        item = 2 if buffer.dtype == "bfloat16" else np.dtype(buffer.dtype).itemsize
        if buffer.name not in holders and buffer.nbytes and buffer.nbytes % item == 0:
            yield buffer


def _frozen(values: NDArray[Any]) -> Bytes:
    data = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    data.flags.writeable = False
    return data


# -- scalar arguments -------------------------------------------------------------------------------------------------


def _scalars(parameters: Iterable[Parameter], block: bytes) -> Iterator[tuple[str, bytes]]:
    """Argument blocks in which one scalar is another, each with the sentence that says so."""
    for parameter in parameters:
        if parameter.kind != "scalar" or parameter.dtype is None:
            continue
        held = block[parameter.offset : parameter.offset + parameter.size]
        for value in _others(held, parameter.dtype):
            if value != held:
                shown = np.frombuffer(value, parameter.dtype)[0]
                end = parameter.offset + parameter.size
                yield f"{parameter.name or 'an argument'} = {shown}", block[: parameter.offset] + value + block[end:]


def _others(held: bytes, dtype: str) -> Iterator[bytes]:
    if dtype == "bfloat16" or np.dtype(dtype).kind not in "iuf":
        return
    value = np.frombuffer(held, dtype)[0].item()
    if isinstance(value, float):
        others: list[float] = [value * 1.25, -value, value / 3 + 0.5]
    else:
        others = [value - 1, value // 2, 3 * value + 1, _LARGE]
    for other in others:
        try:
            yield np.array(other, dtype).tobytes()
        except OverflowError:
            continue
