"""The bar that a terminal shows while captures are written."""

from __future__ import annotations

import io
from threading import Thread

import pytest

from r3bench.cli.progress import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    with Bar("launches", 12, terminal) as bar:
        for _ in range(6):
            bar.step()
        bar.say("captures/k.zarr: written")
    drawn = [line.removeprefix("\x1b[K") for line in terminal.getvalue().split("\r")]
    assert drawn[1] == f"[{' ' * 24}] 0 of 12 launches"
    assert drawn[7] == f"[{'#' * 12}{' ' * 12}] 6 of 12 launches"
    assert drawn[-1] == ""  # gone in the end
    assert capsys.readouterr().out == "captures/k.zarr: written\n"


def test_elsewhere_only_the_lines_are_seen(capsys: pytest.CaptureFixture[str]) -> None:
    log = io.StringIO()
    with Bar("launches", 1, log) as bar:
        bar.step()
        bar.say("written")
    assert (log.getvalue(), capsys.readouterr().out) == ("", "written\n")


def test_steps_come_from_threads() -> None:
    terminal = Terminal()
    with Bar("launches", 200, terminal) as bar:
        threads = [Thread(target=lambda: [bar.step() for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "200 of 200" in terminal.getvalue()
