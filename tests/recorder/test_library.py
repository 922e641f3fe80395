"""Where the preload library comes from: the package, the user's cache, or the compiler."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from r3bench import recorder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package's folder, without a compiler and with nothing in the cache."""
    folder = tmp_path / "recorder"
    shutil.copytree(recorder.FOLDER, folder)
    monkeypatch.setattr(recorder, "FOLDER", folder)
    monkeypatch.setattr(recorder, "_compile", lambda sources, target: target.write_text("built"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def test_it_is_built_once(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = recorder.library()
    assert (first.parent, first.read_text()) == (tmp_path / "cache/r3bench", "built")
    monkeypatch.setattr(recorder, "_compile", None)
    assert recorder.library() == first


def test_a_wheel_may_bring_it(package: Path, tmp_path: Path) -> None:
    shipped = package / recorder.library().name
    shutil.rmtree(tmp_path / "cache")
    shipped.write_text("shipped")
    assert recorder.library() == shipped
    assert not (tmp_path / "cache").exists()


def test_one_of_other_sources_is_not_taken(package: Path) -> None:
    (package / recorder.library().name).write_text("shipped")
    with open(package / "plan.cpp", "a") as file:
        file.write("// changed\n")
    assert recorder.library().read_text() == "built"
