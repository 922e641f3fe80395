"""The independent NumPy scheme of miniweather: does it solve the equations it claims to solve?"""

from __future__ import annotations

import numpy as np
import pytest

from kernels.miniweather import reference as ref

WEATHERS: tuple[ref.Weather, ...] = ("thermal", "gravity")


def test_stencils_are_exact_for_cubic_polynomials() -> None:
    edges = np.arange(-2.0, 3.0)
    polynomial = np.polynomial.Polynomial([0.3, -1.0, 2.0, 0.7])
    averages = np.diff(polynomial.integ()(edges))
    assert ref.VALUE @ averages == pytest.approx(polynomial(0.0), rel=1e-14)
    assert ref.THIRD @ averages == pytest.approx(polynomial.deriv(3)(0.0), rel=1e-14)


@pytest.mark.parametrize("weather", WEATHERS)
def test_air_at_rest_is_hydrostatic(weather: ref.Weather) -> None:
    z, step = np.linspace(100.0, 9900.0, 50), 1.0
    density, density_theta, pressure = ref.at_rest(z, weather)
    slope = (ref.at_rest(z + step, weather)[2] - ref.at_rest(z - step, weather)[2]) / (2 * step)
    np.testing.assert_allclose(slope, -density * ref.G, rtol=1e-7)
    np.testing.assert_allclose(ref.adiabatic_pressure(density_theta), pressure, rtol=1e-13)


def test_buoyancy_frequency_is_constant_in_the_gravity_wave_case() -> None:
    z, step = np.linspace(100.0, 9900.0, 50), 1.0
    log_theta = [
        np.log(theta / density) for density, theta, _ in (ref.at_rest(z + d, "gravity") for d in (-step, step))
    ]
    np.testing.assert_allclose(ref.G * (log_theta[1] - log_theta[0]) / (2 * step), ref.N2, rtol=1e-8)


@pytest.mark.parametrize("weather", WEATHERS)
def test_undisturbed_air_stays_at_rest(weather: ref.Weather) -> None:
    rest, density = ref.background(20, weather), ref.background(20, weather, ghosts=2).density
    still = np.zeros((4, 20, 10))
    assert np.abs(ref.tendencies_x(still, rest, 1.0)).max() < 1e-12
    assert np.abs(ref.tendencies_z(still, rest, density, 1.0)).max() < 1e-12


def test_flow_along_x_is_of_fourth_order() -> None:
    """d(rho)/dt = -d(rho u)/dx, whose cell averages are known where the momentum is a sine."""

    def error(nx: int) -> float:
        edges = np.linspace(0.0, 2 * np.pi, nx + 1)
        averages = -np.diff(np.cos(edges)) * nx / (2 * np.pi)  # of sin over each cell
        state = np.zeros((4, 1, nx))
        state[1] = averages
        no_damping = 1e30
        slope = ref.tendencies_x(state, ref.background(1, "thermal"), no_damping)[0, 0]
        exact = -np.diff(np.sin(edges)) * nx / ref.WIDTH
        return float(np.abs(slope - exact).max() / np.abs(exact).max())

    assert np.log2(error(16) / error(32)) == pytest.approx(4.0, abs=0.2)


@pytest.mark.parametrize("weather", WEATHERS)
def test_mass_and_energy_are_conserved(weather: ref.Weather) -> None:
    nx, nz = 60, 30
    start, rest = ref.initial_state(nx, nz, weather), ref.background(nz, weather)
    end = ref.run(start, weather, steps=int(300 / ref.time_step(nx, nz)))
    (mass, energy), (mass_end, energy_end) = ref.totals(start, rest), ref.totals(end, rest)
    assert abs(mass_end - mass) < 1e-12 * mass
    assert abs(energy_end - energy) < 1e-4 * energy
    assert np.abs(end - start).max() > 0.1


def test_the_thermal_rises_and_stays_symmetric() -> None:
    nx, nz = 60, 30
    start = ref.initial_state(nx, nz, "thermal")
    end = ref.run(start, "thermal", steps=int(300 / ref.time_step(nx, nz)))

    def height(state: ref.Field) -> float:
        warm = np.maximum(state[3] - 0.1, 0.0)
        return float((warm.sum(axis=1) @ (np.arange(nz) + 0.5)) / warm.sum() * ref.HEIGHT / nz)

    assert height(start) == pytest.approx(2000.0, abs=50.0)
    assert 300.0 < height(end) - height(start) < 3000.0
    mirror = np.array([1.0, -1.0, 1.0, 1.0])[:, None, None]
    np.testing.assert_allclose(end, mirror * end[:, :, ::-1], atol=1e-9)
