"""The equations of miniweather once more, in NumPy, as a check of the kernels.

Written from the equations and not from the kernels: whole fields without ghost cells, face values and third
derivatives from the polynomial through four cell averages, pressure from the adiabatic law in its other form, flow
through the faces as arrays of their own. Fields are float64, (z, x); a state is (4, z, x): deviations of density,
momentum along x, momentum along z and density times potential temperature from air at rest. SI units.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Field = NDArray[np.float64]
Weather = Literal["thermal", "gravity"]

G, R, CP, CV, P0, THETA0 = 9.8, 287.0, 1004.0, 717.0, 1.0e5, 300.0
WIDTH, HEIGHT = 20000.0, 10000.0
WIND, N2 = 20.0, 0.01**2
DAMPED, FASTEST, COURANT = 0.05, 450.0, 1.2

_AROUND = np.arange(-2, 3)  # edges of the four cells around a face, in cell widths


def _stencils() -> tuple[Field, Field]:
    """Weights on four cell averages for the value and the third derivative, at the face in the middle."""
    powers = np.arange(4)
    antiderivative = _AROUND[:, None] ** (powers + 1) / (powers + 1)
    averages = np.diff(antiderivative, axis=0)  # of x^0 .. x^3 over each cell
    coefficients = np.linalg.inv(averages)
    return coefficients[0], factorial(3) * coefficients[3]


VALUE, THIRD = _stencils()


@dataclass(frozen=True)
class Background:
    """Air at rest: averages of the cells, and values at the ``nz + 1`` faces from ground to lid."""

    density: Field
    density_theta: Field
    face_density: Field
    face_density_theta: Field
    face_pressure: Field


def adiabatic_pressure(density_theta: Field) -> Field:
    """p = C (rho theta)^(cp/cv), with C such that p = p0 where temperature and potential temperature agree."""
    gamma = CP / CV
    pressure: Field = P0 ** (1 - gamma) * R**gamma * density_theta**gamma
    return pressure


def at_rest(z: Field, weather: Weather) -> tuple[Field, Field, Field]:
    """Density, density times potential temperature and pressure at the heights ``z`` of hydrostatic air."""
    theta = THETA0 * np.ones_like(z) if weather == "thermal" else THETA0 * np.exp(N2 / G * z)
    fall = z / THETA0 if weather == "thermal" else G / N2 * (1 / THETA0 - 1 / theta)  # integral of dz / theta
    exner = 1 - G / CP * fall
    p = P0 * exner ** (CP / R)
    density = p / (R * exner * theta)
    return density, density * theta, p


def _points(cells: NDArray[np.int64], width: float) -> tuple[Field, Field]:
    """Three Gauss-Legendre points in each cell, (cells, 3), and their weights, which add up to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(3)
    points: Field = (cells[:, None] + 0.5 + nodes / 2) * width
    return points, weights / 2


def background(nz: int, weather: Weather, ghosts: int = 0) -> Background:
    """Air at rest on ``nz`` cells; the cells' averages go on for ``ghosts`` cells below the ground and over the lid."""
    dz = HEIGHT / nz
    z, weights = _points(np.arange(-ghosts, nz + ghosts), dz)
    density, density_theta, _ = at_rest(z, weather)
    return Background(density @ weights, density_theta @ weights, *at_rest(np.linspace(0.0, HEIGHT, nz + 1), weather))


def warmth(x: Field, z: Field, weather: Weather) -> Field:
    """How much warmer than air at rest it is at the start, K."""
    if weather == "thermal":
        distance = np.hypot(x - WIDTH / 2, z - 2000) / 2000
        return np.where(distance < 1, 1.5 * (1 + np.cos(np.pi * distance)), 0.0)
    return 0.5 * np.sin(np.pi * z / HEIGHT) * 1000**2 / (1000**2 + (x - WIDTH / 4) ** 2)


def initial_state(nx: int, nz: int, weather: Weather, ghosts: int = 0) -> Field:
    """The state at the start, (4, nz, nx), with ``ghosts`` more cells on every side."""
    x, weights = _points(np.arange(-ghosts, nx + ghosts), WIDTH / nx)
    z, _ = _points(np.arange(-ghosts, nz + ghosts), HEIGHT / nz)
    density, _, _ = at_rest(z, weather)
    at_points = density[:, None, :, None] * warmth(x[None, :, None, :], z[:, None, :, None], weather)
    state = np.zeros((4, z.shape[0], x.shape[0]))
    state[3] = np.einsum("kiba,b,a->ki", at_points, weights, weights)
    if weather == "gravity":
        state[1] = WIND * (density @ weights)[:, None]
    return state


def padded_x(state: Field) -> Field:
    """Two more columns on both sides: the flow is periodic."""
    return np.pad(state, ((0, 0), (0, 0), (2, 2)), mode="wrap")


def padded_z(state: Field, density: Field) -> Field:
    """Two more rows below and above. ``density`` of air at rest has them already.

    The lowest and highest cell go on unchanged (momentum along x: its velocity), momentum along z is zero.
    """
    out = np.pad(state, ((0, 0), (2, 2), (0, 0)), mode="edge")
    velocity = np.pad(state[1] / density[2:-2, None], ((2, 2), (0, 0)), mode="edge")
    out[1] = velocity * density[:, None]
    out[1, 2:-2] = state[1]
    out[2, :2] = out[2, -2:] = 0.0
    return out


def _faces(padded: Field, weights: Field, axis: int) -> Field:
    """A stencil applied at every face along ``axis``: one more face than there are cells inside."""
    windows = np.lib.stride_tricks.sliding_window_view(padded, 4, axis=axis)
    out: Field = windows @ weights
    return out


def tendencies_x(state: Field, rest: Background, dt: float) -> Field:
    """d(state)/dt by flow along x, (4, nz, nx); ``rest`` without ghost cells, ``dt`` in s sets the hyperviscosity."""
    dx = WIDTH / state.shape[2]
    padded = padded_x(state)
    density, mx, mz, density_theta = _faces(padded, VALUE, 2)
    density = density + rest.density[:, None]
    density_theta = density_theta + rest.density_theta[:, None]
    u = mx / density
    flux = np.stack([mx, mx * u + adiabatic_pressure(density_theta), mz * u, density_theta * u])
    flux += DAMPED / 16 * dx / dt * _faces(padded, THIRD, 2)
    out: Field = -np.diff(flux, axis=2) / dx
    return out


def tendencies_z(state: Field, rest: Background, density: Field, dt: float) -> Field:
    """d(state)/dt by flow along z and by gravity, (4, nz, nx); ``density`` at rest has two ghost cells at both ends."""
    dz = HEIGHT / state.shape[1]
    padded = padded_z(state, density)
    rho, mx, mz, density_theta = _faces(padded, VALUE, 1)
    rho = rho + rest.face_density[:, None]
    density_theta = density_theta + rest.face_density_theta[:, None]
    mz[[0, -1]] = 0.0  # nothing passes ground and lid
    w = mz / rho
    excess = adiabatic_pressure(density_theta) - rest.face_pressure[:, None]
    damping = DAMPED / 16 * dz / dt * _faces(padded, THIRD, 1)
    damping[np.ix_([0, 3], [0, -1])] = 0.0  # nor do mass and heat diffuse through them
    flux = np.stack([mz, mx * w, mz * w + excess, density_theta * w]) + damping
    out: Field = -np.diff(flux, axis=1) / dz
    out[2] -= G * state[0]
    return out


def totals(state: Field, rest: Background) -> tuple[float, float]:
    """Mass in kg/m and energy (kinetic, internal, potential) in J/m; ``rest`` without ghost cells."""
    _, nz, nx = state.shape
    volume = WIDTH / nx * HEIGHT / nz
    density = state[0] + rest.density[:, None]
    kinetic = (state[1] ** 2 + state[2] ** 2) / (2 * density)
    internal = CV / R * adiabatic_pressure(state[3] + rest.density_theta[:, None])
    potential = G * density * ((np.arange(nz) + 0.5) * HEIGHT / nz)[:, None]
    return float(density.sum() * volume), float((kinetic + internal + potential).sum() * volume)


def time_step(nx: int, nz: int) -> float:
    """Seconds by which the stable scheme goes on at once."""
    return COURANT * min(WIDTH / nx, HEIGHT / nz) / FASTEST


def run(state: Field, weather: Weather, steps: int) -> Field:
    """The state ``steps`` full time steps later: three stages a direction, the directions taking turns to be first."""
    _, nz, nx = state.shape
    dt = time_step(nx, nz)
    rest = background(nz, weather)
    density = background(nz, weather, ghosts=2).density
    for step in range(steps):
        for direction in ("xz", "zx")[step % 2]:
            forcing = state
            for part in (dt / 3, dt / 2, dt):
                along_x = direction == "x"
                slope = tendencies_x(forcing, rest, part) if along_x else tendencies_z(forcing, rest, density, part)
                forcing = state + part * slope
            state = forcing
    return state
