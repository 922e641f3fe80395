"""Captures shown, compared, replayed against themselves, made smaller and harmless; on the CPU device."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from r3bench import Session, store
from r3bench.cli import main
from r3bench.cli.capture import _shown
from r3bench.record.times import Times
from r3bench.record.verification import compared

KERNEL = """
__global__ void half(const double* in, double* out, double* unused, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] / 2;
}
"""
Tool = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A launch that reads the first half of one buffer only."""
    folder = tmp_path_factory.mktemp("capture")
    (folder / "half.cu").write_text(KERNEL)
    with Session("demo", folder, "cpu", command=("/home/me/demo", "--secret")) as session:
        module = session.module("half.cu")
        arrays = [session.array(name, np.arange(1.0, 4097.0)) for name in ("in", "out", "unused")]
        session.capture("half")
        session.launch(module, "half", 16, 128, [*arrays, 2048])
        session.save(folder)
    return folder / "half.zarr"


@pytest.fixture
def tool(capfd: pytest.CaptureFixture[str]) -> Tool:
    def run(*arguments: object) -> tuple[int, str]:
        return main(["capture", *map(str, arguments)]), capfd.readouterr().out

    return run


def test_show(capture: Path, tool: Tool) -> None:
    status, text = tool("show", capture)
    assert status == 0
    assert "command: /home/me/demo --secret" in text
    assert "parameter in: const pointer float64 at 0, 8 bytes" in text
    assert "out: 32768 bytes of device memory, written" in text


def test_the_file_of_a_kernel_that_the_main_one_includes_is_shown(tmp_path: Path, tool: Tool) -> None:
    (tmp_path / "gpu").mkdir()
    (tmp_path / "gpu/half.cuh").write_text(KERNEL)
    (tmp_path / "main.cu").write_text('#include "gpu/half.cuh"\n')
    with Session("demo", tmp_path, "cpu", top=tmp_path, recorded_on={}) as session:
        session.capture("half")
        data = session.array("data", np.ones(8))
        session.launch(session.module("main.cu"), "half", 1, 8, [data, session.array("out", np.zeros(8)), data, 8])
        session.save(tmp_path)
    assert "source: gpu/half.cuh, lines 2 to 5, which main.cu includes\n" in tool("show", tmp_path / "half.zarr")[1]


def test_an_image_is_followed_by_what_is_known_of_where_it_was_recorded(capture: Path) -> None:
    known = replace(store.open_capture(capture), image_format=None, recorded_on=(("arch", "sm_90"), ("launch_us", "3")))
    assert "  image: none; arch sm_90, launch_us 3" in _shown(known)
    assert "  image: none" in _shown(replace(known, recorded_on=()))


def test_verify(capture: Path, tool: Tool) -> None:
    status, text = tool("verify", "--device", "cpu", "--runs", "3", capture)
    assert (status, "3 of 3 replays bit by bit as recorded" in text) == (0, True)


def test_verify_times_a_launch(capture: Path, tool: Tool) -> None:
    status, text = tool("verify", "--device", "cpu", "--runs", "1", "--times", capture)
    assert status == 0
    assert re.search(r"unit 0: \d+\.\d us alone in the fastest of 9 windows, .*; its memory fits into the caches", text)


def test_times_beside_the_application() -> None:
    assert str(Times(100.0, 98.0, None, 2.5, 99.0)) == (
        "100.0 us in the application, 98.0 us alone (-2.0 %) in the fastest of 9 windows, 99.0 us in the slowest; "
        "its memory is 2.5 times the caches"
    )
    assert str(Times(10.0, 12.0, 9.0, 0.02, 30.0)) == (
        "10.0 us in the application, 12.0 us alone (+20.0 %) in the fastest of 9 windows, 30.0 us in the slowest, "
        "with cold caches; 9.0 us (-10.0 %) with warm ones; its memory fits into the caches"
    )


def test_times_taken_on_a_busy_machine_say_so(capture: Path, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    for load, busy in ((1000.0, True), (0.0, False)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, load, load))
        status, text = tool("verify", "--device", "cpu", "--runs", "1", "--times", capture)
        assert status == 0
        assert re.search(r"[0-9.]+ us alone in the fastest of 9 windows, [0-9.]+ us in the slowest", text)
        assert ("the machine was busy (load 1000.0 on " in text) is busy


def test_no_replay_verifies_nothing(capture: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["capture", "verify", "--runs", "0", str(capture)])
    assert ended.value.code == 2
    assert "'0' is no number from 1 on" in capsys.readouterr().err


def test_verify_tells_what_is_not_repeated(capture: Path, tmp_path: Path, tool: Tool) -> None:
    given = store.open_capture(capture)
    held = store.contents(given, 0)
    wrong = held.after["out"].copy()
    wrong.view(np.float64)[5] += 0.25
    contents = [store.UnitContents(held.before, {"out": wrong})]
    store.write(tmp_path / "wrong.zarr", given, contents, store.sources(given), ir=store.ir(given))
    status, text = tool("verify", "--device", "cpu", "--runs", "2", tmp_path / "wrong.zarr")
    assert status == 1
    assert "0 of 2 replays" in text
    assert "out differed 2 times, in 1 of 4096 elements, by 0.25" in text


def test_shrink_leaves_what_the_kernel_uses(capture: Path, tmp_path: Path, tool: Tool) -> None:
    assert tool("shrink", "--device", "cpu", capture, tmp_path / "small.zarr")[0] == 0
    before = store.contents(store.open_capture(tmp_path / "small.zarr"), 0).before
    values = before["in"].view(np.float64)
    assert np.array_equal(values[:2048], np.arange(1.0, 2049.0))
    assert not values[2048:].any()
    assert not before["unused"].any()
    assert tool("verify", "--device", "cpu", "--runs", "1", tmp_path / "small.zarr")[0] == 0


def test_redact_replaces_numbers_and_the_command(capture: Path, tmp_path: Path, tool: Tool) -> None:
    status, text = tool("redact", "--device", "cpu", capture, tmp_path / "other.zarr")
    assert (status, "3 of 3 replays bit by bit as recorded" in text) == (0, True)
    other = store.open_capture(tmp_path / "other.zarr")
    assert other.command == ()
    contents = store.contents(other, 0)
    values = contents.before["in"].view(np.float64)
    assert not np.array_equal(values, np.arange(1.0, 4097.0))
    assert np.array_equal(contents.after["out"].view(np.float64)[:2048], values[:2048] / 2)
    assert tool("verify", "--device", "cpu", "--runs", "1", tmp_path / "other.zarr")[0] == 0


def test_what_does_not_show_anything_any_more_is_told(tmp_path: Path, tool: Tool) -> None:
    kernel = "__global__ void limit(double* x) { if (x[threadIdx.x] == 32) x[threadIdx.x] = 31; }"
    (tmp_path / "limit.cu").write_text(kernel)
    with Session("demo", tmp_path, "cpu") as session:
        module, x = session.module("limit.cu"), session.array("x", np.r_[32.0, np.zeros(31)])
        session.capture("limit")
        session.launch(module, "limit", 1, 32, [x])
        session.save(tmp_path)
    status, text = tool("redact", "--device", "cpu", tmp_path / "limit.zarr", tmp_path / "other.zarr")
    assert (status, "vacuous: the launch changed nothing" in text) == (1, True)


@pytest.mark.parametrize("action", ["shrink", "redact"])
def test_a_capture_is_not_replaced_by_its_copy(action: str, capture: Path, tmp_path: Path, tool: Tool) -> None:
    same = shutil.copytree(capture, tmp_path / "same.zarr")
    (tmp_path / "link.zarr").symlink_to(same)
    for out in (same, tmp_path / "link.zarr", same / "inside.zarr"):
        assert tool(action, "--device", "cpu", same, out) == (3, "")
        assert tool("diff", capture, same)[0] == 0


def test_a_file_that_is_no_capture_is_not_replaced(capture: Path, tmp_path: Path, tool: Tool) -> None:
    (tmp_path / "mine.zarr.zip").write_text("mine")
    assert tool("redact", "--device", "cpu", capture, tmp_path / "mine.zarr.zip") == (3, "")
    assert (tmp_path / "mine.zarr.zip").read_text() == "mine"


def test_diff(capture: Path, tmp_path: Path, tool: Tool) -> None:
    assert tool("diff", capture, capture) == (0, "the captures hold the same\n")
    tool("redact", "--device", "cpu", capture, tmp_path / "other.zarr")
    status, text = tool("diff", capture, tmp_path / "other.zarr")
    assert status == 1
    assert "unit 0: before, in: 4096 of 4096 elements differ" in text
    assert "source" not in text, "its folder was none, and its texts are the same"


def test_diff_says_what_of_a_source_differs(capture: Path, tmp_path: Path) -> None:
    one = store.open_capture(capture)
    assert one.source is not None
    other = replace(one.source, span=(1, 2), flags=("-DN=2",), files=(*one.source.files, ("more.h", "0" * 64)))
    assert list(compared(one, replace(one, source=other), [])) == [
        "source differs: lines of the kernel, compiler flags, text of more.h"
    ]
    assert list(compared(one, replace(one, source=None), [])) == ["source differs: only the first has one"]


def test_different_kernels_are_not_compared_further(capture: Path) -> None:
    one = store.open_capture(capture)
    other = replace(one, symbol="other", demangled="other(int)", source=None, application="more")
    assert list(compared(one, other, [])) == [
        f"different kernels: {one.demangled} of {one.application}, other(int) of more"
    ]


def test_a_folder_without_captures_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("show", "verify"):
        assert main(["capture", action, str(tmp_path)]) == 3
        assert f"no capture below {tmp_path}: name a .zarr" in capsys.readouterr().err
