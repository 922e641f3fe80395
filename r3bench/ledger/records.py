"""The journal of a search: JSON lines, appended and never rewritten; resuming a search is replaying it.

Every line is one object with ``kind`` and ``time`` (seconds since 1970); all kinds but ``run`` name their ``kernel``:

- ``run``: format, seed, settings and target of a run; a resumed run adds another.
- ``outcome``, ``comparison``: an evaluation and a contest, under the key that asks for them; a contest with the hashes
  of its ``baseline`` and ``candidate``.
- ``archive``: the axes of the archive, what they are in words, and their edges; a program's cell has an index for each.
- ``prompt``, ``reply``: the static text of the prompts, once; and per ``step`` and ``turn`` (1 repairs) the prompt's
  SHA-256, the ids it showed, its tail, and the answer with model, tokens, cost and seconds, or ``trouble``.
- ``program``: what became of a step's text (:class:`r3bench.evolve.program.Program`), and the rules that made it.
- ``iteration``: where the search stood after a step: trials of all programs so far, the best program and its speedup,
  cells filled, the program's island and lag, and how many children were under way.
- ``migration``: the moves after a step: id, from island, to island.
- ``result``: what was found for a kernel; the last one counts.

Reading believes nothing: a line is damaged, left out, and told with its number, if it is no such object; if a field
that is read holds something else; if it stands there twice, or an evaluation or contest under a key that has another
already; and if a result says what does not follow from the samples, texts and counts of the lines before it
(:mod:`r3bench.ledger.evidence`).

A resumed search writes again only ``run``, ``result``, and what it took further: the last record counts. A crash can
tear the last line only: reading leaves it out and opening for writing cuts it off. The file itself is locked, so there
is one writer at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r3bench.errors import LedgerError
from r3bench.ledger.evidence import Evidence
from r3bench.ledger.results import KernelResult, SearchMode, Trouble, contradicted
from r3bench.model import Outcome
from r3bench.nouns import Finite, decode, exactly, typed
from r3bench.stats import Comparison, contradiction

FORMAT = 1
KEYS: Mapping[str, tuple[str, ...]] = {
    "profile": ("kernel",),
    "archive": ("kernel",),
    "prompt": ("kernel", "sha256"),
    "reply": ("kernel", "step", "turn"),
    "program": ("kernel", "step"),
    "iteration": ("kernel", "step"),
    "migration": ("kernel", "step"),
    "result": ("kernel",),
}
"""What names a record of a kind within a ledger."""

Record = Mapping[str, Any]


def read(path: Path) -> tuple[list[Record], list[str]]:
    """Every whole record of a ledger, in order, and of each damaged line what is wrong with it. LedgerError where it is
    not there, or newer than this r3bench."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise LedgerError(
            f"the ledger {path} cannot be read ({error.strerror}); name one that a search wrote"
        ) from error
    lines = data.split(b"\n")
    reading, damage = _Reading(), []
    for number, line in enumerate(lines[:-1], 1):
        if line.strip() and (wrong := reading.take(number, line)):
            damage.append(f"line {number} of {path.name}: {wrong}")
    if lines[-1].strip():
        damage.append(f"line {len(lines)} of {path.name}: it is not whole")
    _refuse_newer(path, reading.records)
    return reading.records, damage


@dataclass(slots=True)
class _Reading:
    """The records of a ledger so far, and what a further one is held against."""

    records: list[Record] = field(default_factory=list)
    _lines: dict[bytes, int] = field(default_factory=dict)
    _keys: dict[tuple[str, str], int] = field(default_factory=dict)
    _evidence: Evidence = field(default_factory=Evidence)

    def take(self, number: int, line: bytes) -> str:
        """Keep the record of a line, or say why not."""
        first = self._lines.setdefault(line, number)
        if first != number:
            return f"it repeats line {first}"
        try:
            record = _parsed(line)
            wrong = self._wrong(number, record)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            return f"it is no record ({type(error).__name__}: {error!s:.100})"
        if not wrong:
            self.records.append(record)
            self._evidence.add(record)
        return wrong

    def _wrong(self, number: int, record: Record) -> str:
        kind = record["kind"]
        if kind in ("outcome", "comparison"):
            first = self._keys.setdefault((kind, record["key"]), number)
            if first != number:
                return f"it contradicts line {first}, the {kind} under the same key"
        if kind == "comparison":
            return contradiction(decode(Comparison, record["comparison"]))
        return self._claims(decode(KernelResult, record["result"]), record.get("kernel")) if kind == "result" else ""

    def _claims(self, result: KernelResult, kernel: Any) -> str:
        """What is wrong with a result; what it rests on is on record before it."""
        if kernel not in (None, result.kernel):
            return f"the result of {result.kernel}: its line is of {kernel}"
        wrong = contradicted(result) or self._evidence.lacks(result)
        return f"the result of {result.kernel}: {wrong}" if wrong else ""


def _parsed(line: bytes) -> Record:
    """The record of a line; what :func:`decode` raises, where it is none."""
    record: Record = exactly(dict, json.loads(line))
    failed = " that failed" if record["kind"] == "reply" and "trouble" in record else ""
    _check(_FIELDS.get(exactly(str, record["kind"]) + failed, {}), record)
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
    search: SearchMode | None = None
    iterations: int | None = None
    trials: int | None = None
    seed: int | None = None


# The fields that are read, by kind; of nouns that layers above define, those that are read without them.
_KEPT = {"kernel": str, "time": Finite}
_STEP = _KEPT | {"step": int}
_TURN = _STEP | {"turn": int, "prompt?": str, "model?": str}
_FIELDS: Mapping[str, Mapping[str, Any]] = {
    "run": {"time": Finite, "format?": int, "settings?": _Settings, "options?": dict[str, str]},
    "outcome": {"key": str, "kernel?": str, "source?": str, "again?": int, "time": Finite, "outcome": Outcome},
    "comparison": {"key": str, "kernel?": str, "baseline?": str, "candidate?": str, "comparison": Comparison},
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
        | {"cell?": tuple[int, ...] | None, "speedup?": Finite | None, "files?": tuple[tuple[str, str], ...]},
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


def latest(records: Iterable[Record], kind: str) -> list[Record]:
    """The last record of a kind for all values of its KEYS, in the order in which they first came."""
    return list(
        {tuple(record[name] for name in KEYS[kind]): record for record in records if record["kind"] == kind}.values()
    )


def results(records: list[Record]) -> Iterator[KernelResult]:
    """The last result of every kernel in a ledger, in the order in which they first came."""
    last: dict[str, Record] = {}
    for record in records:
        if record["kind"] == "result":
            last[record["result"]["kernel"]] = record["result"]
    yield from (decode(KernelResult, result) for result in last.values())
