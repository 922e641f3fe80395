"""The recorder, a libcuda.so.1 without a GPU and programs that use it, all built by the compiler that r3bench uses."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from r3bench import frontend
from r3bench.record import application, dump

HERE = Path(__file__).parent
Build = Callable[..., Path]


def compiled(source: Path, target: Path, *flags: str) -> Path:
    # With a target named, the compiler brings its own C library instead of looking for the machine's.
    machine = f"{platform.machine()}-linux-gnu.2.28"
    command = [str(frontend.find_compiler()), "cc", "-target", machine, "-O1", "-g0", "-Wall", "-Wextra", "-Wno-unused"]
    subprocess.run([*command, str(source), *flags, "-ldl", "-lpthread", "-o", str(target)], check=True, timeout=600)
    return target


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the libcuda.so.1."""
    folder = tmp_path_factory.mktemp("driver")
    compiled(
        HERE / "fake_cuda.c", folder / "libcuda.so.1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1,-Bsymbolic", "-ldl"
    )
    return folder


@pytest.fixture(scope="session")
def program(fake_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds one of the programs, in the variant that the flags make; each once."""
    folder, built = tmp_path_factory.mktemp("programs"), dict[tuple[str, ...], Path]()

    def build(name: str, *flags: str) -> Path:
        if (name, *flags) not in built:
            target = folder / f"{name}{len(built)}"
            built[name, *flags] = compiled(HERE / f"programs/{name}.c", target, *flags, "-ldl", "-lpthread")
        return built[name, *flags]

    return build


@pytest.fixture
def recorded(program: Build, tmp_path: Path) -> Callable[..., Recorded]:
    """Runs a situation under a plan; what was left on disk."""

    def go(situation: str, *arguments: str, programs: str = "situations", **chosen: Any) -> Recorded:
        plan = application.Plan(folder=tmp_path / "dump", **chosen)
        status, output = application.run([str(program(programs)), situation, *arguments], plan, keep_output=True)
        return Recorded(status, output.decode(), list(dump.launches(plan.folder)), dump.coverage(plan.folder))

    return go


@dataclass
class Recorded:
    status: int
    output: str
    launches: list[dump.Launched]
    coverage: list[dict[str, Any]]

    @property
    def reasons(self) -> dict[str, int]:
        return {why: n for p in self.coverage for k in p["kernels"] for why, n in k["reasons"].items()}


@pytest.fixture(autouse=True)
def _with_the_fake_driver(fake_driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_driver))
