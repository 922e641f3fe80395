"""The nouns of a search's result, below both those who write them (:mod:`r3bench.evolve`) and those who read them
(:mod:`r3bench.report`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from r3bench.model import Status, Verdict
from r3bench.stats import Comparison, Decision, contradiction

SearchMode = Literal["full", "rules", "llm", "best-of-n", "bo"]
_OFFERED = ("patch", "patch and configuration", "configuration")
_NEAR = 1.05  # times a claim's interval: as far as the parts of a gain may miss it


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How often candidates of one source ended with one status, and what the first of them said."""

    source: str
    status: str
    count: int
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceResult:
    """One text that was tuned. ``rule`` is ``recorded`` for the text the search began with.

    ``default_ns`` is its time under the default pipeline with the recorded launch, ``best_ns`` that of its best
    configuration: cheap measurements that rank and claim nothing. None where nothing matched. ``same_as`` names the
    rule of an earlier source that gave the same code and was tuned in its place.
    """

    rule: str
    description: str
    trials: int
    matched: int
    default_ns: float | None = None
    best_ns: float | None = None
    same_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What stood against the baseline: a name, and the comparison."""

    name: Literal["patch", "patch and configuration", "configuration", "toolchain", "own compiler"]
    comparison: Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """One candidate's way through promotion: what became of it, and one sentence why.

    ``levels`` holds the verdict at every level of verification that it got to, the last one being the reason where it
    did not match. ``held_out`` counts the units that it matched on, of ``units`` that the capture holds beside the
    search's.
    ``neighbours`` are the other kernels of its files whose recorded launches its text matched; ``decision`` is what its
    contest came to, None where it was refused before.
    """

    rule: str
    promoted: bool
    reason: str
    held_out: int
    units: int
    neighbours: tuple[str, ...] = ()
    decision: Decision | None = None
    levels: tuple[Verdict, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One part of a winner's gain: by which factor it shortened the time, when added to the parts before it.

    From ranking times taken together, which claim nothing; None where the steps before or with it did not match.
    """

    name: Literal["toolchain", "source", "passes", "specialization", "launch"]
    factor: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the proposer of a kernel's texts took: answers, calls that failed, tokens, dollars as far as they are known,
    and seconds. The cached tokens are among those of the prompts."""

    replies: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    dollars: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why no answer came: a :class:`~r3bench.errors.ModelError` as a ledger holds it."""

    reason: str
    text: str
    fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A source file before and after a change; its ``path`` is relative to the repository."""

    path: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResult:
    """What a search found for one kernel.

    ``status``: ``improved`` (something was promoted), ``not improved``, ``failed`` (the baseline itself does not
    replay; ``detail`` says why) or ``interrupted`` (``detail`` says where). ``source`` is the path of the kernel's file
    relative to the repository, ``before`` and ``after`` its text; ``after`` is None where no source change was
    promoted. ``others`` are further files that the change edits, ``relies_on`` says what it relies on where it may be
    wrong for other launches. ``configuration`` is the promoted configuration and launch as JSON, None where the
    default stayed, and ``settings`` says in words how it differs from the default. ``evaluations`` counts all replays:
    trials, those timed again, and checks on further launches. ``also_changes`` names the other kernels that the source
    change reaches, ``also_checked`` those of them whose recorded launches all matched. ``rules`` explains the rules'
    names.

    ``search`` is the mode, ``steps`` counts the texts proposed, and ``stopped`` says which budget or proposer ended the
    search before all were. ``split`` takes the winner's gain apart, ``stages`` gives the seconds of all evaluations
    before promotion by stage (frontend, optimize, emit, load, verify, time ..., and what they waited in the queues for
    builds and for the device), ``searched`` the seconds that this went on (with those of the
    runs that were resumed), ``spent`` what the proposer took.
    """

    kernel: str
    capture: str
    content_hash: str
    status: Literal["improved", "not improved", "failed", "interrupted"]
    detail: str
    device: str
    target: str
    baseline: str
    baseline_ns: float | None
    seed: int
    evaluations: int
    seconds: float
    source: str = ""
    before: str = ""
    after: str | None = None
    others: tuple[FileChange, ...] = ()
    rule: str | None = None
    description: str = ""
    relies_on: tuple[str, ...] = ()
    configuration: str | None = None
    arms: tuple[Arm, ...] = ()
    sources: tuple[SourceResult, ...] = ()
    failures: tuple[Failures, ...] = ()
    promotions: tuple[Promotion, ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()
    settings: tuple[str, ...] = ()
    also_changes: tuple[str, ...] = ()
    also_checked: tuple[str, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    search: SearchMode = "full"
    stopped: str = ""
    steps: int = 0
    split: tuple[Share, ...] = ()
    stages: tuple[tuple[str, float], ...] = ()
    searched: float = 0.0
    spent: Spent = Spent()

    def __post_init__(self) -> None:
        if self.configuration is not None and type(json.loads(self.configuration)) is not dict:
            raise ValueError(f"{self.kernel}: a configuration is a JSON object, not {self.configuration!r:.80}")

    @property
    def changes(self) -> tuple[FileChange, ...]:
        """The files that the promoted source change edits, the kernel's first; none where there is no such change."""
        if self.after is None:
            return ()
        own = FileChange(path=self.source, before=self.before, after=self.after)
        return (*([own] if own.before != own.after else []), *self.others)

    def arm(self, name: str) -> Comparison | None:
        """The comparison of an arm against the baseline, if that arm was run."""
        return next((arm.comparison for arm in self.arms if arm.name == name), None)

    @property
    def contested_ns(self) -> float | None:
        """The baseline's time in the first contest that timed it; None where none did."""
        return next((arm.comparison.baseline_ns for arm in self.arms if arm.comparison.baseline_ns), None)


def adds_up(split: Sequence[Share], claim: Comparison) -> bool:
    """Whether the parts of a gain come to what is claimed: ranking times may be too noisy for it."""
    if claim.low is None or claim.high is None:
        return True
    return claim.low / _NEAR <= prod(share.factor or 1.0 for share in split) <= claim.high * _NEAR


def contradicted(result: KernelResult) -> str:
    """What a result that was read from a file claims without reason; empty if nothing.

    The numbers of an arm must follow from its samples, and a claim must have been repeated; the baseline's time and the
    parts of a gain must be those of the contest. What is improved was promoted, and what was promoted had won its
    contest and matched at every level, on every unit.
    """
    for arm in result.arms:
        if wrong := contradiction(arm.comparison):
            return f"{arm.name}: {wrong}"
        if arm.comparison.decision is Decision.FASTER and arm.comparison.repeat is None:
            return f"{arm.name}: a claim that was not repeated"
    if result.contested_ns not in (None, result.baseline_ns):
        return "its baseline's time is not that of its contest"
    if result.split and not (result.arms and adds_up(result.split, result.arms[0].comparison)):
        return "the parts of its gain do not come to what is claimed"
    promoted = [promotion for promotion in result.promotions if promotion.promoted]
    if wrong := next((each.rule for each in promoted if not _deserved(each)), ""):
        return f"{wrong} was promoted without having passed"
    gains = any(arm.name in _OFFERED and arm.comparison.decision is Decision.FASTER for arm in result.arms)
    if result.status == "improved" and not (promoted and gains):
        return "it is improved, but nothing that is faster was promoted"
    if result.status == "not improved" and promoted:
        return f"it is not improved, but {promoted[0].rule} was promoted"
    if min(result.evaluations, result.seconds, result.searched, result.steps) < 0:
        return "it took less than no time, or no work"
    return ""


def _deserved(promotion: Promotion) -> bool:
    matched = all(verdict.status is Status.MATCH for verdict in promotion.levels)
    return promotion.decision is Decision.FASTER and promotion.held_out == promotion.units and matched
