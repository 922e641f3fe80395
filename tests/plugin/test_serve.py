"""``r3bench serve`` and ``pytest --r3-server``: one session's replays, and a search, in another process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """The address of a server on the CPU device, which ends well."""
    options = [f"unix:{tmp_path}/r3.sock", "--device", "cpu", "--timeout", "60"]
    command = [sys.executable, "-m", "r3bench", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert f"at unix:{tmp_path}/r3.sock" in server.stdout.readline()
        yield f"unix:{tmp_path}/r3.sock"
        server.send_signal(signal.SIGTERM)
        assert (server.wait(60), server.communicate()[1]) == (0, "")
    assert not (tmp_path / "r3.sock").exists()


def test_items_pass_and_fail_as_without(project: pytest.Pytester, source: Path, served: str) -> None:
    project.runpytest("captures", "--r3-server", served).assert_outcomes(passed=8, skipped=2)
    source.write_text(source.read_text().replace("factor * data[i]", "factor + data[i]"))
    result = project.runpytest("captures", "-k", "correctness", "--r3-server", served)
    result.assert_outcomes(passed=2, failed=2, deselected=6)
    result.stdout.fnmatch_lines(["*app/scale, unit 0: mismatch: *data*"])


def test_a_search_runs_on_it(project: pytest.Pytester, served: str) -> None:
    options = ["--r3-iterations", "2", "--r3-trials", "12", "--r3-evaluations", "20", "--r3-proposer", "rules"]
    result = project.runpytest("captures", "-k", "evolve and scale", "--r3-evolve", *options, "--r3-server", served)
    result.assert_outcomes(passed=1, deselected=9)
    (ledger,) = project.path.glob("reports/app/ledger/*.jsonl")
    assert "cannot be understood" not in ledger.read_text()


def test_where_no_server_is(project: pytest.Pytester, tmp_path: Path) -> None:
    result = project.runpytest("captures", "-k", "correctness", "--r3-server", f"unix:{tmp_path}/none.sock")
    result.assert_outcomes(failed=4, deselected=6)
    result.stdout.fnmatch_lines([f"*no replay server answers at unix:{tmp_path}/none.sock*r3bench serve*"])


def test_an_address_that_is_none_is_a_usage_error(project: pytest.Pytester) -> None:
    result = project.runpytest("captures", "--r3-server", "localhost")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--r3-server: 'localhost' is no address: use unix:/path*"])
