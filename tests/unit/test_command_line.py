"""What holds for every command."""

from __future__ import annotations

import argparse
import errno
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest

from r3bench.cli import COMMANDS, INTERRUPTED, TROUBLE, UNREAD, capture, doctor, main, parser


@pytest.mark.parametrize("command", [("capture", "show", "captures/miniweather"), ("calibrate", "--help")])
def test_a_reader_that_is_gone_ends_a_command_quietly(command: tuple[str, ...], pytestconfig: pytest.Config) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "r3bench", *command],
            cwd=pytestconfig.rootpath,
            stdout=write,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": ""},  # argparse would notice, and say nothing
            text=True,
            check=False,
        )
    finally:
        os.close(write)
    assert (ended.returncode, ended.stderr) == (UNREAD, "")
    assert UNREAD == 141


@pytest.mark.parametrize("command", [("capture", "show", "captures/miniweather"), ("calibrate", "--help")])
def test_a_full_disk_behind_standard_output_is_told(command: tuple[str, ...], pytestconfig: pytest.Config) -> None:
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "r3bench", *command],
            cwd=pytestconfig.rootpath,
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": ""},
            text=True,
            check=False,
        )
    said = "r3bench: standard output takes no more (No space left on device): write it elsewhere\n"
    assert (ended.returncode, ended.stderr) == (TROUBLE, said)


def test_every_command_says_in_a_sentence_what_it_does() -> None:
    (commands,) = (each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    said = {name: each.description for name, each in commands.choices.items()}
    assert len(said) == len(COMMANDS)
    for sentence in said.values():
        assert re.fullmatch(r"[A-Z][^\0]*[^.\s]\.", sentence), sentence
    assert said["export"].endswith("as one xarray Dataset in Zarr.")


def test_another_error_of_the_system_is_not_taken_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(name: str) -> str:
        raise OSError(errno.ENOSPC, "No space left on device", "reports/x.json")

    monkeypatch.setattr("r3bench.cli.parser", lambda: no_room(""))
    with pytest.raises(OSError, match=r"reports/x\.json"):
        main(["doctor"])


def test_an_interrupted_command_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(capture, "show", interrupted)
    assert main(["capture", "show", "captures/miniweather"]) == INTERRUPTED == 130
    assert capsys.readouterr().err == "r3bench: interrupted\n"


def test_what_is_missing_says_what_it_is_for_and_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    told = {name: detail for _, name, state, detail in doctor.package_rows() if state == "missing"}
    assert told["distributed"] == "many devices: pytest --r3-cluster; optional; pip install 'r3bench[cluster]'"
    assert told["zarr"] == "captures; reinstall r3bench"


def test_what_is_missing_can_be_installed_by_that_extra(pytestconfig: pytest.Config) -> None:
    project = tomllib.loads((pytestconfig.rootpath / "pyproject.toml").read_text())["project"]
    extras = {f"r3bench[{name}]": needs for name, needs in project["optional-dependencies"].items()}
    optional = [(name, source) for name, source, _ in doctor.PACKAGES if source]
    assert optional
    for name, source in optional:
        needs = [source] if source == name else extras[source]
        assert any(re.split(r"[><=]", need)[0] == name for need in needs), name
