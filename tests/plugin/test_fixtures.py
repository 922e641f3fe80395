"""The fixtures that users' own tests have."""

from __future__ import annotations

import pytest

TEST = """
import numpy as np
import pytest
from r3bench.model import Status, Variant

def test_units(replay_unit, r3_replay, r3_device):
    before, after = replay_unit.before, replay_unit.after
    n = before.sizes["x"]
    assert n in (1000, 333)
    if replay_unit.capture.symbol == "scale":
        np.testing.assert_array_equal(after["data"], 1.5 * before["data"])
        assert set(after) == {"data"}
    assert r3_device.target.device == "cpu"
    assert r3_replay(replay_unit).verdict.status is Status.MATCH
    wrong = r3_replay(replay_unit, Variant(files=((replay_unit.capture.source.main, "extern"),)))
    assert wrong.verdict.status is Status.BUILD_FAILED
    timed = r3_replay(replay_unit, timing="rank")
    assert timed.measurement.binary == timed.binary
    with pytest.raises(ValueError, match="timing is 'none'"):
        r3_replay(replay_unit, timing="exact")
"""


def test_replay_unit_runs_over_all_units(project: pytest.Pytester) -> None:
    project.makepyfile(test_mine=TEST)
    result = project.runpytest("test_mine.py", "-v")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*test_units?app/difference-0?*", "*test_units?app/scale-1?*"])


@pytest.mark.parametrize(
    ("folder", "sentence"),
    [
        ("nowhere", "*replay_unit: *nowhere*"),
        ("", "*r3_captures names nothing*; write the line 'r3_captures = captures' *into pytest.ini*"),
    ],
)
def test_captures_that_are_not_there_are_one_sentence(project: pytest.Pytester, folder: str, sentence: str) -> None:
    project.makepyfile(test_mine="def test_units(replay_unit): pass")
    project.makeini(f"[pytest]\nr3_captures = {folder}\n")
    result = project.runpytest("test_mine.py")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([sentence])
    assert "Traceback" not in result.stdout.str()
