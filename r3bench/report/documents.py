"""Ledgers -> one JSON document per application: the source of every rendering. ``schema.json`` is its grammar.

A document of kind ``search`` says what searches found; one of kind ``guard`` what a comparison of two states of the
sources came to, and is made by those who compared.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from r3bench.errors import LedgerError
from r3bench.ledger import Arm, KernelResult, Record, contradicted
from r3bench.nouns import decode, encode
from r3bench.report.patches import changed, diff, in_place, mixed, moved_on, overlapping
from r3bench.report.runs import Run
from r3bench.report.words import claimed, file_name
from r3bench.stats import Comparison, contradiction
from r3bench.worktree import checkout

FORMAT = 2
Document = Mapping[str, Any]
Entry = Mapping[str, Any]

_NAMED = ("device", "seed", "search", "iterations", "trials", "seconds")  # of the options: told by settings
_NAMED_LINES = 20  # of those that are damaged
_TEXTS = ("before", "after", "others", "configuration", "arms")  # of a result: said in another way, or too large


def document(application: str, kernels: Sequence[KernelResult], run: Run | None = None) -> Document:
    """The report of one application as plain JSON data without absolute paths; kernels with the largest gain first.

    ``run`` is what the ledgers hold beside the results; without it the parts made from it are absent.
    """
    run = run or Run()
    ordered = by_gain([portable(kernel) for kernel in kernels])
    applied = [f"{file_name(result.kernel)}.patch" for result in in_place(ordered)]
    return {
        "format": FORMAT,
        "kind": "search",
        "application": application,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "device": kernels[0].device if kernels else "",
        "target": kernels[0].target if kernels else "",
        "conditions": _conditions(kernels),
        "reproduce": _reproduce(ordered, run),
        "damaged_ledger_lines": len(run.damage),
        "damage": list(run.damage[:_NAMED_LINES]),
        "mixed": mixed(ordered),
        "moved_on": moved_on(ordered),
        "kernels": [_entry(result, ordered, applied) | run.of(result.kernel) for result in ordered],
    }


def by_gain(kernels: Iterable[KernelResult]) -> list[KernelResult]:
    """Largest gain first."""
    return sorted(kernels, key=lambda k: (-claimed(k), k.kernel))


def portable(result: KernelResult) -> KernelResult:
    """A result whose capture is named relative to its repository or the working directory, else by its name alone."""
    path = Path(result.capture)
    if not path.is_absolute():
        return result
    repository = checkout(path)
    roots = (*([repository] if repository is not None else []), Path.cwd())
    name = next((path.relative_to(root).as_posix() for root in roots if path.is_relative_to(root)), path.name)
    return replace(result, capture=name, detail=result.detail.replace(result.capture, name))


def _conditions(kernels: Sequence[KernelResult]) -> dict[str, str]:
    """What was said of the machine while kernels were searched; where that differs, between what, or all of it."""
    said = [dict(kernel.conditions) for kernel in kernels]
    names = dict.fromkeys(name for each in said for name in each)
    return {name: _one_of([each[name] for each in said if name in each]) for name in names}


def _one_of(values: Sequence[str]) -> str:
    different = list(dict.fromkeys(values))
    try:
        ordered = sorted(different, key=float)
    except ValueError:
        return ", ".join(different)
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1])))


def _reproduce(kernels: Sequence[KernelResult], run: Run) -> str:
    """The commands that search again, each kind of search that was run, and then go on as it was gone on with: the same
    ones for all kernels that were searched alike, as far as ledgers tell them; empty where nothing was searched."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for kernel in kernels:
        others = [kind for name, kind in run.began if name == kernel.kernel and kind != kernel.search]
        for kind in (kernel.search, *others):
            first, *later = run.began.get((kernel.kernel, kind)) or [{}]
            resumed = (f"{_options(kernel, record)} --r3-resume" for record in later)
            groups.setdefault((_options(kernel, first), *resumed), []).append(kernel.capture)
    return " && ".join(
        f"pytest --r3-evolve {_where(stores, len(stores) == len(kernels))} {options}"
        for said, stores in groups.items()
        for options in said
    )


def _where(stores: Sequence[str], all_: bool) -> str:
    """Captures as arguments: ``all_`` those of their folder or only some."""
    folder = PurePosixPath(stores[0]).parent.as_posix()
    return shlex.join([folder] if all_ and len(stores) > 1 else stores)


def _options(kernel: KernelResult, began: Record) -> str:
    """The options with which a run of a kernel's search began."""
    settings = began.get("settings", {})
    first = f"--r3-device {shlex.quote(kernel.device)} --r3-seed {settings.get('seed', kernel.seed)}"
    named = [f"--r3-{name} {settings[name]}" for name in ("search", "iterations", "trials") if settings.get(name)]
    seconds = (settings.get("limits") or {}).get("seconds")
    share = f"--r3-seconds {seconds / (settings.get('kernels') or 1):g}" if isinstance(seconds, int | float) else ""
    others = {name: value for name, value in began.get("options", {}).items() if name not in _NAMED}
    rest = [shlex.join(filter(None, (f"--r3-{name.replace('_', '-')}", value))) for name, value in others.items()]
    return " ".join(filter(None, (first, *named, share, *rest)))


def _entry(result: KernelResult, kernels: Sequence[KernelResult], applied: Sequence[str]) -> dict[str, Any]:
    return {
        **{key: value for key, value in encode(result).items() if key not in _TEXTS},
        "configuration": json.loads(result.configuration) if result.configuration else None,
        "arms": {arm.name: _arm(arm) for arm in result.arms},
        "diff": diff(result),
        "changed": changed(result),
        "patch_file": f"{file_name(result.kernel)}.patch" if result.changes else None,
        "configuration_file": f"{file_name(result.kernel)}.json" if result.configuration else None,
        "overlaps": overlapping(result, kernels),
        "applied": applied,
    }


def _arm(arm: Arm) -> dict[str, Any]:
    """A comparison with its numbers; the claim's repetition beside it."""
    data = encode(arm.comparison)
    return {key: value for key, value in data.items() if key not in ("verdict", "refused") or arm.comparison.refused}


def result_of(entry: Entry) -> KernelResult:
    """The result that a document's kernel holds, without its texts: the change is ``entry["diff"]``."""
    arms = tuple(Arm(name=name, comparison=decode(Comparison, data)) for name, data in entry["arms"].items())
    known = {key: value for key, value in entry.items() if key not in _TEXTS}
    configuration = json.dumps(entry["configuration"]) if entry["configuration"] is not None else None
    return replace(decode(KernelResult, known), arms=arms, configuration=configuration)


def load(path: Path) -> Document:
    """A document from its file. LedgerError where it cannot be read, is none, or is newer than this r3bench."""
    try:
        found = _plain(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise LedgerError(f"the report {path} cannot be read ({error}); name a report.json or a ledger") from error
    known = isinstance(found, dict) and found.get("kind") in ("search", "guard")
    if not known or not isinstance(found.get("format"), int):
        raise LedgerError(f"{path} is no report of r3bench's; name a report.json or a ledger")
    if found["format"] > FORMAT:
        newer = f"has format {found['format']}, this r3bench reads up to {FORMAT}"
        raise LedgerError(f"the report {path} {newer}; update r3bench")
    if wrong := _wrong(found):
        raise LedgerError(f"the report {path} is damaged ({wrong}); draw it anew from its ledgers")
    return dict(found)


def checked(document: Document, place: Path) -> Document:
    """A document of ledgers as its file would hold it. LedgerError where they were changed into what is no report."""
    try:
        found = _plain(json.dumps(document))
    except ValueError as error:
        raise LedgerError(f"the ledgers of {place} are damaged ({error}); search again") from error
    if wrong := _wrong(found):
        raise LedgerError(f"the ledgers of {place} are damaged ({wrong}); search again")
    return dict(found)


def _plain(text: str | bytes) -> Any:
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


def _wrong(found: Document) -> str:
    """What of a document breaks the schema, or cannot be read; empty if nothing does."""
    wrong = best_match(Draft202012Validator(_schema()).iter_errors(found))
    if wrong is not None:
        return f"{wrong.json_path.removeprefix('$.')}: {wrong.message:.200}"
    try:
        _read_through(found)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        return f"{error!r:.200}"
    return ""


def _unfounded(finding: Entry) -> str:
    """What a guard says of a kernel without a contest that says so; empty if nothing."""
    contest = decode(Comparison, finding["comparison"]) if finding["comparison"] else None
    decided = contest.decision.value if contest is not None else ""
    if finding["verdict"] in ("faster", "slower") and finding["verdict"] != decided:
        return f"{finding['kernel']} is {finding['verdict']}, but no contest says so"
    return contradiction(contest) if contest is not None else ""


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text} is no finite number")
    return value


@cache
def _schema() -> dict[str, Any]:
    return dict(json.loads(Path(__file__).with_name("schema.json").read_bytes()))


def _read_through(document: Document) -> None:
    """KeyError, TypeError, ValueError or OverflowError where something that renderings need is not there, or a claim
    does not follow from what stands beside it."""
    if document["kind"] == "search":
        wrong = next(filter(None, (contradicted(result_of(entry)) for entry in document["kernels"])), "")
    else:
        wrong = next(filter(None, map(_unfounded, document["guard"]["kernels"])), "")
    if wrong:
        raise ValueError(wrong)
