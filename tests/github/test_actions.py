"""The workflows and the composite action: audited, valid, and their steps run as a runner's shell would run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

TOP = Path(__file__).parents[2]
GITHUB = TOP / ".github"
ACTION = GITHUB / "actions/r3bench/action.yml"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
BIN = Path(sys.executable).parent


def load(path: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(path.read_text())
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    document = load(path)
    if "runs" in document:
        return list(document["runs"]["steps"])
    return [step for job in document["jobs"].values() for step in job["steps"]]


# -- what they are --------------------------------------------------------------------------------------------------


def test_zizmor_finds_nothing() -> None:
    done = subprocess.run(
        [BIN / "zizmor", "--offline", "--no-progress", GITHUB], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("kind", "files"), [("workflows", WORKFLOWS), ("actions", [ACTION])])
def test_they_fit_githubs_schema(kind: str, files: list[Path]) -> None:
    command = [BIN / "check-jsonschema", "--builtin-schema", f"vendor.github-{kind}", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", [ACTION, *WORKFLOWS], ids=lambda path: path.stem)
def test_no_expression_stands_in_a_script_and_every_action_is_pinned(path: Path) -> None:
    for step in steps(path):
        assert "${{" not in step.get("run", "")
        uses = step.get("uses", "$/")
        assert uses.startswith("$/") or re.search(r"@[0-9a-f]{40}$", uses), uses


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_job_is_bounded_and_has_only_the_rights_it_names(path: Path) -> None:
    document = load(path)
    assert document["permissions"] == {}
    for job in document["jobs"].values():
        assert job["timeout-minutes"] <= 360
        writes = [right for right, level in job["permissions"].items() if level == "write"]
        assert writes == (["pull-requests"] if path.stem == "comment" else [])
        assert "concurrency" in job or "concurrency" in document


def test_our_own_machines_run_this_repositorys_branches_only() -> None:
    for path in WORKFLOWS:
        for job in load(path)["jobs"].values():
            if "self-hosted" in job["runs-on"]:
                triggers = load(path)[True]  # YAML reads the key "on" as true
                same = "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]
                assert same or "pull_request" not in triggers


# -- what its steps do ----------------------------------------------------------------------------------------------


class Runner:
    """Runs the action's shell steps in a repository: inputs and outputs as a runner hands them on."""

    def __init__(self, folder: Path, inputs: dict[str, str], tools: Path = BIN) -> None:
        self.folder, self.inputs, self.tools = folder, inputs, tools
        self.outputs: dict[str, dict[str, str]] = {}
        self.summary = folder / ".runner/summary.md"
        self.summary.parent.mkdir(exist_ok=True)
        self.summary.touch()
        self.log = ""

    def value(self, expression: str) -> str:
        kind, _, name = expression.strip().partition(".")
        if kind == "inputs":
            default = load(ACTION)["inputs"][name].get("default", "")
            return self.inputs.get(name, default)
        step, _, output = name.partition(".outputs.")
        assert kind == "steps"
        return self.outputs.get(step, {}).get(output, "")

    def filled(self, text: str) -> str:
        return re.sub(r"\$\{\{(.*?)\}\}", lambda match: self.value(match[1]), text)

    def run(self, name: str) -> int:
        """One step by its name, as ``shell: bash`` does it; its status."""
        step = next(step for step in steps(ACTION) if step["name"] == name)
        script, output = self.folder / ".runner/script.sh", self.folder / ".runner/output"
        script.write_text(step["run"])
        output.write_text("")
        own = {key: self.filled(value) for key, value in step.get("env", {}).items()}
        given = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "PYTHONPATH": str(TOP),
            "HOME": str(self.folder),
            "RUNNER_TEMP": str(self.folder / ".runner"),
            "GITHUB_ACTION_PATH": str(ACTION.parent),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
        done = subprocess.run(
            command, cwd=self.folder, env={**given, **own}, capture_output=True, text=True, check=False
        )
        self.log = done.stdout + done.stderr
        self.outputs[step.get("id", "")] = dict(line.split("=", 1) for line in output.read_text().splitlines())
        return done.returncode


def git(*arguments: str) -> None:
    identity = ("-c", "user.email=a@b.c", "-c", "user.name=a")
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """miniWeather with one kernel's capture, in a repository with one commit."""
    for folder in ("kernels/miniweather", "captures/miniweather/halo_x.zarr"):
        shutil.copytree(TOP / folder, tmp_path / folder)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:zarr\n")
    (tmp_path / ".gitignore").write_text(".*\nreports/\n")
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "base")
    return tmp_path


def test_an_unchanged_tree_passes(repository: Path) -> None:
    git("commit", "-q", "--allow-empty", "-m", "head")
    runner = Runner(repository, {"base": "HEAD^1", "captures": "\ncaptures/miniweather\n"})
    assert [runner.run(name) for name in ("Guard", "Report", "Result")] == [0, 0, 0], runner.log
    assert runner.outputs["report"] == {
        "verdict": "pass", "kernels": "1", "slower": "0", "wrong": "0", "faster": "0", "unclear": "0",
        "report": "reports/guard/report.json",
    }  # fmt: skip
    assert runner.summary.read_text().startswith("<!-- r3bench: guard miniweather -->")


def test_a_wrong_kernel_fails_at_the_end_and_is_annotated_at_its_line(repository: Path) -> None:
    source = repository / "kernels/miniweather/kernels.cu"
    text = source.read_text()
    body = text.index("{", text.index("halo_x(")) + 1
    source.write_text(f"{text[:body]} return; {text[body:]}")
    runner = Runner(repository, {"base": "main", "captures": "captures/miniweather"})
    assert runner.run("Guard") == 0
    lines = runner.log.splitlines()
    stop = next(index for index, line in enumerate(lines) if line.startswith("::stop-commands::"))
    resume = lines.index(f"::{lines[stop].removeprefix('::stop-commands::')}::")
    assert re.fullmatch("::[0-9a-f]{32}::", lines[resume])
    said = [index for index, line in enumerate(lines) if "halo_x: wrong" in line]
    assert said
    assert all(stop < index < resume for index in said)
    assert runner.run("Report") == 0
    place = f"file=kernels/miniweather/kernels.cu,line={text[: text.index('halo_x(')].count(chr(10)) + 1}"
    assert f"::error {place},title=miniweather/halo_x%3A wrong::unit 0: mismatch" in runner.log
    assert runner.outputs["report"]["verdict"] == "fail"
    assert runner.outputs["report"]["wrong"] == "1"
    assert runner.run("Result") == 11


def test_an_action_that_would_do_nothing_fails(repository: Path) -> None:
    first = steps(ACTION)[0]
    assert first["if"] == "inputs.base == '' && inputs.evolve == 'off'"
    runner = Runner(repository, {})
    assert runner.run(first["name"]) == 2
    assert "::error title=r3bench::base is empty" in runner.log


def test_inputs_are_data_whatever_they_hold(repository: Path) -> None:
    hostile = "$(touch owned) `touch owned`; touch owned"
    names = ("base", "captures", "gate", "device", "fail-on", "evolve", "budget")
    runner = Runner(repository, dict.fromkeys(names, hostile))
    assert runner.run("Guard") == 0
    assert runner.outputs["guard"]["status"] == "2"
    assert runner.run("Evolve") == 0
    assert runner.outputs["evolve"]["status"] != "0"
    assert runner.run("Report") == 0
    assert runner.outputs["report"] == {"verdict": "error"}
    assert runner.run("Result") == 2
    assert not (repository / "owned").exists()


def test_the_install_step_installs_the_actions_own_repository(repository: Path, tmp_path: Path) -> None:
    fake = tmp_path / ".runner/bin/python3"
    fake.parent.mkdir(parents=True)
    fake.write_text('#!/bin/sh\necho "$0 $*" >> "$RUNNER_TEMP/called"\nmkdir -p "$3/bin"; cp "$0" "$3/bin/python"\n')
    fake.chmod(0o755)
    runner = Runner(repository, {}, tools=fake.parent)
    assert runner.run("Install") == 0, runner.log
    called = (repository / ".runner/called").read_text().splitlines()
    assert called[0].endswith(f"-m venv {repository}/.runner/r3bench")
    requirement = called[1].rpartition("-- ")[2]
    assert Path(requirement).resolve() == TOP
