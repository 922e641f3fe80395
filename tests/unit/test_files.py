"""Files of results where there is no room for them: the old one stays, and one sentence says so."""

from __future__ import annotations

import fcntl
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from r3bench import calibration, history
from r3bench.calibration import Rate
from r3bench.errors import FileError, ModelError
from r3bench.evolve.propose.files import _write
from r3bench.files import alone, write_text
from r3bench.report import write_document
from tests.unit.demo import GUARD


@contextmanager
def no_room(most: int = 10) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes: Python leaves out the signal and raises OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


RATE = Rate(low_ns=0.0, high_ns=1e4, gate=0.05, contests=20, first=0, claimed=0, spread=0.01, date="2030-01-01")
WRITERS: dict[str, Callable[[Path], object]] = {
    "report.json": lambda folder: write_document(GUARD, folder),
    "2*.json": lambda folder: history.write(folder, "cpu", None, {"a/k[0]": 5.0}),
    "k.prompt.md": lambda folder: _write(folder / "k.prompt.md", "a prompt that is too long"),
    "calibration.json": lambda folder: calibration.keep("cpu", RATE),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_for_which_there_is_no_room_is_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "path", lambda: tmp_path / "calibration.json")
    with (
        no_room(),
        pytest.raises((FileError, ModelError), match=r"cannot be written \(File too large\): make room"),
    ):
        WRITERS[name](tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"calibration.lock"}
    WRITERS[name](tmp_path)
    (written,) = tmp_path.glob(name)
    assert written.stat().st_size > 10


def test_the_old_file_stays_where_there_is_no_room_for_a_new_one(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "x", "old")
    with no_room(), pytest.raises(FileError):
        write_text(tmp_path / "a" / "x", "new and longer")
    assert [path.read_text() for path in (tmp_path / "a").iterdir()] == ["old"]


def test_processes_at_one_folder_take_turns(tmp_path: Path) -> None:
    other = os.open(tmp_path, os.O_RDONLY)
    try:
        with alone(tmp_path), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(other)
