"""What the raw records of a ledger carry: a result says no more than follows from them.

A claim is a contest on record, of the very sources that the result names: by the hashes of both sides, which are made
anew from the texts on record. Times are those of evaluations on record, and nothing was counted more often than it is
there. The samples themselves are believed: whoever makes those up consistently has written another ledger.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import isclose
from typing import Any

from r3bench.ledger.results import Arm, FileChange, KernelResult, Promotion
from r3bench.model import Configuration, LaunchRule, Level, Status, Variant, content_id
from r3bench.nouns import decode
from r3bench.stats import Comparison, Decision, block_statistic, claims

Files = tuple[tuple[str, str], ...]
Sides = tuple[str, str]
"""The hashes of a contest's baseline and candidate."""


def named(variant: Variant) -> str:
    """The hash of a contest's side: of its texts, configuration and launch, whichever compiler built it."""
    return content_id(replace(variant, image=None))


@dataclass(slots=True)
class Evidence:
    """What the records of a ledger up to some line carry."""

    _contests: defaultdict[Comparison, set[Sides]] = field(default_factory=lambda: defaultdict(set))
    _texts: dict[Files, None] = field(default_factory=dict)
    _first: dict[Files, None] = field(default_factory=dict)  # of the texts, those that a search began with
    _times_ns: set[float] = field(default_factory=set)
    _again_ns: set[float] = field(default_factory=set)  # of what was timed again
    _statuses: Counter[str] = field(default_factory=Counter)
    _steps: set[int] = field(default_factory=set)
    _asked: Counter[str] = field(default_factory=Counter)
    _code: dict[str, str | None] = field(default_factory=dict)  # for the search's launch, by variant
    _passed: defaultdict[str, set[tuple[str, int]]] = field(default_factory=lambda: defaultdict(set))  # level, unit
    _matched: set[str] = field(default_factory=set)  # captures

    def add(self, record: Mapping[str, Any]) -> None:
        """Take in a record that is whole."""
        match record["kind"]:
            case "outcome":
                self._evaluated(record, record["outcome"])
            case "comparison":
                sides = record.get("baseline", ""), record.get("candidate", "")
                self._contests[decode(Comparison, record["comparison"])].add(sides)
            case "program":
                files = tuple((path, text) for path, text in record["program"].get("files", ()))
                self._texts[files] = None
                self._first |= {files: None} if record["program"].get("id") == "p0" else {}
            case "reply":
                self._steps.add(record["step"])
                self._asked.update({name: record.get(name) or 0 for name in _ASKED}, replies=1)

    def _evaluated(self, record: Mapping[str, Any], outcome: Mapping[str, Any]) -> None:
        verdict, variant, measured = outcome["verdict"], outcome["variant"], outcome.get("measurement")
        own, matches = record.get("kernel") in (None, outcome["capture"]), verdict["status"] == Status.MATCH.value
        self._statuses[verdict["status"]] += 1
        self._matched |= {outcome["capture"]} if matches else set()
        if own and matches:
            self._passed[variant].add((verdict.get("level", Level.SEEN.value), outcome["unit"]))
        if own and outcome["unit"] == 0:
            self._code.setdefault(variant, outcome.get("binary"))
        if measured is not None and measured["samples_ns"]:
            ns = block_statistic([*map(float, measured["samples_ns"])])
            self._times_ns.add(ns)
            self._again_ns |= {ns} if record.get("again") else set()

    def lacks(self, result: KernelResult) -> str:
        """What a result says that does not follow from the records; empty if all of it does."""
        return next(filter(None, self._lacking(result)), "")

    def _lacking(self, result: KernelResult) -> Iterator[str]:
        yield from (self._of_arm(result, arm) for arm in result.arms)
        yield from (self._of_promotion(result, each) for each in result.promotions if each.promoted)
        times = {ns for source in result.sources for ns in (source.default_ns, source.best_ns)}
        times |= {result.baseline_ns} if result.contested_ns is None else set()
        if not times <= self._times_ns | {None}:
            yield "a time that no evaluation of this ledger took"
        if not all(self._is_ratio(share.factor) for share in result.split if share.factor is not None):
            yield "a part of its gain that no two times of this ledger make"
        yield from self._counts(result)

    def _counts(self, result: KernelResult) -> Iterator[str]:
        spent, asked = result.spent, self._asked
        # Earlier versions counted an evaluation again when it was asked for again.
        counted = max(result.evaluations / 2, *(source.trials for source in result.sources), 0)
        if counted > self._statuses.total() or result.steps > len(self._steps):
            yield "more evaluations or texts than this ledger holds"
        if any(each.count > self._statuses[each.status] + asked["replies"] for each in result.failures):
            yield "more failures than this ledger holds"
        told = zip(_ASKED, (spent.prompt_tokens, spent.answer_tokens, spent.dollars), strict=True)
        if any(count > asked[name] * (1 + 1e-9) for name, count in told):
            yield "more asked of models than this ledger holds"

    def _of_arm(self, result: KernelResult, arm: Arm) -> str:
        """What is wrong with a contest; one that claims nothing has to be on record only."""
        found = self._contests.get(arm.comparison)
        if found is None:
            return f"{arm.name}: no contest of this ledger"
        if not claims(arm.comparison) or any(self._are(sides, result, arm) for sides in found):
            return ""
        return f"{arm.name}: a contest of another source or configuration"

    def _are(self, sides: Sides, result: KernelResult, arm: Arm) -> bool:
        """Whether a contest's sides are those of a result's arm."""
        first = self._holding(result.before)
        texts = first if arm.name in ("toolchain", "configuration") else self._changed(first, result, arm)
        tree = first if result.baseline.startswith("working tree") else [None]
        settings, found = _settings(result, arm), arm.comparison
        baselines, candidates = [Variant(files=files) for files in tree], [replace(settings, files=f) for f in texts]
        own = arm.name == "own compiler" and not sides[1] and found.candidate_binary not in self._code.values()
        return any(self._is(sides[0], found.baseline_binary, each) for each in baselines) and (
            own or any(self._is(sides[1], found.candidate_binary, each) for each in candidates)
        )

    def _holding(self, text: str | None) -> list[Files]:
        """The files that a search began with of which one is this text; those without any where it is empty."""
        return [files for files in self._first if text in dict(files).values() or not (text or files)]

    def _changed(self, first: Iterable[Files], result: KernelResult, arm: Arm) -> list[Files]:
        """The files on record that a result's change makes of some that it began with; where it has none, any that were
        slower."""
        if result.after is None:
            return [*self._texts] if arm.comparison.decision is Decision.SLOWER else self._holding(None)
        return [made for files in first for made in _edited(files, result) if made in self._texts]

    def _is(self, side: str, code: str | None, variant: Variant) -> bool:
        """Whether a contest's side is a variant, by its hash or by machine code that was verified: idle settings are
        taken out of what is offered, and contests of earlier versions name their code only."""
        wanted = named(variant)
        return side == wanted or self._code.get(wanted) in {code, self._code.get(side)} - {None}

    def _is_ratio(self, factor: float) -> bool:
        return any(isclose(a / b, factor) for a, b in product(self._again_ns, self._again_ns))

    def _of_promotion(self, result: KernelResult, promotion: Promotion) -> str:
        """What a promotion says was checked and is not on record as having matched, for any one variant."""
        wanted = {verdict.level.value for verdict in promotion.levels}
        if not any(self._covers(passed, wanted, promotion.held_out) for passed in self._passed.values()):
            return f"{promotion.rule} was promoted on checks that are not in this ledger"
        names = [name for name in result.also_checked if not any(name in capture for capture in self._matched)]
        return f"{names[0]} is said to match, but was not replayed" if names else ""

    @staticmethod
    def _covers(passed: set[tuple[str, int]], levels: set[str], held_out: int) -> bool:
        further = {unit for _, unit in passed if unit}
        return levels <= {level for level, _ in passed} and held_out <= len(further)


def _edited(files: Files, result: KernelResult) -> Iterator[Files]:
    """What a result's change makes of these files, wherever they lie; nothing where they are not as it says."""
    own = FileChange(path=result.source, before=result.before, after=result.after or "")
    changes = {change.path: change for change in (own, *result.others)}
    for top in {own.path.removesuffix(path) for path, _ in files if f"/{own.path}".endswith(f"/{path}")}:
        held = {top + path: text for path, text in files}
        if all(held.get(path) == change.before for path, change in changes.items()):
            made = held | {path: change.after for path, change in changes.items()}
            yield tuple((path, made[top + path]) for path, _ in files)


def _settings(result: KernelResult, arm: Arm) -> Variant:
    """The configuration and launch of an arm's candidate."""
    if not arm.name.endswith("configuration"):
        return Variant(configuration=None if arm.name == "own compiler" else Configuration())
    given = json.loads(result.configuration or "{}")
    launch = given.get("launch")
    return Variant(
        configuration=decode(Configuration, given.get("configuration", {})),
        launch=decode(LaunchRule, launch) if launch else None,
    )


_ASKED = ("tokens", "answer_tokens", "cost")  # of a reply
