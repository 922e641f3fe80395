"""What is measured of a recorded kernel, on a device whose kernels are Python."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from r3bench.compare import Tolerance, default_tolerance, judge
from r3bench.errors import DeviceFault
from r3bench.model import Allocation, LaunchConfig, ReplayUnit, Status
from r3bench.original import MARGIN, MOST_NOISE, Original, observe
from r3bench.testing import FakeDevice, FakeLaunch, Program, fake_binary

N = 32
Run = Callable[[FakeLaunch], None]


def unit(*written: str) -> ReplayUnit:
    return ReplayUnit(
        index=0,
        launch=LaunchConfig(grid=(1, 1, 1), block=(N, 1, 1)),
        arguments=b"",
        pointers=(),
        allocations=tuple(
            Allocation(name=name, address=(1 + at) << 20, nbytes=N * np.dtype(dtype).itemsize, dtype=dtype)
            for at, (name, dtype) in enumerate((("x", "float64"), ("y", "float64"), ("n", "int32")))
        ),
        written=written,
    )


def contents() -> dict[str, Any]:
    chance = np.random.default_rng(3)
    arrays = {"x": chance.random(N), "y": chance.random(N), "n": np.arange(N, dtype=np.int32)}
    return {name: array.view(np.uint8) for name, array in arrays.items()}


def observed(
    run: Run, *written: str, overrides: dict[str, Tolerance] | None = None
) -> tuple[Original | None, dict[str, Any]]:
    """What is found of a program, and what it left when it was recorded."""
    device = FakeDevice({"k": Program(run)})
    before, kernel = contents(), device.load(fake_binary("k"))
    memory = device.allocate(unit(*written), before)
    device.launch(kernel, memory, unit().launch)
    expected = device.download(memory)
    return observe(device, kernel, unit(*written), before, expected, overrides or {}, 1.0), expected


def interior(run: FakeLaunch) -> None:
    """Writes all of x but its ends, from y."""
    run.array("x", "f8")[1:-1] = 2 * run.array("y", "f8")[1:-1]


def in_place(run: FakeLaunch) -> None:
    run.array("x", "f8")[4:] += run.array("y", "f8")[4:]


def test_elements_that_are_not_written_are_exact_and_those_only_written_are_poisoned() -> None:
    found, _ = observed(interior, "x")
    assert found is not None
    assert found.tolerances["x"].exact.edges.tolist() == [0, 1, N - 1, N]
    assert (found.tolerances["x"].rtol, found.noisy) == (default_tolerance("float64").rtol, ())
    before = contents()["x"].view("f8")
    one, other = (probe["x"].view("f8") for probe in found.probes)
    assert one[0] == other[0] == before[0]
    assert (one[1:-1] != before[1:-1]).all()
    assert (one[1:-1] != other[1:-1]).all()
    assert all(np.array_equal(probe["y"], contents()["y"]) for probe in found.probes)


def test_what_is_read_before_it_is_written_is_not_poisoned() -> None:
    found, _ = observed(in_place, "x")
    assert found is not None
    assert found.tolerances["x"].exact.edges.tolist() == [0, 4]
    assert all(np.array_equal(probe["x"], contents()["x"]) for probe in found.probes)


def test_integers_are_poisoned_too() -> None:
    def double(run: FakeLaunch) -> None:
        run.array("n", "i4")[:] = 2 * np.arange(N)

    found, _ = observed(double, "n")
    assert found is not None
    assert not any((probe["n"].view("i4") == contents()["n"].view("i4")).all() for probe in found.probes)


def test_a_kernel_that_does_not_bear_poison_is_judged_without() -> None:
    def by_index(run: FakeLaunch) -> None:
        n = run.array("n", "i4")
        if not ((n >= 0) & (n < N)).all():
            raise DeviceFault("out of bounds")
        n[:] = n[n[::-1]]

    found, _ = observed(by_index, "n")
    assert found is not None
    assert "n" not in found.tolerances
    assert all(np.array_equal(probe["n"], contents()["n"]) for probe in found.probes)


def noisy(by: float) -> Run:
    chance = np.random.default_rng(0)

    def run(launch: FakeLaunch) -> None:
        interior(launch)
        launch.array("x", "f8")[3] *= 1 + by * chance.uniform(0.5, 1)

    return run


def test_the_spread_of_its_own_results_is_what_it_allows() -> None:
    found, expected = observed(noisy(1e-10), "x")
    assert found is not None
    assert found.noisy == ("x",)
    assert 1e-12 < found.tolerances["x"].rtol < MARGIN * 1e-10
    other = {name: data.copy() for name, data in expected.items()}
    other["x"].view("f8")[5] *= 1 + 2e-11
    assert judge(unit("x"), expected, other, found.tolerances).status is Status.MATCH
    other["x"].view("f8")[5] *= 1 + 1e-9
    assert judge(unit("x"), expected, other, found.tolerances).status is Status.MISMATCH


def test_a_kernel_that_never_does_the_same_is_no_measure() -> None:
    assert observed(noisy(10 * MOST_NOISE["float64"]), "x")[0] is None


def test_what_was_written_beside_the_capture_stands() -> None:
    tight = Tolerance(kind="float", rtol=1e-13)
    assert observed(noisy(1e-10), "x", overrides={"x": tight})[0] is None
    wide = Tolerance(kind="float", rtol=1e-7)
    found, _ = observed(noisy(1e-10), "x", overrides={"x": wide})
    assert found is not None
    assert replace(found.tolerances["x"], exact=wide.exact) == wide


def test_a_failure_of_the_recorded_kernel_is_raised() -> None:
    calls = [0]

    def once(run: FakeLaunch) -> None:
        calls[0] += 1
        if calls[0] > 1:
            raise DeviceFault("crashed")
        interior(run)

    with pytest.raises(DeviceFault):
        observed(once, "x")


def test_memories_with_poison_are_kept_until_the_probes_have_the_same() -> None:
    device = FakeDevice({"k": Program(whole)})
    before, kernel = contents(), device.load(fake_binary("k"))
    memory = device.allocate(unit("x"), before)
    device.launch(kernel, memory, unit().launch)
    expected, kept = device.download(memory), []
    device.room_bytes = 1 << 30
    found = observe(device, kernel, unit("x"), before, expected, {}, 1.0, kept)
    assert found is not None
    seen = [held.before["x"].tobytes() for held in kept]
    assert [probe["x"].tobytes() for probe in found.probes] * 2 == seen  # two runs on poison, two to pass
    assert len(kept) == 4
    device.room_bytes = 1
    assert observe(device, kernel, unit("x"), before, expected, {}, 1.0, kept) is not None
    assert len(kept) == 4


def whole(run: FakeLaunch) -> None:
    """Writes all of x without reading it."""
    run.array("x", "f8")[:] = 2 * run.array("y", "f8")
