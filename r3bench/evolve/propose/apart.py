"""The rules in a process of their own: a proposal takes 30 to 100 ms of Python, and threads would wait for it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock

from r3bench.errors import ModelError
from r3bench.rules import Chain, Proposal
from r3bench.rules.subject import Subject

_END_S = 10.0


class Apart:
    """A process that is begun with the first question, and again where it was ended. It ends with whoever asks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False

    def ask(self, subject: Subject, chains: Sequence[Chain], number: int) -> Proposal | None:
        """As :func:`r3bench.rules.nth_proposal`; ModelError where the process ends instead."""
        with self._lock:
            if self._closed:
                raise ModelError("stopped", "the rules were stopped")
            process = self._process = self._process or self._begun()
            try:
                return _answer(process, (subject, chains, number))
            except (EOFError, OSError) as error:
                self._process = None
                _end(process)
                raise ModelError("ended", f"the process of the rules ended ({process.returncode})") from error

    def close(self) -> None:
        """End the process; a question under way then ends with ModelError. Idempotent."""
        self._closed = True
        if process := self._process:
            process.kill()

    def _begun(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "r3bench.rules"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
            start_new_session=True,  # ctrl-C in the terminal is for whoever asks to handle
        )
        weakref.finalize(self, _end, process)
        return process


def _answer(process: subprocess.Popen[bytes], question: object) -> Proposal | None:
    assert process.stdin is not None
    assert process.stdout is not None
    pickle.dump(question, process.stdin)
    process.stdin.flush()
    answer: Proposal | None = pickle.load(process.stdout)
    return answer


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(_END_S)
    for pipe in filter(None, (process.stdin, process.stdout)):
        with suppress(OSError):
            pipe.close()
