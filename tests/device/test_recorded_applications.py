"""Applications whose kernels no source file holds, recorded on a GPU: CuPy, Triton, a program without its source."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from r3bench import store, toolkit
from r3bench.cli import main
from r3bench.devices import Device, open_device
from r3bench.model import Capture, Configuration, LaunchRule, Status, Variant
from r3bench.record.images import find_nvcc
from r3bench.remix import legal_blocks
from r3bench.replay import replay
from r3bench.toolchain import Compiler

PROGRAMS = Path(__file__).parent.parent / "recorder/programs"
FROM_TEXT = Variant(configuration=Configuration())

pytestmark = pytest.mark.gpu


def needs(*packages: str) -> pytest.MarkDecorator:
    lacks = [package for package in packages if importlib.util.find_spec(package) is None]
    return pytest.mark.skipif(bool(lacks), reason=f"{', '.join(lacks)} is not installed")


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    with closing(open_device("cuda")) as opened:
        yield opened


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler() as made:
        yield made


def recorded(out: Path, kernels: str, *options: str, command: list[str]) -> dict[str, Capture]:
    """The captures of a program's kernels by name."""
    assert main(["record", "--out", str(out), "--kernel", kernels, *options, "--", *command]) == 0
    return {capture.demangled: capture for capture in map(store.open_capture, store.find([out]))}


def status(capture: Capture, variant: Variant, device: Device, compiler: Compiler) -> tuple[Status, str]:
    verdict = replay(capture, variant, device, compiler, timing="none").verdict
    return verdict.status, verdict.detail


@needs("cupy")
def test_cupys_sources_come_along(device: Device, compiler: Compiler, tmp_path: Path) -> None:
    found = recorded(tmp_path / "captures", "axpy|powers", command=[sys.executable, str(PROGRAMS / "raw.py")])
    assert set(found) == {"axpy", "powers<double, 3>"}
    for capture in found.values():
        assert (capture.source.language if capture.source else None) == "cuda"
        for variant in (Variant(), FROM_TEXT):
            assert status(capture, variant, device, compiler) == (Status.MATCH, "")


@needs("triton", "torch")
def test_tritons_ir_comes_along(
    device: Device, compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    found = recorded(tmp_path / "captures", "scaled_add", command=[sys.executable, str(PROGRAMS / "tiles.py")])
    (capture,) = found.values()
    assert (capture.source.language if capture.source else None) == "llvm"
    assert status(capture, Variant(), device, compiler) == (Status.MATCH, "")
    assert status(capture, FROM_TEXT, device, compiler) == (Status.MATCH, "")


@pytest.mark.skipif(bool(toolkit.missing()) or find_nvcc() is None, reason="it takes nvcc and clang's CUDA headers")
def test_units_that_are_linked(device: Device, compiler: Compiler, tmp_path: Path) -> None:
    parts, program = PROGRAMS / "parts", tmp_path / "parts"
    units = [str(parts / name) for name in ("main.cu", "bent.cu")]
    subprocess.run([str(find_nvcc()), "-O3", "-arch=sm_90", "-rdc=true", *units, "-o", str(program)], check=True)
    (capture,) = recorded(tmp_path / "captures", "bend", "--tree", str(parts), command=[str(program)]).values()
    assert [main for main, _ in (capture.source.linked if capture.source else ())] == ["bent.cu"]
    assert [variable.symbol for variable in capture.units[0].globals] == ["offset"]
    for variant in (Variant(), FROM_TEXT):
        assert status(capture, variant, device, compiler) == (Status.MATCH, "")


ADDING = """
#include <cstdio>
__global__ void add(float* y, const float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i];
}
int main() {
  float *x, *y;
  cudaMallocManaged(&x, 4000), cudaMallocManaged(&y, 4000);
  for (int i = 0; i < 1000; i++) x[i] = i;
  for (int i = 0; i < 3; i++) add<<<8, 128>>>(y, x, 1000);
  cudaDeviceSynchronize();
  std::printf("%g\\n", y[999]);
}
"""


@pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not here")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_ptx_is_the_last_resort(arch: str, device: Device, compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "add.cu").write_text(ADDING)
    build = [str(find_nvcc()), "-O3", f"-arch={arch}", str(tmp_path / "add.cu"), "-o", str(tmp_path / "add")]
    subprocess.run(build, check=True)
    (capture,) = recorded(tmp_path / "captures", "add", command=[str(tmp_path / "add")]).values()
    assert (capture.source.language if capture.source else None) == "ptx"
    assert (64, 1, 1) in legal_blocks(capture, capture.units[0], store.sources(capture))
    otherwise = Variant(configuration=Configuration(), launch=LaunchRule(block=(64, 1, 1)))
    for variant in (Variant(), FROM_TEXT, otherwise):
        assert status(capture, variant, device, compiler) == (Status.MATCH, "")
