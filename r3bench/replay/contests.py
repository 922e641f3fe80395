"""Two variants against each other, and the control that says how far two binaries of equal work seem apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from r3bench.measure import Terms, contest
from r3bench.model import Configuration, Variant, content_id
from r3bench.replay.builds import Builder, build
from r3bench.replay.failures import Failure, attempt
from r3bench.replay.placement import Placement
from r3bench.replay.trials import Lock, Trial
from r3bench.stats import Comparison, identical, refused
from r3bench.toolchain import Built
from r3bench.windows import Arm, cold


def compete(
    placement: Placement,
    baseline: tuple[Variant, Future[Built]],
    candidate: tuple[Variant, Future[Built]],
    terms: Terms,
    *,
    repetition: int = 0,
    lock: Lock = nullcontext,
) -> Comparison:
    """Verify two variants and time them against each other; IDENTICAL code and launch are not timed.

    REFUSED if one of them does not match, before timing or after. Each ``repetition`` draws its own order of blocks.
    """
    arms = []
    for name, (variant, built) in (("baseline", baseline), ("candidate", candidate)):
        trial = Trial(placement, variant, name)
        trial.verify(built, terms.procedure.timeout_s)
        if trial.arm is None or not trial.matches:
            return refused(terms.gate, name, trial.verdict)
        arms.append(trial.arm)
    codes = [arm.kernel.binary.sha256 for arm in arms]
    if codes[0] == codes[1] and arms[0].launch == arms[1].launch:
        return identical(terms.gate, codes[0])
    seed = int(content_id(codes, repetition)[:8], 16)

    def timed() -> Comparison:
        placement.classify(arms[0], terms.procedure.timeout_s)
        return contest(arms[0], arms[1], placement.ring, placement.check, terms, seed)

    with lock():
        found = attempt(timed)
        if repetition and not isinstance(found, Failure):
            found = replace(found, conditions=(*found.conditions, *_other_cache(arms, placement, terms)))
        if not isinstance(found, Failure):
            found = replace(found, conditions=(*found.conditions, *placement.spread))
    return refused(terms.gate, found.arm, found.verdict) if isinstance(found, Failure) else found


def _other_cache(arms: Sequence[Arm], placement: Placement, terms: Terms) -> Iterator[tuple[str, str]]:
    """Times of a claim's arms with cold caches, where warm ones decided; a GPU's warm times are taken in a contest."""
    if placement.device.target.device == "cpu":
        for arm in arms:
            found = attempt(partial(cold, arm, placement.ring, terms.procedure.timeout_s))
            if not isinstance(found, Failure):
                yield f"cold_{arm.name}_ns", f"{found:.0f}"


def control(
    placement: Placement, baseline: Variant, compiler: Builder, terms: Terms, lock: Lock = nullcontext
) -> Comparison | None:
    """Time a baseline's source against another binary of equal work: what they seem to differ by is noise.

    One look, and nothing is claimed from it; None where the capture holds nothing to build both from.
    """
    material = placement.material
    source = material.capture.source
    if source is None or source.language == "ptx":
        return None
    plain = replace(baseline, configuration=baseline.configuration or Configuration())
    first, second = (
        build(material, plain, placement.device.target, compiler, padded=padded) for padded in (False, True)
    )
    once = replace(terms, budget=replace(terms.budget, kernels=1, looks=1))
    return compete(placement, (plain, first), (plain, second), once, lock=lock)
