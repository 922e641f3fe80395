"""The application's own image: made by nvcc when recording, and the baseline where the target can load it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from replay_case import FakeCompiler, capture, contents

from r3bench import store
from r3bench.devices import open_device
from r3bench.errors import RecordError
from r3bench.model import Capture, Configuration, Target, Variant
from r3bench.record import Session
from r3bench.record.images import Maker, cubin, find_nvcc, find_nvrtc
from r3bench.replay import build, image_loads, read_material

HOPPER = Target(device="cuda", arch="sm_90")
TEXTS = {
    "main.cu": '#include "half.h"\nextern "C" __global__ void k(float* x) { x[0] = HALF; }',
    "half.h": "#define HALF 0.5f\n",
}


@pytest.fixture
def with_image(tmp_path: Path) -> Capture:
    plain = capture(tmp_path)
    held = replace(plain, image_format="cubin", recorded_on=(("arch", "sm_90"),))
    return store.write(
        tmp_path / "image.zarr", held, [contents(0), contents(1)], store.sources(plain), image=b"\x7fELF code"
    )


def test_the_recorded_kernel_is_the_image(with_image: Capture) -> None:
    compiler = FakeCompiler()
    built = build(read_material(with_image, 0), Variant(), HOPPER, compiler).result()
    assert (built.binary.image, built.binary.format, built.binary.target) == (b"\x7fELF code", "cubin", HOPPER)
    assert [stage for stage, _ in built.stages] == ["image"]


def test_the_default_pipeline_is_another_variant(with_image: Capture) -> None:
    for variant in (Variant(configuration=Configuration()), Variant(files=(("kernels.cu", "add"),))):
        built = build(read_material(with_image, 0), variant, HOPPER, FakeCompiler()).result()
        assert built.binary.image != b"\x7fELF code"


def test_machine_code_of_another_compiler_is_loaded_as_it_is(with_image: Capture) -> None:
    compiler = FakeCompiler()
    variant = Variant(files=(("kernels.cu", "add"),), image=b"another")
    built = build(read_material(with_image, 0), variant, HOPPER, compiler).result()
    assert (built.binary.image, built.binary.format, compiler.requests) == (b"another", "cubin", [])


@pytest.mark.parametrize(
    ("form", "target", "loads"),
    [
        ("cubin", HOPPER, True),
        ("cubin", Target(device="cuda", arch="sm_100"), False),
        ("ptx", Target(device="cuda", arch="sm_100"), True),
        ("fatbin", Target(device="cuda", arch="sm_100"), True),
        ("fatbin", Target(device="cpu", arch="znver4"), False),
        ("hsaco", HOPPER, False),
    ],
)
def test_where_an_image_loads(with_image: Capture, form: str, target: Target, loads: bool) -> None:
    assert image_loads(replace(with_image, image_format=form), target) is loads  # type: ignore[arg-type]
    assert not image_loads(replace(with_image, image_format=None), target)


@pytest.mark.parametrize(
    ("maker", "name"),
    [
        pytest.param("nvcc", "nvcc", marks=pytest.mark.skipif(not find_nvcc(), reason="nvcc is not on this machine")),
        pytest.param("nvrtc", "NVRTC", marks=pytest.mark.skipif(not find_nvrtc(), reason="NVRTC is not here")),
    ],
)
def test_compilers_of_nvidia_make_the_image(maker: Maker, name: str) -> None:
    below = {f"deep/{path}": text for path, text in TEXTS.items()}
    for texts, main in ((TEXTS, "main.cu"), (below, "deep/main.cu")):
        assert cubin(maker, texts, main, ("-O3", "-DUNUSED"), "sm_90").startswith(b"\x7fELF")
    with pytest.raises(RecordError, match=rf"{name} refused main.cu: main.cu\(1\): error"):
        cubin(maker, {"main.cu": "nonsense"}, "main.cu", (), "sm_90")


def test_a_compiler_that_is_not_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("r3bench.record.images.find_nvcc", lambda: None)
    monkeypatch.setattr("r3bench.record.images.find_nvrtc", lambda: None)
    for maker, remedy in (("nvcc", "set CUDA_HOME"), ("nvrtc", "pip install")):
        with pytest.raises(RecordError, match=remedy):
            cubin(maker, TEXTS, "main.cu", (), "sm_90")  # type: ignore[arg-type]


def test_a_cpu_runs_no_image_of_nvcc(tmp_path: Path) -> None:
    (tmp_path / "main.cu").write_text('extern "C" __global__ void k(float* x) { x[0] = 1; }')
    device = open_device("cpu", threads=1)
    try:
        with Session("demo", tmp_path, device, image="nvcc") as session:
            module, x = session.module("main.cu"), session.array("x", np.zeros(1, "f4"))
            with pytest.raises(RecordError, match="record on a CUDA device"):
                session.launch(module, "k", 1, 1, [x])
    finally:
        device.close()
