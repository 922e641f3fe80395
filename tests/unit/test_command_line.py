"""What holds for every command."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from r3bench.cli import UNREAD


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
