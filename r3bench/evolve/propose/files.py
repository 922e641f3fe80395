"""Prompts as files in a folder, and answers read from files beside them: for a person, an agent, or a batch service."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from math import inf
from pathlib import Path
from threading import Event, Lock
from time import monotonic, time

from r3bench.errors import ModelError
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose.keys import hidden
from r3bench.evolve.propose.patience import stop_if
from r3bench.evolve.propose.reply import Reply

_LOOK_S = 0.5


class FileProposer:
    """Writes ``<kernel>-<step>-<id>.prompt.md`` and waits for ``....answer.md``.

    The id is of the prompt's text: a search that is resumed asks the same question and finds its answer; steps that
    ask the same at once share one file and its answer. ``waiting`` is called with the folder at the first prompt
    without an answer. Once no answer at all has come for ``patience_s`` the search is to stop, and goes on from there
    when it is resumed.
    """

    def __init__(self, folder: str, patience_s: float, waiting: Callable[[Path], None] = lambda folder: None) -> None:
        self._folder, self._patience_s, self._closed = Path(folder), patience_s, Event()
        self._stems: dict[str, str] = {}  # of the files of the prompts that wait
        self._waiting, self._lock = waiting, Lock()
        self._heard = inf  # when the last answer came, or the first prompt began to wait
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelError("no answer yet", f"{folder} cannot be made ({error.strerror})", fatal=True) from error

    def propose(self, prompt: Prompt) -> Reply:
        began = monotonic()
        question, answer = self._paths(prompt)
        while not _is_complete(answer):
            if monotonic() - self._heard >= self._patience_s and not answer.exists():
                raise ModelError("no answer yet", _sentence(question, answer), fatal=True)
            self._closed.wait(_LOOK_S)
            stop_if(self._closed)
        with self._lock:
            self._heard = max(monotonic(), self._heard)
            self._stems.pop(prompt.sha256, None)
        try:
            text = hidden(answer.read_bytes().decode(errors="replace"))
        except OSError as error:
            raise ModelError("bad answer", f"{answer} cannot be read ({error.strerror}); write a file") from error
        return Reply(text=text, origin="files", tokens=prompt.tokens, seconds=round(monotonic() - began, 3))

    def close(self) -> None:
        self._closed.set()

    def _paths(self, prompt: Prompt) -> tuple[Path, Path]:
        """The files of a prompt; the first of those that ask the same at once writes it."""
        kernel = re.sub(r"[^\w.-]", "_", prompt.kernel)
        repair = "-repair" if prompt.turn else ""
        with self._lock:
            stem = self._stems.setdefault(prompt.sha256, f"{kernel}-{prompt.step:04d}{repair}-{prompt.sha256[:8]}")
            question, answer = self._folder / f"{stem}.prompt.md", self._folder / f"{stem}.answer.md"
            if not answer.exists():
                _write(question, prompt.text)
                if self._heard == inf:
                    self._heard = monotonic()
                    self._waiting(self._folder)
        return question, answer


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _is_complete(path: Path) -> bool:
    """Whether an answer is there that nobody has written to for a moment."""
    try:
        return path.stat().st_mtime <= time() - _LOOK_S
    except OSError:
        return False


def _sentence(question: Path, answer: Path) -> str:
    return f"{question} waits for {answer.name}: write it and resume the search"
