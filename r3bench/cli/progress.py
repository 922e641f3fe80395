"""How far something is, on a terminal; nothing where standard error is none."""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TextIO

_WIDTH = 24
_CLEAR = "\r\x1b[K"


class Bar:
    """``[######      ] 3 of 12 launches``, drawn over itself; it is gone when it ends. Steps may come from threads."""

    def __init__(self, what: str, total: int, stream: TextIO | None = None) -> None:
        self._what, self._total, self._done = what, total, 0
        self._stream = stream or sys.stderr
        self._shown = self._stream.isatty() and total > 0
        self._lock = threading.Lock()

    def __enter__(self) -> Bar:
        self._write(self._line())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._write(_CLEAR)

    def step(self) -> None:
        with self._lock:
            self._done += 1
            self._write(self._line())

    def say(self, line: str) -> None:
        """Print a line to standard output, above the bar."""
        with self._lock:
            self._write(_CLEAR)
            print(line, flush=True)
            self._write(self._line())

    def _line(self) -> str:
        filled = _WIDTH * self._done // max(self._total, 1)
        return f"{_CLEAR}[{'#' * filled:{_WIDTH}}] {self._done} of {self._total} {self._what}"

    def _write(self, text: str) -> None:
        if self._shown:
            self._stream.write(text)
            self._stream.flush()
