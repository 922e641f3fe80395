"""Captures larger than the memory that is allowed for them: unpacked on a disk, replayed all the same."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from replay_case import FakeCompiler, capture, programs, variant

from r3bench import store
from r3bench.errors import CaptureError
from r3bench.model import Status
from r3bench.server import ReplayServer
from r3bench.store import rooms
from r3bench.testing import FakeDevice


def on_disk(data: np.ndarray) -> bool:
    """Whether an array lies in a mapped file."""
    address = data.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(edge, 16) for edge in line.split()[0].split("-"))
        if start <= address < end:
            return line.endswith("(deleted)")
    raise AssertionError("the array lies nowhere")


def test_a_file_on_a_disk_holds_what_is_written_and_is_gone_with_it(tmp_path: Path) -> None:
    data = store.on_disk(tmp_path / "new")(3 << 20)
    data[:] = 7
    assert data.nbytes == 3 << 20
    assert on_disk(data)
    assert not on_disk(store.in_memory(3 << 20))
    assert not on_disk(store.on_disk(tmp_path)(rooms.SMALL_BYTES))
    assert list((tmp_path / "new").iterdir()) == []


def test_a_disk_without_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CaptureError, match=r"2097152 bytes .*No space left on device.*: make room there, or set XDG"):
        store.on_disk(tmp_path)(2 << 20)


def test_units_above_the_limit_are_read_to_the_disk_and_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "SMALL_BYTES", 0)
    recorded = capture(tmp_path / "store")
    for allowed, there in ((1 << 20, False), (200, True)):
        device = FakeDevice(programs())
        with ReplayServer(
            lambda held=device: held, compiler=FakeCompiler(), cache=tmp_path, resident_bytes=allowed
        ) as server:
            assert server.submit(recorded, variant("add")).result(60).verdict.status is Status.MATCH
            assert server.submit(recorded, variant("wrong")).result(60).verdict.status is Status.MISMATCH
            material = next(iter(server._materials._items.values()))
            held = [*material.before.values(), *material.expected.values()]
            assert [on_disk(data) for data in held] == [there] * len(held)


LIMITED = """
import resource, sys
from pathlib import Path
import numpy
from r3bench import store
from r3bench.replay import read_material
import zarr, google_crc32c, numcodecs.blosc
capture = store.open_capture(sys.argv[1])
room = store.on_disk(Path(sys.argv[2])) if sys.argv[3] == "disk" else store.in_memory
used = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmData"))
resource.setrlimit(resource.RLIMIT_DATA, (used + (300 << 20), used + (300 << 20)))
material = read_material(capture, 0, room)
print(material.changed_bytes, material.nbytes)
"""


def test_memory_is_bounded_by_less_than_the_capture(tmp_path: Path) -> None:
    """320 MB before and after the launch, with 300 MB of memory for everything, threads' stacks too."""
    from tests.benchmarks.server import large_capture

    made = large_capture(tmp_path, 320 << 20)
    found = {
        where: subprocess.run(
            [sys.executable, "-c", LIMITED, made.path, str(tmp_path), where],
            capture_output=True,
            text=True,
            check=False,
        )
        for where in ("disk", "memory")
    }
    changed, nbytes = map(int, found["disk"].stdout.split())
    assert nbytes == 480 << 20
    assert 0.9 * (160 << 20) < changed <= 160 << 20
    assert found["memory"].returncode != 0
    assert "MemoryError" in found["memory"].stderr
