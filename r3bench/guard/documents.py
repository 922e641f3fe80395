"""A guard's answers as one JSON document, from which everything shown of them is drawn; and the exit status."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from r3bench.guard import Guarded
from r3bench.guard.rulings import UNMEASURED, Ruling
from r3bench.nouns import decode, encode
from r3bench.stats import Comparison, block_statistic, ratio
from r3bench.symbols import short_name

FORMAT = 2

# Exit statuses beside pytest's own (0 all is well, 1 another test failed, 2 interrupted, 4 usage).
COULD_NOT, SLOWER, WRONG, OTHER = 3, 10, 11, 12

WORST_FIRST = (
    *(Ruling.WRONG, Ruling.RERECORDED, Ruling.SLOWER, Ruling.INVALID, Ruling.UNCLEAR, Ruling.CHANGED),
    *(Ruling.DELETED, Ruling.NEW, Ruling.FASTER, Ruling.SAME, Ruling.IDENTICAL),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What holds for all kernels of a run. ``base`` and ``head`` are names with a commit's SHA or None.

    ``asked`` says that this device was asked for by name: a CPU's times that nobody asked for fail nothing.
    """

    base: tuple[str, str | None]
    head: tuple[str, str | None]
    fail_on: tuple[str, ...]
    asked: bool
    reproduce: str
    seconds: float = 0.0
    errors: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()


def row(found: Guarded, capture: str, fails: bool) -> dict[str, Any]:
    """One kernel's answer as plain data; of a block's windows the shortest, which counts, is all that stays."""
    compared = _brief(found.comparison)
    return {
        "kernel": found.kernel,
        "capture": capture,
        "source": found.place[0] if found.place else None,
        "line": found.place[1] if found.place else None,
        "unit": 0,
        "verdict": found.ruling.value,
        "detail": found.detail,
        "notes": list(found.notes),
        "missing": list(found.missing),
        "fails": fails,
        "gate": compared.gate if compared is not None else found.gate.relative,
        "absolute_ns": found.gate.absolute_ns,
        "comparison": encode(compared) if compared is not None else None,
        "static": dict(found.static) or None,
    }


def _brief(compared: Comparison | None) -> Comparison | None:
    """A contest with its repetition and control, with the samples from which all follows that they say."""
    if compared is None:
        return None
    return replace(
        compared,
        baseline_samples_ns=tuple((block_statistic(windows),) for windows in compared.baseline_samples_ns),
        candidate_samples_ns=tuple((block_statistic(windows),) for windows in compared.candidate_samples_ns),
        repeat=_brief(compared.repeat),
        control=_brief(compared.control),
    )


def fails(ruling: Ruling, fail_on: Sequence[str], device: str, asked: bool) -> bool:
    """Whether a ruling fails its item: a CPU's slower only where that CPU was asked for."""
    if ruling is Ruling.SLOWER and device == "cpu" and not asked:
        return False
    return ruling.value in fail_on


def document(rows: Iterable[Mapping[str, Any]], device: Mapping[str, Any], about: About) -> dict[str, Any]:
    """The document of a run so far: ``rows`` from :func:`row`, ``device`` with its name, target and conditions."""
    kernels = [*rows, *(_deleted(store, about.base[0]) for store in about.deleted)]
    kernels.sort(key=_badness)
    return {
        "format": FORMAT,
        "kind": "guard",
        "application": ", ".join(sorted({r["kernel"].partition("/")[0] for r in kernels})),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **device,
        "guard": {
            "base": dict(zip(("name", "commit"), about.base, strict=True)),
            "head": dict(zip(("name", "commit"), about.head, strict=True)),
            "verdict": _verdict(kernels, about),
            "sentence": _sentence(kernels, about),
            "fail_on": list(about.fail_on),
            "device_asked": about.asked,
            "errors": list(about.errors),
            "seconds": round(about.seconds, 3),
            "reproduce": about.reproduce,
            "kernels": kernels,
        },
    }


def _badness(row: Mapping[str, Any]) -> tuple[bool, int, float, str]:
    """Worst first: what fails, then by ruling, then what became slowest."""
    speedup = (row["comparison"] or {}).get("speedup") or 1.0
    return not row["fails"], WORST_FIRST.index(Ruling(row["verdict"])), speedup, row["kernel"]


def _deleted(store: str, base: str) -> dict[str, Any]:
    path = PurePosixPath(store)
    kernel = f"{path.parent.name}/{path.name.partition('.zarr')[0]}"
    return {
        "kernel": kernel, "capture": store, "source": None, "line": None, "unit": 0, "verdict": Ruling.DELETED.value,
        "detail": f"its capture was deleted: {base} still has it", "notes": [], "fails": False,
        "gate": None, "absolute_ns": None, "comparison": None, "static": None,
    }  # fmt: skip


def _measured(rows: Iterable[Mapping[str, Any]]) -> bool:
    return any(Ruling(row["verdict"]) not in UNMEASURED for row in rows)


def _verdict(rows: Sequence[Mapping[str, Any]], about: About) -> str:
    """``fail``, ``error`` (it could not be told, or nothing was measured), ``declined`` (too noisy) or ``pass``."""
    if any(row["fails"] for row in rows):
        return "fail"
    if about.errors or not _measured(rows):
        return "error"
    declined = {Ruling.UNCLEAR.value, Ruling.INVALID.value}
    return "declined" if any(row["verdict"] in declined for row in rows) else "pass"


def exit_status(document: Mapping[str, Any]) -> int:
    """The status of a run: the worst of its kernels counts."""
    guard = document["guard"]
    failing = {row["verdict"] for row in guard["kernels"] if row["fails"]}
    for ruling, status in ((Ruling.WRONG, WRONG), (Ruling.SLOWER, SLOWER)):
        if ruling.value in failing:
            return status
    if failing:
        return OTHER
    return COULD_NOT if guard["verdict"] == "error" else 0


def _sentence(rows: Sequence[Mapping[str, Any]], about: About) -> str:
    """The run in one line."""
    if not rows and not about.errors:
        return "nothing was measured: no kernel's guard ran"
    by = {ruling: [r for r in rows if r["verdict"] == ruling.value] for ruling in WORST_FIRST}
    bad = [
        f"{len(by[ruling])} of {len(rows)} kernels {_be(by[ruling])} {word}: {_named(by[ruling])}"
        for ruling, word in (
            (Ruling.WRONG, "wrong"),
            (Ruling.RERECORDED, "recorded again with other results"),
            (Ruling.SLOWER, f"slower than {about.base[0]}"),
        )
        if by[ruling]
    ]
    counts = ", ".join(f"{len(found)} {ruling.value}" for ruling, found in reversed(by.items()) if found)
    good = f"no kernel was found slower than {about.base[0]}{_by_more(rows)}: {counts}"
    nothing = f"nothing was measured: {counts}"
    said = "; ".join(bad) or (good if _measured(rows) else nothing)
    missing = f"; {len(about.errors)} could not be guarded" if about.errors else ""
    return said + missing


def _by_more(rows: Iterable[Mapping[str, Any]]) -> str:
    """The gate of what was timed, where that is one for all."""
    gates = {row["gate"] for row in rows if row["comparison"] and row["comparison"]["candidate_ns"]}
    return f" by more than {100 * gates.pop():.3g}%" if len(gates) == 1 else ""


def _be(rows: Sequence[object]) -> str:
    return "is" if len(rows) == 1 else "are"


def _named(rows: Sequence[Mapping[str, Any]], most: int = 3) -> str:
    names = [_with_ratio(row) for row in rows[:most]]
    return ", ".join(names) + (f" and {len(rows) - most} more" if len(rows) > most else "")


def _with_ratio(row: Mapping[str, Any]) -> str:
    name = short_name(row["kernel"])
    if row["verdict"] != Ruling.SLOWER.value:
        return name
    return f"{name} {ratio(decode(Comparison, row['comparison'])).replace(' slower', '')}"
