"""miniweather from Python: the host program's time loop, with the same kernels, on any device of r3bench.

``python -m kernels.miniweather.driver --device cpu --nx 100 --nz 50 --seconds 60 --case thermal``
"""

from __future__ import annotations

import argparse
from math import ceil
from pathlib import Path

import numpy as np

from kernels.miniweather.reference import HEIGHT, WIDTH, Field, Weather, time_step
from r3bench.record import DeviceArray, Session
from r3bench.record.images import Maker

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]

HALO = 2
BLOCK = (32, 8, 1)
LINE = 128  # threads of a block of the kernels that work on rows, columns or a flat range of cells


def open_session(device: str, module: str, image: Maker | None = None) -> Session:
    """A session whose captures name the kernels by their path in the repository; ``module`` is what is run."""
    return Session("miniweather", HERE, device, top=TOP, command=("python", "-m", module), image=image)


def blocks(threads: int, block: int) -> int:
    return -(-threads // block)


class Model:
    """The state of one run in device memory, and its launches: what ``main.cu`` does, in the same order.

    ``nx`` and ``nz`` count cells; a step of the full length is ``dt`` seconds.
    """

    def __init__(self, session: Session, nx: int, nz: int, weather: Weather) -> None:
        self.session, self.nx, self.nz = session, nx, nz
        self.dx, self.dz, self.dt = WIDTH / nx, HEIGHT / nz, time_step(nx, nz)
        self.module = session.module("kernels.cu")
        self.state = self._zeros("state", (4, nz + 2 * HALO, nx + 2 * HALO), ("variable", "z", "x"))
        self.stage = self._zeros("stage", (4, nz + 2 * HALO, nx + 2 * HALO), ("variable", "z", "x"))
        self.tendency = self._zeros("tendency", (4, nz, nx), ("variable", "inner_z", "inner_x"))
        self.partial = self._zeros("partial", (blocks(nx * nz, LINE), 2), ("block", "total"))
        self.density = self._zeros("density", (nz + 2 * HALO,), ("z",))
        self.density_theta = self._zeros("density_theta", (nz + 2 * HALO,), ("z",))
        self.face_density = self._zeros("face_density", (nz + 1,), ("face",))
        self.face_density_theta = self._zeros("face_density_theta", (nz + 1,), ("face",))
        self.face_pressure = self._zeros("face_pressure", (nz + 1,), ("face",))
        self._start(weather)

    def _zeros(self, name: str, shape: tuple[int, ...], dims: tuple[str, ...]) -> DeviceArray:
        return self.session.array(name, np.zeros(shape), dims=dims)

    def _start(self, weather: Weather) -> None:
        grid = (blocks(self.nx + 2 * HALO, BLOCK[0]), blocks(self.nz + 2 * HALO, BLOCK[1]), 1)
        rest = (self.density, self.density_theta, self.face_density, self.face_density_theta, self.face_pressure)
        case = 0 if weather == "thermal" else 1
        args = (self.state, *rest, self.dx, self.dz, self.nx, self.nz, case)
        self.session.launch(self.module, "initial_state", grid, BLOCK, args)
        self.stage.values[...] = self.state.values

    def step(self, n: int, dt: float | None = None) -> None:
        """Time step number ``n`` (from 0): both directions, the first of them changing from step to step."""
        for direction in ("xz", "zx")[n % 2]:
            self._sweep(direction == "x", self.dt if dt is None else dt)

    def _sweep(self, along_x: bool, dt: float) -> None:
        self._advance(along_x, self.state, self.stage, dt / 3)
        self._advance(along_x, self.stage, self.stage, dt / 2)
        self._advance(along_x, self.stage, self.state, dt)

    def _advance(self, along_x: bool, forcing: DeviceArray, result: DeviceArray, dt: float) -> None:
        """``result`` = state + ``dt`` * tendency of ``forcing`` along one direction."""
        size = (self.nx, self.nz)
        grid = (blocks(self.nx, BLOCK[0]), blocks(self.nz, BLOCK[1]), 1)
        if along_x:
            self._line("halo_x", self.nz, (forcing, *size))
            rest = (self.density, self.density_theta)
            args = (forcing, *rest, self.tendency, self.dx, dt, *size)
            self.session.launch(self.module, "tendencies_x", grid, BLOCK, args)
        else:
            self._line("halo_z", self.nx + 2 * HALO, (forcing, self.density, *size))
            faces = (self.face_density, self.face_density_theta, self.face_pressure)
            args_z = (forcing, *faces, self.tendency, self.dz, dt, *size)
            self.session.launch(self.module, "tendencies_z", grid, BLOCK, args_z)
        self.session.launch(self.module, "update", grid, BLOCK, (self.state, self.tendency, result, dt, *size))

    def _line(self, kernel: str, threads: int, args: tuple[object, ...]) -> None:
        self.session.launch(self.module, kernel, (blocks(threads, LINE), 1, 1), (LINE, 1, 1), args)

    def totals(self) -> tuple[float, float]:
        """Mass in kg/m and energy in J/m, the blocks' parts added up here."""
        rest = (self.density, self.density_theta)
        args = (self.state, *rest, self.partial, self.dx, self.dz, self.nx, self.nz)
        self._line("diagnostics", self.nx * self.nz, args)
        mass, energy = self.partial.values.sum(axis=0)
        return float(mass), float(energy)

    @property
    def inner_state(self) -> Field:
        """A copy of the state without ghost cells, (4, nz, nx)."""
        return np.array(self.state.values[:, HALO:-HALO, HALO:-HALO])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--nx", type=int, default=100)
    parser.add_argument("--nz", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--case", choices=("thermal", "gravity"), default="thermal")
    options = parser.parse_args()
    with open_session(options.device, "kernels.miniweather.driver") as session:
        model = Model(session, options.nx, options.nz, options.case)
        mass, energy = model.totals()
        steps = ceil(options.seconds / model.dt)
        for n in range(steps):
            model.step(n, options.seconds / steps)
        mass_end, energy_end = model.totals()
    print(
        f"cells          {options.nx} x {options.nz}\nsteps          {steps} of {options.seconds / max(steps, 1):.6g} s"
    )
    print(f"mass change    {(mass_end - mass) / mass:.3e}\nenergy change  {(energy_end - energy) / energy:.3e}")


if __name__ == "__main__":
    main()
