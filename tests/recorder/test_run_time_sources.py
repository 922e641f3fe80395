"""Sources that an application compiles while it runs, and the time in ranges that it marks."""

from __future__ import annotations

from pathlib import Path

import pytest

from r3bench import frontend, store, toolkit
from r3bench.cli import main
from r3bench.record import trials
from r3bench.record.application import Plan
from tests.recorder.conftest import HERE, Build, compiled

KERNELS = ("_Z5scaleIdEvPT_PKS0_S0_i", "_Z5scaleIfEvPT_PKS0_S0_i")
PTX = ".version 8.3\n.target sm_90\n" + "".join(f".visible .entry {kernel}() {{\n}}\n" for kernel in KERNELS)


@pytest.fixture(scope="session")
def fake_nvrtc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(HERE / "fake_nvrtc.c", tmp_path_factory.mktemp("nvrtc") / "libnvrtc.so", "-shared", "-fPIC")


def test_a_source_compiled_at_run_time_comes_along(
    fake_nvrtc: Path, program: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers/shape.h").write_text("#pragma once\n#define WIDE 3\n")
    monkeypatch.setenv("FAKE_PTX", PTX)
    command = [str(program("compiled")), str(fake_nvrtc), f"-I{tmp_path / 'headers'}"]
    assert main(["record", "--out", str(tmp_path / "captures"), "--", *command]) == 0
    (path,) = (tmp_path / "captures").iterdir()
    capture = store.open_capture(path)
    assert capture.demangled == "scale<double>"
    assert capture.source is not None
    assert (capture.source.main, capture.source.language, capture.lacks) == ("scale.nvrtc.cu", "cuda", "")
    assert capture.source.flags == ("--std=c++17", "-DFACTOR=1", "-I=include")
    texts = store.sources(capture)
    assert set(texts) == {"scale.nvrtc.cu", "include/shape.h"}
    assert texts["scale.nvrtc.cu"].endswith("template __global__ decltype(scale<double>) scale<double>;\n")
    ir = frontend.compile_ir(texts, capture.source.main, flags=capture.source.flags)
    assert frontend.kernels(ir) == ("_Z5scaleIdEvPT_PKS0_S0_i",)
    assert [p.name for p in capture.parameters] == ["out", "in", "factor", "count"]


def test_each_form_of_a_kernel_has_the_source_that_it_was_compiled_from(
    fake_nvrtc: Path, program: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One text, compiled again and again; a program may be where another one was, and be compiled twice."""
    (tmp_path / "shape.h").touch()
    monkeypatch.setenv("FAKE_PTX", PTX)
    command = [str(program("compiled")), str(fake_nvrtc), f"-I{tmp_path}", "several"]
    assert main(["record", "--out", str(tmp_path / "captures"), "--", *command]) == 0
    found = sorted(map(store.open_capture, (tmp_path / "captures").iterdir()), key=lambda capture: capture.demangled)
    assert [(c.demangled, c.lacks, [u.occurrence for u in c.units]) for c in found] == [
        ("scale<double>", "", [0]), ("scale<float>", "", [0]), ("scale<float>", "", [0]),
    ]  # fmt: skip
    flags = [[f for f in c.source.flags if f.startswith("-D")] for c in found if c.source is not None]
    assert sorted(flags) == [["-DFACTOR=1"], ["-DFACTOR=2"], ["-DFACTOR=3"]]
    for capture in found:
        text, form = store.sources(capture)["scale.nvrtc.cu"], capture.demangled
        assert text.count("template __global__") == text.count(f"decltype({form}) {form};") == 1


def test_why_a_source_compiled_at_run_time_will_not_do(
    fake_nvrtc: Path, program: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_PTX", PTX)
    command = [str(program("compiled")), str(fake_nvrtc), "-DNO_HEADERS"]
    assert main(["record", "--out", str(tmp_path / "captures"), "--", *command]) == 0
    said = capfd.readouterr().out
    assert "recorded with PTX text only" in said
    assert "shape.h" in said


def marked(program: Build, folder: Path, region: str, *flags: str) -> tuple[float, float]:
    """The seconds in the region, and those that the program itself measured."""
    found = trials.trial([str(program("marked", *flags))], Plan(folder=folder, max_per_kernel=0, region=region))
    return found.region_s, float(found.output)


def test_the_time_in_marked_ranges(program: Build, tmp_path: Path) -> None:
    found, measured = marked(program, tmp_path / "run", "steps")
    assert 0.06 <= found <= measured + 1e-4


@pytest.mark.skipif(toolkit.cuda_folder() is None, reason="there is no CUDA toolkit here, whose NVTX to use")
def test_the_time_in_ranges_of_the_toolkits_own_nvtx(program: Build, tmp_path: Path) -> None:
    flags = ("-DWITH_HEADERS", f"-I{toolkit.cuda_folder()}/include")
    found, measured = marked(program, tmp_path / "run", "steps", *flags)
    assert 0.06 <= found <= measured + 1e-4


def test_a_region_that_the_application_does_not_mark(program: Build, tmp_path: Path) -> None:
    assert marked(program, tmp_path / "run", "nothing")[0] == 0


def test_without_a_region_nothing_is_injected(program: Build, tmp_path: Path) -> None:
    first_to_last, measured = marked(program, tmp_path / "run", "")
    assert first_to_last < measured
