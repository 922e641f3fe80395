"""Asking again: tries with growing pauses, as long as patience lasts."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic

from r3bench.errors import ModelError
from r3bench.evolve.propose.keys import hidden
from r3bench.evolve.propose.reply import Reply

FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_LEAST_S = 1.0  # for one try, or one that begins as patience ends would be told that nobody is there
_TRIES = {"unreachable": 3, "bad answer": 2, "not UTF-8": 2}  # of these; of what passes by itself: as patience lasts


class Failed(Exception):
    """One try failed in a way that another may not; ``after_s`` is the pause that the server asked for."""

    def __init__(self, reason: str, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.after_s = after_s


def patiently(ask: Callable[[float], Reply], patience_s: float, closed: Event) -> Reply:
    """The first reply of several tries; ``ask`` is told how many seconds it may take.

    ModelError with the last try's reason where none comes, fatal where the server was never reached; ModelError
    (``stopped``) once ``closed`` is set.
    """
    end, tries, pause_s = monotonic() + patience_s, 0, FIRST_PAUSE_S
    while True:
        tries += 1
        try:
            return ask(max(_LEAST_S, end - monotonic()))
        except Failed as error:
            stop_if(closed)
            wait_s = error.after_s if error.after_s is not None else pause_s
            if tries >= _TRIES.get(error.reason, tries + 1) or monotonic() + wait_s >= end:
                fatal = error.reason == "unreachable"
                raise ModelError(error.reason, hidden(f"{error} ({_count(tries)})"), fatal=fatal) from None
        closed.wait(wait_s)
        stop_if(closed)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def stop_if(closed: Event) -> None:
    """ModelError (``stopped``) once the proposer is closed."""
    if closed.is_set():
        raise ModelError("stopped", "the search ended before the answer came", fatal=True)


def _count(tries: int) -> str:
    return f"{tries} tries" if tries > 1 else "1 try"
