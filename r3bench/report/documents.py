"""Ledger -> one JSON document per application: the source of every rendering."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from r3bench.ledger import Arm, KernelResult, encode, read, results
from r3bench.report.patches import diff, overlapping
from r3bench.report.words import file_name
from r3bench.stats import Decision

FORMAT = 1


Document = Mapping[str, Any]


def applications(ledger: Path) -> tuple[dict[str, list[KernelResult]], int]:
    """The results in a ledger by application, and how many of its lines are damaged. LedgerError as for reading."""
    records, damaged = read(ledger)
    found: dict[str, list[KernelResult]] = {}
    for result in results(records):
        found.setdefault(result.kernel.split("/")[0], []).append(result)
    return found, damaged


def document(application: str, kernels: Sequence[KernelResult], damaged_lines: int = 0) -> Document:
    """The report of one application as plain JSON data without absolute paths; kernels with the largest gain first."""
    ordered = by_gain([portable(kernel) for kernel in kernels])
    return {
        "format": FORMAT,
        "application": application,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "device": kernels[0].device if kernels else "",
        "target": kernels[0].target if kernels else "",
        "conditions": dict(kernels[0].conditions) if kernels else {},
        "damaged_ledger_lines": damaged_lines,
        "kernels": [{**_kernel(result), "overlaps": overlapping(result, ordered)} for result in ordered],
    }


def by_gain(kernels: Iterable[KernelResult]) -> list[KernelResult]:
    """Largest gain first."""
    return sorted(kernels, key=lambda k: (-_gain(k), k.kernel))


def _gain(result: KernelResult) -> float:
    """The largest speedup that was claimed; 0 where none was."""
    faster = [arm.comparison for arm in result.arms if arm.comparison.decision is Decision.FASTER]
    return max((comparison.speedup or 0.0 for comparison in faster), default=0.0)


def portable(result: KernelResult) -> KernelResult:
    """A result whose capture is named relative to the working directory or its repository, else by its name alone."""
    path = Path(result.capture)
    if not path.is_absolute():
        return result
    repository = next((folder for folder in path.parents if (folder / ".git").exists()), None)
    roots = (Path.cwd(), *([repository] if repository is not None else []))
    name = next((path.relative_to(root).as_posix() for root in roots if path.is_relative_to(root)), path.name)
    return replace(result, capture=name, detail=result.detail.replace(result.capture, name))


def _kernel(result: KernelResult) -> dict[str, Any]:
    kept = {key: value for key, value in encode(result).items() if key not in ("before", "after", "arms")}
    return {
        **kept,
        "configuration": json.loads(result.configuration) if result.configuration else None,
        "arms": {arm.name: _arm(arm) for arm in result.arms},
        "diff": diff(result),
        "patch_file": f"{file_name(result)}.patch" if result.after is not None else None,
        "configuration_file": f"{file_name(result)}.json" if result.configuration else None,
    }


def _arm(arm: Arm) -> dict[str, Any]:
    """A comparison with its numbers; the claim's repetition beside it."""
    data = encode(arm.comparison)
    return {key: value for key, value in data.items() if key not in ("verdict", "refused") or arm.comparison.refused}
