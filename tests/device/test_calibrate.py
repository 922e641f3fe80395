"""``r3bench calibrate`` on the CPU device, with one contest a kernel: what it prints, keeps and later says."""

from __future__ import annotations

from pathlib import Path

import pytest

from r3bench import cli
from r3bench.calibration import path
from r3bench.cli import calibrate


def test_calibrating_prints_and_keeps_a_rate_for_each_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(calibrate, "STEPS", (16, 4096))
    assert cli.main(["calibrate", "--device", "cpu", "--contests", "1"]) in (0, 1)
    said = capsys.readouterr().out
    assert "cpu, gate 5%" in said
    assert "false alarms" in said
    assert str(path()) in said
    assert path().exists()


@pytest.mark.parametrize("count", ["0", "x", "1000000"])
def test_a_count_that_makes_no_sense_is_a_usage_error(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["calibrate", "--contests", count])
    assert f"argument --contests: '{count}' is no number from 1 to 10000" in capsys.readouterr().err
