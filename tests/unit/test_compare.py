"""Which memory counts as equal, and what is said of memory that is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from r3bench.compare import (
    EXACT,
    NOWHERE,
    Runs,
    Tolerance,
    default_tolerance,
    differences,
    judge,
    largest,
    picture,
)
from r3bench.model import Allocation, Difference, Global, LaunchConfig, ReplayUnit, Status

FLOATS = ["float64", "float32", "float16"]


def raw(values: Any, dtype: str) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.asarray(values, dtype)).reshape(-1).view(np.uint8)


def bfloat(values: Any) -> NDArray[np.uint8]:
    """bfloat16 by cutting off the lower half of single precision."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


def held(data: NDArray[np.uint8], dtype: str, shape: tuple[int, ...] = (), name: str = "x") -> Allocation:
    return Allocation(name=name, address=0, nbytes=data.nbytes, dtype=dtype, shape=shape)


def diff(expected: Any, actual: Any, dtype: str, tolerance: Tolerance | None = None) -> Difference | None:
    before = raw(expected, dtype)
    chosen = default_tolerance(dtype) if tolerance is None else tolerance
    return differences(before, raw(actual, dtype), held(before, dtype), chosen)


# -- floats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_may_differ_by_a_few_roundings(dtype: str) -> None:
    eps = np.finfo(dtype).eps
    assert diff([1.0, 2.0], [1.0 + eps, 2.0 - 2 * eps], dtype) is None


@pytest.mark.parametrize(("dtype", "narrow"), [("float64", "float32"), ("float32", "float16")])
def test_a_narrower_type_is_a_mismatch(dtype: str, narrow: str) -> None:
    values = np.linspace(0.1, 1.0, 50).astype(dtype)
    assert diff(values, values.astype(narrow), dtype) is not None


def test_small_elements_may_differ_by_the_rounding_of_large_ones() -> None:
    """A difference of two numbers near 1 that cancels is only good to their rounding."""
    assert diff([1.0, 0.0], [1.0, 5e-15], "float64") is None
    assert diff([1.0, 0.0], [1.0, 5e-14], "float64") is not None


def test_bfloat16_has_its_own_precision() -> None:
    before = bfloat([1.0, 2.0, 3.0])
    near, far = bfloat([1.0078125, 2.0, 3.0]), bfloat([1.125, 2.0, 3.0])
    assert differences(before, near, held(before, "bfloat16"), default_tolerance("bfloat16")) is None
    found = differences(before, far, held(before, "bfloat16"), default_tolerance("bfloat16"))
    assert found is not None
    assert (found.first_expected, found.first_actual, found.error) == ("1.0", "1.125", 0.125)


def test_complex_numbers_are_compared_by_part() -> None:
    found = diff([1 + 2j, 3 + 4j], [1 + 2j, 3 + 5j], "complex64")
    assert found is not None
    assert (found.first, found.first_expected, found.first_actual) == ((1, 1), "4.0", "5.0")


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_equals_nan_only_where_nan_was_expected(dtype: str) -> None:
    other_nan = -np.array(np.nan, dtype)
    assert diff([np.nan, 1], [other_nan, 1], dtype) is None
    assert diff([np.nan, 1], [0.0, 1], dtype) is not None
    assert diff([0.0, 1], [np.nan, 1], dtype) is not None


@pytest.mark.parametrize("dtype", FLOATS)
def test_an_infinity_equals_only_itself(dtype: str) -> None:
    assert diff([np.inf, -np.inf], [np.inf, -np.inf], dtype) is None
    for wrong in (-np.inf, np.finfo(dtype).max, np.nan):
        found = diff([np.inf, 1], [wrong, 1], dtype)
        assert found is not None
        assert found.error == np.inf


def test_an_infinity_in_the_buffer_does_not_widen_the_limit() -> None:
    assert diff([np.inf, 1.0], [np.inf, 2.0], "float64") is not None


@pytest.mark.parametrize("values", [[2, -3, np.nan], [np.inf, -3, 2], [-np.inf, -3], [np.nan, np.inf], [], [-0.0]])
def test_the_largest_is_finite(values: list[float]) -> None:
    data = raw(values, "float64")
    finite = [abs(value) for value in values if np.isfinite(value)]
    assert largest(data, held(data, "float64")) == max(finite, default=0.0)


def test_zeros_of_either_sign_are_equal_numbers_but_not_equal_bits() -> None:
    assert diff([0.0], [-0.0], "float64") is None
    assert diff([0.0], [-0.0], "float64", EXACT) is not None


@pytest.mark.parametrize(
    ("tolerance", "wide", "narrow"),
    [
        (Tolerance(kind="float", rtol=0.1), 4.3, 4.5),
        (Tolerance(kind="float", atol=0.1), 4.09, 4.11),
        (Tolerance(kind="float", scale=0.01), 4.9, 5.1),
        (Tolerance(kind="float", ulp=3), 4 + 3 * 2.0**-50, 4 + 4 * 2.0**-50),
    ],
)
def test_each_limit(tolerance: Tolerance, wide: float, narrow: float) -> None:
    """Expected are 4 and 100: a unit in the last place of 4 is 2**-50."""
    assert diff([4.0, 100.0], [wide, 100.0], "float64", tolerance) is None
    assert diff([4.0, 100.0], [narrow, 100.0], "float64", tolerance) is not None


def test_a_unit_in_the_last_place_of_a_denormal() -> None:
    least = 5e-324
    assert diff([0.0], [2 * least], "float64", Tolerance(kind="float", ulp=2)) is None
    assert diff([0.0], [3 * least], "float64", Tolerance(kind="float", ulp=2)) is not None


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(allow_nan=True, allow_infinity=True))
def test_without_tolerance_only_equal_floats_are_equal(a: float, b: float) -> None:
    assert (diff([a], [b], "float64", Tolerance(kind="float")) is None) == (a == b or (a != a and b != b))


# -- integers and bytes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "expected", "actual", "error"),
    [
        ("int64", -(2**63), 2**63 - 1, 2.0**64),
        ("uint64", 2**64 - 1, 0, 2.0**64),
        ("int64", 2**62, 2**62 + 1, 1.0),
        ("int8", -128, 127, 255.0),
        ("bool", True, False, 1.0),
    ],
)
def test_integers_are_exact_over_their_whole_range(dtype: str, expected: int, actual: int, error: float) -> None:
    found = diff([expected], [actual], dtype, Tolerance(kind="float", rtol=1.0))
    assert found is not None
    assert (found.error, found.limit) == (error, 0.0)


def test_a_size_that_is_no_whole_number_of_elements_is_compared_by_byte() -> None:
    before = np.arange(11, dtype=np.uint8)
    now = before.copy()
    now[10] = 0
    found = differences(before, now, held(before, "float64"), default_tolerance("float64"))
    assert found is not None
    assert (found.first, found.elements, found.first_expected) == ((10,), 11, "10")


# -- what is said ---------------------------------------------------------------------------------------------------


def test_first_worst_and_count_by_index_of_the_shape() -> None:
    before = np.arange(24.0).reshape(2, 3, 4)
    now = before.copy()
    now[0, 1, 2] += 0.5
    now[1, 2, 3] -= 2
    now[1, 0, 0] += 1e-14
    found = differences(raw(before, "f8"), raw(now, "f8"), held(raw(before, "f8"), "float64", (2, 3, 4)), EXACT)
    assert found is not None
    assert (found.count, found.elements) == (3, 24)
    assert (found.first, found.first_expected, found.first_actual) == ((0, 1, 2), "6.0", "6.5")
    assert (found.worst, found.worst_expected, found.worst_actual, found.error) == ((1, 2, 3), "23.0", "21.0", 2.0)
    within = default_tolerance("float64")
    found = differences(raw(before, "f8"), raw(now, "f8"), held(raw(before, "f8"), "float64", (2, 3, 4)), within)
    assert found is not None
    assert found.count == 2
    assert found.limit == pytest.approx(23e-12)


def test_a_nan_is_shown_with_its_bits() -> None:
    found = diff([1.0], [np.nan], "float32")
    assert found is not None
    assert found.first_actual == "nan(0x7fc00000)"


# -- a whole unit ---------------------------------------------------------------------------------------------------


def unit(*, written: tuple[str, ...]) -> ReplayUnit:
    return ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)),
        arguments=b"",
        pointers=(),
        allocations=(
            Allocation(name="x", address=0, nbytes=16, dtype="float64", shape=(2,)),
            Allocation(name="y", address=64, nbytes=16, dtype="float64", shape=(2,)),
        ),
        globals=(Global(symbol="total", nbytes=4, dtype="int32"),),
        written=written,
    )


def memory(x: float = 1.0, y: float = 1.0, total: int = 0) -> dict[str, NDArray[np.uint8]]:
    return {"x": raw([x, 2.0], "f8"), "y": raw([y, 2.0], "f8"), "total": raw([total], "i4")}


def test_equal_memory_matches() -> None:
    assert judge(unit(written=("x",)), memory(), memory()).status is Status.MATCH


def test_a_written_float_has_tolerance_and_an_unwritten_one_has_none() -> None:
    near = 1.0 + 1e-15
    assert judge(unit(written=("x",)), memory(), memory(x=near)).status is Status.MATCH
    verdict = judge(unit(written=("x",)), memory(), memory(y=near), {"y": Tolerance(kind="float", atol=1)})
    assert verdict.status is Status.MISMATCH
    assert "y[0] is 1.000000000000001 instead of 1.0" in verdict.detail
    assert "does not write" in verdict.detail


def test_globals_are_compared() -> None:
    verdict = judge(unit(written=("total",)), memory(), memory(total=3))
    assert [found.buffer for found in verdict.differences] == ["total"]
    assert verdict.detail == "total[0] is 3 instead of 0 (1 of 1 elements differ, by at most 3, compared exactly)."


def test_every_buffer_that_differs_is_named() -> None:
    verdict = judge(unit(written=("x",)), memory(), memory(x=5, y=5, total=5))
    assert [found.buffer for found in verdict.differences] == ["x", "y", "total"]


# -- single elements --------------------------------------------------------------------------------------------------


def test_runs_know_their_elements() -> None:
    chosen = np.array([True, True, False, False, True, False, True])
    runs = Runs.of(chosen)
    assert runs.edges.tolist() == [0, 2, 4, 5, 6, 7]
    assert np.array_equal(runs.hold(np.arange(7)), chosen)
    assert not NOWHERE
    assert not Runs.of(np.zeros(5, np.bool_))


def test_an_exact_element_of_a_float_buffer_has_no_tolerance() -> None:
    near = [1.0, 2.0 + 4e-16, 3.0]
    assert diff([1.0, 2.0, 3.0], near, "float64") is None
    exact = replace(default_tolerance("float64"), exact=Runs.of(np.array([False, True, False])))
    found = diff([1.0, 2.0, 3.0], near, "float64", exact)
    assert found is not None
    assert (found.count, found.first, found.limit) == (1, (1,), 0.0)
    assert diff([1.0, -0.0, 3.0], [1.0, 0.0, 3.0], "float64", exact) is not None
    assert diff([1.0, 2.0, 3.0], [1.0 + 4e-16, 2.0, 3.0], "float64", exact) is None


def test_an_ignored_element_may_hold_anything() -> None:
    ignoring = replace(default_tolerance("float64"), ignore=Runs.of(np.array([False, True, False])))
    assert diff([1.0, 2.0, 3.0], [1.0, np.nan, 3.0], "float64", ignoring) is None
    found = diff([1.0, 2.0, 3.0], [1.0, np.nan, 4.0], "float64", ignoring)
    assert found is not None
    assert found.count == 1


@pytest.mark.parametrize(
    ("places", "shape", "expected"),
    [
        ([0, 5], (2, 4), ("9...", ".9..")),
        ([3], (4,), ("...9",)),
        ([4, 5, 6, 7], (2, 2, 2), ("..", "..", "99", "99")),
        ([0], (1,), ("9",)),
        ([0, 1, 2], (96,), ("95" + "." * 46,)),
    ],
)
def test_a_picture_shows_where_a_buffer_differs(
    places: list[int], shape: tuple[int, ...], expected: tuple[str, ...]
) -> None:
    assert picture(np.array(places), shape) == expected


def test_a_picture_of_a_large_buffer_is_small_and_loses_nothing() -> None:
    places = np.arange(0, 1_000_000, 1000)  # the first column
    found = picture(places, (1000, 1000))
    assert (len(found), len(found[0])) == (16, 48)
    assert {line[0] for line in found} == {"0"}, "a few of a hundred are still seen"
    assert {line[1:] for line in found} == {"." * 47}
