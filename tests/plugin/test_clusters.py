"""``pytest --r3-cluster``: items and a search on a cluster that pytest starts, here and as a job of a queue."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Runs a job's script at once, in a session of its own whose number is the job's.
SBATCH = """\
#!/bin/sh
cp "$1" "$0.job"
setsid sh "$0.job" >"$0.log" 2>&1 &
echo "Submitted batch job $!"
"""
SCANCEL = """\
#!/bin/sh
kill -TERM -- "-$1"
"""


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with Slurm's commands, as far as they are used, and a home of one's own."""
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_items_and_a_search_run_on_workers_of_this_machine(project: pytest.Pytester) -> None:
    options = ["--r3-evolve", "--r3-evaluations", "6", "--r3-device", "cpu"]
    result = project.runpytest_subprocess("captures", "-k", "scale", *options, "--r3-cluster", "local:1")
    result.assert_outcomes(passed=5, deselected=5)
    assert "processors" in (project.path / "reports" / "app" / "ledger" / "scale.jsonl").read_text()


def test_jobs_of_a_queue_work_and_end(project: pytest.Pytester, queue: Path) -> None:
    where = "slurm:1,cores=1,memory=1GB,queue=short"
    result = project.runpytest_subprocess("captures", "-k", "correctness and scale", "--r3-cluster", where)
    result.assert_outcomes(passed=2, deselected=8)
    script = (queue / "sbatch.job").read_text()
    assert "#SBATCH -p short" in script
    assert "#SBATCH --requeue" in script
    assert "-m r3bench worker tls://" in script
    assert not list((queue / ".r3bench").iterdir())  # the certificates are gone


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--r3-cluster", "slurm"], "*--r3-cluster: 'slurm' names no cluster; say slurm:4*"),
        (["--r3-cluster", "tcp://10.1.2.3:8786"], "*can run code as you*"),
        (["--r3-cluster", "local:1", "--r3-server", "unix:/tmp/s"], "*exclude each other*"),
        (["--r3-cluster", "local:1", "--r3-history"], "*keeps times of one device*"),
    ],
)
def test_what_cannot_be_asked_for_together(project: pytest.Pytester, options: list[str], why: str) -> None:
    result = project.runpytest("captures", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([why])
