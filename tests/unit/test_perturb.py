"""Changed inputs: what is changed, what never is, and that a seed gives them again."""

from __future__ import annotations

import struct
from collections.abc import Container
from typing import Any

import numpy as np
import pytest

from r3bench import perturb
from r3bench.compare import Buffer, default_tolerance, deviation
from r3bench.model import Allocation, LaunchConfig, Parameter, Pointer, ReplayUnit
from r3bench.perturb import Input, inputs

PARAMETERS = (
    Parameter(name="x", offset=0, size=8, kind="pointer", dtype="float64"),
    Parameter(name="n", offset=8, size=4, kind="scalar", dtype="int32"),
    Parameter(name="small", offset=12, size=1, kind="scalar", dtype="int8"),
    Parameter(name="step", offset=16, size=8, kind="scalar", dtype="float64"),
)
FLOATS = np.array([0.0, -0.0, 1.5, -2.0, 1e300, np.inf, 3.0, 4.0])
HALVES = np.array([65504, 1, -2, 0], np.float16)
BRAIN = np.array([0x3F80, 0xC000, 0x7F80, 0], np.uint16)  # 1, -2, infinity, 0
INTEGERS = np.arange(50, dtype=np.int32)
TABLE = np.array([0x7F00_0000_0000, 7], np.uint64)


def changed() -> dict[str, Input]:
    arrays = {"x": FLOATS, "halves": HALVES, "brain": BRAIN, "index": INTEGERS, "table": TABLE}
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(8, 1, 1)),
        arguments=bytes(8) + struct.pack("<ib3xd", 8, 127, 0.25),
        pointers=(Pointer(offset=0, allocation="x"), Pointer(holder="table", offset=0, allocation="x")),
        allocations=tuple(
            Allocation(
                name=name, address=1 << 20, nbytes=a.nbytes, dtype="bfloat16" if name == "brain" else str(a.dtype)
            )
            for name, a in arrays.items()
        ),
    )
    before = {name: array.view(np.uint8) for name, array in arrays.items()}
    found = {each.name: each for each in inputs(PARAMETERS, unit, before)}
    again = {each.name: each for each in inputs(PARAMETERS, unit, before)}
    for name, each in found.items():
        assert all(np.array_equal(data, again[name].before[key]) for key, data in each.before.items())
    return found


@pytest.mark.parametrize("spread", [1, 30])
def test_floats_keep_their_signs_and_zeros_stay(spread: int) -> None:
    held = changed()[f"floats changed by up to {spread}%"].before
    now = held["x"].view(np.float64)
    assert np.array_equal(np.signbit(now), np.signbit(FLOATS))
    assert np.array_equal(now[:2], FLOATS[:2])
    finite = np.isfinite(FLOATS) & (FLOATS != 0)
    assert np.array_equal(np.isfinite(now), np.isfinite(FLOATS))
    assert (now[finite] != FLOATS[finite]).all()
    assert (np.abs(now[finite] / FLOATS[finite] - 1) <= spread / 100).all()
    assert np.isfinite(held["halves"].view(np.float16)).all()
    brain = (held["brain"].view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    assert brain[2] == np.inf
    assert 0.69 <= brain[0] <= 1.3
    assert -2.6 <= brain[1] <= -1.3
    assert np.array_equal(held["index"].view(np.int32), INTEGERS)


def test_special_values_are_put_in_and_integers_shuffled() -> None:
    found = changed()
    assert np.isnan(found["NaN"].before["x"].view(np.float64)).sum() == 1
    assert np.isinf(found["infinities"].before["halves"].view(np.float16)).sum() == 1
    assert 0 < np.abs(found["denormal numbers"].before["x"].view(np.float64)).min(where=FLOATS != 0, initial=1) < 1e-307
    shuffled = found["integers in another order"].before["index"].view(np.int32)
    assert not np.array_equal(shuffled, INTEGERS)
    assert np.array_equal(np.sort(shuffled), INTEGERS)


def test_a_table_of_pointers_is_never_touched() -> None:
    for each in changed().values():
        assert np.array_equal(each.before["table"].view(np.uint64), TABLE)
        assert each.unit.arguments[:8] == bytes(8)


def test_every_scalar_takes_other_values_that_fit_its_type() -> None:
    names = {name for name in changed() if "=" in name}
    assert {"n = 7", "n = 4", "n = 25", "n = 65537", "small = 126", "small = 63", "step = -0.25"} <= names
    modes = set(perturb._others(struct.pack("i", 1), "int32"))
    assert {struct.unpack("i", each)[0] for each in modes} == {*range(9), 65537}
    assert not any(name.startswith("small = 3") for name in names)  # 3 * 127 + 1 is no int8
    block = changed()["n = 65537"].unit.arguments
    assert struct.unpack("<ib3xd", block[8:]) == (65537, 127, 0.25)


def test_no_value_is_tried_twice() -> None:
    one = LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1))
    arguments = bytes(8) + struct.pack("<ib3xd", 1, 0, 0.25)  # 1 - 1 is 1 // 2
    unit = ReplayUnit(index=0, launch=one, arguments=arguments, pointers=(), allocations=())
    names = [each.name for each in inputs(PARAMETERS, unit, {}) if each.name.startswith("n ")]
    assert names == [f"n = {value}" for value in (0, 4, 65537, 2, 3, 5, 6, 7, 8)]


def test_of_large_memory_there_are_fewer_changed_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [name for name in changed() if "=" in name]
    monkeypatch.setattr(perturb, "_BYTES", 1)
    assert [name for name in changed() if "=" in name] == every[:6]


def test_what_would_change_nothing_is_left_out() -> None:
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)),
        arguments=b"",
        pointers=(Pointer(holder="x", offset=0, allocation="x"),),
        allocations=(Allocation(name="x", address=1 << 20, nbytes=16, dtype="int64"),),
    )
    assert list(inputs((), unit, {"x": np.zeros(16, np.uint8)})) == []


# -- other ways through a kernel --------------------------------------------------------------------------------------

ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "flow": np.linspace(0.5, 2.0, 64),
    "zero": np.zeros(64, np.float32),
    "mask": np.ones(64, np.int32),
    "bytes": np.full(64, 255, np.uint8),
    "true": np.ones(64, np.bool_),
    "table": np.arange(1000, 1064),
}


def wild(refused: Container[str] = ()) -> dict[str, dict[str, Any]]:
    """The arrays of each wild input, by its name."""
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)),
        arguments=b"",
        pointers=(),
        allocations=tuple(
            Allocation(name=name, address=1 << 20, nbytes=held.nbytes, dtype=str(held.dtype))
            for name, held in ARRAYS.items()
        ),
    )
    before = {name: held.view(np.uint8) for name, held in ARRAYS.items()}
    return {
        each.name: {name: each.before[name].view(held.dtype) for name, held in ARRAYS.items()}
        for each in inputs((), unit, before, refused=refused)
        if each.wild
    }


def test_signs_are_turned_and_zeros_filled_in_about_half_of_the_elements() -> None:
    found = wild()
    turned = found["signs turned"]["flow"]
    assert 16 < (turned == -ARRAYS["flow"]).sum() < 48
    assert np.array_equal(np.abs(turned), ARRAYS["flow"])
    assert 16 < (found["numbers made zero"]["flow"] == 0).sum() < 48
    filled = found["zeros filled"]["zero"]
    assert 16 < (filled != 0).sum() < 48
    assert filled.min() < 0 < filled.max()
    assert np.array_equal(found["zeros filled"]["flow"], ARRAYS["flow"])


def test_flags_take_other_values_and_other_integers_those_of_the_array() -> None:
    found = wild()
    held, beyond = found["integers replaced"], found["flags beyond those recorded"]
    for name, least in {"mask": 0, "true": 0, "bytes": 0}.items():
        assert 16 < (held[name] != ARRAYS[name]).sum() < 48
        assert held[name].min() == least
    assert set(np.unique(held["bytes"])) == {0, 1, 255}
    assert set(held["table"]) < set(ARRAYS["table"])
    assert set(beyond["mask"]) == {0, 1, 2}
    assert set(beyond["bytes"]) == {0, 254, 255}
    assert np.array_equal(beyond["table"], ARRAYS["table"])


def test_what_all_buffers_do_not_take_each_is_tried_with_alone() -> None:
    assert not any(" in " in name for name in wild())
    alone = wild(refused={"integers replaced"})["integers replaced in mask"]
    assert [name for name, held in ARRAYS.items() if not np.array_equal(alone[name], held)] == ["mask"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nudged_floats_are_off_by_less_than_results_may_be(dtype: str) -> None:
    values = np.array([1.0, -3.0, 0.0, 100.0] * 8, np.float32)
    raw = (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else values.astype(dtype)
    unit = ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(1, 1, 1)),
        arguments=b"",
        pointers=(),
        allocations=(Allocation(name="x", address=1 << 20, nbytes=raw.nbytes, dtype=dtype),),
    )
    held = Buffer.of(unit.allocations[0])
    error, size = deviation(raw.view(np.uint8), perturb.nudged(unit, {"x": raw.view(np.uint8)}, 2.0, 0)["x"], held)
    assert error.max() > 0
    assert (error <= default_tolerance(dtype).rtol * size).all()
