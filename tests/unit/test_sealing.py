"""The layers of sealing, each in a process of its own; and the filter's program on the machine that this one is not."""

from __future__ import annotations

import errno
import mmap
import os
import platform
import signal
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from r3bench import sealing

sealed = pytest.mark.skipif(bool(sealing.missing()), reason=sealing.state())


def in_a_child(action: Callable[[], None]) -> int:
    """The exit code of a process that does this: an OSError's number, negative for a signal."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 255
    try:
        action()
        code = 0
    except OSError as error:
        code = error.errno or 254
    finally:
        os._exit(code)


@sealed
def test_only_the_files_named_can_be_opened(tmp_path: Path) -> None:
    kept, other = tmp_path / "kept", tmp_path / "other"
    for folder in (kept, other):
        folder.mkdir()
        (folder / "file").write_text("x")

    def read(path: Path) -> Callable[[], None]:
        def action() -> None:
            assert sealing.restrict_files(read=[kept])
            path.read_text()

        return action

    def write() -> None:
        sealing.restrict_files(read=[kept])
        (kept / "file").write_text("y")

    assert in_a_child(read(kept / "file")) == 0
    assert in_a_child(read(other / "file")) == errno.EACCES
    assert in_a_child(read(kept / "../other/file")) == errno.EACCES
    assert in_a_child(write) == errno.EACCES
    assert (kept / "file").read_text() == "x"


@sealed
def test_no_program_no_signal_to_others() -> None:
    def run() -> None:
        sealing.restrict_files()
        os.execv("/bin/sh", ["sh", "-c", "exit 0"])

    def signal_parent() -> None:
        sealing.refuse(sealing.REACHING_OUT)
        os.kill(os.getppid(), 0)

    assert in_a_child(run) == errno.EACCES
    assert in_a_child(signal_parent) == errno.EPERM


@sealed
def test_refused_calls_fail() -> None:
    def reach_out() -> None:
        sealing.refuse(sealing.REACHING_OUT)
        socket.socket()

    assert in_a_child(reach_out) == errno.EPERM


@sealed
def test_other_calls_end_the_process_whichever_thread_makes_them() -> None:
    def later() -> None:
        told = threading.Event()

        def body() -> None:
            told.wait()
            socket.socket()

        threading.Thread(target=body).start()
        sealing.allow_only(sealing.MEMORY_AND_TIME)
        told.set()
        threading.Event().wait(60)

    assert in_a_child(later) == -signal.SIGSYS


@sealed
def test_other_calls_fail_where_that_is_not_to_be_fatal() -> None:
    def reach_out() -> None:
        sealing.allow_only(sealing.MEMORY_AND_TIME, fatal=False)
        socket.socket()

    assert in_a_child(reach_out) == errno.EPERM


@sealed
def test_a_program_is_started_with_its_limits(tmp_path: Path) -> None:
    from r3bench.frontend import find_compiler

    command = [str(find_compiler()), "version"]
    with (tmp_path / "said").open("w+b") as said, open(os.devnull, "rb") as nothing:
        options = {"stdin": nothing, "stdout": said, "stderr": said}
        process = sealing.started(command, read=[], limits={"core": 0, "nofile": 32}, **options)
        assert process.wait(60) == 0
        said.seek(0)
        assert said.read().split(b".")[0].isdigit()


def test_a_system_without_layers_is_said_to_be_not_sealed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "landlock_version", lambda: 0)
    monkeypatch.setattr(sealing, "has_seccomp", lambda: False)
    sealing.missing.cache_clear()
    try:
        assert sealing.state().startswith("not sealed: the kernel has no Landlock")
        assert len(sealing.missing()) == 2
        assert not sealing.restrict_files()
        assert not sealing.refuse(["socket"])
        assert not sealing.allow_only(["read"])
    finally:
        sealing.missing.cache_clear()


# -- the program ----------------------------------------------------------------------------------------------------


def verdict(program: list[sealing.Instruction], arch: int, number: int, *arguments: int) -> int:
    """What a filter returns for a call: classic BPF as the kernel runs it, for the instructions used."""
    words = [value & (1 << 64) - 1 for value in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("<IIQ6Q", number, arch, 0, *words)
    at = accumulator = 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        else:
            holds = accumulator == value if code == 0x15 else bool(accumulator & value)
            at += yes if holds else no


ALLOWED, KILLED, REFUSED = 0x7FFF0000, 0x80000000, 0x00050001


@pytest.mark.parametrize(
    ("machine", "arch", "mmap_number", "socket_number"),
    [("x86_64", 0xC000003E, 9, 41), ("aarch64", 0xC00000B7, 222, 198)],
)
def test_the_program_on_each_machine(
    machine: str, arch: int, mmap_number: int, socket_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    sealing._numbers.cache_clear()
    try:
        rules = [
            (sealing.Call("mmap", ((4, 7),), without=((2, mmap.PROT_EXEC),)), ALLOWED),
            (sealing.Call("mmap", without=((2, mmap.PROT_EXEC), (3, mmap.MAP_SHARED))), ALLOWED),
            (sealing.Call("socket"), REFUSED),
        ]
        program = sealing._program(rules, KILLED)
    finally:
        sealing._numbers.cache_clear()
    private, shared = 0x22, 0x01
    assert verdict(program, arch, mmap_number, 0, 4096, 3, private, -1) == ALLOWED
    assert verdict(program, arch, mmap_number, 0, 4096, 3, shared, 7) == ALLOWED
    assert verdict(program, arch, mmap_number, 0, 4096, 3, shared, 8) == KILLED
    assert verdict(program, arch, mmap_number, 0, 4096, 7, private, -1) == KILLED
    assert verdict(program, arch, mmap_number, 0, 4096, 4, shared, 7) == KILLED
    assert verdict(program, arch, socket_number, 2, 1, 0) == REFUSED
    assert verdict(program, arch, socket_number | 0x40000000, 2, 1, 0) == KILLED
    assert verdict(program, 0x40000003, socket_number, 2, 1, 0) == KILLED
