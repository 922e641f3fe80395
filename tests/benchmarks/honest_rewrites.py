"""Rewrites that change nothing, by the rules of a search, through every level: each that is refused is a false
accusation.

The kernels of tests/device/thirteen.cu are recorded, and all that the rules propose for each is verified on the
recorded launch, on changed inputs and in checked builds. Refused ones are printed with their verdicts; asked for: none.

    python -m tests.benchmarks.honest_rewrites [kernels, all by default]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from r3bench.model import Capture, Status, Variant
from r3bench.record import Session, Struct
from r3bench.rules import Subject, proposals
from r3bench.server import ReplayServer
from tests.benchmarks.machine import describe, judge

SOURCE = Path(__file__).parents[1] / "device" / "thirteen.cu"


SHARED = {"reduce_dyn": 512}  # bytes of dynamic shared memory


def launches(session: Session) -> dict[str, tuple[int | tuple[int, ...], int | tuple[int, ...], tuple[Any, ...]]]:
    """Grid, block and arguments of each kernel."""
    chance = np.random.default_rng(13)

    def held(name: str, *shape: int, dtype: str = "f4") -> Any:
        return session.array(name, chance.random(shape).astype(dtype))

    def zeros(name: str, *shape: int, dtype: str = "f4") -> Any:
        return session.array(name, np.zeros(shape, dtype))

    integers = chance.integers(-5, 5, 1000).astype("i4")
    steps = chance.integers(0, 3000, 1000).astype("u4")
    letters = chance.integers(0, 256, 5000).astype("u1")
    fields = np.dtype([("a", "f8"), ("n", "i4"), ("w", "f4", 3), ("x", "u8")])
    packed = np.array([(0.5, 1000, (0.25, 0.5, 0.25), 0)], fields).tobytes()
    return {
        "saxpy": (20, 256, (4993, np.float32(2.5), held("x", 5000), held("y", 5000))),
        "stencil5": (24, 128, (held("u", 3000, dtype="f8"), zeros("v", 3000, dtype="f8"), 3000, 0.5)),
        "lap2d": ((4, 5), (16, 8), (held("u", 37, 53, dtype="f8"), zeros("v", 37, 53, dtype="f8"), 53, 37, 0.25)),
        "matmul": ((4, 4), (16, 16), (held("a", 64, 64), held("b", 64, 64), zeros("c", 64, 64), 64)),
        "reduce": (6, 128, (held("x", 10000), zeros("y", 6), 9999)),
        "reduce_dyn": (6, 128, (held("x", 10000), zeros("y", 6), 9999)),
        "hist": (40, 128, (session.array("x", letters), session.array("h", np.ones(256, "i4")), 4990)),
        "hist_sh": (10, 128, (session.array("x", letters), session.array("h", np.ones(256, "i4")), 4990)),
        "collatz": (8, 128, (session.array("x", steps), zeros("out", 1000, dtype="i4"), 1000)),
        "structk": (8, 128, (Struct(packed, {24: held("x", 1000)}), zeros("y", 1000))),
        "mathk": (8, 128, (held("x", 1000), zeros("y", 1000), 1000)),
        "earlyexit": (8, 128, (session.array("x", integers), zeros("y", 1000, dtype="i4"), 1000)),
        "localarr": (4, 256, (held("x", 1024), zeros("y", 1024), 1024, 3)),
    }


def record(folder: Path, wanted: list[str]) -> list[Capture]:
    (folder / "thirteen.cu").write_text(SOURCE.read_text())
    with Session("honest", folder, "cpu") as session:
        module = session.module("thirteen.cu")
        for name, (grid, block, arguments) in launches(session).items():
            if not wanted or name in wanted:
                session.capture(name)
                session.launch(module, name, grid, block, arguments, shared_bytes=SHARED.get(name, 0))
        return session.save(folder)


def main(*wanted: str) -> bool:
    print(describe())
    tried, refused = 0, 0
    with tempfile.TemporaryDirectory() as place, ReplayServer("cpu", timeout_s=60.0, cache=Path(place)) as server:
        for capture in record(Path(place), list(wanted)):
            for proposal in proposals(Subject(text=SOURCE.read_text(), kernel=capture.symbol, disjoint=True)):
                variant = Variant(files=(("thirteen.cu", proposal.text),))
                tried += 1
                for level in server.levels:
                    verdict = server.verify(capture, variant, level).result(300).verdict
                    if verdict.status is not Status.MATCH:
                        refused += 1
                        print(f"  {capture.symbol} by {proposal.rule}, {level.value}: {verdict.detail}", flush=True)
                        break
    print(f"{tried} rewrites; {describe()}")
    return judge("honest rewrites refused", refused, 0, "")


if __name__ == "__main__":
    sys.exit(not main(*sys.argv[1:]))
