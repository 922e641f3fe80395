"""Record the captures of miniweather's seven kernels.

``python -m kernels.miniweather.record`` writes those kept in git to captures/miniweather, ``--large`` larger ones, for
measurements, to captures/large/miniweather.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import float_info

from kernels.miniweather.driver import TOP, Model, open_session
from kernels.miniweather.reference import HEIGHT, P0, WIDTH, Weather
from r3bench.record import Session

# Launches of each kernel in a time step; initial_state has one in all.
LAUNCHES = {"halo_x": 3, "halo_z": 3, "tendencies_x": 3, "tendencies_z": 3, "update": 6, "diagnostics": 1}


Places = tuple[tuple[int, int], ...]  # time step, launch within it


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of the application, and which launches are kept of each kernel."""

    weather: Weather
    nx: int
    nz: int
    kept: Mapping[str, Places]

    @property
    def steps(self) -> int:
        return 1 + max(step for places in self.kept.values() for step, _ in places)


def plan(light: tuple[int, int], heavy: tuple[int, int], other: tuple[int, int], early: int, late: int) -> list[Run]:
    """The runs of one set of captures; ``light``, ``heavy`` and ``other`` are cells along x and z.

    The first launch of a kernel is for the search: ``update``, which costs little a cell, takes the finer grid. The
    last launch of a step's direction writes to the array it starts from, so the second unit of ``update`` has two
    arguments that are one array. The halos take the gravity wave, whose wind crosses the ends of the domain from the
    start: where air is at rest a kernel that copies nothing would be right. Air at rest also keeps the files small.
    """
    start: Places = ((0, 0),)
    once: Places = ((late, 2),)
    twice: Places = ((late, 1), (early, 1))
    flow: dict[str, Places] = {"initial_state": start, "tendencies_x": twice, "tendencies_z": twice}
    sums: dict[str, Places] = {"diagnostics": ((late, 0), (early, 0))}
    edges = {"initial_state": start, "halo_x": twice, "halo_z": twice}
    every = dict.fromkeys(LAUNCHES, once) | {"initial_state": start, "diagnostics": ((late, 0),)}
    return [
        Run(weather="thermal", nx=light[0], nz=light[1], kept={"update": ((early, 0), (early - 1, 5))}),
        Run(weather="thermal", nx=heavy[0], nz=heavy[1], kept=flow | sums),
        Run(weather="gravity", nx=heavy[0], nz=heavy[1], kept=edges),
        Run(weather="gravity", nx=other[0], nz=other[1], kept=every),
    ]


SMALL = plan(light=(160, 80), heavy=(80, 40), other=(52, 26), early=6, late=15)
LARGE = plan(light=(1600, 800), heavy=(1600, 800), other=(1000, 500), early=1, late=2)


def record(session: Session, run: Run, folder: Path) -> None:
    """Run the application in a session of its own and add what is kept of it to the captures in ``folder``."""
    for kernel, places in run.kept.items():
        for step, launch in places:
            label = f"{run.weather} {run.nx}x{run.nz}, step {step}, launch {launch}"
            session.capture(kernel, [step * LAUNCHES.get(kernel, 1) + launch], label=label)
    model = Model(session, run.nx, run.nz, run.weather)
    for n in range(run.steps):
        model.step(n)
        model.totals()
    session.save(folder, add=True)


def tolerances(runs: Sequence[Run]) -> dict[str, str]:
    """How far a changed kernel may stray, as tolerance files by name, where the default is too narrow.

    A momentum's tendency is the difference of two pressures near ``P0``, so whatever rounds them otherwise moves it by
    units in the last place of ``P0`` over the cell's width, however small it is itself. The bound allows 16 of them.
    """
    rounding = 16 * float_info.epsilon * P0
    flow = [run for run in runs if "tendencies_x" in run.kept]
    widths = {
        "tendencies_x": min(WIDTH / run.nx for run in flow),
        "tendencies_z": min(HEIGHT / run.nz for run in flow),
    }
    why = "# Rounding of the pressure, whose differences are all that counts: see kernels/miniweather/record.py."
    return {
        f"{kernel}.tolerance.toml": f"{why}\n[tendency]\nrtol = 1e-12\nscale = 1e-14\natol = {rounding / width:.1e}\n"
        for kernel, width in widths.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--large", action="store_true")
    parser.add_argument(
        "--image", choices=["nvcc", "nvrtc"], help="run and record what this compiler makes of the kernels (CUDA only)"
    )
    options = parser.parse_args()
    out = options.out or TOP / ("captures/large/miniweather" if options.large else "captures/miniweather")
    out.mkdir(parents=True, exist_ok=True)
    runs = LARGE if options.large else SMALL
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".recording-") as folder:
        for run in runs:
            with open_session(options.device, "kernels.miniweather.record", options.image) as session:
                record(session, run, Path(folder))
        for store in sorted(Path(folder).iterdir()):
            shutil.rmtree(out / store.name, ignore_errors=True)
            store.rename(out / store.name)
            print(out / store.name)
    for name, text in tolerances(runs).items():
        (out / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
