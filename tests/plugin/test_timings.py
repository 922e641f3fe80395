"""Timing items in pytest-benchmark's table, files and comparison; these fail when its private surface moves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from r3bench import measure
from r3bench.model import Measurement
from r3bench.replay import trials

SLOW = "for (int k = 0; k < 400; k++) data[i] = data[i] * (1.0 + 1e-300 * k); data[i] = factor * data[i];"


@pytest.fixture
def slower(source: Path) -> None:
    source.write_text(source.read_text().replace("data[i] = factor * data[i];", f"{{ {SLOW} }}"))


def test_the_table_shows_every_timing(project: pytest.Pytester) -> None:
    result = project.runpytest("captures", "-k", "timing")
    result.stdout.fnmatch_lines(["*benchmark: 4 tests*", "*scale::timing?0?*"])


def test_json_holds_every_sample_in_seconds(project: pytest.Pytester) -> None:
    project.runpytest("captures", "-k", "timing", "--benchmark-json=out.json").assert_outcomes(passed=4, deselected=6)
    rows = json.loads((project.path / "out.json").read_text())["benchmarks"]
    assert {row["fullname"] for row in rows} == {
        f"captures/app/{kernel}.zarr::timing[{unit}]" for kernel in ("scale", "difference") for unit in (0, 1)
    }
    for row in rows:
        assert row["stats"]["rounds"] == len(row["stats"]["data"]) >= 3
        assert 1e-8 < row["stats"]["min"] < 1e-2
        assert row["extra_info"]["decision"] == "identical"


def test_below_a_search_the_table_leaves_out_identical_code_and_the_files_keep_it(project: pytest.Pytester) -> None:
    chosen = ("captures", "-k", "timing and scale", "--r3-evolve", "--benchmark-json=out.json")
    result = project.runpytest(*chosen)
    result.assert_outcomes(passed=2, deselected=8)
    result.stdout.no_fnmatch_line("*scale::timing?0?*")
    assert len(json.loads((project.path / "out.json").read_text())["benchmarks"]) == 2


def test_the_window_that_warms_up_is_not_shown_and_the_shortest_is_the_time(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[float] = []

    def rank(*arguments: Any, **named: Any) -> Measurement:
        measured = measure.rank(*arguments, **named)
        taken[:] = measured.samples_ns
        return measured

    monkeypatch.setattr(trials, "rank", rank)
    item = "captures/app/scale.zarr::timing[0]"
    project.runpytest(item, "--benchmark-json=out.json", "--r3-history").assert_outcomes(passed=1)
    (row,) = json.loads((project.path / "out.json").read_text())["benchmarks"]
    assert len(taken) == 5
    assert row["stats"]["data"] == pytest.approx([ns * 1e-9 for ns in taken[1:]])
    (run,) = (project.path / "reports/history").glob("*.json")
    assert json.loads(run.read_text())["times_ns"] == {"app/scale[0]": min(taken[1:])}


def test_runs_can_be_saved_and_compared(project: pytest.Pytester) -> None:
    project.runpytest("captures", "-k", "timing and scale", "--benchmark-save=first")
    result = project.runpytest("captures", "-k", "timing and scale", "--benchmark-compare", "--benchmark-histogram=h")
    for run in ("NOW", "0001_first"):
        assert f"scale::timing[0] ({run})" in result.stdout.str()


def test_only_and_skip(project: pytest.Pytester) -> None:
    project.runpytest("captures", "--benchmark-only").assert_outcomes(passed=4, skipped=6)
    project.runpytest("captures", "--benchmark-skip").assert_outcomes(passed=4, skipped=6)


def test_the_table_appears_under_xdist_too(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("captures", "-n", "2", "-k", "timing")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*benchmark: 4 tests*"])


@pytest.mark.usefixtures("slower")
def test_a_slow_down_is_reported_and_fails_only_with_a_gate(project: pytest.Pytester) -> None:
    item = "captures/app/scale.zarr::timing[0]"
    result = project.runpytest(item)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*scale.zarr::timing?0?: slower, 0.*"])
    gated = project.runpytest(item, "--r3-gate=20")
    gated.assert_outcomes(failed=1)
    gated.stdout.fnmatch_lines(["*app/scale, unit 0: slower than recorded: slower, 0.*"])


def test_times_are_kept_where_that_is_asked_for(project: pytest.Pytester) -> None:
    result = project.runpytest("captures/app/scale.zarr", "-k", "timing", "--r3-history")
    result.assert_outcomes(passed=2, deselected=3)
    (path,) = (project.path / "reports/history").glob("*.json")
    kept = json.loads(path.read_text())
    assert set(kept["times_ns"]) == {"app/scale[0]", "app/scale[1]"}
    assert all(ns > 0 for ns in kept["times_ns"].values())
    result.stdout.fnmatch_lines([f"history: *{path.name}*"])


def test_times_that_cannot_be_kept_are_one_sentence_and_an_error(project: pytest.Pytester) -> None:
    (project.path / "reports").mkdir()
    (project.path / "reports/history").write_text("in the way")
    result = project.runpytest("captures/app/scale.zarr", "-k", "timing", "--r3-history")
    result.assert_outcomes(passed=2, deselected=3)
    assert result.ret == 3
    result.stdout.fnmatch_lines(["history: */reports/history/*.json cannot be written (File exists): make room there*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
