"""What an application gains with tuned kernels in place is part of their report, as long as it is of these kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from r3bench import report
from r3bench.errors import LedgerError
from r3bench.ledger import Ledger
from r3bench.report import applied
from tests.unit import report_case
from tests.unit.grounds import keep

ROWS = [("whole", "20.000", "10.000", "2.000x", "1.900 to 2.100"), ("step", "5.000", "1.000", "5.000x", "-")]
NOTES = ["40 launches of a run used a tuned kernel", "the application's output is the same in every run"]


def searched(place: Path, description: str = "") -> Path:
    """The folder of a report with a ledger of one improved kernel."""
    result = report_case.kernel(1, 3)
    result = replace(result, after=f"{result.after}// {description}\n")
    with Ledger.open(place / "large/ledger/kernel_1.jsonl", resume=False) as ledger:
        keep(ledger, result)
    report.write((place / "large/ledger").glob("*.jsonl"), place)
    return place / "large"


def test_a_run_is_shown_in_every_rendering(tmp_path: Path) -> None:
    place = searched(tmp_path)
    assert applied.TITLE not in (place / "report.md").read_text()
    report.add_run(place, ["/home/me/app", "-n", "4"], ROWS, NOTES)
    assert report.load(place / "report.json")["in_application"] == {
        "command": ["app", "-n", "4"], "rows": [list(row) for row in ROWS], "notes": NOTES,
    }  # fmt: skip
    for name in ("report.md", "report.html"):
        text = (place / name).read_text()
        assert applied.TITLE in text
        assert "app -n 4" in text
        for word in ("10.000", "2.000x", "1.900 to 2.100", "40 launches of a run"):
            assert word in text, name


def test_it_stays_until_other_kernels_are_found(tmp_path: Path) -> None:
    place = searched(tmp_path)
    report.add_run(place, ["app"], ROWS, NOTES)
    searched(tmp_path)
    assert "in_application" in report.load(place / "report.json")
    searched(tmp_path, "another text")
    assert "in_application" not in report.load(place / "report.json")


@pytest.mark.parametrize("text", ["", "3", "{}", '{"of": {}, "command": [1], "rows": [], "notes": []}'])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    place = searched(tmp_path)
    (place / applied.NAME).write_text(text)
    with pytest.raises(LedgerError, match=r"in-application\.json cannot be read .*: remove it, or run"):
        report.write((place / "ledger").glob("*.jsonl"), tmp_path)


def test_hostile_words_are_escaped(tmp_path: Path) -> None:
    place = searched(tmp_path)
    report.add_run(place, [report_case.HOSTILE], [(report_case.HOSTILE,) * 5], [report_case.HOSTILE])
    assert "<script>alert" not in (place / "report.html").read_text()
    harmless = (place / "report.md").read_text().replace("\\<", "")
    (line,) = [line for line in harmless.splitlines() if "<img" in line]
    assert line.startswith(f"{applied.TITLE} (`")
