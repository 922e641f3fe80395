"""What ledgers hold beside their results: how a search went, step by step, thinned out for a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r3bench.ledger import KernelResult, Record, latest, read, results
from r3bench.model import Status
from r3bench.report import kinds
from r3bench.report.words import claimed
from r3bench.stats import block_statistic

_CURVE = 100  # points of a curve: each improvement is one, and the last evaluation
_PICTURES = 4  # of wrong results, for each kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was read beside the results: by kernel and kind of search the ``run`` records of its ledger, the one that
    began it and those that resumed it; what is wrong with damaged lines; and per kernel the document's parts.

    ``parts`` maps a kernel to ``convergence``, ``searches``, ``archive``, ``replies`` and ``pictures``, each only where
    there is any.
    """

    began: Mapping[tuple[str, str], Sequence[Record]] = field(default_factory=dict)
    damage: Sequence[str] = ()
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def of(self, kernel: str) -> dict[str, Any]:
        return dict(self.parts.get(kernel, {}))


@dataclass(frozen=True, slots=True)
class _Search:
    """One search of a kernel, and what its ledger says of it."""

    result: KernelResult
    records: Sequence[Record]

    @property
    def ended(self) -> float:
        return max(float(record.get("time", 0.0)) for record in self.records if record["kind"] == "result")

    @property
    def began(self) -> bool:
        return self.result.status != "interrupted" or self.result.before != ""

    @property
    def subject(self) -> tuple[str, ...]:
        """What was searched: text, capture and device."""
        return self.result.before, self.result.content_hash, self.result.device, self.result.target

    @property
    def texts(self) -> Any:
        """All texts that it began with; None where it ended before it tried them."""
        programs = (record["program"] for record in reversed(self.records) if record["kind"] == "program")
        return next((program.get("files") for program in programs if program["id"] == "p0"), None)

    def alike(self, other: _Search) -> bool:
        """Whether both searched the same, as far as is known."""
        return self.subject == other.subject and (None in (self.texts, other.texts) or self.texts == other.texts)


def gather(ledgers: Iterable[Path]) -> tuple[dict[str, list[KernelResult]], Run]:
    """Results by application, and what else the ledgers say. LedgerError where one cannot be read.

    A kernel has a ledger for each kind of search (``<kernel>.jsonl``, ``<kernel>.<search>.jsonl``) and one result, that
    of :func:`_standing`; the others add to its ``convergence`` and ``searches``.
    """
    found: dict[str, list[_Search]] = {}
    began: dict[tuple[str, str], list[Record]] = {}
    damage: list[str] = []
    for path in sorted(ledgers, key=lambda path: (path.name.count("."), path.name)):
        records, torn = read(path)
        damage += torn
        for result in results(records):
            own = [record for record in records if _kernel(record) == result.kernel]
            found.setdefault(result.kernel, []).append(_Search(result, own))
            began[result.kernel, result.search] = [record for record in records if record["kind"] == "run"]
    standing = {kernel: _standing(searches) for kernel, searches in found.items()}
    parts = {kernel: _parts(searches, standing[kernel]) for kernel, searches in found.items()}
    applications: dict[str, list[KernelResult]] = {}
    for kernel, search in standing.items():
        applications.setdefault(kernel.split("/")[0], []).append(search.result)
    return applications, Run(began=began, damage=damage, parts=parts)


def _kernel(record: Record) -> Any:
    return record["result"]["kernel"] if record["kind"] == "result" else record.get("kernel")


def _standing(searches: Sequence[_Search]) -> _Search:
    """The search that a kernel's result and files are of: the largest claim among those of what was searched last, the
    full search where none claims more. What was claimed of an earlier text says nothing of this one."""
    last = max(searches, key=lambda search: (search.began, search.ended))
    return max(filter(last.alike, searches), key=lambda search: claimed(search.result))


def _parts(searches: Sequence[_Search], standing: _Search) -> dict[str, Any]:
    records = standing.records
    parts = {
        "convergence": {kind: curve for s in searches for kind, curve in _curves(s.records, s.result).items()},
        "searches": {s.result.search: kinds.about(s.result) for s in searches},
        "archive": _archive(records),
        "replies": _replies(records),
        "pictures": list(_pictures(records)),
    }
    return {name: part for name, part in parts.items() if part}


# -- how fast the best was found --------------------------------------------------------------------------------------


def _curves(records: Sequence[Record], result: KernelResult) -> dict[str, Any]:
    """By kind of search: ``[evaluations, seconds, best_ns, source]`` at every improvement, and at the end."""
    curve = list(_improvements(records, _refused(result)))
    return {result.search: curve[: _CURVE - 1] + curve[-1:] if len(curve) > _CURVE else curve} if curve else {}


def _refused(result: KernelResult) -> list[set[str]]:
    """The makers of each text that proved wrong when it was to be promoted: what was made from it is as wrong."""
    wrong = [p for p in result.promotions if any(v.status is not Status.MATCH for v in p.levels)]
    return [{*promotion.rule.split("+")} for promotion in wrong if promotion.rule != "recorded"]


def _improvements(records: Iterable[Record], refused: Sequence[set[str]]) -> Iterator[list[Any]]:
    """What was timed again, when the search had ended, is none of it; the time of a wrong text counts for nothing."""
    outcomes = [record for record in records if record["kind"] == "outcome" and not record.get("again")]
    best, point, seconds = float("inf"), None, 0.0
    for number, record in enumerate(outcomes, 1):
        makers = {*record.get("source", "").split("+")}
        ns = float("inf") if any(wrong <= makers for wrong in refused) else _ns(record["outcome"])
        seconds = max(seconds, round(record["time"] - outcomes[0]["time"], 3))  # the clock may have been set back
        point = [number, seconds, min(best, ns), record.get("source", "")]
        if ns < best:
            best = ns
            yield point
            point = None
    if point is not None and best < float("inf"):
        yield point


def _ns(outcome: Mapping[str, Any]) -> float:
    """The time of an outcome on the launch of the search; infinite where it has none, or one that was cut off."""
    measured = outcome.get("measurement") if outcome.get("unit") == 0 else None
    whole = measured and measured["samples_ns"] and measured.get("cut_ns") is None
    ns = block_statistic([float(ns) for ns in measured["samples_ns"]]) if measured and whole else 0.0
    return ns if ns > 0 else float("inf")


# -- the archive, and what models said --------------------------------------------------------------------------------


def _archive(records: Sequence[Record]) -> dict[str, Any]:
    """The axes, and of every island's cells the best program: ``{cell, island, id, origin, speedup}``."""
    axes = next((r for r in reversed(records) if r["kind"] == "archive"), None)
    programs = [record["program"] for record in latest(records, "program")]
    best: dict[tuple[int, tuple[int, ...]], Mapping[str, Any]] = {}
    for program in programs:
        if program.get("cell") is not None and program.get("speedup") is not None:
            place = (program["island"], tuple(program["cell"]))
            held = best.get(place)
            best[place] = program if held is None or program["speedup"] > held["speedup"] else held
    if axes is None or not best:
        return {}
    keys = ("cell", "island", "id", "origin", "speedup")
    return {
        "axes": axes["words"],
        "edges": axes["edges"],
        "fates": dict(Counter(program["status"] for program in programs)),
        "cells": [{key: program[key] for key in keys} for program in best.values()],
    }


def _replies(records: Sequence[Record]) -> list[dict[str, Any]]:
    """By model, or origin where there is none: calls, failed ones, tokens, cached tokens, cost and seconds."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        if record["kind"] == "reply":
            total = found.setdefault(
                str(record.get("model") or record.get("origin") or "unnamed"), dict.fromkeys(_SUMS, 0) | {"failed": 0}
            )
            total["calls"] += 1
            total["failed"] += "trouble" in record
            for name in _SUMS[1:]:
                total[name] += record.get(name) or 0
    return [{"model": model, **total} for model, total in found.items()]


_SUMS = ("calls", "tokens", "cached_tokens", "answer_tokens", "cost", "seconds")


# -- wrong results ----------------------------------------------------------------------------------------------------


def _pictures(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Where wrong results lie in their buffers, the first of every source."""
    seen: set[str] = set()
    for record in records:
        if record["kind"] != "outcome" or record.get("source") in seen or len(seen) >= _PICTURES:
            continue
        for difference in record["outcome"]["verdict"].get("differences", ()):
            if difference.get("picture"):
                seen.add(record.get("source", ""))
                yield {"source": record.get("source", ""), **difference}
                break
