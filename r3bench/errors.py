"""Every error r3bench raises, split by whose fault it is.

::

    R3Error
    ├── CandidateFailure      the candidate is at fault: becomes a verdict, the search goes on
    │   ├── BuildError        the compiler refused it (line and column of the user's file)
    │   │   ├── Unsupported   it asks for something this device cannot do; the message names it
    │   │   └── BuildTimeout  compiling it took too long and was stopped
    │   ├── LaunchError       the device refused the launch (too many threads, too much shared memory)
    │   ├── DeviceFault       it crashed, trapped, deadlocked or touched memory that is not its own
    │   ├── ReplayTimeout     it did not end in time and was killed
    │   └── BadReply          a proposer's answer holds no text to be tried; ``reason`` says why by name
    ├── WorkerLost            a worker was killed from outside or hangs in itself: nobody's fault, to be tried again
    ├── CaptureError          a capture is missing, damaged or of a newer format
    ├── DeviceUnavailable     the device asked for cannot be used here
    ├── RecordError           a launch could not be recorded
    │   └── NotRecordable     what its kernel uses is held by no capture
    ├── FileError             a report, a patch or another file of results cannot be written
    ├── LedgerError           the journal of a search is in use, damaged or of a newer format
    ├── ServiceError          a replay server elsewhere cannot be reached, refuses us, or failed in itself
    ├── TreeError             a commit, a folder or a patch cannot be read or used: no such commit, no git
    └── ModelError            a proposer (language model) could not be used; ``reason`` says why by name
        └── Exhausted         it has nothing more to say for this parent

Everything but ``CandidateFailure`` stops the run. A message is one sentence that names the file or kernel and
what to do. No code decides anything from the text of a message: ask for the class or its attributes.
"""

from __future__ import annotations

from dataclasses import dataclass


class R3Error(Exception):
    """Base of every error of r3bench."""


class CandidateFailure(R3Error):
    """The candidate is at fault; the search turns this into a verdict and goes on."""


@dataclass(frozen=True)
class Diagnostic:
    """One message of a compiler, at a place in the user's own file (line and column count from 1)."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class BuildError(CandidateFailure):
    """Source, IR or code generation failed.

    ``diagnostics`` holds the compiler's messages in order, the first being the one in the text.
    """

    def __init__(self, message: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(message)
        self.diagnostics = diagnostics

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.diagnostics)


class Unsupported(BuildError):
    """The kernel needs something that this device or front end does not have; the message names it."""


class BuildTimeout(BuildError):
    """Compiling it took longer than its time limit and was stopped."""


class LaunchError(CandidateFailure):
    """The device refused the launch before anything ran."""


class DeviceFault(CandidateFailure):
    """The kernel crashed, trapped, deadlocked or touched memory that is not its own."""


class ReplayTimeout(CandidateFailure):
    """The kernel did not end within its time limit and its worker was killed."""


class WorkerLost(R3Error):
    """A worker was killed from outside, or does not answer where no kernel of a candidate runs; another takes over."""


class BadReply(CandidateFailure):
    """A proposer's answer holds no text that could be tried.

    ``reason`` is one of a few names, to be counted by: ``empty``, ``too large``, ``not UTF-8``, ``no code block``,
    ``unfinished``, ``no kernel``, ``wrong kernel``, ``changed signature``, ``closed function``, ``includes a file``,
    ``prints``, ``keeps state``, ``asks the compiler``, ``not readable``, ``edit does not match``,
    ``edit is ambiguous``, ``impossible launch``, ``nothing changed``.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.reason, str(self))


class CaptureError(R3Error):
    """A capture cannot be read or written: missing, damaged, or of a newer format."""


class DeviceUnavailable(R3Error):
    """The device asked for cannot be used here; the message says why and what to do."""


class ServiceError(R3Error):
    """A replay server elsewhere cannot be reached, refuses this client, or failed in itself; the message says which."""


class RecordError(R3Error):
    """A launch could not be recorded."""


class NotRecordable(RecordError):
    """What the launch's kernel uses is held by no capture; the message names it."""


class TreeError(R3Error):
    """A commit, a folder or a patch cannot be read or used."""


class FileError(R3Error):
    """A report, a patch or another file of results cannot be written."""


class LedgerError(R3Error):
    """The journal of a search cannot be read or written: in use, damaged, or of a newer format."""


class ModelError(R3Error):
    """A proposer could not be used; the message says what to do and never holds a key.

    ``reason`` is one of a few names, to be counted by: ``no key``, ``wrong key``, ``unknown model``, ``unreachable``,
    ``rate limit``, ``server error``, ``time-out``, ``not UTF-8``, ``bad answer``, ``refused request``,
    ``not recorded``, ``no answer yet``, ``stopped``, ``not installed``, ``nothing more``, ``nobody left``,
    ``unknown proposer``. ``fatal`` says that asking again is of no use.
    """

    def __init__(self, reason: str, message: str, *, fatal: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.fatal = fatal


class Exhausted(ModelError):
    """A proposer has nothing more to say for this parent; another parent may do."""

    def __init__(self, message: str) -> None:
        super().__init__("nothing more", message)
