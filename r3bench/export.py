"""Ledgers as columns: every evaluation, program and step of a search, for analysis with xarray.

Words are stored as integers; the attribute ``meanings`` of such a column lists what they stand for. -1 and NaN say
that there is no value. Texts and samples stay in the ledger, whose keys and steps the columns repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from r3bench.errors import LedgerError
from r3bench.ledger import Record, latest, read
from r3bench.stats import block_statistic
from r3bench.store import Column, write_run

STAGES = ("frontend", "specialize", "lower", "optimize", "emit", "assemble", "cache", "image", "load", "verify", "time")
_FACTS = ("ir_instructions", "registers", "spill_store_bytes", "shared_bytes")


def export(ledgers: Iterable[Path], target: Path) -> None:
    """Write the ledgers of one run as one Dataset. LedgerError where they hold no evaluation, CaptureError where the
    target cannot be written."""
    records = [record for path in ledgers for record in read(path)[0]]
    outcomes = [record for record in records if record["kind"] == "outcome"]
    if not outcomes:
        raise LedgerError("these ledgers hold no evaluation; name those of a search")
    programs, steps = (latest(records, kind) for kind in ("program", "iteration"))
    run = next((record for record in records if record["kind"] == "run"), {})
    archive = next((record for record in records if record["kind"] == "archive"), {})
    columns = {**_trials(outcomes), **_programs(programs), **_steps(steps)}
    attributes = {"seed": run.get("seed", -1), "settings": run.get("settings", {}), "target": run.get("target", {})}
    write_run(target, columns, {**attributes, "axes": archive.get("axes", []), "edges": archive.get("edges", [])})


def _trials(outcomes: Sequence[Record]) -> Mapping[str, Column]:
    """One row per evaluation, in the order in which they ended."""
    told = [record["outcome"] for record in outcomes]
    stages = [[dict(o["stages"]).get(stage, np.nan) for stage in STAGES] for o in told]
    began = min(record["time"] for record in outcomes)
    columns = {
        "trial_kernel": _words("trial", [record["kernel"] for record in outcomes]),
        "trial_source": _words("trial", [record.get("source", "") for record in outcomes]),
        "trial_unit": _numbers("trial", [o["unit"] for o in told]),
        "trial_status": _words("trial", [o["verdict"]["status"] for o in told]),
        "trial_module": _words("trial", [o["module"] or "" for o in told]),
        "trial_ns": _numbers("trial", [_ns(o) for o in told], units="ns"),
        "trial_slower_than_ns": _numbers("trial", [_cut_ns(o) for o in told], units="ns"),
        "trial_seconds": _numbers("trial", [record["time"] - began for record in outcomes], units="s"),
        "trial_stage_seconds": Column(("trial", "stage"), np.array(stages), {"units": "s", "meanings": list(STAGES)}),
    }
    for fact in _FACTS:
        columns[f"trial_{fact}"] = _numbers("trial", [dict(o["facts"]).get(fact, -1) for o in told])
    return columns


def _ns(outcome: Mapping[str, Any]) -> float:
    measured = outcome["measurement"]
    return block_statistic(measured["samples_ns"]) if measured and measured.get("cut_ns") is None else np.nan


def _cut_ns(outcome: Mapping[str, Any]) -> float:
    """What a trial was surely slower than, where its timing was cut off: then it has no time of its own."""
    cut_ns = (outcome["measurement"] or {}).get("cut_ns")
    return np.nan if cut_ns is None else float(cut_ns)


def _programs(records: Sequence[Record]) -> Mapping[str, Column]:
    """One row per text that was proposed."""
    told = [record["program"] for record in records]
    axes = max((len(p["cell"]) for p in told if p["cell"] is not None), default=0)
    columns = {
        "program_kernel": _words("program", [record["kernel"] for record in records]),
        "program_rule": _words("program", [record["rule"] for record in records]),
        "program_parent": _numbers("program", [int(p["parent"][1:]) if p["parent"] else -1 for p in told]),
        "program_cell": Column(
            ("program", "axis"), np.array([p["cell"] or [-1] * axes for p in told], dtype=np.int64).reshape(-1, axes)
        ),
    }
    for name in ("origin", "status"):
        columns[f"program_{name}"] = _words("program", [p[name] for p in told])
    for name in ("step", "island", "lag", "trials"):
        columns[f"program_{name}"] = _numbers("program", [p[name] for p in told])
    for name in ("speedup", "ns", "default_ns"):
        columns[f"program_{name}"] = _numbers("program", [np.nan if p[name] is None else p[name] for p in told])
    return columns


def _steps(records: Sequence[Record]) -> Mapping[str, Column]:
    """One row per step that was judged."""
    columns = {"step_kernel": _words("step", [record["kernel"] for record in records])}
    for name in ("step", "trials", "speedup", "cells", "lag", "under_way"):
        columns[f"step_{name}"] = _numbers("step", [record[name] for record in records])
    return columns


def _words(dim: str, words: Sequence[str]) -> Column:
    meanings = {word: number for number, word in enumerate(dict.fromkeys(words))}
    return Column((dim,), np.array([meanings[word] for word in words], dtype=np.int32), {"meanings": list(meanings)})


def _numbers(dim: str, numbers: Sequence[float], **attributes: str) -> Column:
    return Column((dim,), np.array(numbers), attributes)
