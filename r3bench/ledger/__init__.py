"""The journal of a search, and what a search found.

::

    results.py    the nouns of a search's result, and what a result may not say
    evidence.py   what the records carry, against which a result is held
    records.py    the file's grammar, and reading it
    journal.py    an open journal: what is known, and appending what is new
"""

from __future__ import annotations

from r3bench.ledger.evidence import named
from r3bench.ledger.journal import Ledger
from r3bench.ledger.records import FORMAT, KEYS, Record, latest, read, results
from r3bench.ledger.results import (
    Arm,
    Failures,
    FileChange,
    KernelResult,
    Promotion,
    SearchMode,
    Share,
    SourceResult,
    Spent,
    Trouble,
    adds_up,
    contradicted,
)

__all__ = [
    "FORMAT", "KEYS", "Arm", "Failures", "FileChange", "KernelResult", "Ledger", "Promotion", "Record", "SearchMode",
    "Share", "SourceResult", "Spent", "Trouble", "adds_up", "contradicted", "latest", "named", "read", "results",
]  # fmt: skip
