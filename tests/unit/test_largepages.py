"""LLVM's code in large pages: it runs as before, a forked process has it at once, and where refused it stays."""

from __future__ import annotations

import _ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from r3bench.toolchain import largepages

OFFERED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MOVED = """
import os, resource
from pathlib import Path
import llvmlite.binding as llvm
from r3bench.toolchain import largepages

def faults_of_a_child():
    if (pid := os.fork()) == 0:
        str(llvm.parse_assembly("define i32 @one() { ret i32 1 }"))
        os._exit(0)
    return os.wait4(pid, 0)[2].ru_minflt

library = Path(llvm.ffi.lib._name)
before = faults_of_a_child()
moved = largepages.move_code(library)
assert moved > 40 << 20, moved
assert largepages.move_code(library) == 0
after = faults_of_a_child()
assert after < before, (before, after)
print(llvm.parse_assembly("define i32 @one() { ret i32 1 }"))
"""


@pytest.mark.skipif(not OFFERED.exists() or "[never]" in OFFERED.read_text(), reason="no transparent large pages here")
def test_code_runs_where_it_was_and_is_inherited() -> None:
    done = subprocess.run([sys.executable, "-c", MOVED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ret i32 1" in done.stdout


@pytest.mark.parametrize(("enabled", "page"), [("always madvise [never]", 2 << 20), ("[always]", 1 << 40)])
def test_it_stays_where_there_are_none(
    enabled: str, page: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "enabled").write_text(enabled)
    (tmp_path / "hpage_pmd_size").write_text(str(page))
    monkeypatch.setattr(largepages, "_OFFERED", tmp_path)
    assert largepages.move_code(Path(sys.executable)) == 0


def test_a_refusal_leaves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "enabled").write_text("[always]")
    (tmp_path / "hpage_pmd_size").write_text(str(4096))
    asked = []

    def called(name: str, *arguments: int) -> int:
        asked.append(name)
        return real(name, *(arguments if name != "mprotect" else (0, 1 << 62, 0)))

    real = largepages._called
    monkeypatch.setattr(largepages, "_OFFERED", tmp_path)
    monkeypatch.setattr(largepages, "_called", called)
    assert largepages.move_code(Path(_ctypes.__file__)) == 0
    assert asked == ["mmap", "madvise", "mprotect"]
