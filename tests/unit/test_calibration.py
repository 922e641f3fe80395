"""Rates of false alarms: their bounds, their file, and what a contest says of them."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from r3bench.calibration import Rate, class_of, keep, path, rate_for, upper_bound

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
    keep("gpu", [SHORT])
    assert keep("cpu", [SHORT, long]) == path()
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
    keep("cpu", [SHORT])
    assert rate_for("cpu", 1.0) == SHORT
