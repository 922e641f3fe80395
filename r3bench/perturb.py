"""Changed inputs of a recorded launch, to tell a kernel that computes from one that fits what was recorded. Pure.

Most of them stay plausible: floats keep their sign, and zeros stay zeros; integers in memory, which may be indices, are
only put into another order. Those that are ``wild`` take other ways through a kernel than what was recorded: signs,
zeros and flags are others in half of the elements. Pointers are never touched. Whether the recorded kernel accepts an
input is for those to find out who run it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r3bench.compare import Buffer, buffers, default_tolerance, equal
from r3bench.model import Parameter, ReplayUnit

Bytes = NDArray[np.uint8]
Change = Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]

_FLOATS = {"float16": "f2", "float32": "f4", "float64": "f8", "complex64": "f4", "complex128": "f8", "bfloat16": "bf"}
_SPREADS = (0.01, 0.3)
_JITTERED = "floats changed by up to {:.0%}"
# Its square does not fit 32 bits: arithmetic that overflows where the recorded kernel's does not shows.
_LARGE = 65_537
# Integers up to this are taken for flags.
_FEW = 8
# How often memory is nudged: by one of them an element may by chance move too little.
NUDGES = 2
# Each changed input is a unit of its own: of a large one there are fewer, so that all of them take so many bytes.
_MOST_SCALARS, _LEAST_SCALARS, _BYTES = 24, 6, 256 << 20


@dataclass(frozen=True, slots=True)
class Input:
    """One changed input: what was changed, for a person; the unit with its arguments; memory before the launch.

    ``wild``: it takes other ways through the recorded kernel, and may make numbers cancel that did not. ``indices``: it
    may lead it out of its buffers, too, for integers in memory are others than were there.
    """

    name: str
    unit: ReplayUnit
    before: Mapping[str, Bytes]
    wild: bool = False
    indices: bool = False


def inputs(
    parameters: Iterable[Parameter],
    unit: ReplayUnit,
    before: Mapping[str, Bytes],
    seed: int = 0,
    refused: Container[str] = (),
) -> Iterator[Input]:
    """Changed inputs of a unit, the same ones for the same seed; what would change nothing is left out.

    ``refused`` may grow meanwhile by the names of those that the recorded kernel does not take: where all buffers
    cannot be changed in a wild way, each is alone.
    """
    for name, change in _MEMORY.items():
        changed = _changed(_floats(unit), before, change, np.random.default_rng(seed))
        if changed is not None:
            yield Input(name, unit, changed)
    yield from _reordered(unit, before, seed)
    nbytes = 1 + sum(data.nbytes for data in before.values())
    most = min(_MOST_SCALARS, max(_LEAST_SCALARS, _BYTES // nbytes))
    for name, arguments in islice(_scalars(parameters, unit.arguments), most):
        yield Input(name, replace(unit, arguments=arguments), before)
    yield from islice(_wild(unit, before, seed, refused), most)


def values(unit: ReplayUnit, before: Mapping[str, Bytes], seed: int = 0) -> Iterator[Input]:
    """Those of the changed inputs that leave a kernel as much to do as it had: floats changed, the most first, else
    integers in another order."""
    for spread in reversed(_SPREADS):
        name = _JITTERED.format(spread)
        changed = _changed(_floats(unit), before, _MEMORY[name], np.random.default_rng(seed))
        if changed is not None:
            yield Input(name, unit, changed)
    yield from _reordered(unit, before, seed)


# -- memory ---------------------------------------------------------------------------------------------------------


def _jittered(spread: float) -> Change:
    def change(values: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            moved = values * chance.uniform(1 - spread, 1 + spread, values.shape)
            moved = moved.astype(values.dtype, copy=False)
        finite = np.isfinite(moved)
        return moved if finite.all() else np.where(finite, moved, values)

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


def _half(others: Callable[[NDArray[Any], np.random.Generator], NDArray[Any]]) -> Change:
    """Put others in the place of half of the elements, and of one at least."""

    def change(values: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
        chosen = chance.integers(0, 2, values.shape, np.bool_)
        chosen[chance.integers(0, values.size)] = True
        return np.where(chosen, others(values, chance), values).astype(values.dtype, copy=False)

    return change


def _filled(values: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    """Zeros replaced by numbers as there are others, of either sign."""
    zeros = values == 0
    if not zeros.any():
        return values
    there = values[np.isfinite(values) & ~zeros]
    sizes = chance.choice(there, values.shape) if there.size else chance.uniform(0.5, 1.0, values.shape)
    return np.where(zeros, sizes * chance.choice((-1, 1), values.shape), values)


def _within(values: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    """Integers that occur in the array; where they are flags, others from the least to the largest, or 0 or 1."""
    if not _flags(values):
        return chance.choice(values, values.shape)
    several = values.min() + np.arange(1 + int(values.max()) - int(values.min())).astype(values.dtype)
    known = np.union1d(several, np.arange(2, dtype=values.dtype))
    return np.take(known, np.searchsorted(known, values) + chance.integers(1, known.size, values.shape), mode="wrap")


def _beyond(values: NDArray[Any], chance: np.random.Generator) -> NDArray[Any]:
    """Flags just below and above those that occur; other integers as they are."""
    if not _flags(values):
        return values
    ends = values.min(keepdims=True) - 1, values.max(keepdims=True) + 1  # arrays go around where there is no such value
    return chance.choice(np.concatenate(ends), values.shape)


def _flags(values: NDArray[Any]) -> bool:
    """Whether an array of integers holds small ones only, or one only."""
    return bool(max(-int(values.min()), int(values.max())) <= _FEW or values.min() == values.max())


_MEMORY: dict[str, Change] = {
    **{_JITTERED.format(spread): _jittered(spread) for spread in _SPREADS},
    "denormal numbers": _some(_denormal),
    "infinities": _some(lambda values: np.inf),
    "NaN": _some(lambda values: np.nan),
}


# Whether it is floats that are changed, and how.
_WILD: dict[str, tuple[bool, Change]] = {
    "signs turned": (True, _half(lambda values, _: -values)),
    "integers replaced": (False, _half(_within)),
    "zeros filled": (True, _half(_filled)),
    "numbers made zero": (True, _half(lambda values, _: np.zeros_like(values))),
    "flags beyond those recorded": (False, _half(_beyond)),
}


def _wild(unit: ReplayUnit, before: Mapping[str, Bytes], seed: int, refused: Container[str]) -> Iterator[Input]:
    for name, (floats, change) in _WILD.items():
        held = [buffer for buffer in _plain_buffers(unit) if (buffer.dtype in _FLOATS) is floats]
        for what, chosen in ((name, held), *((f"{name} in {buffer.name}", [buffer]) for buffer in held)):
            if chosen is held or (name in refused and len(held) > 1):
                changed = _changed(chosen, before, change, np.random.default_rng(seed))
                if changed is not None:
                    yield Input(what, unit, changed, wild=True, indices=not floats)


def nudged(unit: ReplayUnit, before: Mapping[str, Bytes], margin: float, seed: int) -> Mapping[str, Bytes]:
    """Memory whose floats are each off by up to a ``margin``-th of what a result of their type may be off by."""
    chance, found = np.random.default_rng((1, seed)), dict(before)  # others than those that chose elements to change
    for buffer in _floats(unit):
        nudge = _jittered(default_tolerance(buffer.dtype).rtol / margin)
        found |= _changed([buffer], before, nudge, chance) or {}
    return found


def _changed(
    held: Iterable[Buffer], before: Mapping[str, Bytes], change: Change, chance: np.random.Generator
) -> dict[str, Bytes] | None:
    """Memory with these buffers changed; None where that is as it was."""
    found = {buffer.name: _with(before[buffer.name], buffer.dtype, lambda v: change(v, chance)) for buffer in held}
    same = all(equal(found[name], before[name]) for name in found)
    return None if same else {**before, **found}


def _with(data: Bytes, dtype: str, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Bytes:
    if dtype == "bfloat16":
        wide = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
        return _frozen((change(wide).view(np.uint32) >> 16).astype(np.uint16))
    if dtype == "bool":
        return _frozen(change(data) & 1)
    return _frozen(change(data.view(_FLOATS.get(dtype, dtype))))


def _floats(unit: ReplayUnit) -> Iterator[Buffer]:
    return (buffer for buffer in _plain_buffers(unit) if buffer.dtype in _FLOATS)


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
    same = all(equal(found[name], before[name]) for name in before)
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
    """Argument blocks in which one scalar is another, each with the sentence that says so; of each scalar in turn."""
    for turn in zip_longest(*(_of_scalar(parameter, block) for parameter in parameters)):
        yield from filter(None, turn)


def _of_scalar(parameter: Parameter, block: bytes) -> Iterator[tuple[str, bytes]]:
    if parameter.kind != "scalar" or parameter.dtype is None:
        return
    end = parameter.offset + parameter.size
    held = block[parameter.offset : end]
    for value in dict.fromkeys(_others(held, parameter.dtype)):
        if value != held:
            shown = np.frombuffer(value, parameter.dtype)[0]
            yield f"{parameter.name or 'an argument'} = {shown}", block[: parameter.offset] + value + block[end:]


def _others(held: bytes, dtype: str) -> Iterator[bytes]:
    if dtype == "bfloat16" or np.dtype(dtype).kind not in "iuf":
        return
    value = np.frombuffer(held, dtype)[0].item()
    if isinstance(value, float):
        others: list[float] = [value * 1.25, -value, value / 3 + 0.5]
    else:
        others = [value - 1, value // 2, 3 * value + 1, _LARGE]
        if abs(value) <= _FEW:  # it may choose one of several ways
            others += [value + 1, *range(_FEW + 1)]
    for other in others:
        try:
            yield np.array(other, dtype).tobytes()
        except OverflowError:
            continue
