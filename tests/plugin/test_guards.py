"""``--r3-guard``: base against head, one item per kernel, its exit statuses and its document."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from r3bench.cli import main
from r3bench.devices import survey

SCALE = "data[i] = factor * data[i]"
# The same result, in a time that no noise hides.
SLOW = "for (volatile int k = 0; k < 400; k = k + 1) {} data[i] = factor * data[i]"


def git(*arguments: str, folder: Path | str = ".") -> str:
    command = ["git", "-C", str(folder), "-c", "user.email=a@b.c", "-c", "user.name=a", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(project: pytest.Pytester) -> pytest.Pytester:
    """The project as a git repository with one commit."""
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-q", "-m", "base")
    return project


def edit(source: Path, old: str, new: str) -> None:
    text = source.read_text()
    assert old in text
    source.write_text(text.replace(old + ";", f"{{ {new}; }}").replace(old, new))


def guard(project: pytest.Pytester, *arguments: str, base: str = "main") -> pytest.RunResult:
    return project.runpytest("captures", f"--r3-guard={base}", *arguments)


def document(project: pytest.Pytester) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / "reports/guard/report.json").read_text())
    return found


def verdicts(project: pytest.Pytester) -> dict[str, str]:
    return {row["kernel"]: row["verdict"] for row in document(project)["guard"]["kernels"]}


# -- answers --------------------------------------------------------------------------------------------------------


def test_an_unchanged_tree_is_identical_and_nothing_is_timed(repository: pytest.Pytester) -> None:
    result = guard(repository, "-v")
    result.assert_outcomes(passed=2, deselected=10)
    assert result.ret == 0
    assert verdicts(repository) == {"app/scale": "identical", "app/difference": "identical"}
    about = document(repository)["guard"]
    assert about["verdict"] == "pass"
    assert about["base"] == {"name": "main", "commit": git("rev-parse", "main")}
    assert about["head"] == {"name": "working tree", "commit": git("rev-parse", "main")}
    assert all(row["comparison"] is None for row in about["kernels"])


def test_slower_fails_its_item_with_a_status_of_its_own(repository: pytest.Pytester, source: Path) -> None:
    edit(source, SCALE, SLOW)
    result = guard(repository, "--junitxml=out.xml")
    result.assert_outcomes(passed=1, failed=1, deselected=10)
    assert result.ret == 10
    result.stdout.re_match_lines([r"app/scale: slower: .*x slower \(.*, from \d+ blocks.*"])
    row = document(repository)["guard"]["kernels"][0]
    assert (row["kernel"], row["verdict"], row["fails"]) == ("app/scale", "slower", True)
    assert row["comparison"]["decision"] == "slower"
    assert row["comparison"]["repeat"]["decision"] == "slower"  # in a fresh process
    for gpu, count in (("sm_90", "ptx_instructions"), ("gfx90a", "instructions"), ("gfx1100", "instructions")):
        sides = row["static"][gpu]
        assert sides["head"][count] > sides["base"][count]
        assert any(note.startswith(f"code for {gpu}: ") for note in row["notes"])
    assert 'name="r3_verdict" value="slower"' in (repository.path / "out.xml").read_text()


def test_a_deleted_kernel_and_a_deleted_capture_are_told(repository: pytest.Pytester, source: Path) -> None:
    source.unlink()
    shutil.rmtree(repository.path / "captures/app/difference.zarr")
    result = guard(repository)
    assert verdicts(repository) == {"app/scale": "deleted", "app/difference": "deleted"}
    assert result.ret == 3  # nothing was measured
    result.stdout.fnmatch_lines(["*nothing was measured: 2 deleted*"])


@pytest.mark.parametrize("committed", [False, True])
def test_where_git_says_that_a_kernels_file_went_is_told(repository: pytest.Pytester, committed: bool) -> None:
    for old, new in (("scale.cu", "other.cu"), ("other.cu", "new/scaled.cu")):
        (repository.path / "kernels/app" / new).parent.mkdir(exist_ok=True)
        git("mv", f"kernels/app/{old}", f"kernels/app/{new}")
        if committed:
            git("commit", "-qm", "moved")
    result = guard(repository, "-k", "scale", base="HEAD~2" if committed else "main")
    assert verdicts(repository) == {"app/scale": "deleted"}
    where = "looked for in kernels/app/scale.cu, which git says is kernels/app/new/scaled.cu now: record it again*"
    result.stdout.fnmatch_lines([f"app/scale: *{where}"])


def test_a_wrong_kernel_does_not_pass_by_recording_it_again(
    repository: pytest.Pytester, source: Path, record: Callable[[Path], None]
) -> None:
    edit(source, SCALE, "data[i] = 1.01 * factor * data[i]")
    record(repository.path)
    assert guard(repository, "-k", "scale").ret == 12
    assert verdicts(repository) == {"app/scale": "rerecorded"}
    assert guard(repository, "-k", "scale", "--r3-fail-on=slower,wrong").ret == 0


# -- bases ----------------------------------------------------------------------------------------------------------


def test_an_unknown_commit_is_a_usage_error(repository: pytest.Pytester) -> None:
    result = guard(repository, base="nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--r3-guard: there is no folder 'nowhere', and git knows no commit of this name*"])


# -- gates, choices, failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--r3-fail-on=bad", "*--r3-fail-on takes identical, same*not 'bad'*"),
        ("--r3-gate-ns=-1", "*--r3-gate-ns takes*"),
        ("--r3-evolve", "*--r3-guard and --r3-evolve are two runs*"),
    ],
)
def test_what_no_guard_could_use_is_a_usage_error(repository: pytest.Pytester, option: str, sentence: str) -> None:
    result = guard(repository, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([sentence])


@pytest.mark.parametrize("line", ["app/scale 5", "app/scale = 1.2.3%", "app/scale = .%", "app/scale = 5% 1..ns"])
def test_a_gate_that_is_none_is_a_usage_error(repository: pytest.Pytester, line: str) -> None:
    repository.makeini(f"[pytest]\nr3_gates = {line}\n")
    result = guard(repository)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*r3_gates: '{line}' is no line such as*"])


def test_a_kernel_may_have_a_gate_of_its_own(repository: pytest.Pytester) -> None:
    repository.makeini("[pytest]\nr3_gates =\n    other/* = 1%\n    app/diff* = 7.5% 20ns\n    app/* = 3%\n")
    hook = "for item in items: 'scale' in item.nodeid and item.add_marker(pytest.mark.r3_gate(12.5, ns=30))"
    repository.makeconftest(f"import pytest\ndef pytest_collection_modifyitems(items):\n    {hook}")
    assert guard(repository, "--r3-gate=5").ret == 0
    about = document(repository)["guard"]
    gates = {row["kernel"]: (row["gate"], row["absolute_ns"]) for row in about["kernels"]}
    assert gates == {"app/difference": (0.075, 20), "app/scale": (0.125, 30)}
    assert about["device_asked"] is False  # the project's own ini file asked for the CPU


def test_measuring_nothing_is_an_error(repository: pytest.Pytester) -> None:
    result = guard(repository, "-k", "correctness")
    assert result.ret == 3
    result.stdout.fnmatch_lines(["*nothing was measured: no kernel's guard ran*", "report: *report.md"])
    assert verdicts(repository) == {}


def test_a_report_that_cannot_be_written_is_one_sentence_and_an_error(repository: pytest.Pytester) -> None:
    (repository.path / "reports").mkdir()
    (repository.path / "reports/guard").write_text("in the way")
    result = guard(repository)
    result.assert_outcomes(passed=2, deselected=10)
    assert result.ret == 3
    result.stdout.fnmatch_lines(["*/reports/guard/report.json cannot be written (File exists): make room there*"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_measuring_nothing_leaves_an_earlier_report(repository: pytest.Pytester) -> None:
    assert guard(repository, "-k", "scale").ret == 0
    result = guard(repository, "-k", "nothinghere")
    assert result.ret == 3
    result.stdout.fnmatch_lines(["an earlier run's report, left as it is: *report.md"])
    assert verdicts(repository) == {"app/scale": "identical"}


def test_a_cpu_that_nobody_asked_for_says_why_it_fails_nothing(repository: pytest.Pytester, source: Path) -> None:
    if any(each.name != "cpu" and each.usable for each in survey()):
        pytest.skip("there is a GPU, which a run takes by itself")
    edit(source, SCALE, SLOW)
    result = guard(repository, "-k", "scale", "--r3-device=auto")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["app/scale: not failed: these are times of a CPU that was not asked for*", "Times are CPU times*"]
    )
    assert document(repository)["guard"]["head"]["name"].startswith("working tree, changed since ")


def test_a_damaged_capture_is_an_error_and_the_others_are_guarded(repository: pytest.Pytester) -> None:
    (repository.path / "captures/app/scale.zarr/zarr.json").write_text("{")
    result = guard(repository)
    result.assert_outcomes(passed=1, failed=1, deselected=5)
    assert result.ret == 3
    assert document(repository)["guard"]["verdict"] == "error"
    guard(repository, "--lf").assert_outcomes(failed=1)


def test_it_runs_over_workers(repository: pytest.Pytester, source: Path) -> None:
    edit(source, SCALE, "data[i] = 0")
    result = repository.runpytest_subprocess("captures", "--r3-guard=main", "-n", "2")
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 11
    assert verdicts(repository) == {"app/scale": "wrong", "app/difference": "identical"}


# -- the command ----------------------------------------------------------------------------------------------------


def test_the_command_compares_two_commits_and_touches_no_checkout(
    repository: pytest.Pytester, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    edit(source, SCALE, "data[i] = 0.0")
    git("commit", "-qam", "wrong")
    source.write_text("not even a kernel")
    before = git("status", "--porcelain", "--untracked-files=no")
    assert main(["guard", "HEAD~1", "HEAD", "--device", "cpu", "--captures", "captures/app/scale.zarr"]) == 11
    assert "app/scale: wrong: unit 0: mismatch" in capfd.readouterr().out
    assert git("status", "--porcelain", "--untracked-files=no") == before
    about = document(repository)["guard"]
    assert about["base"] == {"name": "HEAD~1", "commit": git("rev-parse", "HEAD~1")}
    assert about["head"] == {"name": "HEAD", "commit": git("rev-parse", "HEAD")}
    assert about["reproduce"] == "r3bench guard 'HEAD~1' HEAD --device=cpu --captures captures/app/scale.zarr"


def test_of_the_working_tree_nothing_is_named_that_pytest_takes_anyhow(
    repository: pytest.Pytester, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["guard", "HEAD", "--device", "cpu", "--captures", "captures/app/scale.zarr"]) == 0
    assert "\nreport: reports/guard/report.md\n" in capfd.readouterr().out
    again = "pytest --r3-guard=HEAD --r3-device=cpu captures/app/scale.zarr"
    assert document(repository)["guard"]["reproduce"] == again


def test_it_finds_sources_and_commits_from_a_folder_below(
    repository: pytest.Pytester, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(source, SCALE, "data[i] = 0.0")
    monkeypatch.chdir(repository.path / "captures")
    assert main(["guard", "HEAD", "--device", "cpu", "--captures", "app"]) == 11
    git("commit", "-qam", "wrong")
    assert main(["guard", "HEAD~1", "HEAD", "--device", "cpu", "--captures", "app"]) == 11


def test_the_command_takes_folders(repository: pytest.Pytester, source: Path, tmp_path: Path) -> None:
    shutil.copytree(repository.path, tmp_path / "head")
    edit(source, SCALE, "data[i] = 0.0")
    options = ["--gate", "7.5", "--gate-ns", "20", "--captures", "captures/app/scale.zarr"]
    assert main(["guard", ".", str(tmp_path / "head"), *options]) == 0
    (row,) = document(repository)["guard"]["kernels"]
    assert (row["verdict"], row["gate"], row["absolute_ns"]) == ("changed", 0.075, 20)


def test_the_command_says_what_it_cannot_read(repository: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["guard", "nowhere"]) == 2
    assert capsys.readouterr().err.startswith("r3bench: there is no folder 'nowhere'")
    assert main(["guard", "main", "--gate", "fast"]) == 2
