"""A compiler that is started before its source is there."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from r3bench.errors import BuildError
from r3bench.frontend import Ahead, compile_ir
from r3bench.frontend.clang import Asked, Compiler

FILES = {"src/k.cu": '#include "n.h"\n__global__ void k(int* x) { *x = N; }', "src/n.h": "#define N 42\n"}


class Watched(Ahead):
    """Counts what it had to start anew, and shows what waits."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Compiler] = []

    def take(self, asked: Asked) -> Compiler:
        self.taken.append(super().take(asked))
        return self.taken[-1]

    @property
    def waiting(self) -> Compiler:
        assert self._waiting is not None
        return self._waiting


def test_the_waiting_compiler_takes_the_next_source() -> None:
    ahead = Watched()
    first = compile_ir(FILES, "src/k.cu", ahead=ahead)
    ahead.start()
    waiting = ahead.waiting
    assert compile_ir(FILES, "src/k.cu", ahead=ahead) == first == compile_ir(FILES, "src/k.cu")
    assert ahead.taken[1] is waiting


def test_another_command_has_a_compiler_of_its_own() -> None:
    ahead = Watched()
    compile_ir(FILES, "src/k.cu", ahead=ahead)
    ahead.start()
    waiting, root = ahead.waiting, ahead.waiting._root
    assert "43" in compile_ir(FILES | {"src/n.h": "#define N M\n"}, "src/k.cu", flags=["-DM=43"], ahead=ahead)
    assert ahead.taken[1] is not waiting
    assert waiting._process.poll() is not None
    assert not root.exists()


def test_where_temporary_files_were_cleared_away_the_next_source_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    ahead = Watched()
    first = compile_ir(FILES, "src/k.cu", ahead=ahead)
    for waits in (False, True):
        if waits:
            ahead.start()
        shutil.rmtree(tmp_path / "own")
        assert compile_ir(FILES, "src/k.cu", ahead=ahead) == first


def test_a_compiler_that_died_while_it_waited_is_not_missed() -> None:
    ahead = Watched()
    first = compile_ir(FILES, "src/k.cu", ahead=ahead)
    ahead.start()
    ahead.waiting._process.kill()
    os.waitid(os.P_PID, ahead.waiting._process.pid, os.WEXITED | os.WNOWAIT)
    assert compile_ir(FILES, "src/k.cu", ahead=ahead) == first


def test_nothing_is_left_of_a_source_that_does_not_compile() -> None:
    ahead = Watched()
    with pytest.raises(BuildError, match=r"src/k\.cu:1:1: unknown type name 'nonsense'"):
        compile_ir({"src/k.cu": "nonsense k;"}, "src/k.cu", ahead=ahead)
    assert not any(Path(compiler._root).exists() for compiler in ahead.taken)


@pytest.mark.parametrize("text", ["__global__ void k() {", "__global__ void k() {\n#if 1\n}"])
def test_a_source_that_ends_too_early_is_told_in_the_source(text: str) -> None:
    with pytest.raises(BuildError, match=r"^k\.cu:\d+:\d+: "):
        compile_ir({"k.cu": text}, "k.cu")
