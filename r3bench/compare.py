"""Expected against actual memory: a verdict that names the first and the worst differing element.

Integers, pointers and everything that the recorded kernel left alone are compared bit by bit. Floats that it wrote may
differ by a tolerance: by dtype, by what was measured of the recorded kernel, or by the file beside the capture.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from r3bench.model import Allocation, Difference, Global, ReplayUnit, Status, Verdict
from r3bench.parts import in_parts

Bytes = NDArray[np.uint8]
Elements = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Some elements of a buffer by number: ``edges`` holds the first and the end of each run in turn, ascending."""

    edges: NDArray[np.int64]

    @classmethod
    def of(cls, chosen: NDArray[np.bool_]) -> Runs:
        """Those that are true."""
        padded = np.concatenate(([False], chosen.reshape(-1), [False]))
        return cls(np.flatnonzero(padded[1:] != padded[:-1]))

    def __bool__(self) -> bool:
        return bool(self.edges.size)

    def hold(self, places: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Which of these elements belong to them."""
        return np.asarray(np.searchsorted(self.edges, places, side="right") % 2 == 1)


NOWHERE = Runs(np.empty(0, np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an element of one buffer may be from what was recorded; the largest of the four limits counts.

    ``rtol`` is a fraction of the element, ``scale`` of the largest finite magnitude in the buffer, ``ulp`` counts units
    in the last place of the element. Elements in ``exact`` must be equal all the same; those in ``ignore`` may hold
    anything.
    """

    kind: Literal["exact", "float"] = "exact"
    rtol: float = 0.0
    scale: float = 0.0
    atol: float = 0.0
    ulp: float = 0.0
    exact: Runs = NOWHERE
    ignore: Runs = NOWHERE


EXACT = Tolerance()

# Wide enough for another order of additions or a contracted multiply-add in a short sum, and several hundred times
# narrower than the next smaller type: single precision in place of double, or half in place of single, is a mismatch.
_BY_DTYPE = {
    "float64": Tolerance(kind="float", rtol=1e-12, scale=1e-14),
    "float32": Tolerance(kind="float", rtol=1e-5, scale=1e-7),
    "float16": Tolerance(kind="float", rtol=4e-3, scale=1e-3),
    "bfloat16": Tolerance(kind="float", rtol=3e-2, scale=8e-3),
}
_MANTISSA_BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
_SMALLEST_EXPONENT = {"float64": -1022, "float32": -126, "float16": -14, "bfloat16": -126}
_PART = 1 << 20  # bytes compared at once
_PICTURE = (16, 48)  # most rows and columns of a picture of differences
_COMPONENT = {"complex64": "float32", "complex128": "float64"}


def default_tolerance(dtype: str) -> Tolerance:
    """The tolerance of a written buffer of this NumPy dtype (or ``bfloat16``); exact for everything but floats."""
    return _BY_DTYPE.get(component(dtype), EXACT)


def component(dtype: str) -> str:
    """The dtype of the parts of a complex number; any other dtype as it is."""
    return _COMPONENT.get(dtype, dtype)


# -- comparing ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """An allocation or a global, as comparison sees it."""

    name: str
    nbytes: int
    dtype: str
    shape: tuple[int, ...]

    @staticmethod
    def of(held: Allocation | Global) -> Buffer:
        name = held.name if isinstance(held, Allocation) else held.symbol
        return Buffer(name=name, nbytes=held.nbytes, dtype=held.dtype, shape=held.shape)


def buffers(unit: ReplayUnit) -> tuple[Buffer, ...]:
    """Everything a unit holds in device memory: its allocations, then its globals."""
    return (*map(Buffer.of, unit.allocations), *map(Buffer.of, unit.globals))


def judge(
    unit: ReplayUnit,
    expected: Mapping[str, Bytes],
    actual: Mapping[str, Bytes],
    tolerances: Mapping[str, Tolerance] | None = None,
) -> Verdict:
    """MATCH or MISMATCH for the whole memory of a unit after a launch.

    ``expected`` and ``actual`` hold the bytes of every allocation and global by name; ``tolerances`` overrides the
    default per buffer, but never for a buffer that the recorded kernel did not write.
    """
    found = (
        differences(expected[buffer.name], actual[buffer.name], buffer, tolerance_of(unit, buffer, tolerances or {}))
        for buffer in buffers(unit)
    )
    return verdict_of(unit, tuple(difference for difference in found if difference is not None))


def tolerance_of(unit: ReplayUnit, buffer: Buffer, overrides: Mapping[str, Tolerance]) -> Tolerance:
    """What one buffer of a unit may differ by: nothing, if the recorded kernel did not write it."""
    if buffer.name not in unit.written:
        return EXACT
    return overrides.get(buffer.name, default_tolerance(buffer.dtype))


def verdict_of(unit: ReplayUnit, found: tuple[Difference, ...]) -> Verdict:
    """The verdict that belongs to these differences; none of them is a match."""
    if not found:
        return Verdict(status=Status.MATCH)
    return Verdict(status=Status.MISMATCH, detail=" ".join(_sentence(unit, each) for each in found), differences=found)


def differences(
    expected: Bytes, actual: Bytes, buffer: Buffer | Allocation | Global, tolerance: Tolerance
) -> Difference | None:
    """How one buffer differs beyond its tolerance; None if it does not.

    A buffer whose size is not a whole number of its elements is compared exactly, byte by byte. NaN equals NaN only
    where NaN was expected, and an infinity only the same infinity.
    """
    held = buffer if isinstance(buffer, Buffer) else Buffer.of(buffer)
    if equal(expected, actual):
        return None
    dtype, shape = _view_as(held)
    before, now = _bits(expected, dtype), _bits(actual, dtype)
    places = np.flatnonzero(before != now)
    if tolerance.ignore:
        places = places[~tolerance.ignore.hold(places)]
    if tolerance.kind == "exact" or dtype not in _BY_DTYPE:
        error = _distance(_values(before[places], dtype), _values(now[places], dtype))
        limit = np.zeros(places.size)
    else:
        wanted, got = _values(before[places], dtype), _values(now[places], dtype)
        error = _float_distance(wanted, got)
        untouched = tolerance.exact.hold(places)
        limit = np.where(untouched, 0.0, _limit(wanted, dtype, tolerance, before))
        outside = untouched | (error > limit)
        places, error, limit = places[outside], error[outside], limit[outside]
    if not places.size:
        return None
    return _difference(held.name, dtype, shape, before, now, places, error, limit)


def equal(expected: Bytes, actual: Bytes) -> bool:
    """Whether all bytes are equal, part by part: what NumPy notes of each then stays in the cache; twice as fast."""
    if expected.size != actual.size:
        return False
    dtype = "u1" if expected.size % 8 else "u8"  # as few elements as possible
    wanted, got = (np.ascontiguousarray(data).view(dtype) for data in (expected, actual))
    step = _PART // wanted.itemsize
    return all(np.array_equal(wanted[at : at + step], got[at : at + step]) for at in range(0, wanted.size, step))


def elements(data: Bytes, buffer: Buffer) -> Elements:
    """The elements that are compared, as unsigned integers of their size: equal bits are equal elements."""
    return _bits(data, _view_as(buffer)[0])


def compared_shape(buffer: Buffer) -> tuple[int, ...]:
    """The shape in which elements are counted: complex numbers are pairs, one dimension where none was given."""
    return _view_as(buffer)[1]


def largest(data: Bytes, buffer: Buffer) -> float:
    """The largest finite magnitude among a buffer's elements."""
    dtype, _ = _view_as(buffer)
    return _largest(_values(_bits(data, dtype), dtype))


def deviation(expected: Bytes, actual: Bytes, buffer: Buffer) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The absolute difference of every element of a float buffer, and the magnitude expected of it (0: not finite)."""
    dtype, _ = _view_as(buffer)
    wanted = _values(_bits(expected, dtype), dtype)
    return _float_distance(wanted, _values(_bits(actual, dtype), dtype)), _magnitude(wanted)


def non_finite(data: Bytes, buffer: Buffer) -> NDArray[np.bool_]:
    """Which elements of a buffer are infinite or NaN; none where it holds no floats."""
    dtype, _ = _view_as(buffer)
    values = _values(_bits(data, dtype), dtype)
    return ~np.isfinite(values) if dtype in _BY_DTYPE else np.zeros(values.size, np.bool_)


# -- for a device that compares where the bytes are -------------------------------------------------------------------


def element_type(buffer: Buffer, tolerance: Tolerance) -> tuple[str, int, bool]:
    """The dtype a buffer is compared in, the bytes of an element, and whether its elements may differ by a limit."""
    dtype, _ = _view_as(buffer)
    return dtype, _item_bytes(dtype), tolerance.kind == "float" and dtype in _BY_DTYPE


def largest_limit(expected: Bytes, dtype: str, tolerance: Tolerance) -> float:
    """The part of the limit that is the same for every element of a float buffer: what ``scale`` comes to."""
    return tolerance.scale * _largest(_values(_bits(expected, dtype), dtype)) if tolerance.scale else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a device counted in one buffer: element numbers of the first and the worst, and the bytes found there."""

    count: int
    first: int
    worst: int
    first_bytes: bytes
    worst_bytes: bytes
    error: float


def difference_found(expected: Bytes, buffer: Buffer, tolerance: Tolerance, found: Found) -> Difference:
    """The same as :func:`differences` makes, from what a device found."""
    dtype, shape = _view_as(buffer)
    before = _bits(expected, dtype)
    first, worst = (_bits(np.frombuffer(data, np.uint8), dtype) for data in (found.first_bytes, found.worst_bytes))
    wanted = before[found.worst : found.worst + 1]
    tolerant = element_type(buffer, tolerance)[2] and not tolerance.exact.hold(np.array([found.worst]))[0]
    return Difference(
        buffer=buffer.name,
        count=found.count,
        elements=int(before.size),
        first=_index(found.first, shape),
        first_expected=_text(before, found.first, dtype),
        first_actual=_text(first, 0, dtype),
        worst=_index(found.worst, shape),
        worst_expected=_text(before, found.worst, dtype),
        worst_actual=_text(worst, 0, dtype),
        error=found.error,
        limit=float(_limit(_values(wanted, dtype), dtype, tolerance, before)[0]) if tolerant else 0.0,
    )


# -- elements ---------------------------------------------------------------------------------------------------------


def _view_as(buffer: Buffer) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape to compare in: complex numbers as pairs, odd sizes as bytes, one dimension if in doubt."""
    dtype = component(buffer.dtype)
    whole = _item_bytes(buffer.dtype)
    if buffer.nbytes % whole:
        return "uint8", (buffer.nbytes,)
    count = buffer.nbytes // whole
    shape = buffer.shape if buffer.shape and prod(buffer.shape) == count else (count,)
    return dtype, shape if dtype == buffer.dtype else (*shape, 2)


def _item_bytes(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def _bits(data: Bytes, dtype: str) -> Elements:
    """Elements as unsigned integers of their size, so that comparing them is comparing bits."""
    return np.ascontiguousarray(data).view(f"u{_item_bytes(dtype)}")


def _values(bits: Elements, dtype: str) -> Elements:
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    # A bool may hold any byte; as numbers, 2 and 1 must still differ.
    return bits if dtype == "bool" else bits.view(dtype)


def _distance(wanted: Elements, got: Elements) -> NDArray[np.float64]:
    """Absolute differences, right for the whole range of 64-bit integers too."""
    if wanted.dtype.kind == "f":
        return _float_distance(wanted, got)
    unsigned = wanted.dtype.str.replace("i", "u")
    high, low = np.maximum(wanted, got).view(unsigned), np.minimum(wanted, got).view(unsigned)
    return np.asarray(high - low, dtype=np.float64)


def _float_distance(wanted: Elements, got: Elements) -> NDArray[np.float64]:
    """Absolute differences; infinite where one is NaN or infinite and the other is not the same."""
    a, b = wanted.astype(np.float64), got.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    error[same] = 0.0
    error[~same & ~(np.isfinite(a) & np.isfinite(b))] = np.inf
    return error


def _limit(wanted: Elements, dtype: str, tolerance: Tolerance, whole: Elements) -> NDArray[np.float64]:
    size = _magnitude(wanted)
    limit = np.maximum(tolerance.atol, tolerance.rtol * size)
    if tolerance.scale:
        limit = np.maximum(limit, tolerance.scale * _largest(_values(whole, dtype)))
    if tolerance.ulp:
        exponent = np.where(size > 0, np.frexp(size)[1] - 1, _SMALLEST_EXPONENT[dtype])
        exponent = np.maximum(exponent, _SMALLEST_EXPONENT[dtype])
        limit = np.maximum(limit, tolerance.ulp * np.ldexp(1.0, exponent - _MANTISSA_BITS[dtype]))
    return np.asarray(limit, dtype=np.float64)


def _magnitude(values: Elements) -> NDArray[np.float64]:
    """Absolute values; 0 for what is not finite."""
    return np.abs(np.nan_to_num(values.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))


def _largest(values: Elements) -> float:
    return max(in_parts(lambda part: _largest_of(values[part]), values.size), default=0.0)


def _largest_of(values: Elements) -> float:
    found = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    return found if np.isfinite(found) else _largest_of(values[np.isfinite(values)])


def _difference(
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    before: Elements,
    now: Elements,
    places: NDArray[np.intp],
    error: NDArray[np.float64],
    limit: NDArray[np.float64],
) -> Difference:
    at = int(np.argmax(error))
    first, worst = int(places[0]), int(places[at])
    return Difference(
        buffer=name,
        count=int(places.size),
        elements=int(before.size),
        first=_index(first, shape),
        first_expected=_text(before, first, dtype),
        first_actual=_text(now, first, dtype),
        worst=_index(worst, shape),
        worst_expected=_text(before, worst, dtype),
        worst_actual=_text(now, worst, dtype),
        error=float(error[at]),
        limit=float(limit[at]),
        picture=picture(places, shape),
    )


def picture(places: NDArray[np.intp], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Where these elements lie in a buffer, coarsely: see :class:`~r3bench.model.Difference`.

    The last dimension lies along a row, all others count as rows.
    """
    rows, columns = prod(shape[:-1]), shape[-1]
    high, wide = min(rows, _PICTURE[0]), min(columns, _PICTURE[1])
    cells = np.zeros((2, high, wide))
    row, column = places // columns * high // rows, places % columns * wide // columns
    np.add.at(cells[0], (row, column), 1)
    cells[1] = np.outer(_parts(rows, high), _parts(columns, wide))
    tenths = np.minimum(10 * cells[0] // cells[1], 9).astype(int)
    shown = np.where(cells[0] > 0, tenths.astype(str), ".")
    return tuple("".join(line) for line in shown)


def _parts(length: int, parts: int) -> NDArray[np.int64]:
    """How many of so many elements lie in each part, element n being in part ``n * parts // length``."""
    return np.diff(-(-np.arange(parts + 1) * length // parts))


def _index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(place, shape))


def _text(bits: Elements, place: int, dtype: str) -> str:
    """The shortest text that gives the element back; a NaN with its bits."""
    element = bits[place : place + 1]
    value = _values(element, dtype)[0]
    if value != value:
        return f"nan({int(element[0]):#x})"
    return str(value)


def _sentence(unit: ReplayUnit, found: Difference) -> str:
    index = ", ".join(map(str, found.first))
    text = (
        f"{found.buffer}[{index}] is {found.first_actual} instead of {found.first_expected} "
        f"({found.count} of {found.elements} elements differ, by at most {found.error:.3g}"
    )
    if found.buffer not in unit.written:
        return text + "; the recorded kernel does not write this buffer)."
    return text + (f", {found.limit:.3g} allowed)." if found.limit else ", compared exactly).")
