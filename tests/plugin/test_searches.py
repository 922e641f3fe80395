"""``pytest --r3-evolve``: reports, patches, and what is left after ctrl-C and kill -9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from r3bench import sealing
from r3bench.ledger import read, results

SLOW = """
    double sum = 0.0;
    for (int k = 0; k < 100; k++) sum += pow(data[i] + k, 3.0);
    data[i] = factor * data[i] + 1e-300 * sum;
"""
SHORT = ("--r3-trials=2", "--r3-iterations=3", "--r3-seconds=300", "--r3-evaluations=40")
EVOLVE = ("--r3-evolve", "-k", "evolve", *SHORT, "-p", "no:cacheprovider")
REPORT = Path("reports/app")


@pytest.fixture
def slow_project(project: pytest.Pytester, source: Path) -> pytest.Pytester:
    """The application with work in one kernel that a rewrite takes out, in a git repository."""
    source.write_text(source.read_text().replace("data[i] = factor * data[i];", f"{{ {SLOW} }}"))
    for command in (["init", "-q"], ["add", "kernels"]):
        subprocess.run(["git", *command], cwd=project.path, check=True)
    return project


def test_a_search_leaves_a_report_and_a_patch_that_applies(slow_project: pytest.Pytester) -> None:
    result = slow_project.runpytest("captures", *EVOLVE)
    result.assert_outcomes(passed=2, deselected=8)
    result.stdout.fnmatch_lines(["*r3bench: search*", "*scale *", "*report: reports/app/report.md*"])
    report = json.loads((slow_project.path / REPORT / "report.json").read_text())
    kernels = {kernel["kernel"]: kernel for kernel in report["kernels"]}
    assert set(kernels) == {"app/scale", "app/difference"}
    assert kernels["app/scale"]["status"] == "improved"
    assert kernels["app/scale"]["evaluations"] >= 4
    assert "CPU times" in (slow_project.path / REPORT / "report.md").read_text()
    patches = sorted(path.name for path in (slow_project.path / REPORT).glob("*.patch"))
    for patch in patches:
        subprocess.run(["git", "apply", "--check", str(REPORT / patch)], cwd=slow_project.path, check=True)
    assert all(str(REPORT / patch) in result.stdout.str() for patch in patches)
    assert not patches or f"git apply {REPORT}/" in result.stdout.str()
    kept = {path.name: path.read_bytes() for path in (slow_project.path / REPORT).glob("scale.*")}
    again = slow_project.runpytest("captures", *EVOLVE, "--r3-evaluations=0")
    again.stdout.fnmatch_lines(["*scale *no gain*", "the earlier results that these replace are kept in reports/app/*"])
    (old,) = (slow_project.path / REPORT / "ledger" / "earlier").glob("*/scale.jsonl")
    assert [(r.kernel, r.status) for r in results(read(old)[0])] == [("app/scale", "improved")]
    assert {path.name: path.read_bytes() for path in old.parent.glob("scale.*") if path != old} == kept


def test_a_search_that_cannot_begin_leaves_earlier_results_in_their_place(project: pytest.Pytester) -> None:
    ledger = project.path / REPORT / "ledger" / "scale.jsonl"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("")
    result = project.runpytest(
        "captures/app/scale.zarr::evolve",
        "--r3-evolve",
        "--r3-proposer=recorded:missing.jsonl",
        "-p",
        "no:cacheprovider",
    )
    result.assert_outcomes(failed=1)
    assert [path.name for path in ledger.parent.iterdir()] == ["scale.jsonl"]


def test_prompts_that_wait_for_answers_are_told(project: pytest.Pytester) -> None:
    kernel = "captures/app/scale.zarr::evolve"
    options = ("--r3-evolve", *SHORT, "--r3-proposer=files:answers", "--r3-patience=0")
    result = project.runpytest(kernel, *options, "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    (prompt,) = (project.path / "answers").glob("*.prompt.md")  # steps that ask the same share it
    name = prompt.name.removesuffix(".prompt.md")
    result.stdout.fnmatch_lines(
        [
            "waiting for answers to the prompts in answers/ *ctrl-C or --r3-patience (0 s) ends this*",
            f"answers/{name}.prompt.md waits for {name}.answer.md: write it and resume the search (--r3-resume)",
        ]
    )
    report = json.loads((project.path / REPORT / "report.json").read_text())
    assert report["kernels"][0]["steps"] == 0
    answered = "--r3-proposer files:answers --r3-patience 0"
    assert report["reproduce"].endswith(f"--r3-seconds 300 {answered} --r3-evaluations 40 --r3-timeout 60")


def test_a_search_of_one_kernel_keeps_the_others_in_the_report(project: pytest.Pytester) -> None:
    for kernel in ("scale", "difference"):
        project.runpytest(f"captures/app/{kernel}.zarr::evolve", "--r3-evolve", "--r3-evaluations=4")
    report = json.loads((project.path / REPORT / "report.json").read_text())
    assert {kernel["kernel"] for kernel in report["kernels"]} == {"app/scale", "app/difference"}


def test_the_table_is_that_of_the_searches_of_this_session(project: pytest.Pytester) -> None:
    for mode, evaluations in (("full", 4), ("bo", 0)):
        result = project.runpytest(
            "captures/app/scale.zarr::evolve", "--r3-evolve", f"--r3-evaluations={evaluations}", f"--r3-search={mode}"
        )
    result.stdout.re_match_lines([r"kernel +result +with config", r"scale +no gain +- +ranked"], consecutive=False)
    result.stdout.fnmatch_lines(["app/scale: the report keeps what the search full found: *"])
    assert "patch alone" not in result.stdout.str()


def test_nothing_is_searched_where_the_baseline_does_not_replay(project: pytest.Pytester, source: Path) -> None:
    source.write_text(source.read_text().replace("factor * data[i]", "factor + data[i]"))
    result = project.runpytest("captures/app/scale.zarr::evolve", "--r3-evolve")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["app/scale: nothing to search: the baseline*does not replay: mismatch: data*"])


def test_a_proposer_that_cannot_be_used_is_the_same_sentence_for_every_kernel(project: pytest.Pytester) -> None:
    result = project.runpytest("captures", *EVOLVE, "--r3-proposer=recorded:nowhere.jsonl")
    result.assert_outcomes(failed=2, deselected=8)
    assert result.stdout.str().count("the ledger nowhere.jsonl cannot be read (No such file or directory)") >= 2
    assert "another run" not in result.stdout.str()


def test_where_nothing_is_sealed_only_the_rules_propose_unasked(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "missing", lambda: ("the kernel has no Landlock",))
    asked = ("captures", "--r3-evolve", "--collect-only", "--r3-proposer")
    result = project.runpytest(*asked, "recorded:nowhere.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --r3-proposer recorded: *(not sealed: *Landlock)*--r3-allow-unsealed*"])
    assert project.runpytest(*asked, "recorded:nowhere.jsonl", "--r3-allow-unsealed").ret == pytest.ExitCode.OK
    assert project.runpytest(*asked, "rules").ret == pytest.ExitCode.OK


@contextmanager
def running(project: pytest.Pytester) -> Iterator[subprocess.Popen[str]]:
    """A search in a process of its own, once it has evaluated something."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "captures",
        *EVOLVE,
        "--r3-trials=500",
        "--r3-race=off",
        "--r3-seconds=3000",
        "--r3-evaluations=100000",
    ]
    process = subprocess.Popen(
        command,
        cwd=project.path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )
    try:
        deadline = time.monotonic() + 300
        while sum(record["kind"] == "outcome" for record in records(project)) < 5:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def records(project: pytest.Pytester) -> list[dict[str, object]]:
    ledgers = list((project.path / REPORT / "ledger").glob("*.jsonl"))
    return [dict(record) for path in ledgers for record in read(path)[0]]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_with_a_report_of_what_was_found(slow_project: pytest.Pytester, how: signal.Signals) -> None:
    with running(slow_project) as process:
        process.send_signal(how)
        output, _ = process.communicate(timeout=300)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "report: reports/app/report.md" in output
    assert "the search was interrupted: the report says what it had found, --r3-resume goes on" in output
    assert "KeyboardInterrupt" not in output
    report = json.loads((slow_project.path / REPORT / "report.json").read_text())
    assert [kernel["status"] for kernel in report["kernels"]] == ["interrupted", "interrupted"]
    assert sum(kernel["evaluations"] for kernel in report["kernels"]) >= 5


def test_ctrl_c_twice_ends_the_same_way(slow_project: pytest.Pytester) -> None:
    with running(slow_project) as process:
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=300)
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "Traceback" not in output
    assert "report: reports/app/report.md" in output


def test_kill_9_damages_nothing_and_the_search_goes_on_from_there(slow_project: pytest.Pytester) -> None:
    with running(slow_project) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
    before = [record["key"] for record in records(slow_project) if record["kind"] == "outcome"]
    result = slow_project.runpytest("captures", *EVOLVE, "--r3-resume", f"--r3-evaluations={len(before) + 20}")
    result.assert_outcomes(passed=2, deselected=8)
    after = [record["key"] for record in records(slow_project) if record["kind"] == "outcome"]
    assert len(before) >= 5
    assert set(before) < set(after)
    assert len(set(after)) == len(after), "nothing is evaluated twice"
