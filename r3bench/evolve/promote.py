"""From the fastest candidates of a search to a claim: held-out units, other kernels of its files, the full contest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from r3bench.errors import CaptureError
from r3bench.evolve.evaluate import Evaluator
from r3bench.evolve.finalists import Finalist
from r3bench.evolve.neighbours import Unit
from r3bench.evolve.sources import RECORDED, Source
from r3bench.ledger import Arm, Promotion
from r3bench.model import Configuration, Level, ReplayUnit, Status, Variant, Verdict
from r3bench.stats import Comparison, Decision
from r3bench.syntax import plain_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Court:
    """What a promotion is decided with: the baseline, the gate, how many contests.

    ``kernels`` is into how many parts the session's error budget is split, as :func:`claims` counts them.

    ``neighbours`` are other kernels that share files with this one, ``original`` are its own texts as they were: an
    edit of a shared function must suit them too.
    """

    evaluator: Evaluator
    baseline: Variant
    gate: float
    kernels: int
    contests: int
    neighbours: Sequence[Unit] = ()
    original: Mapping[str, str] = field(default_factory=dict)

    @property
    def held_out(self) -> int:
        """How many units the capture holds beside the search's."""
        return len(self.evaluator.capture.units) - 1


def claims(contests: int) -> int:
    """How many claims the contests of one kernel can come to.

    A finalist that wins leads to one more at most for what it is offered as: its source change alone, or its
    configuration alone where the source change is no gain. Whether the source change adds to its configuration decides
    only which of the two is offered; that contest is reported nowhere and claims nothing.
    """
    return 2 * contests


@dataclass(frozen=True, slots=True)
class Checked:
    """How many held-out units a variant matches, of how many; the verdict at every level it got to; which other kernels
    of its files match with its text; why it is refused (empty if it is not)."""

    matched: int
    units: int
    levels: tuple[Verdict, ...] = ()
    neighbours: tuple[str, ...] = ()
    reason: str = ""


@dataclass(slots=True)
class Verdicts:
    """What promotion has come to so far; complete after each step, so that it can be interrupted anywhere."""

    promotions: list[Promotion] = field(default_factory=list)
    arms: list[Arm] = field(default_factory=list)
    winner: Finalist | None = None
    refused: dict[str, str] = field(default_factory=dict)
    """Why a source's text failed verification, by its rule: what was made from it is not tried either."""


def promote(court: Court, finalists: Iterable[Finalist], recorded: Source, found: Verdicts) -> None:
    """Try finalists in order until one is promoted, then tell its source change and its configuration apart.

    Only so many contests with the baseline are held as the court allows; what fails verification costs none, and the
    next best follows. A source whose text fails under the default compiler marks its family: itself under any
    configuration, and what was made from it.
    """
    contests = 0
    for finalist in finalists:
        if contests >= court.contests or found.winner is not None:
            return
        if marked := _marked(finalist, found):
            found.promotions.append(_promotion(finalist, Checked(0, court.held_out, reason=marked), None, marked))
            continue
        comparison = _try(court, finalist, found)
        contests += found.promotions[-1].decision not in (None, Decision.REFUSED)
        if comparison is not None and comparison.decision is Decision.FASTER:
            _settle(court, finalist, comparison, recorded, found)
        elif comparison is not None and comparison.candidate_ns is not None and not found.arms:
            found.arms = [Arm(name=_arm(finalist), comparison=comparison)]  # of the best, where none is promoted


def _marked(finalist: Finalist, found: Verdicts) -> str:
    """Why a finalist is not tried, for what its source was made from failed; empty if it is."""
    parts = {*finalist.source.rule.split("+")}
    failed = next((rule for rule in found.refused if {*rule.split("+")} <= parts), None)
    return f"made from {failed}, which failed: {found.refused[failed]}" if failed is not None else ""


def _mark(court: Court, finalist: Finalist, reason: str, found: Verdicts) -> None:
    """Mark a source whose text fails as it is; where only a configuration made it fail, that is not its family's."""
    rule, alone = finalist.source.rule, _alone(finalist)
    if rule != RECORDED and (finalist.variant == alone or check(court, alone, rule).reason):
        found.refused[rule] = reason


def _settle(court: Court, finalist: Finalist, comparison: Comparison, recorded: Source, found: Verdicts) -> None:
    """Make a finalist that won its contest the winner: its source change, its configuration, or both.

    A source change must not slow the kernel down under the default compiler, which is what the application's own build
    gets of it. Where it is faster there and the interval of both together does not lie above its own, it is offered
    without the configuration.
    """
    arms = [Arm(name=_arm(finalist), comparison=comparison)]
    if _arm(finalist) != "patch and configuration":
        found.winner, found.arms = finalist, arms
        return
    alone = _try_alone(court, finalist, found)
    if alone is None:
        return
    arms.append(Arm(name="patch", comparison=alone))
    if alone.decision is not Decision.FASTER:
        _settle_configuration(court, finalist, recorded, arms, found)
    elif _above(comparison, alone):
        found.winner, found.arms = finalist, arms
    else:
        found.winner, found.arms = replace(finalist, variant=_alone(finalist)), arms[1:]
        reason = "faster by the interval; with its configuration not surely faster still, so offered without"
        found.promotions[-1] = replace(found.promotions[-1], reason=reason)


def _settle_configuration(
    court: Court, finalist: Finalist, recorded: Source, arms: list[Arm], found: Verdicts
) -> None:  # fmt: skip
    """A source change that is no gain alone: one that changes no machine code under the default compiler, or adds
    nothing to its configuration, is dropped, and the configuration is tried without it; where that alone is not surely
    faster, both together are offered as they won."""
    bare = replace(finalist, source=recorded, variant=replace(finalist.variant, files=recorded.files))
    if arms[-1].comparison.decision is not Decision.IDENTICAL and _beats(court, finalist, bare):
        found.winner, found.arms = finalist, arms
        return
    won, at = found.promotions[-1], len(found.promotions) - 1
    plain = _try(court, bare, found)
    if plain is not None and plain.decision is Decision.FASTER:
        found.winner, found.arms = bare, [Arm(name="configuration", comparison=plain)]
        reason = "faster by the interval, but its source change adds nothing that is sure to its configuration"
        found.promotions[at] = replace(won, promoted=False, reason=reason)
    else:
        found.winner, found.arms = finalist, arms
        found.promotions[at] = replace(won, reason=f"{won.reason}; its configuration alone is not surely faster")


def _above(one: Comparison, other: Comparison) -> bool:
    """Whether a speedup's whole interval lies above another's."""
    return one.low is not None and other.high is not None and one.low > other.high


def _beats(court: Court, finalist: Finalist, other: Finalist) -> bool:
    comparison = court.evaluator.compare(other.variant, finalist.variant, court.gate, court.kernels)
    return comparison.decision is Decision.FASTER


def _try_alone(court: Court, finalist: Finalist, found: Verdicts) -> Comparison | None:
    """The source change alone against the baseline; None, with the reason on record, where it must not be applied."""
    variant = _alone(finalist)
    checked = check(court, variant, finalist.source.rule)
    reason, comparison = checked.reason, None
    if not reason:
        comparison = court.evaluator.compare(court.baseline, variant, court.gate, court.kernels)
        if comparison.decision in (Decision.SLOWER, Decision.REFUSED):
            reason = _why_not(comparison)
        elif comparison.decision is Decision.FASTER:
            checked = _sanitized(court, variant, finalist.source.rule, checked)
            reason = checked.reason
    if not reason:
        return comparison
    if checked.reason:
        found.refused[finalist.source.rule] = reason
    sentence = f"faster with its configuration, but under the default compiler: {reason}"
    found.promotions[-1] = _promotion(finalist, checked, comparison, sentence)
    return None


def _arm(finalist: Finalist) -> Literal["patch", "patch and configuration", "configuration"]:
    if finalist.source.rule == RECORDED:
        return "configuration"
    return "patch" if finalist.variant == _alone(finalist) else "patch and configuration"


def _alone(finalist: Finalist) -> Variant:
    """A finalist's source change under the default compiler and the recorded launch."""
    return Variant(files=finalist.variant.files, configuration=Configuration())


def _try(court: Court, finalist: Finalist, found: Verdicts) -> Comparison | None:
    """A finalist's contest with the baseline; None where it fails verification. The reason goes on record."""
    rule, comparison = finalist.source.rule, None
    checked = check(court, finalist.variant, rule)
    reason = checked.reason
    if not reason:
        comparison = court.evaluator.compare(court.baseline, finalist.variant, court.gate, court.kernels)
        reason = _why_not(comparison)
    if comparison is not None and comparison.decision is Decision.FASTER:
        checked = _sanitized(court, finalist.variant, rule, checked)
        reason = checked.reason or "faster by the interval"
    if checked.reason or (comparison is not None and comparison.refused == "candidate"):
        _mark(court, finalist, reason, found)
    found.promotions.append(_promotion(finalist, checked, comparison, reason))
    return None if checked.reason else comparison


def _promotion(finalist: Finalist, checked: Checked, comparison: Comparison | None, reason: str) -> Promotion:
    decision = comparison.decision if comparison is not None else None
    return Promotion(
        rule=finalist.source.rule,
        promoted=decision is Decision.FASTER and not checked.reason,
        reason=reason,
        held_out=checked.matched,
        units=checked.units,
        neighbours=checked.neighbours,
        levels=checked.levels,
        decision=decision,
    )


def _why_not(comparison: Comparison) -> str:
    if comparison.decision is Decision.REFUSED:
        return f"refused: the {comparison.refused} gave {comparison.verdict.status.value}, {comparison.verdict.detail}"
    if comparison.in_noise:
        return f"not surely beyond the {comparison.noise_floor:.1%} that two binaries of equal work seem apart"
    gate = f"{comparison.gate:.0%}"
    return {
        Decision.IDENTICAL: "the same machine code and launch as the baseline",
        Decision.SAME: f"within {gate} of the baseline",
        Decision.SLOWER: "slower than the baseline",
        Decision.UNCLEAR: f"not surely more than {gate} faster",
    }.get(comparison.decision, _unconfirmed(comparison))


def _unconfirmed(comparison: Comparison) -> str:
    conditions = dict(comparison.repeat.conditions) if comparison.repeat is not None else {}
    changed = f", with {conditions['values']}," if "values" in conditions else ""
    return f"a second contest in a fresh process{changed} did not confirm it"


# Sanitizers take seconds a launch: they come last, for what has won its contest.
_BEFORE_CONTEST = (Level.SEEN, Level.HELD_OUT, Level.PERTURBED)


def check(court: Court, variant: Variant, rule: str) -> Checked:
    """Verify a variant at the levels that come before a contest, and its text on the other kernels of its files."""
    levels = tuple(level for level in court.evaluator.levels if level in _BEFORE_CONTEST)
    checked = _verified(court, variant, rule, levels)
    if checked.reason or rule == RECORDED:
        return checked
    neighbours, reason = _check_neighbours(court, variant, rule)
    return replace(checked, neighbours=neighbours, reason=reason)


def _sanitized(court: Court, variant: Variant, rule: str, checked: Checked) -> Checked:
    """What was checked, and the levels that are left."""
    levels = tuple(level for level in court.evaluator.levels if level not in _BEFORE_CONTEST)
    more = _verified(court, variant, rule, levels)
    return replace(checked, levels=(*checked.levels, *more.levels), reason=more.reason)


def _verified(court: Court, variant: Variant, rule: str, levels: Iterable[Level]) -> Checked:
    """Verify a variant at some levels, up to the first at which it fails."""
    evaluator = court.evaluator
    passed: list[Verdict] = []
    matched = 0
    for level in levels:
        pending = [evaluator.verify(variant, rule, level, unit=index) for index in _launches(court, level)]
        outcomes = [evaluator.result(p) for p in pending]
        failed = [o for o in outcomes if o.verdict.status is not Status.MATCH]
        if level is Level.HELD_OUT:
            matched = len(outcomes) - len(failed)
        if failed:
            reason = f"{level.value}, unit {failed[0].unit}: {_sentence(failed[0].verdict)}"
            return Checked(matched, court.held_out, (*passed, failed[0].verdict), reason=reason)
        passed += [_of_units(court, level, [o.verdict for o in outcomes])] if outcomes else []
    return Checked(matched, court.held_out, tuple(passed))


def _launches(court: Court, level: Level) -> Iterable[int]:
    """Which recorded launches a level takes. The search's own is verified by every contest; changed inputs are made of
    the smallest one, and that is what a GPU's sanitizers watch, which need seconds for each."""
    units = court.evaluator.capture.units
    telling = [index for index, unit in enumerate(units) if unit.written]  # where nothing changes, any kernel is right
    if level is Level.PERTURBED or (level is Level.SANITIZED and court.evaluator.target.device != "cpu"):
        return [min(telling or [0], key=lambda index: _size(units[index]))]
    return [] if level is Level.SEEN else [index for index in telling if index or level is not Level.HELD_OUT]


def _size(unit: ReplayUnit) -> int:
    return sum(held.nbytes for held in unit.allocations)


def _of_units(court: Court, level: Level, verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict for a level at which every unit matched."""
    count = f"{len(verdicts)} launch{'es' * (len(verdicts) > 1)}"
    if level is Level.HELD_OUT and (left := court.held_out - len(verdicts)):
        count += f", without {left} in which the recorded kernel changed nothing"
    said = dict.fromkeys(verdict.detail for verdict in verdicts if verdict.detail)
    return Verdict(status=Status.MATCH, level=level, detail="; ".join((count, *said)))


def _check_neighbours(court: Court, variant: Variant, rule: str) -> tuple[tuple[str, ...], str]:
    """Other kernels of the changed files that match with the edited text under the default compiler, and why it is
    refused.

    A kernel that the edit reaches is replayed on all its recorded launches, any other on the first one.
    """
    changes = Unit(court.evaluator.capture, court.original).changes(variant.files or ())
    matched: list[str] = []
    for neighbour in court.neighbours:
        edited, capture = neighbour.edited(changes), neighbour.capture
        if edited == neighbour.texts:
            continue
        name = plain_name(capture.demangled)
        whole = any(name == reached for _, reached in neighbour.reached(changes))
        reason = _refusal(court.evaluator, edited, rule, neighbour, range(len(capture.units) if whole else 1))
        if reason:
            return tuple(matched), reason
        matched += [name] if reason is not None else []
    return tuple(matched), ""


def _refusal(
    evaluator: Evaluator, edited: Mapping[str, str], rule: str, neighbour: Unit, units: Iterable[int]
) -> str | None:  # fmt: skip
    """Why an edit does not suit a neighbour, empty if it does; None where the neighbour itself does not replay."""
    variant, capture = _plain(edited), neighbour.capture
    try:
        pending = [evaluator.submit(variant, rule, unit=u, timing="none", capture=capture) for u in units]
        outcomes = [evaluator.result(p) for p in pending]
    except CaptureError:
        return None  # a damaged neighbour is reported where it is searched itself
    failed = [o for o in outcomes if o.verdict.status is not Status.MATCH]
    if not failed:
        return ""
    if not _replays(evaluator, neighbour, failed[0].unit):
        return None
    return f"it changes {capture.symbol}, too: {_sentence(failed[0].verdict)}"


def _replays(evaluator: Evaluator, neighbour: Unit, unit: int) -> bool:
    """Whether a neighbour matches as it is; if not, an edit is not what breaks it."""
    asked = evaluator.submit(_plain(neighbour.texts), "baseline", unit=unit, timing="none", capture=neighbour.capture)
    return evaluator.result(asked).verdict.status is Status.MATCH


def _plain(texts: Mapping[str, str]) -> Variant:
    """Texts under the default compiler and the recorded launch."""
    return Variant(files=tuple(sorted(texts.items())), configuration=Configuration())


def _sentence(verdict: Verdict) -> str:
    return f"{verdict.status.value}: {verdict.detail}" if verdict.detail else verdict.status.value
