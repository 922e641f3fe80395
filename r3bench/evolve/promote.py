"""From the fastest candidates of a search to a claim: held-out units, other kernels of the file, the full contest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from r3bench.errors import CaptureError
from r3bench.evolve.evaluate import Evaluator
from r3bench.evolve.sources import RECORDED, Source
from r3bench.ledger import Arm, Promotion
from r3bench.model import Capture, Configuration, Status, Variant, Verdict
from r3bench.stats import Comparison, Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """A candidate that ranked well: its source, the whole variant, and its ranking time."""

    source: Source
    variant: Variant
    ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Court:
    """What a promotion is decided with: the baseline, the gate, the share of the error budget, how many contests.

    ``neighbours`` are captures of other kernels in the same file: an edit of a shared function must suit them too.
    """

    evaluator: Evaluator
    baseline: Variant
    gate: float
    kernels: int
    contests: int
    neighbours: Sequence[Capture] = ()


@dataclass(slots=True)
class Verdicts:
    """What promotion has come to so far; complete after each step, so that it can be interrupted anywhere."""

    promotions: list[Promotion] = field(default_factory=list)
    arms: list[Arm] = field(default_factory=list)
    winner: Finalist | None = None


def promote(court: Court, finalists: Iterable[Finalist], recorded: Source, found: Verdicts) -> None:
    """Try finalists in order until one is promoted, then tell its source change and its configuration apart.

    Only so many contests with the baseline are held as the court allows; what fails on a held-out unit costs none.
    """
    contests = 0
    for finalist in finalists:
        if contests >= court.contests or found.winner is not None:
            return
        comparison = _try(court, finalist, found)
        contests += comparison is not None
        if comparison is not None and comparison.decision is Decision.FASTER:
            _settle(court, finalist, comparison, recorded, found)


def _settle(court: Court, finalist: Finalist, comparison: Comparison, recorded: Source, found: Verdicts) -> None:
    """Make a finalist that won its contest the winner, with or without its source change.

    A source change must not slow the kernel down under the default compiler, which is what the application's own build
    gets of it. One that changes no machine code there, or adds nothing to its configuration, is dropped: the
    configuration is tried without it.
    """
    arms = [Arm(name=_arm(finalist), comparison=comparison)]
    if _arm(finalist) != "patch and configuration":
        found.winner, found.arms = finalist, arms
        return
    alone = _try_alone(court, finalist, found)
    if alone is None:
        return
    bare = replace(finalist, source=recorded, variant=replace(finalist.variant, files=recorded.files))
    idle = alone.decision is Decision.IDENTICAL
    if alone.decision is Decision.FASTER or (not idle and _beats(court, finalist, bare)):
        found.winner, found.arms = finalist, [*arms, Arm(name="patch", comparison=alone)]
        return
    plain = _try(court, bare, found)
    if plain is not None and plain.decision is Decision.FASTER:
        found.winner, found.arms = bare, [Arm(name="configuration", comparison=plain)]


def _beats(court: Court, finalist: Finalist, other: Finalist) -> bool:
    comparison = court.evaluator.compare(other.variant, finalist.variant, court.gate, court.kernels)
    return comparison.decision is Decision.FASTER


def _try_alone(court: Court, finalist: Finalist, found: Verdicts) -> Comparison | None:
    """The source change alone against the baseline; None, with the reason on record, where it must not be applied."""
    rule, variant = finalist.source.rule, _alone(finalist)
    matched, units, reason = check_units(court, variant, rule)
    comparison = None if reason else court.evaluator.compare(court.baseline, variant, court.gate, court.kernels)
    if comparison is not None and comparison.decision in (Decision.SLOWER, Decision.REFUSED):
        reason = _why_not(comparison)
    if not reason:
        return comparison
    sentence = f"faster with its configuration, but under the default compiler: {reason}"
    found.promotions[-1] = Promotion(rule=rule, promoted=False, reason=sentence, held_out=matched, units=units)
    return None


def _arm(finalist: Finalist) -> Literal["patch", "patch and configuration", "configuration"]:
    if finalist.source.rule == RECORDED:
        return "configuration"
    return "patch" if finalist.variant == _alone(finalist) else "patch and configuration"


def _alone(finalist: Finalist) -> Variant:
    """A finalist's source change under the default compiler and the recorded launch."""
    return Variant(files=finalist.variant.files, configuration=Configuration())


def _try(court: Court, finalist: Finalist, found: Verdicts) -> Comparison | None:
    """A finalist's contest with the baseline; None where it does not get that far. The reason goes on record."""
    matched, units, reason = check_units(court, finalist.variant, finalist.source.rule)
    comparison = None
    if not reason:
        comparison = court.evaluator.compare(court.baseline, finalist.variant, court.gate, court.kernels)
        reason = "faster by the interval" if comparison.decision is Decision.FASTER else _why_not(comparison)
    promoted = comparison is not None and comparison.decision is Decision.FASTER
    found.promotions.append(
        Promotion(rule=finalist.source.rule, promoted=promoted, reason=reason, held_out=matched, units=units)
    )
    return comparison


def _why_not(comparison: Comparison) -> str:
    if comparison.decision is Decision.REFUSED:
        return f"refused: the {comparison.refused} gave {comparison.verdict.status.value}, {comparison.verdict.detail}"
    gate = f"{comparison.gate:.0%}"
    return {
        Decision.IDENTICAL: "the same machine code and launch as the baseline",
        Decision.SAME: f"within {gate} of the baseline",
        Decision.SLOWER: "slower than the baseline",
        Decision.UNCLEAR: f"not surely more than {gate} faster",
    }.get(comparison.decision, "a second contest in a fresh process did not confirm it")


def check_units(court: Court, variant: Variant, rule: str) -> tuple[int, int, str]:
    """How many held-out units match, of how many, and why it is refused (empty if it is not)."""
    evaluator = court.evaluator
    others = [unit.index for unit in evaluator.capture.units[1:]]
    pending = [evaluator.submit(variant, rule, unit=index, timing="none") for index in others]
    outcomes = [evaluator.result(p) for p in pending]
    matched = sum(o.verdict.status is Status.MATCH for o in outcomes)
    for outcome in outcomes:
        if outcome.verdict.status is not Status.MATCH:
            return matched, len(others), f"held-out unit {outcome.unit}: {_sentence(outcome.verdict)}"
    return matched, len(others), next(_neighbour_failures(court, variant, rule), "")


def _neighbour_failures(court: Court, variant: Variant, rule: str) -> Iterator[str]:
    """Other kernels of the file on which the edited text, under the default compiler, does not match."""
    edited = Variant(files=variant.files, configuration=Configuration())
    if rule == RECORDED:
        return
    for capture in court.neighbours:
        try:
            outcome = court.evaluator.result(court.evaluator.submit(edited, rule, timing="none", capture=capture))
        except CaptureError:
            continue  # a damaged neighbour is reported where it is searched itself
        if outcome.verdict.status is not Status.MATCH and _replays(court.evaluator, capture):
            yield f"it changes {capture.symbol}, too: {_sentence(outcome.verdict)}"


def _replays(evaluator: Evaluator, neighbour: Capture) -> bool:
    """Whether a neighbour matches as it is; if not, an edit is not what breaks it."""
    outcome = evaluator.result(evaluator.submit(Variant(), "baseline", timing="none", capture=neighbour))
    return outcome.verdict.status is Status.MATCH


def _sentence(verdict: Verdict) -> str:
    return f"{verdict.status.value}: {verdict.detail}" if verdict.detail else verdict.status.value
