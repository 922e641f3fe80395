"""Two kernels whose best speedup is known: one written to be slow, one that nothing improves.

``record_slow`` and ``record_best`` record a capture of each, with three units, into a folder. The kernels' texts are
copied there too, so that the folder can serve as the repository whose working tree is searched.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from kernels.miniweather import reference as ref
from r3bench.devices import Device
from r3bench.model import Capture
from r3bench.record import Session
from r3bench.record.session import Builder

HERE = Path(__file__).resolve().parent
SLOW, BEST = "slow_tendencies", "copy_state"
SLOW_SPEEDUP = 1.3  # what the search must regain at least
COPIED = (1 << 18, 1 << 17, 100_003)  # elements


def record_slow(folder: Path, device: str | Device = "cpu", compiler: Builder | None = None) -> Capture:
    """A capture of ``slow_tendencies`` on thermals: two times of one run, then another grid."""
    with _session("slow_tendencies.cu", folder, device, compiler) as session:
        session.capture(SLOW, occurrences=range(3))
        for nx, nz, steps in ((80, 40, 20), (80, 40, 5), (52, 26, 10)):
            _launch_slow(session, nx, nz, steps)
        limit = 16 * np.finfo(np.float64).eps * ref.P0 / (ref.WIDTH / 80)  # rounding of the pressure
        (folder / f"{SLOW}.tolerance.toml").write_text(f"[tendency]\nrtol = 1e-12\natol = {limit:.1e}\n")
        return session.save(folder)[0]


def record_best(folder: Path, device: str | Device = "cpu", compiler: Builder | None = None) -> Capture:
    """A capture of ``copy_state`` on three lengths, in the largest blocks there are."""
    random = np.random.default_rng(1)
    with _session("already_best.cu", folder, device, compiler) as session:
        session.capture(BEST, occurrences=range(3))
        module = session.module("already_best.cu")
        for count in COPIED:
            source = session.array("from", random.normal(size=count))
            target = session.array("to", np.zeros(count))
            session.launch(module, BEST, (-(-count // 1024), 1, 1), (1024, 1, 1), (source, target, count))
        return session.save(folder)[0]


def _session(source: str, folder: Path, device: str | Device, compiler: Builder | None) -> Session:
    shutil.copy(HERE / source, folder / source)
    return Session("planted", folder, device, compiler=compiler)


def _launch_slow(session: Session, nx: int, nz: int, steps: int) -> None:
    state = ref.run(ref.initial_state(nx, nz, "thermal"), "thermal", steps)
    rest = ref.background(nz, "thermal", ghosts=2)
    arrays = (
        session.array("state", np.pad(ref.padded_x(state), ((0, 0), (2, 2), (0, 0)))),
        session.array("density", rest.density),
        session.array("density_theta", rest.density_theta),
        session.array("tendency", np.zeros((4, nz, nx))),
    )
    grid = (-(-nx // 32), -(-nz // 8), 1)
    scalars = (ref.WIDTH / nx, ref.time_step(nx, nz), nx, nz)
    session.launch(session.module("slow_tendencies.cu"), SLOW, grid, (32, 8, 1), (*arrays, *scalars))
