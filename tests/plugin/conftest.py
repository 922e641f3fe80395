"""A small application with two kernels and recorded launches, copied for each test that runs pytest on it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import dask  # noqa: F401  it replaces the finder of installed packages, which a pytest within pytest would take back
import numpy as np
import pytest

from r3bench.record import Session

SCALE = """\
extern "C" __global__ void scale(double* data, double factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) data[i] = factor * data[i];
}
"""

DIFFERENCE = """\
extern "C" __global__ void difference(const double* data, double* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = data[(i + 1) % n] - data[i];
}
"""


def record_captures(top: Path) -> None:
    """Record the application as its sources below ``top`` are now."""
    with Session("app", top / "kernels" / "app", "cpu", top=top, recorded_on={}) as session:
        scale, difference = session.module("scale.cu"), session.module("difference.cu")
        for n in (1000, 333):
            data = session.array("data", np.linspace(0.0, 1.0, n), dims=("x",))
            out = session.array("out", np.zeros(n), dims=("x",))
            occurrence = 0 if n == 1000 else 1
            session.capture("scale", [occurrence])
            session.capture("difference", [occurrence])
            session.launch(scale, "scale", (8, 1, 1), (128, 1, 1), [data, 1.5, n])
            session.launch(difference, "difference", (8, 1, 1), (128, 1, 1), [data, out, n])
        session.save(top / "captures" / "app")


@pytest.fixture
def record() -> Callable[[Path], None]:
    return record_captures


@pytest.fixture(scope="session")
def recorded_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("project")
    root = top / "kernels" / "app"
    root.mkdir(parents=True)
    (root / "scale.cu").write_text(SCALE)
    (root / "difference.cu").write_text(DIFFERENCE)
    record_captures(top)
    return top


@pytest.fixture
def project(recorded_project: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A fresh copy of the application with its captures, as the current folder."""
    # These run pytest inside pytest; the inner one must not take itself for a worker of the outer one's xdist.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    shutil.copytree(recorded_project, pytester.path, dirs_exist_ok=True)
    pytester.makeini("[pytest]\nr3_captures = captures\nr3_device = cpu\nr3_timeout = 60\n")
    return pytester


@pytest.fixture
def source(project: pytest.Pytester) -> Path:
    """The working tree's file of the kernel scale."""
    return project.path / "kernels" / "app" / "scale.cu"
