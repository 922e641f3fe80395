"""Annotations, summary and outputs of a job, from a guard's document."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r3bench.cli import main
from r3bench.guard import Gate, Guarded, Ruling
from r3bench.guard.documents import About, document, row
from tests.search.fake_server import comparison


def made(*found: Guarded, errors: tuple[str, ...] = ()) -> dict[str, Any]:
    about = About(
        base=("main", None), head=("working tree", None), fail_on=("wrong",), asked=True, reproduce="", errors=errors
    )
    rows = [row(one, "captures/k.zarr", one.ruling is Ruling.WRONG) for one in found]
    return document(rows, {"device": "cpu", "target": "x", "conditions": {}}, about)


def kernel(number: int, ruling: Ruling, detail: str = "why") -> Guarded:
    gain = {Ruling.FASTER: 1.5, Ruling.SLOWER: 0.5}.get(ruling)
    contest = comparison(gain) if gain is not None else None
    place = "a,b:c.cu", 3
    return Guarded(kernel=f"app/k{number}", ruling=ruling, detail=detail, gate=Gate(), comparison=contest, place=place)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "report.json"


def annotated(report: Path, found: dict[str, Any], capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    report.write_text(json.dumps(found))
    assert main(["annotate", str(report), *options]) == 0
    return capsys.readouterr().out.splitlines()


def test_the_ten_worst_are_errors(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernels = [kernel(number, Ruling.WRONG) for number in range(12)]
    lines = annotated(report, made(*kernels, kernel(99, Ruling.UNCLEAR), kernel(98, Ruling.SAME)), capsys)
    assert [line for line in lines if line.startswith("::error")] == [
        f"::error file=a%2Cb%3Ac.cu,line=3,title=app/{name}%3A wrong::why"
        for name in sorted(f"k{n}" for n in range(12))
    ][:10]
    assert [line for line in lines if "k99" in line] == [
        "::warning file=a%2Cb%3Ac.cu,line=3,title=app/k99%3A unclear::why"
    ]
    assert not any("k98" in line for line in lines)
    assert lines[-1].startswith("::notice title=r3bench guard::12 of 14 kernels are wrong: ")


def test_kernels_have_the_names_that_people_write(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mangled = replace(kernel(1, Ruling.WRONG), kernel="app/_ZN2ns5scaleEPfi")
    error, notice = annotated(report, made(mangled), capsys)
    assert "title=app/ns%3A%3Ascale%3A wrong" in error
    assert notice == "::notice title=r3bench guard::1 of 1 kernels is wrong: ns::scale"


def test_no_text_ends_its_command(report: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "100%\r\n::set-output name=x::y"
    lines = annotated(report, made(kernel(1, Ruling.WRONG, hostile), errors=(hostile,)), capsys)
    assert len(lines) == 3
    assert lines[0].endswith("::100%25%0D%0A::set-output name=x::y")
    assert lines[1] == "::error title=could not be guarded::100%25%0D%0A::set-output name=x::y"


def test_summary_and_outputs_are_appended(report: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    summary, outputs = tmp_path / "summary", tmp_path / "outputs"
    outputs.write_text("before=1\n")
    found = made(kernel(1, Ruling.WRONG), kernel(2, Ruling.FASTER))
    annotated(report, found, capsys, "--summary", str(summary), "--outputs", str(outputs))
    assert "app/k1" in summary.read_text()
    assert outputs.read_text().split() == [
        "before=1", "verdict=fail", "kernels=2", "slower=0", "wrong=1", "faster=1", "unclear=0",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "search", "guard": {"verdict": "pass"}}'])
def test_what_is_no_guard_is_one_sentence(report: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    report.write_text(text)
    assert main(["annotate", str(report)]) == 3
    assert "guard" in capsys.readouterr().err
    report.unlink()
    assert main(["annotate", str(report)]) == 3
