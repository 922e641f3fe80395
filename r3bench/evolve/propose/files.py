"""Prompts as files in a folder, and answers read from files beside them: for a person, an agent, or a batch service."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Event, Lock
from time import monotonic, time

from r3bench.errors import Exhausted, FileError, ModelError
from r3bench.evolve.prompt import Prompt
from r3bench.evolve.propose.keys import hidden
from r3bench.evolve.propose.patience import stop_if
from r3bench.evolve.propose.reply import Reply
from r3bench.files import write_text

_LOOK_S = 0.5
_KIND = re.compile(r"\.(prompt|answer)\.md$")


class FileProposer:
    """Writes ``<kernel>-<step>-<id>.prompt.md`` and waits for ``....answer.md``.

    The id is of the prompt's text: a search that is resumed asks the same question and finds its answer. Of steps that
    ask the same, the first gets the answer, and the others nothing: one prompt, one answer. ``waiting`` is called with
    the folder at the first prompt without an answer. Once no answer at all has come for ``patience_s`` the search is to
    stop, and goes on from there when it is resumed.
    """

    def __init__(self, folder: str, patience_s: float, waiting: Callable[[Path], None] = lambda folder: None) -> None:
        self._folder, self._patience_s, self._closed = Path(folder), patience_s, Event()
        self._waiting, self._lock = waiting, Lock()
        self._heard = inf  # when the last answer came, or the first prompt began to wait
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ModelError("no answer yet", f"{folder} cannot be made ({error.strerror})", fatal=True) from error

    def propose(self, prompt: Prompt) -> Reply:
        began = monotonic()
        while not _is_complete(answer := self._answer(prompt)):
            if monotonic() - self._heard >= self._patience_s and not answer.exists():
                raise ModelError("no answer yet", _sentence(answer), fatal=True)
            self._closed.wait(_LOOK_S)
            stop_if(self._closed)
        with self._lock:
            self._heard = max(monotonic(), self._heard)
        try:
            text = hidden(answer.read_bytes().decode(errors="replace"))
        except OSError as error:
            raise ModelError("bad answer", f"{answer} cannot be read ({error.strerror}); write a file") from error
        return Reply(text=text, origin="files", seconds=round(monotonic() - began, 3))

    def close(self) -> None:
        self._closed.set()

    def _answer(self, prompt: Prompt) -> Path:
        """Where the answer to a prompt is looked for; the prompt lies beside it. Exhausted where an earlier step asks
        the same."""
        kernel = re.sub(r"[^\w.-]", "_", prompt.kernel)
        end = f"{'-repair' if prompt.turn else ''}-{prompt.sha256[:8]}"
        own = f"{kernel}-{prompt.step:04d}{end}"
        with self._lock:
            names = {_KIND.sub("", path.name) for path in self._folder.glob(f"{kernel}-[0-9]*{end}.*.md")}
            first = min(names, default=own)
            if first < own:
                raise Exhausted(f"{first}.prompt.md asks the same as step {prompt.step}: one prompt, one answer")
            for kind in ("prompt", "answer"):
                with suppress(FileNotFoundError):
                    os.rename(self._folder / f"{first}.{kind}.md", self._folder / f"{own}.{kind}.md")
            question, answer = self._folder / f"{own}.prompt.md", self._folder / f"{own}.answer.md"
            if not answer.exists() and not question.exists():
                _write(question, prompt.text)
            if not answer.exists() and self._heard == inf:
                self._heard = monotonic()
                self._waiting(self._folder)
        return answer


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except FileError as error:
        raise ModelError("no answer yet", str(error), fatal=True) from error


def _is_complete(path: Path) -> bool:
    """Whether an answer is there that nobody has written to for a moment."""
    try:
        return path.stat().st_mtime <= time() - _LOOK_S
    except OSError:
        return False


def _sentence(answer: Path) -> str:
    question = answer.with_name(answer.name.replace(".answer.", ".prompt."))
    return f"{question} waits for {answer.name}: write it and resume the search"
