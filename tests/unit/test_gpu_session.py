"""The benchmark that asks a GPU everything at once: what has ended is not run again, what hangs ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.benchmarks.gpu_session import Part, parts, work


def part(name: str, code: str, seconds: float = 60.0) -> Part:
    return Part(name, seconds, (sys.executable, "-c", code))


def ended(out: Path) -> dict[str, str]:
    lines = (out / "ended.jsonl").read_text().splitlines()
    return {record["part"]: record["status"] for record in map(json.loads, lines)}


def test_each_part_runs_once_whatever_becomes_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mark = f"open({str(tmp_path / 'ran')!r}, 'a').write('x')"
    asked = [part("good", f"{mark}; print('42 of 42')"), part("bad", f"{mark}; raise SystemExit(3)")]
    assert work(asked, tmp_path / "out", 600.0)
    assert work(asked, tmp_path / "out", 600.0)
    assert ended(tmp_path / "out") == {"good": "exit 0", "bad": "exit 3"}
    assert (tmp_path / "ran").read_text() == "xx"
    assert "   42 of 42\n" in capsys.readouterr().out


def test_what_hangs_is_cut_and_the_next_part_runs(tmp_path: Path) -> None:
    hanging = part("hangs", "import time; print('begun', flush=True); time.sleep(3600)", 1.0)
    assert work([hanging, part("next", "")], tmp_path, 600.0)
    assert ended(tmp_path) == {"hangs": "cut", "next": "exit 0"}


def test_what_this_call_has_no_time_for_is_left_to_the_next(tmp_path: Path) -> None:
    assert not work([part("late", "")], tmp_path, 1.0)
    assert work([part("late", "")], tmp_path, 600.0)
    assert ended(tmp_path) == {"late": "exit 0"}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_command_names_what_is_there(tmp_path: Path, device: str) -> None:
    top = Path(__file__).parents[2]
    for each in parts(device, tmp_path):
        module = each.command[2]
        assert module == "pytest" or (top / f"{module.replace('.', '/')}.py").exists()
    assert sum(each.seconds for each in parts("cuda", tmp_path)) < 4 * 600
