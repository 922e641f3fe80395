"""miniweather: the kernels, run and recorded, against the independent NumPy scheme."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernels.miniweather import reference as ref
from kernels.miniweather.driver import HERE, TOP, Model
from kernels.miniweather.record import Places, Run, record
from r3bench import store
from r3bench.compare import judge
from r3bench.devices import Device, open_device
from r3bench.model import Capture, ReplayUnit, Status, Variant
from r3bench.overrides import tolerances_for
from r3bench.record import Session
from r3bench.replay import replay
from r3bench.toolchain import Compiler

CAPTURES = TOP / "captures" / "miniweather"
KERNELS = ("diagnostics", "halo_x", "halo_z", "initial_state", "tendencies_x", "tendencies_z", "update")
UNITS = [(kernel, index) for kernel in KERNELS for index in range(3)]


# -- recorded epilogues -----------------------------------------------------------------------------------------------


class Recorded:
    """A unit's memory by parameter, typed and shaped, before and after; its scalars; what the runs were made of."""

    def __init__(self, capture: Capture, unit: ReplayUnit) -> None:
        self.weather: ref.Weather = "thermal" if unit.label.startswith("thermal") else "gravity"
        held = {a.name: a for a in unit.allocations}
        before, after = store.contents(capture, unit.index).before, store.expected(capture, unit.index)
        at = {p.offset: p.allocation for p in unit.pointers}
        self.before: dict[str, Any] = {}
        self.after: dict[str, Any] = {}
        for parameter in capture.parameters:
            if parameter.kind == "pointer":
                array = held[at[parameter.offset]]
                self.before[parameter.name] = before[array.name].view(array.dtype).reshape(array.shape)
                self.after[parameter.name] = after[array.name].view(array.dtype).reshape(array.shape)
            else:
                code = {"float64": "<d", "int32": "<i"}[parameter.dtype or ""]
                self.before[parameter.name] = struct.unpack_from(code, unit.arguments, parameter.offset)[0]

    def __getitem__(self, name: str) -> Any:
        return self.before[name]

    @property
    def inner(self) -> ref.Field:
        """The state without ghost cells."""
        return np.array(self["state"][:, 2:-2, 2:-2])

    def rest(self) -> ref.Background:
        return ref.background(self["nz"], self.weather)


def close(actual: ref.Field, expected: ref.Field, ulps: float, absolute: float = 0.0) -> None:
    """Within so many units in the last place of the largest value of each variable, or an absolute bound."""
    axes = tuple(range(1, expected.ndim))
    largest = np.abs(expected).max(axis=axes, keepdims=True)
    limit = np.maximum(ulps * np.finfo(np.float64).eps * largest, absolute)
    assert (np.abs(actual - expected) <= limit).all(), np.abs(actual - expected).max(axis=axes)


def halo_x(r: Recorded) -> None:
    close(r.after["state"][:, 2:-2], ref.padded_x(r.inner), ulps=0)
    close(r.after["state"][:, [0, 1, -2, -1]], r["state"][:, [0, 1, -2, -1]], ulps=0)


def halo_z(r: Recorded) -> None:
    close(r.after["state"], ref.padded_z(r["state"][:, 2:-2], r["density"]), ulps=2)


# Pressure is near 1e5 Pa, its deviation is what counts: rounding it moves a momentum's tendency by so much.
def rounding(width: float) -> float:
    return 8 * np.finfo(np.float64).eps * ref.P0 / width


def tendencies_x(r: Recorded) -> None:
    close(r.after["tendency"], ref.tendencies_x(r.inner, r.rest(), r["dt"]), ulps=2000, absolute=rounding(r["dx"]))


def tendencies_z(r: Recorded) -> None:
    density = ref.background(r["nz"], r.weather, ghosts=2).density
    expected = ref.tendencies_z(r.inner, r.rest(), density, r["dt"])
    close(r.after["tendency"], expected, ulps=2000, absolute=rounding(r["dz"]))


def update(r: Recorded) -> None:
    expected = np.array(r["result"])
    expected[:, 2:-2, 2:-2] = r["start"][:, 2:-2, 2:-2] + r["dt"] * r["tendency"]
    close(r.after["result"], expected, ulps=1)


def initial_state(r: Recorded) -> None:
    nx, nz, rest = r["nx"], r["nz"], ref.background(r["nz"], r.weather, ghosts=2)
    close(r.after["state"], ref.initial_state(nx, nz, r.weather, ghosts=2), ulps=16)
    for name in ("density", "density_theta", "face_density", "face_density_theta", "face_pressure"):
        np.testing.assert_allclose(r.after[name], getattr(rest, name), rtol=32 * np.finfo(np.float64).eps)


def diagnostics(r: Recorded) -> None:
    totals = r.after["partial"].sum(axis=0)
    np.testing.assert_allclose(totals, ref.totals(r.inner, r.rest()), rtol=1e-14)


CHECKS: dict[str, Callable[[Recorded], None]] = {
    "diagnostics": diagnostics,
    "halo_x": halo_x,
    "halo_z": halo_z,
    "initial_state": initial_state,
    "tendencies_x": tendencies_x,
    "tendencies_z": tendencies_z,
    "update": update,
}


@pytest.mark.parametrize(("kernel", "index"), UNITS)
def test_recorded_epilogues_agree_with_the_numpy_scheme(kernel: str, index: int) -> None:
    capture = store.open_capture(CAPTURES / f"{kernel}.zarr")
    CHECKS[kernel](Recorded(capture, capture.units[index]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_that_does_nothing_matches_no_unit(kernel: str) -> None:
    capture = store.open_capture(CAPTURES / f"{kernel}.zarr")
    for unit in capture.units:
        before, after = store.contents(capture, unit.index).before, store.expected(capture, unit.index)
        assert judge(unit, after, before, tolerances_for(capture, unit, after)).status is Status.MISMATCH


def test_the_captures_are_small_and_varied() -> None:
    assert {path.name for path in CAPTURES.glob("*.zarr")} == {f"{kernel}.zarr" for kernel in KERNELS}
    assert sum(path.stat().st_size for path in CAPTURES.rglob("*") if path.is_file()) < 8e6
    for kernel in KERNELS:
        units = store.open_capture(CAPTURES / f"{kernel}.zarr").units
        assert [unit.held_out for unit in units] == [False, True, True]
        assert len({unit.label.split()[1] for unit in units}) == 2
        assert len({unit.label for unit in units}) == 3
        assert kernel == "initial_state" or units[0].occurrence != units[1].occurrence


# -- the driver on the CPU device -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler() as compiler:
        yield compiler


@pytest.fixture(scope="module", params=[{"threads": 2}, {"threads": 1, "reverse": True}], ids=["forward", "reverse"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    device = open_device("cpu", **request.param)
    yield device
    device.close()


@pytest.mark.parametrize("weather", ["thermal", "gravity"])
def test_a_run_conserves_mass_and_energy_and_follows_the_numpy_scheme(
    compiler: Compiler, device: Device, weather: ref.Weather
) -> None:
    nx, nz, seconds = 34, 17, 60.0
    with Session("miniweather", HERE, device, compiler=compiler, top=TOP) as session:
        model = Model(session, nx, nz, weather)
        steps = int(seconds / model.dt)
        mass, energy = model.totals()
        for n in range(steps):
            model.step(n)
        mass_end, energy_end = model.totals()
    assert abs(mass_end - mass) < 1e-12 * mass
    assert abs(energy_end - energy) < 1e-4 * energy
    expected = ref.run(ref.initial_state(nx, nz, weather), weather, steps)
    for variable in range(4):
        largest = np.abs(expected[variable]).max()
        np.testing.assert_allclose(model.inner_state[variable], expected[variable], rtol=0, atol=1e-10 * largest)


def test_recording_keeps_the_launches_that_a_run_names(compiler: Compiler, device: Device, tmp_path: Path) -> None:
    kept: dict[str, Places] = {"update": ((1, 4),), "initial_state": ((0, 0),)}
    for nx, nz in ((20, 12), (12, 10)):
        with Session("miniweather", HERE, device, compiler=compiler, top=TOP) as session:
            record(session, Run(weather="gravity", nx=nx, nz=nz, kept=kept), tmp_path)
    first, second = store.open_capture(tmp_path / "update.zarr").units
    assert (first.label, first.occurrence, first.held_out) == ("gravity 20x12, step 1, launch 4", 10, False)
    assert (second.label, second.occurrence, second.held_out) == ("gravity 12x10, step 1, launch 4", 10, True)
    source = store.open_capture(tmp_path / "initial_state.zarr").source
    assert source is not None
    assert (source.root, source.main) == ("kernels/miniweather", "kernels.cu")
    assert [path for path, _ in source.files] == ["constants.h", "kernels.cu"]


# -- replay -----------------------------------------------------------------------------------------------------------

MUTANTS = [
    ("diagnostics", "(u * u + w * w)", "(u * u)"),
    ("halo_x", "nx + h - HALO, nx", "nx + h - 1, nx"),
    ("halo_z", "highest = 0.0;", ""),
    ("initial_state", "8.0 / 18.0", "8.000001 / 18.0"),
    ("tendencies_x", "7.0 * q[0]", "7.000001 * q[0]"),
    ("tendencies_z", "damping[DENSITY_THETA] = 0.0;", ""),
    ("update", "start[inside] + dt", "start[inside] + 1.0000001 * dt"),
]


@pytest.mark.parametrize(("kernel", "right", "wrong"), MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_replay_tells_a_kernel_from_one_that_is_slightly_wrong(
    compiler: Compiler, device: Device, kernel: str, right: str, wrong: str
) -> None:
    capture = store.open_capture(CAPTURES / f"{kernel}.zarr")
    texts = {path: (HERE / path).read_text() for path in ("constants.h", "kernels.cu")}
    assert texts["kernels.cu"].count(right) == 1
    for main, status in (
        (texts["kernels.cu"], Status.MATCH),
        (texts["kernels.cu"].replace(right, wrong), Status.MISMATCH),
    ):
        variant = Variant(files=tuple((texts | {"kernels.cu": main}).items()))
        for unit in range(3):
            assert replay(capture, variant, device, compiler, unit=unit, timing="none").verdict.status is status
