"""The recorder, a libcuda.so.1 without a GPU and programs that use it, all built by the compiler that r3bench uses."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from r3bench import frontend

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


@pytest.fixture(autouse=True)
def _with_the_fake_driver(fake_driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_driver))
