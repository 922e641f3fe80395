"""Stores that cannot be written, or are cut off while they are: the old one stays, or the new one is whole."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r3bench import store
from r3bench.errors import CaptureError
from r3bench.model import Allocation, LaunchConfig
from r3bench.store import files
from tests.unit.store_case import SOURCE, complaint, write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of one's own to replace."""
    write(tmp_path / "k.zarr")
    return tmp_path / "k.zarr"


# -- what is not written --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"units": ()}, "no replay unit"),
        ({"symbol": ""}, "symbol is empty"),
        ({"image_format": "cubin"}, "belong together"),
        ({"source": None}, "not those that its source lists"),
        ({"source": replace(SOURCE, main="../k.cu")}, "does not stay inside"),
        ({"written": ("z",)}, "'z' is not in the unit"),
        ({"launch": LaunchConfig(grid=(np.int64(1), 1, 1), block=(1, 1, 1))}, "expected int"),
        ({"allocations": (Allocation(name="a", address=0, nbytes=800),)}, "contents do not name the unit's buffers"),
        ({"label": 7}, "expected str"),
    ],
)
def test_what_does_not_fit_is_not_written(path: Path, changes: dict[str, Any], part: str) -> None:
    before = {p: p.read_bytes() for p in path.rglob("*") if p.is_file()}
    assert part in complaint(lambda: write(path, **changes))
    assert {p: p.read_bytes() for p in path.rglob("*") if p.is_file()} == before
    assert [p.name for p in path.parent.iterdir()] == ["k.zarr"]


def test_only_captures_are_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "mine.zarr"
    mine.mkdir()
    (mine / "thesis.tex").write_text("text")
    assert "exists and is no capture" in complaint(lambda: write(mine))
    (mine / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    assert "exists and is no capture" in complaint(lambda: write(mine))
    assert (mine / "thesis.tex").read_text() == "text"
    assert "must end in .zarr" in complaint(lambda: write(tmp_path / "k"))


def test_a_damaged_capture_can_be_recorded_anew(path: Path) -> None:
    (path / "zarr.json").write_text("{")
    assert write(path) == store.verify(path)


def test_no_place_to_write_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written" in complaint(lambda: write(tmp_path / "file/k.zarr"))


def test_an_error_while_contents_are_made_leaves_the_old_store(path: Path) -> None:
    capture = store.open_capture(path)

    def contents() -> Any:
        yield from ()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.append(path, capture, contents())
    assert store.verify(path) == capture
    assert [p.name for p in path.parent.iterdir()] == ["k.zarr"]


# -- cut off while writing ------------------------------------------------------------------------------------------


def in_child(act: Callable[[], object]) -> int:
    """Run in a forked process; its wait status."""
    child = os.fork()
    if child == 0:
        with suppress(CaptureError):
            act()
            os._exit(0)
        os._exit(1)
    return os.waitpid(child, 0)[1]


def write_and_count(path: Path, dies_at: int) -> int:
    """Write a new store, killed at the step ``dies_at`` of those that touch names and disk; how many there were."""
    steps = 0

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args)

        return step

    for module, name in ((os, "fsync"), (os, "rename"), (os, "replace"), (files, "_exchange")):
        setattr(module, name, counted(getattr(module, name)))
    write(path, label="new")
    return steps


def check_after(path: Path) -> None:
    assert store.verify(path).units[0].label in ("old", "new")


def kill_writers(path: Path, swap: bool) -> None:
    """In a process of its own that never runs zarr itself: kill writers at every late step, check what is left."""
    if not swap:
        files._exchange = lambda one, other: False
    assert in_child(lambda: write(path, label="old")) == 0
    count = os.waitstatus_to_exitcode(in_child(lambda: os._exit(write_and_count(path, 0))))
    for step in (1, *range(max(2, count - 3), count + 1)):
        assert in_child(lambda: write(path, label="old")) == 0
        assert os.listdir(path.parent) == [path.name]
        status = in_child(lambda step=step: write_and_count(path, step))  # type: ignore[misc]
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert in_child(lambda: check_after(path)) == 0
    print(count)


@pytest.mark.parametrize(("name", "swap"), [("k.zarr", True), ("k.zarr", False), ("k.zarr.zip", True)])
def test_a_writer_that_is_killed_leaves_the_old_store_or_the_new(tmp_path: Path, name: str, swap: bool) -> None:
    act = f"kill_writers(Path({str(tmp_path / name)!r}), {swap})"
    code = f"import zarr.codecs, zarr.storage; from test_store_writes import *; {act}"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= (3 if name.endswith("zip") else 20)


def test_a_store_that_stepped_aside_is_put_back(path: Path) -> None:
    path.rename(path.parent / ".k.zarr.old")
    assert store.open_capture(path).symbol == "k"
    assert [p.name for p in path.parent.iterdir()] == ["k.zarr"]


def test_writers_of_one_store_wait_for_each_other(path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from r3bench import store\n"
        "p = Path(sys.argv[1]); c = store.open_capture(p)\n"
        "import dataclasses; c = dataclasses.replace(c, units=c.units[:1]); h = store.contents(c, 0)\n"
        "store.append(p, c, [h])"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path)]) for _ in range(2)]
    # A writer that reads while another replaces is told so, and no unit is lost by those that succeed.
    ended = [writer.wait() for writer in writers]
    assert len(store.verify(path).units) == 1 + ended.count(0)


def test_a_link_to_a_store_is_followed_and_kept(path: Path) -> None:
    link = path.parent / "link.zarr"
    link.symlink_to("k.zarr")
    assert store.verify(link).symbol == "k"
    write(link, label="new")
    assert link.is_symlink()
    assert store.open_capture(path).units[0].label == "new"
    shutil.rmtree(path)
    complaint(lambda: store.open_capture(link))
