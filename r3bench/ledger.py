"""The journal of a search: JSON lines, appended and never rewritten; resuming a search is replaying it.

Every line is one object with ``kind`` and ``time`` (seconds since 1970); all kinds but ``run`` name their ``kernel``:

- ``run``: format, seed, settings and target of a run; a resumed run adds another.
- ``outcome``, ``comparison``: an evaluation and a contest, under the key that asks for them.
- ``archive``: the axes of the archive, what they are in words, and their edges; a program's cell has an index for each.
- ``prompt``, ``reply``: the static text of the prompts, once; and per ``step`` and ``turn`` (1 repairs) the prompt's
  SHA-256, the ids it showed, its tail, and the answer with model, tokens, cost and seconds, or ``trouble``.
- ``program``: what became of a step's text (:class:`r3bench.evolve.program.Program`), and the rules that made it.
- ``iteration``: where the search stood after a step: trials of all programs so far, the best program and its speedup,
  cells filled, the program's island and lag, and how many children were under way.
- ``migration``: the moves after a step: id, from island, to island.
- ``result``: what was found for a kernel; the last one counts.

A line that is no such object, or of which a field that is read holds something else, is damaged: left out and counted.

A resumed search writes again only ``run``, ``result``, and what it took further: the last record counts. A crash can
tear the last line only: reading leaves it out and opening for writing cuts it off. The file itself is locked, so there
is one writer at a time.

The nouns of a search's result live here too, below both those who write them (:mod:`r3bench.evolve`) and those who
read them (:mod:`r3bench.report`).
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self, TypeVar

from r3bench.errors import LedgerError
from r3bench.model import Outcome, Verdict
from r3bench.nouns import Finite, decode, encode, exactly, typed
from r3bench.stats import Comparison, Decision

FORMAT = 1
KEYS: Mapping[str, tuple[str, ...]] = {
    "profile": ("kernel",),
    "archive": ("kernel",),
    "prompt": ("kernel", "sha256"),
    "reply": ("kernel", "step", "turn"),
    "program": ("kernel", "step"),
    "iteration": ("kernel", "step"),
    "migration": ("kernel", "step"),
}
"""What names a record of a kind within a ledger."""
_SYNC_SECONDS = 1.0

T = TypeVar("T")
Record = Mapping[str, Any]

# -- what a search found --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How often candidates of one source ended with one status, and what the first of them said."""

    source: str
    status: str
    count: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResult:
    """One text that was tuned. ``rule`` is ``recorded`` for the text the search began with.

    ``default_ns`` is its time under the default pipeline with the recorded launch, ``best_ns`` that of its best
    configuration: cheap measurements that rank and claim nothing. None where nothing matched. ``same_as`` names the
    rule of an earlier source that gave the same code and was tuned in its place.
    """

    rule: str
    description: str
    trials: int
    matched: int
    default_ns: float | None = None
    best_ns: float | None = None
    same_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What stood against the baseline: a name, and the comparison."""

    name: Literal["patch", "patch and configuration", "configuration", "toolchain", "own compiler"]
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """One candidate's way through promotion: what became of it, and one sentence why.

    ``levels`` holds the verdict at every level of verification that it got to, the last one being the reason where it
    did not match. ``held_out`` counts the units that it matched on, of ``units`` that the capture holds beside the
    search's.
    ``neighbours`` are the other kernels of the file whose recorded launches its text matched; ``decision`` is what its
    contest came to, None where it was refused before.
    """

    rule: str
    promoted: bool
    reason: str
    held_out: int
    units: int
    neighbours: tuple[str, ...] = ()
    decision: Decision | None = None
    levels: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One part of a winner's gain: by which factor it shortened the time, when added to the parts before it.

    From ranking times taken together, which claim nothing; None where the steps before or with it did not match.
    """

    name: Literal["toolchain", "source", "passes", "specialization", "launch"]
    factor: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the proposer of a kernel's texts took: answers, calls that failed, tokens, dollars as far as they are known,
    and seconds. The cached tokens are among those of the prompts."""

    replies: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    dollars: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why no answer came: a :class:`~r3bench.errors.ModelError` as a ledger holds it."""

    reason: str
    text: str
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResult:
    """What a search found for one kernel.

    ``status``: ``improved`` (something was promoted), ``not improved``, ``failed`` (the baseline itself does not
    replay; ``detail`` says why) or ``interrupted`` (``detail`` says where). ``source`` is the path of the main file
    relative to the repository, ``before`` and ``after`` its text; ``after`` is None where no source change was
    promoted; ``relies_on`` says what it relies on where it may be wrong for other launches. ``configuration`` is
    the promoted configuration and launch as JSON, None where the default stayed, and ``settings`` says in words how
    it differs from the default. ``evaluations`` counts all replays: trials, those timed again, and checks on
    further launches. ``also_changes`` names the other kernels of the file that the source change reaches,
    ``also_checked`` those of them whose recorded launches all matched. ``rules`` explains the rules' names.

    ``search`` is the mode, ``steps`` counts the texts proposed, and ``stopped`` says which budget or proposer ended the
    search before all were. ``split`` takes the winner's gain apart, ``stages`` gives the seconds of all evaluations
    before promotion by stage (frontend, optimize, emit, load, verify, time ..., and what they waited in the queues for
    builds and for the device), ``searched`` the seconds that this went on, ``spent`` what the proposer took.
    """

    kernel: str
    capture: str
    content_hash: str
    status: Literal["improved", "not improved", "failed", "interrupted"]
    detail: str
    device: str
    target: str
    baseline: str
    baseline_ns: float | None
    seed: int
    evaluations: int
    seconds: float
    source: str = ""
    before: str = ""
    after: str | None = None
    rule: str | None = None
    description: str = ""
    relies_on: tuple[str, ...] = ()
    configuration: str | None = None
    arms: tuple[Arm, ...] = ()
    sources: tuple[SourceResult, ...] = ()
    failures: tuple[Failures, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    settings: tuple[str, ...] = ()
    also_changes: tuple[str, ...] = ()
    also_checked: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    search: str = "full"
    stopped: str = ""
    steps: int = 0
    split: tuple[Share, ...] = ()
    stages: tuple[tuple[str, float], ...] = ()
    searched: float = 0.0
    spent: Spent = Spent()

    def __post_init__(self) -> None:
        if self.configuration is not None and type(json.loads(self.configuration)) is not dict:
            raise ValueError(f"{self.kernel}: a configuration is a JSON object, not {self.configuration!r:.80}")

    def arm(self, name: str) -> Comparison | None:
        """The comparison of an arm against the baseline, if that arm was run."""
        return next((arm.comparison for arm in self.arms if arm.name == name), None)


# -- the file ---------------------------------------------------------------------------------------------------------


def read(path: Path) -> tuple[list[Record], int]:
    """Every whole record of a ledger, in order, and how many lines were damaged. LedgerError where it is not there."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} cannot be read ({error.strerror}); name one that a search wrote"
        ) from error
    lines = data.split(b"\n")
    torn = bool(lines.pop().strip())
    records = [_parse(line) for line in lines if line.strip()]
    kept = [record for record in records if record is not None]
    _refuse_newer(path, kept)
    return kept, len(records) - len(kept) + torn


def _parse(line: bytes) -> Record | None:
    """The record of a line; None where it is none, or where a field that is read holds something else."""
    try:
        record: Record = exactly(dict, json.loads(line))
        failed = " that failed" if record["kind"] == "reply" and "trouble" in record else ""
        _check(_FIELDS.get(exactly(str, record["kind"]) + failed, {}), record)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return record


def _check(hints: Mapping[str, Any], record: Record) -> None:
    """What :func:`decode` raises, where a field does not fit; one whose name ends with ``?`` may be absent."""
    for name, hint in hints.items():
        key = name.rstrip("?")
        if isinstance(hint, Mapping):
            _check(hint, exactly(dict, record[key]))
        elif key == name or key in record:
            typed(hint, record[key])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    limits: _Limits | None = None
    kernels: int | None = None


# The fields that are read, by kind; of nouns that layers above define, those that are read without them.
_KEPT = {"kernel": str, "time": Finite}
_STEP = _KEPT | {"step": int}
_TURN = _STEP | {"turn": int, "prompt?": str, "model?": str}
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "run": {"format?": int, "settings?": _Settings, "options?": dict[str, str]},
    "outcome": {"key": str, "kernel?": str, "source?": str, "time": Finite, "outcome": Outcome},
    "comparison": {"key": str, "kernel?": str, "comparison": Comparison},
    "profile": _KEPT | {"told": dict[str, str]},
    "archive": _KEPT | {"words": tuple[str, ...], "edges": tuple[tuple[Finite, ...], ...]},
    "prompt": _KEPT | {"sha256": str},
    "reply": _TURN
    | {"text": str, "origin": str, "cost?": Finite | None, "seconds?": Finite}
    | dict.fromkeys(("tokens?", "cached_tokens?", "answer_tokens?"), int),
    "reply that failed": _TURN | {"origin?": str, "trouble": Trouble},
    "program": _STEP
    | {
        "program": {"id": str, "origin": str, "status": str, "island": int}
        | {"cell?": tuple[int, ...] | None, "speedup?": Finite | None},
    },
    "iteration": _STEP,
    "migration": _STEP,
    "result": {"result": KernelResult, "time?": Finite},
}


def _refuse_newer(path: Path, records: list[Record]) -> None:
    for record in records:
        if record["kind"] == "run" and record.get("format", 0) > FORMAT:
            found = record["format"]
            raise LedgerError(
                f"the ledger {path} has format {found}, this r3bench reads up to {FORMAT}; update r3bench"
            )


class Ledger:
    """An open journal: ask it what is known already, append what is new. A context manager."""

    def __init__(self, path: Path, file: BinaryIO, records: list[Record], earlier: Path | None = None) -> None:
        self.path, self.earlier = path, earlier
        self._file = file
        self._synced = time.monotonic()
        self._outcomes: dict[str, Outcome] = {}
        self._comparisons: dict[str, Comparison] = {}
        self._named: dict[tuple[object, ...], Record] = {}
        for record in records:
            self._remember(record)

    @classmethod
    def open(cls, path: Path, *, resume: bool = True) -> Ledger:
        """Open a ledger for appending; without ``resume`` a new one, and an older one of this name becomes ``earlier``.

        LedgerError where another process writes it or it cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            earlier = None if resume else _set_aside(path)
            file = path.open("a+b")
            try:
                return cls(path, file, _locked(path, file), earlier)
            except BaseException:
                file.close()
                raise
        except OSError as error:
            raise _unwritable(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- what is known --

    def outcome(self, key: str) -> Outcome | None:
        """What an earlier evaluation of this key came to."""
        return self._outcomes.get(key)

    def comparison(self, key: str) -> Comparison | None:
        """What an earlier contest of this key came to."""
        return self._comparisons.get(key)

    def find(self, kind: str, *key: object) -> Record | None:
        """The last record of a kind with these values of its KEYS."""
        return self._named.get((kind, *key))

    def records(self, kind: str) -> list[Record]:
        """The last record of a kind for all values of its KEYS, in the order in which they first came."""
        return [record for (named, *_), record in self._named.items() if named == kind]

    def _remember(self, record: Record) -> None:
        self._name(record)
        if record["kind"] == "outcome":
            self._outcomes[record["key"]] = decode(Outcome, record["outcome"])
        elif record["kind"] == "comparison":
            self._comparisons[record["key"]] = decode(Comparison, record["comparison"])

    def _name(self, record: Record) -> None:
        names = KEYS.get(record["kind"], ())
        if names and all(name in record for name in names):
            self._named[record["kind"], *(record[name] for name in names)] = record

    # -- what is new --

    def add_outcome(self, key: str, outcome: Outcome, **about: Any) -> None:
        """Keep an outcome under its key; ``about`` goes into the record for readers."""
        self._outcomes[key] = outcome
        self.append("outcome", key=key, outcome=encode(outcome), **about)

    def add_comparison(self, key: str, comparison: Comparison, **about: Any) -> None:
        """Keep a comparison under its key."""
        self._comparisons[key] = comparison
        self.append("comparison", key=key, comparison=encode(comparison), **about)

    def once(self, kind: str, **what: Any) -> None:
        """Write a record of a kind in KEYS, in its JSON form, unless the last one with its key says the same."""
        known = self.find(kind, *(what[name] for name in KEYS[kind]))
        if known is None or {"kind": kind, "time": known["time"], **what} != known:
            self.append(kind, **what)

    def append(self, kind: str, **what: Any) -> Record:
        """Write one record, at once; it is on the disk a second later at the latest, or when the ledger is closed."""
        record = {"kind": kind, "time": round(time.time(), 3), **what}
        line = json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        try:
            self._file.write(line)
            self._file.flush()
            if time.monotonic() - self._synced >= _SYNC_SECONDS:
                self._sync()
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self._name(record)
        return record

    def _sync(self) -> None:
        os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        """Put everything on the disk and let others write; idempotent. LedgerError where the disk does not take it."""
        if self._file.closed:
            return
        try:
            self._file.flush()
            self._sync()
        except OSError as error:
            raise _unwritable(self.path, error) from error
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)  # a worker forked meanwhile has the file open, too
            with suppress(OSError):
                self._file.close()


def _set_aside(path: Path) -> Path | None:
    """Move a ledger that nobody writes to ``earlier/<time>/`` beside it; where it is now, None where there was none."""
    if not path.exists() or not path.stat().st_size:
        return None
    with path.open("rb") as file:
        _lock(path, file)
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        names = (stamp if number == 1 else f"{stamp}-{number}" for number in count(1))
        place = next(place for name in names if not (place := path.parent / "earlier" / name / path.name).exists())
        place.parent.mkdir(parents=True, exist_ok=True)
        return path.rename(place)


def _locked(path: Path, file: BinaryIO) -> list[Record]:
    """Lock an open ledger, cut off what a crash tore, and return its records."""
    _lock(path, file)
    records = read(path)[0]
    file.truncate(_whole_lines(file))
    return records


def _lock(path: Path, file: BinaryIO) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise LedgerError(f"the ledger {path} is being written by another run; wait or use another name") from error


def _whole_lines(file: BinaryIO) -> int:
    """The length of a file up to the end of its last whole line."""
    file.seek(0)
    return file.read().rfind(b"\n") + 1


def _unwritable(path: Path, error: OSError) -> LedgerError:
    return LedgerError(f"the ledger {path} cannot be written ({error.strerror}); use another place")


def results(records: list[Record]) -> Iterator[KernelResult]:
    """The last result of every kernel in a ledger, in the order in which they first came."""
    last: dict[str, Record] = {}
    for record in records:
        if record["kind"] == "result":
            last[record["result"]["kernel"]] = record["result"]
    yield from (decode(KernelResult, result) for result in last.values())
