"""Rates of false alarms: their bounds, their file, and what a contest says of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from r3bench.calibration import Rate, class_of, keep, path, rate_for, rates, upper_bound
from r3bench.cli import calibrate, main
from r3bench.report.words import words
from r3bench.stats import Comparison
from tests.search.fake_server import comparison

SHORT = Rate(low_ns=0.0, high_ns=1e4, gate=0.01, contests=40, first=2, claimed=0, spread=0.012, date="2026-01-02")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("found", "of", "bound"), [(0, 20, 0.1391), (0, 200, 0.0149), (1, 20, 0.2161), (3, 10, 0.6066), (5, 5, 1.0)]
)
def test_bounds_are_those_of_clopper_and_pearson(found: int, of: int, bound: float) -> None:
    assert upper_bound(found, of) == pytest.approx(bound, abs=5e-5)


def test_every_time_has_a_class() -> None:
    assert [class_of(ns) for ns in (0, 9_999, 10_000, 5e5, 1e9)] == [
        (0, 1e4), (0, 1e4), (1e4, 1e5), (1e5, 1e6), (1e6, inf)
    ]  # fmt: skip


def test_what_is_kept_is_found_by_device_and_time() -> None:
    long = replace(SHORT, low_ns=1e6, high_ns=inf, claimed=1)
    keep("gpu", SHORT)
    keep("cpu", long)
    assert keep("cpu", SHORT) == path()
    assert rates("cpu") == [SHORT, long]
    assert rate_for("cpu", 5_000) == SHORT
    assert rate_for("cpu", 5e9) == long
    assert rate_for("cpu", 5e5) is None
    assert rate_for("gpu", 5_000) == SHORT
    assert rate_for("other", 5_000) is None
    assert str(SHORT) == "0 of 40 at gate 1% (2026-01-02; at most 7% at 95 % confidence)"


def test_a_damaged_file_counts_as_none_and_is_written_anew() -> None:
    path().parent.mkdir()
    path().write_text("{")
    assert rate_for("cpu", 1.0) is None
    keep("cpu", SHORT)
    assert rate_for("cpu", 1.0) == SHORT


@pytest.mark.parametrize(
    "change",
    [
        {"claimed": -5}, {"claimed": 30}, {"first": 41}, {"contests": "40"}, {"contests": 0}, {"gate": 0.0},
        {"low_ns": 1.0}, {"spread": "nan"}, {"date": 7},
    ],
)  # fmt: skip
def test_a_damaged_entry_is_left_out_with_a_sentence(change: dict[str, object]) -> None:
    keep("cpu", SHORT)
    held = json.loads(path().read_text())
    held["cpu"] = [held["cpu"][0] | change, *held["cpu"]]
    path().write_text(json.dumps(held))
    with pytest.warns(UserWarning, match="an entry of cpu is damaged and left out"):
        assert rates("cpu") == [SHORT]


@pytest.mark.parametrize("entry", [1, [1], [{}], {"a": 2}, "text"])
def test_what_is_no_entry_is_left_out_too(entry: object) -> None:
    path().parent.mkdir()
    path().write_text(json.dumps({"cpu": entry}))
    with pytest.warns(UserWarning, match="is damaged"):
        assert rate_for("cpu", 1.0) is None


def test_of_many_contests_there_is_a_bound() -> None:
    assert upper_bound(50_000, 100_000) == pytest.approx(0.5026, abs=1e-4)


def test_what_is_measured_later_is_added_unless_its_gate_is_another() -> None:
    keep("cpu", SHORT)
    keep("cpu", replace(SHORT, contests=1, first=1, claimed=1, spread=0.2, date="2026-02-03"))
    assert rates("cpu") == [replace(SHORT, contests=41, first=3, claimed=1, spread=0.2, date="2026-02-03")]
    other = replace(SHORT, gate=0.05, contests=3)
    keep("cpu", other)
    assert rates("cpu") == [other]


def test_a_claim_carries_the_rate_and_other_answers_do_not() -> None:
    conditions = (("false_alarms", str(SHORT)),)
    said = "; false alarms of this machine: 0 of 40 at gate 1% (2026-01-02; at most 7% at 95 % confidence)"
    assert words(replace(comparison(1.5), conditions=conditions)).endswith(said)
    assert "false alarms" not in words(replace(comparison(1.0), conditions=conditions))


def test_a_stopped_run_keeps_every_contest_that_ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    held: list[tuple[int, int]] = []

    def contest(capture: object, unit: int, number: int, kind: str, gate: float) -> Comparison:
        if len(held) == 5:
            raise KeyboardInterrupt
        held.append((unit, number))
        return comparison(1.0, baseline_ns=1e3 * 10**unit)

    monkeypatch.setattr(calibrate, "_recorded", lambda folder, kind: None)
    monkeypatch.setattr(calibrate, "_contest", contest)
    assert main(["calibrate", "--device", "cpu"]) == 130
    assert held == [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1)]
    assert [rate.contests for rate in rates("cpu")] == [2, 1, 1, 1]
    said = capsys.readouterr()
    assert re.search(r"0 to 10 us +2 +0 +0 \(78%\)", said.out)
    assert "another run adds to it" in said.out
    assert "contest 1 of 80, about 33 minutes left" in said.err
    held.clear()
    main(["calibrate", "--device", "cpu", "--contests", "1"])
    assert held == [(0, 2), (1, 2), (2, 2), (3, 2)], "other binaries than before"
