"""A report as a search leaves it that promoted another text and another block, made without a search."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from r3bench import report, store
from r3bench.ledger import Ledger
from r3bench.model import Configuration, LaunchRule
from r3bench.nouns import encode
from r3bench.worktree import source_path
from tests.unit import report_case
from tests.unit.grounds import keep


def tuned_report(place: Path, capture: Path, launch: LaunchRule, old: str, new: str) -> Path:
    """The report's folder: in the capture's main file ``new`` stands for ``old``."""
    recorded = store.open_capture(capture)
    assert recorded.source is not None
    before = store.sources(recorded)[recorded.source.main]
    after = before.replace(old, new)
    assert after != before
    found = replace(
        report_case.kernel(1, 3), kernel="tuned/kernel", capture=str(capture), source=source_path(recorded),
        before=before, after=after,
        configuration=json.dumps({"configuration": encode(Configuration()), "launch": encode(launch)}),
    )  # fmt: skip
    with Ledger.open(place / "tuned/ledger/kernel.jsonl", resume=False) as ledger:
        keep(ledger, found)
    report.write((place / "tuned/ledger").glob("*.jsonl"), place)
    return place / "tuned"
