"""README and docs: every command in them runs, every option is described, every link leads somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from r3bench import cli, toolkit
from r3bench.record.images import find_nvcc
from tests.unit.options_page import page

TOP = Path(__file__).parent.parent.parent
PAGES = [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]
KERNELS = ("update", "halo_x")  # of miniweather, in the copy where commands run: two are enough, and quick
SECONDS = 300

# Searches end early there.
CONFIGURATION = """\
[pytest]
addopts = -p no:zarr -p no:cacheprovider
r3_captures = captures
r3_iterations = 2
r3_seconds = 2
r3_evaluations = 8
"""

# The source that README's example of a session records.
DEMO = """\
extern "C" __global__ void step(double* state, int n) {
    int i = threadIdx.x;
    if (i < n) state[i] += 0.5 * state[n + i] + 1.0;
}
"""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its marker, such as ``bash`` or ``bash gpu``, and its text; ``note`` is the comment before it."""

    marker: str
    text: str
    note: str


def blocks(path: Path) -> Iterator[Block]:
    fence = re.compile(
        r"(?:^<!-- (?P<note>[^>]*) -->\n)?^```(?P<marker>[^\n]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
    )
    for found in fence.finditer(path.read_text()):
        yield Block(found["marker"], found["text"], found["note"] or "")


def commands(block: Block) -> list[list[str]]:
    """The commands of a block, as words."""
    lines = (shlex.split(line, comments=True) for line in block.text.splitlines())
    return [line for line in lines if line]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with miniweather and two of its captures."""
    top = tmp_path_factory.mktemp("checkout")
    shutil.copytree(TOP / "kernels", top / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    for name in KERNELS:
        store = f"captures/miniweather/{name}.zarr"
        shutil.copytree(TOP / store, top / store)
    (top / "kernels" / "demo").mkdir()
    (top / "kernels" / "demo" / "kernels.cu").write_text(DEMO)
    (top / "pytest.ini").write_text(CONFIGURATION)
    (top / ".gitignore").write_text("reports/\n__pycache__/\n")
    git = ["git", "-C", str(top), "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *arguments], check=True)
    return top


def run(block: Block, top: Path, options: str = "") -> None:
    """Run a block in a checkout, pytest with ``options``; it fails with the block's own output."""
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    modules = os.pathsep.join(filter(None, (str(TOP), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PATH": path, "PYTHONPATH": modules, "PYTEST_ADDOPTS": options, "COLUMNS": "100"}
    if block.marker == "bash":
        command = ["bash", "-euo", "pipefail", "-c", block.text]
    else:
        is_test = "def test_" in block.text
        script = top / ("test_block.py" if is_test else "block.py")
        script.write_text(block.text)
        command = [sys.executable, *(["-m", "pytest", "-q"] if is_test else []), script.name]
    done = subprocess.run(
        command, cwd=top, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, f"{block.text}\n{done.stdout}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_what_a_page_says_can_be_run(path: Path, checkout: Path) -> None:
    for block in blocks(path):
        if block.marker in ("bash", "python") and not block.note.endswith("command"):
            run(block, checkout)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_what_needs_a_gpu_is_spelled_right(path: Path) -> None:
    for block in blocks(path):
        for words in commands(block) if block.marker == "bash gpu" else ():
            if words[0] == "r3bench":
                cli.parser().parse_args(words[1:])


@pytest.mark.gpu
@pytest.mark.skipif(bool(toolkit.missing()) or find_nvcc() is None, reason="it takes nvcc and clang's CUDA headers")
def test_what_needs_a_gpu_can_be_run(checkout: Path) -> None:
    for block in blocks(TOP / "docs" / "cuda.md"):
        if block.marker == "bash gpu":
            run(Block("bash", block.text, ""), checkout, "--r3-seconds 40 --r3-iterations 200 --r3-evaluations 2000")


def test_the_set_up_commands_are_the_only_ones_left_out() -> None:
    left_out = [block.note for path in PAGES for block in blocks(path) if block.note]
    assert left_out == ["main command", "test command"]
    known = {"bash", "bash gpu", "python", "toml", "ini", "yaml", ""}
    assert {block.marker for path in PAGES for block in blocks(path)} <= known


def test_every_option_is_described() -> None:
    written = (TOP / "docs" / "options.md").read_text()
    assert written == page(), "run: python tests/unit/options_page.py > docs/options.md"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_links_and_options_exist(path: Path) -> None:
    text = path.read_text()
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert link.startswith("https://") or (path.parent / link).exists(), link
    for option in re.findall(r"--r3-[a-z][a-z-]*", text):
        assert option in page(), option
