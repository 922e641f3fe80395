"""Captures as test items: what is collected, what is built, what fails."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from r3bench.devices import survey

SCALE = "captures/app/scale.zarr"
GPU = any(each.name == "cuda" and each.usable for each in survey())


def names(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line and " " not in line]


def test_every_store_becomes_items(project: pytest.Pytester) -> None:
    found = names(project.runpytest("--collect-only", "-q", "captures"))
    assert found == [
        f"captures/app/{kernel}.zarr/zarr.json::{item}"
        for kernel in ("difference", "scale")
        for item in ("correctness[0]", "correctness[1]", "timing[0]", "timing[1]", "evolve")
    ]


def test_all_items_pass_on_an_unchanged_tree(project: pytest.Pytester) -> None:
    result = project.runpytest("captures")
    result.assert_outcomes(passed=8, skipped=2)
    result.stdout.fnmatch_lines(["*4 of 4 timings: identical machine code*"])


def test_the_short_form_selects_an_item(project: pytest.Pytester) -> None:
    assert names(project.runpytest("--collect-only", "-q", f"{SCALE}::correctness[1]")) == [
        f"{SCALE}/zarr.json::correctness[1]"
    ]


def test_selection_by_keyword(project: pytest.Pytester) -> None:
    result = project.runpytest("captures", "-k", "correctness and scale")
    result.assert_outcomes(passed=2, deselected=8)


def test_a_broken_kernel_in_the_working_tree_fails(project: pytest.Pytester, source: Path) -> None:
    source.write_text(source.read_text().replace("factor * data[i]", "factor + data[i]"))
    result = project.runpytest("captures", "-k", "correctness")
    result.assert_outcomes(passed=2, failed=2, deselected=6)
    result.stdout.fnmatch_lines(["*app/scale, unit 0: mismatch: *data*"])
    again = project.runpytest("captures", "-k", "correctness", "--lf")
    again.assert_outcomes(failed=2)


def test_a_kernel_that_does_not_compile_names_the_users_line(project: pytest.Pytester, source: Path) -> None:
    source.write_text(source.read_text().replace("factor * data[i]", "factor * date[i]"))
    result = project.runpytest(f"{SCALE}::correctness[0]")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*build-failed: *scale.cu:3:*date*"])


def test_without_the_working_trees_file_the_stored_source_is_tested_and_said_so(project: pytest.Pytester) -> None:
    shutil.rmtree(project.path / "kernels")
    result = project.runpytest(SCALE, "-k", "correctness or timing", "--junitxml=out.xml", "-Wdefault")
    result.assert_outcomes(passed=4, warnings=4, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "*kernels/app/scale.cu is not in *not from your tree",
            "2 of 2 timings: the captures' own sources, not your tree's",
        ]
    )
    result.stdout.no_fnmatch_line("*identical machine code*")
    assert "stored source" in (project.path / "out.xml").read_text()


@pytest.mark.parametrize("place", ["captures", "kernels", "../elsewhere"])
def test_a_kernel_is_found_from_any_folder_when_it_lies_in_a_checkout(
    project: pytest.Pytester, source: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.path / ".git").mkdir()
    (project.path / place).mkdir(exist_ok=True)
    source.write_text(source.read_text().replace("factor * data[i]", "factor + data[i]"))
    monkeypatch.chdir(project.path / place)
    result = project.runpytest(str(project.path / SCALE), "-k", "correctness")
    result.assert_outcomes(failed=2, deselected=3)


def test_a_test_file_inside_a_store_is_never_imported(project: pytest.Pytester) -> None:
    trap = project.path / SCALE / "test_trap.py"
    trap.write_text("raise SystemExit('imported')")
    (project.path / SCALE / "units" / "conftest.py").write_text("raise SystemExit('imported')")
    result = project.runpytest("--collect-only", "-q", "captures")
    assert result.ret == 0
    assert len(names(result)) == 10


def test_a_damaged_store_is_one_failed_item_and_the_others_run(project: pytest.Pytester) -> None:
    (project.path / SCALE / "zarr.json").write_text('{"zarr_format": 3')
    result = project.runpytest("captures", "-k", "not timing")
    result.assert_outcomes(passed=2, failed=1, skipped=1, deselected=3)
    result.stdout.fnmatch_lines(["*scale.zarr*"])
    assert "Traceback" not in result.stdout.str()


def test_no_such_path_is_a_usage_error(project: pytest.Pytester) -> None:
    result = project.runpytest("captures/nothing.zarr::correctness[0]")
    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("device", ["hip", pytest.param("cuda", marks=pytest.mark.skipif(GPU, reason="has a GPU"))])
def test_a_device_that_cannot_be_used_is_one_clear_sentence(project: pytest.Pytester, device: str) -> None:
    result = project.runpytest("captures", f"--r3-device={device}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*device {device} cannot be used: *"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_collecting_needs_no_device(project: pytest.Pytester) -> None:
    assert project.runpytest("--collect-only", "-q", "captures", "--r3-device=hip").ret == 0


@pytest.mark.parametrize(
    ("option", "takes"),
    [
        ("--r3-gate=fast", "a number from 0.1 to 1000"),
        ("--r3-gate=-5", "a number from 0.1 to 1000"),
        ("--r3-seed=x", "a whole number"),
        ("--r3-trials=0", "a whole number from 1"),
        ("--r3-trials=1.5", "a whole number from 1"),
        ("--r3-seconds=nan", "a number from 0"),
        ("--r3-timeout=-1", "a number from 0.1 to 3600"),
        ("--r3-timeout=inf", "a number from 0.1 to 3600"),
        ("--r3-device=gpu", "auto, cuda, cpu,"),
        ("--r3-search=best", "full, rules, llm, best-of-n, bo"),
        ("--r3-axes=colour", "some of instructions, distance, registers, shared, spills"),
        ("--r3-race=maybe", "on, off"),
        ("--r3-evaluations=-1", "a whole number from 0"),
        ("--r3-iterations=", "a whole number from 0"),
        ("--r3-seed=", "a whole number from 0"),
        ("--r3-guard=", "a commit or a folder"),
    ],
)
def test_a_value_that_no_run_could_use_is_a_usage_error(project: pytest.Pytester, option: str, takes: str) -> None:
    result = project.runpytest("--collect-only", "captures", option)
    name, _, value = option.partition("=")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{name} takes {takes}*not '{value}'*"])


@pytest.mark.parametrize(
    ("folder", "why"),
    [
        ("/proc/reports", ": /proc/reports cannot be made*"),
        ("", " takes a folder, not ''*"),
        (" ", " takes a folder, not ' '*"),
        (SCALE, f": */{SCALE} lies in the store */{SCALE}; name a folder of its own*"),
        (f"{SCALE}/units/new", f": */{SCALE}/units/new lies in the store */{SCALE}/units; *"),
        ("linked/new", f": */{SCALE}/new lies in the store */{SCALE}; *"),
    ],
)
@pytest.mark.parametrize("run", ["--r3-evolve", "--r3-history"])
def test_a_folder_that_reports_cannot_go_to_is_a_usage_error(
    project: pytest.Pytester, run: str, folder: str, why: str
) -> None:
    (project.path / "linked").symlink_to(project.path / SCALE)
    result = project.runpytest("captures", run, f"--r3-reports={folder}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--r3-reports{why}"])
    assert not (project.path / SCALE / "units" / "new").exists()


def test_items_have_equal_ids_on_every_worker(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("captures", "-n", "2", "-k", "correctness")
    result.assert_outcomes(passed=4)


def test_an_ini_twin_does_what_the_option_does(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nr3_device = hip\n")
    result = project.runpytest(f"{SCALE}::correctness[0]")
    result.stderr.fnmatch_lines(["*device hip cannot be used*"])


def test_no_process_stays_behind(project: pytest.Pytester) -> None:
    project.runpytest_subprocess("captures", "-k", "correctness").assert_outcomes(passed=4, deselected=6)
    running = [Path(entry.path, "cmdline") for entry in os.scandir("/proc") if entry.name.isdigit()]
    mine = [path for path in running if path.exists() and str(project.path).encode() in path.read_bytes()]
    assert not mine
