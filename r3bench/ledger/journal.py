"""An open journal."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Self

from r3bench.errors import LedgerError
from r3bench.ledger.records import KEYS, Record, read
from r3bench.model import Outcome
from r3bench.nouns import decode, encode
from r3bench.stats import Comparison

_SYNC_SECONDS = 1.0


class Ledger:
    """An open journal: ask it what is known already, append what is new. A context manager."""

    def __init__(self, path: Path, file: BinaryIO, records: list[Record], earlier: Path | None = None) -> None:
        self.path, self.earlier = path, earlier
        self._file = file
        self._synced = time.monotonic()
        self._began = time.time() - self._synced  # a clock that is set back makes no record earlier than one before it
        self._outcomes: dict[str, Outcome] = {}
        self._comparisons: dict[str, Comparison] = {}
        self._runs: list[float] = []  # when the earlier ones began
        self._came: dict[str, tuple[int, float]] = {}
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

    def came(self, key: str) -> tuple[int, float] | None:
        """The number of the earlier run in which an evaluation came to its end, and how many seconds after it began;
        None for those of this one."""
        return self._came.get(key)

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
        if record["kind"] == "run":
            self._runs.append(record["time"])
        elif record["kind"] == "outcome":
            self._outcomes[record["key"]] = decode(Outcome, record["outcome"])
            if self._runs:
                self._came[record["key"]] = len(self._runs), max(0.0, record["time"] - self._runs[-1])
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
        record = {"kind": kind, "time": round(self._began + time.monotonic(), 3), **what}
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
