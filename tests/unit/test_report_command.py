"""``r3bench report``: the same document in every format, from ledgers, folders and documents."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from r3bench import report
from r3bench.cli import main
from r3bench.errors import LedgerError
from r3bench.ledger import Ledger
from tests.unit.demo import GUARD, IMPROVED, PLAIN
from tests.unit.grounds import keep


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run: a ledger for each kernel."""
    for result in (IMPROVED, PLAIN):
        with Ledger.open(tmp_path / "demo" / "ledger" / f"{result.kernel.split('/')[1]}.jsonl") as ledger:
            ledger.append("run", format=1, settings={"trials": 7, "limits": {"seconds": 40.0}, "kernels": 2})
            keep(ledger, result)
    return tmp_path / "demo"


def test_every_format_from_folder_ledger_and_document(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run)]) == 0
    assert "1.75x" in capsys.readouterr().out
    assert main(["report", str(run), "--format", "markdown"]) == 0
    assert (
        "pytest --r3-evolve captures/demo --r3-device cpu --r3-seed 1 --r3-trials 7 --r3-seconds 20"
        in capsys.readouterr().out
    )
    assert main(["report", str(run / "ledger" / "k.jsonl"), "--format", "html"]) == 0
    assert capsys.readouterr().out.startswith("<!DOCTYPE html>")
    assert main(["report", str(run), "--format", "json", "--into", str(run)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["kernels"]) == 2
    assert main(["report", str(run / "report.json"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert {path.name for path in run.glob("report.*")} == {"report.json", "report.md", "report.html"}


@pytest.mark.parametrize("form", ["terminal", "markdown", "html", "json"])
def test_halves_of_characters_are_left_out(run: Path, form: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Ledger.open(run / "ledger" / "k.jsonl") as ledger:
        keep(ledger, replace(IMPROVED, kernel="demo/k\udc80", description="a \ud800 half", source="\udfff/k.cu"))
    assert main(["report", str(run), "--format", form, "--into", str(run / "out")]) == 0
    assert "improved" in capfd.readouterr().out
    written = {path.name: path.read_text(encoding="utf-8") for path in (run / "out").glob("report.*")}
    assert len(written) == 3
    assert all("half" in text for text in written.values())


def test_the_terminal_says_what_a_search_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernels" / "demo").mkdir(parents=True)
    (tmp_path / "kernels" / "demo" / "k.cu").write_text(IMPROVED.before)
    busy = replace(IMPROVED, conditions=(("cores", "2"), ("load", "7.8")))
    with Ledger.open(tmp_path / "reports" / "demo" / "ledger" / "k.jsonl") as ledger:
        keep(ledger, busy)
    report.write([tmp_path / "reports/demo/ledger/k.jsonl"], tmp_path / "reports")
    for place in ("reports/demo", "reports/demo/report.json", "reports/demo/ledger/k.jsonl", "reports/demo/ledger"):
        assert main(["report", place]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert any(line.startswith("the machine was busy (load 7.8 on 2 cores") for line in lines)
        assert lines[-4:] == [
            "report: reports/demo/report.md",
            "git apply reports/demo/k.patch",
            "configuration: reports/demo/k.json, with k.patch",
            "(r3bench run --with reports/demo -- ./app runs a CUDA application with all that was found)",
        ]


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_a_ledger_changed_by_hand_is_told(run: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    ledger = run / "ledger" / "k.jsonl"
    *lines, last = ledger.read_text().splitlines()
    assert '"speedup":1.2' in last
    ledger.write_text("\n".join([*lines, last.replace('"speedup":1.2', '"speedup":2.2')]) + "\n")
    assert main(["report", str(run), "--format", form]) == 0
    said = capsys.readouterr().out.replace("\\", "")
    assert (
        f"1 lines of the ledgers were left out: line {len(lines) + 1} of k.jsonl: the result of demo/k: patch: " in said
    )
    assert "2.2x" not in said
    assert main(["report", str(ledger)]) == 3
    assert f"hold no result that can be drawn (line {len(lines) + 1} of k.jsonl: " in capsys.readouterr().err


def test_a_document_that_cannot_be_a_report_is_told(run: Path) -> None:
    kernels = [replace(PLAIN, baseline_ns=-1.0)]
    with pytest.raises(LedgerError, match=rf"the ledgers of {run} are damaged \(kernels\[0\]\.baseline_ns"):
        report.checked(report.document("demo", kernels), run)


def test_two_applications_are_written_into_a_folder_each(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Ledger.open(run / "ledger" / "other.jsonl") as ledger:
        keep(ledger, replace(PLAIN, kernel="other/k"))
    assert main(["report", str(run), "--into", str(tmp_path / "both")]) == 0
    written = {path.relative_to(tmp_path / "both").as_posix() for path in tmp_path.glob("both/**/report.json")}
    assert written == {"demo/report.json", "other/report.json"}
    assert main(["report", str(run / "ledger" / "k.jsonl"), "--into", "/proc/x"]) == 3
    assert "r3bench: /proc/x/report.json cannot be written (" in capsys.readouterr().err


def test_a_guards_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.write_document(GUARD, tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert "1 of 2 kernels is slower than main" in capsys.readouterr().out


def test_what_cannot_be_reported_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 3
    assert (
        capsys.readouterr().err
        == f"r3bench: {tmp_path} holds no ledger and no report.json; name what a search or a guard wrote\n"
    )
    assert main(["report", str(tmp_path / "gone.jsonl")]) == 3
    assert "holds no ledger" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path), "--format", "pdf"])


def test_plots_for_publication(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--plots", str(tmp_path / "plots")]) == 0
    for name in ("times.pdf", "speedups.pdf"):
        assert (tmp_path / "plots" / name).read_bytes().startswith(b"%PDF")
    (tmp_path / "plain").mkdir()
    report.write_document(report.document("demo", [PLAIN]), tmp_path / "plain")
    assert main(["report", str(tmp_path / "plain"), "--plots", str(tmp_path)]) == 3
    assert "nothing was timed" in capsys.readouterr().err
