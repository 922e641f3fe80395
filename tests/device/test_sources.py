"""The C sources of a worker are compiled once per user; what is damaged or cannot be kept is compiled again."""

from __future__ import annotations

from pathlib import Path

import pytest

from r3bench.devices.cpu import sources


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sources, "_compiled", lambda zig, source: f"object of {source.name}".encode())
    return tmp_path / "r3bench"


def test_what_was_compiled_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = sources.compiled()
    assert first == [b"object of driver.c", b"object of blocks.c"]
    monkeypatch.setattr(sources, "_compiled", lambda zig, source: b"compiled again")
    assert sources.compiled() == first
    for path in cache.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert sources.compiled() == [b"compiled again"] * 2


def test_a_folder_that_cannot_be_written_costs_no_result(cache: Path) -> None:
    cache.write_text("no folder")
    assert sources.compiled() == [b"object of driver.c", b"object of blocks.c"]


def test_a_source_that_does_not_compile_ends_in_a_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.c"
    broken.write_text("int f(void) { return missing; }")
    with pytest.raises(SystemExit, match=r"broken\.c does not compile: .*missing"):
        sources._compiled(sources._zig(), broken)
