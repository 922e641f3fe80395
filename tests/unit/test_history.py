"""Past runs: files that never meet, change points that are sound, and how they are shown."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from replay_case import FakeCompiler

from r3bench.cli import main
from r3bench.history import change_points, pettitt, read, series, sparkline, svg, write
from r3bench.model import Target
from r3bench.server import ReplayServer
from r3bench.testing import FakeDevice

RUN = '{"format": %s, "created": "x", "machine": "x", "commit": null, "times_ns": {"k": %s}}'


def times(*levels: tuple[float, int], seed: int = 0, noise: float = 0.02) -> list[float]:
    chance = np.random.default_rng(seed)
    return [float(level * np.exp(noise * chance.standard_normal())) for level, count in levels for _ in range(count)]


def test_runs_written_at_once_are_files_of_their_own(tmp_path: Path) -> None:
    paths = {write(tmp_path, "gpu", None, {"a/k[0]": 5.0}) for _ in range(20)}
    assert len(paths) == 20
    runs, damaged = read(tmp_path)
    assert [run.times_ns for run in runs] == [{"a/k[0]": 5.0}] * 20
    assert damaged == []


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"format": 1}', RUN % (9, "1"), RUN % (1, "-1"), RUN % (1, "NaN"), RUN % (1, '"x"')],
)
def test_a_file_that_is_no_run_is_left_out(tmp_path: Path, text: str) -> None:
    write(tmp_path, "gpu", "abc", {"a/k[0]": 5.0})
    (tmp_path / "bad.json").write_text(text)
    runs, damaged = read(tmp_path)
    assert (len(runs), damaged) == (1, [tmp_path / "bad.json"])


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, "gpu", "abc", {"a/k[0]": 5.0})
    whole = json.loads(path.read_text())
    strange = (None, True, 10**400, "x", [1], {"x": 1}, {"x": [1]})
    for number, (key, value) in enumerate((key, value) for key in whole for value in strange):
        (tmp_path / f"{number}.json").write_text(json.dumps({**whole, key: value}))
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    runs, damaged = read(tmp_path)
    assert {"deep.json", "folder.json", "gone.json"} <= {path.name for path in damaged}
    assert len(runs) + len(damaged) == 1 + number + 1 + 3


def test_names_of_runs_do_not_steer_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "gpu\x1b[31m", "\x1b]0;x\x07", {"a/k\x1b[2J": 5.0})
    drawing = tmp_path / "new" / "times.svg"
    assert main(["history", str(tmp_path), "--svg", str(drawing)]) == 0
    assert "\x1b" not in capsys.readouterr().out + drawing.read_text()


def test_halves_of_characters_are_left_out(tmp_path: Path) -> None:
    run = {
        "format": 1,
        "created": "\udfff",
        "machine": "cpu\ud800",
        "commit": "\udc80",
        "times_ns": {"a/k\ud800[0]": 5.0},
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert main(["history", str(tmp_path), "--svg", str(tmp_path / "times.svg")]) == 0
    assert "a/k [0]" in (tmp_path / "times.svg").read_text()


def test_times_of_two_machines_are_two_series(tmp_path: Path) -> None:
    write(tmp_path, "one", None, {"a/k[0]": 5.0, "a/l[0]": 6.0})
    write(tmp_path, "two", None, {"a/k[0]": 50.0})
    found = series(read(tmp_path)[0])
    assert [(s.machine, s.kernel, s.times_ns) for s in found] == [
        ("one", "a/k[0]", [5.0]), ("one", "a/l[0]", [6.0]), ("two", "a/k[0]", [50.0]),
    ]  # fmt: skip


def test_a_gpu_is_told_by_its_uuid_and_a_host_is_not_told_by_name() -> None:
    gpu = FakeDevice({}, name="NVIDIA H200 GPU-1234", target=Target(device="cuda", arch="sm_90"))
    with ReplayServer(lambda: gpu, compiler=FakeCompiler()) as server:
        assert server.machine == "NVIDIA H200 GPU-1234"
    with ReplayServer(lambda: FakeDevice({}), compiler=FakeCompiler()) as server:
        assert re.fullmatch("cpu [0-9a-f]{8}", server.machine)


@pytest.mark.parametrize("seed", range(5))
def test_two_changes_are_found_where_they_are(seed: int) -> None:
    found = change_points(times((100.0, 20), (115.0, 25), (90.0, 15), seed=seed))
    assert [change.at for change in found] == [20, 45]
    assert found[0].ratio == pytest.approx(1.15, abs=0.02)
    assert found[1].ratio == pytest.approx(90 / 115, abs=0.02)


def test_without_a_change_few_series_show_one() -> None:
    wrong = sum(bool(change_points(times((100.0, 30), seed=seed), smallest=0.0)) for seed in range(300))
    assert wrong <= 10  # 1 % each; 10 or more of 300 has a probability below 0.1 %


def test_what_is_sure_but_tiny_and_what_is_too_short_is_no_change() -> None:
    assert change_points(times((100.0, 20), (101.0, 20), noise=0.0001)) == []
    assert change_points([100.0] * 3 + [200.0] * 4) == []
    assert change_points([]) == []
    assert change_points([5.0] * 30) == []


def test_pettitts_p_value_is_that_of_all_orders() -> None:
    at, p = pettitt(np.array([1.0, 2, 3, 4, 11, 12, 13, 14]))
    assert at == 4
    assert p == pytest.approx(2 / 70, abs=0.02)  # two of the 70 ways to split eight values in halves


def test_the_command_prints_series_and_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, ns in enumerate(times((2e5, 10), (3e5, 10))):
        run = {
            "format": 1, "created": f"2030-01-{number + 1:02}T00:00:00Z", "machine": "<gpu>", "commit": "c" * 40,
            "times_ns": {"a/<k>[0]": ns},
        }  # fmt: skip
        (tmp_path / f"{number:02}.json").write_text(json.dumps(run))
    (tmp_path / "torn.json").write_text("{")
    assert main(["history", str(tmp_path), "--svg", str(tmp_path / "out.svg")]) == 0
    said = capsys.readouterr()
    assert "a/<k>[0]: since 2030-01-11T00:00:00Z at cccccccccccc: 1.48x slower" in said.out
    assert "torn.json is no run" in said.err
    drawn = ET.fromstring((tmp_path / "out.svg").read_text())
    assert len(drawn.findall(".//{*}circle")) == 20
    assert len(drawn.findall(".//{*}line")) == 2
    assert main(["history", str(tmp_path), "--kernel", "nothing"]) == 1
    assert "fits 'nothing': there are times of <k>\n" in capsys.readouterr().err
    assert main(["history", str(tmp_path / "none")]) == 1
    assert "no runs in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("halo*", ["a/halo_x[0]", "a/halo_x[1]", "a/halo_z[0]"]),
        ("halo_x", ["a/halo_x[0]", "a/halo_x[1]"]),
        ("halo_x[1]", ["a/halo_x[1]"]),
        ("a/halo_x[1]", ["a/halo_x[1]"]),
        ("a/update", ["a/update[0]"]),
        ("a/*", ["a/halo_x[0]", "a/halo_x[1]", "a/halo_z[0]", "a/update[0]"]),
    ],
)
def test_a_kernel_is_named_with_or_without_its_application_and_unit(
    pattern: str, found: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("a/halo_x[0]", "a/halo_x[1]", "a/halo_z[0]", "a/update[0]")
    write(tmp_path, "cpu", None, dict.fromkeys(names, 5.0))
    assert main(["history", str(tmp_path), "--kernel", pattern]) == 0
    assert re.findall(r"^a/\S+", capsys.readouterr().out, re.MULTILINE) == found


def test_a_sparkline_ends_at_the_last_value() -> None:
    assert sparkline([1.0, 2.0, 8.0]) == "▁▂█"
    assert sparkline([3.0, 3.0]) == "▁▁"
    assert len(sparkline([1.0] * 100)) == 40


def test_a_drawing_of_nothing_is_a_drawing() -> None:
    assert ET.fromstring(svg([])).tag.endswith("svg")
