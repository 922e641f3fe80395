"""What a result rests on in a ledger, for tests whose results were not searched for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from r3bench.ledger import Arm, KernelResult, Ledger, named
from r3bench.model import Configuration, LaunchRule, Level, Measurement, Outcome, Status, Target, Variant, Verdict
from r3bench.nouns import decode, encode


def keep(ledger: Ledger, result: KernelResult) -> None:
    """A result with its contests, texts and evaluations; those are repetitions, so that they are in no curve."""
    for number in [number for number, text in enumerate((result.before, result.after)) if text]:
        files = _texts(result, edited=bool(number))
        fields = {"id": f"p{number}", "origin": "test", "status": "matched", "island": 0, "files": files}
        ledger.append("program", kernel="grounds", step=number, program=fields)
    for arm in result.arms:
        ledger.append("comparison", key=f"{result} {arm.name}", comparison=encode(arm.comparison), **sides(result, arm))
    for step in range(1, result.steps + 1):
        asked = {"tokens": result.spent.prompt_tokens, "answer_tokens": result.spent.answer_tokens}
        about = {"step": step, "turn": 0, "text": "", "origin": "test", "cost": result.spent.dollars}
        ledger.append("reply", kernel="grounds", **about, **asked)
    for number, outcome in enumerate(outcomes(result)):
        about = {"key": f"{result} {number}", "source": "test", "again": 1}
        ledger.append("outcome", kernel=result.kernel, outcome=encode(outcome), **about)
    ledger.append("result", kernel=result.kernel, result=encode(result))


def _texts(result: KernelResult, *, edited: bool) -> tuple[tuple[str, str], ...]:
    """The files that a result names, before or after its change."""
    own = (result.source, (result.after if edited else result.before) or "")
    return own, *((each.path, each.after if edited else each.before) for each in result.others)


def sides(result: KernelResult, arm: Arm) -> dict[str, str]:
    files = _texts(result, edited=arm.name not in ("configuration", "toolchain"))
    configuration, launch = Configuration(), None
    if arm.name.endswith("configuration") and result.configuration:
        given = json.loads(result.configuration)
        configuration = decode(Configuration, given.get("configuration", {}))
        launch = decode(LaunchRule, given["launch"]) if given.get("launch") else None
    candidate = Variant(files=files, configuration=configuration, launch=launch)
    return {"baseline": named(Variant()), "candidate": named(candidate)}


def outcomes(result: KernelResult) -> Iterator[Outcome]:
    times = {ns for source in result.sources for ns in (source.default_ns, source.best_ns)} | {result.baseline_ns}
    times |= {100.0 * share.factor for share in result.split if share.factor} | ({100.0} if result.split else set())
    for ns in sorted(filter(None, times)):
        yield outcome(result, measurement=Measurement(samples_ns=(ns,), binary="b"))
    for promotion in result.promotions:
        levels = [verdict.level for verdict in promotion.levels if promotion.promoted] or [Level.SEEN]
        yield from (outcome(result, unit, level) for unit in range(promotion.held_out + 1) for level in levels)
    for name in result.also_checked:
        yield replace(outcome(result), capture=f"demo/{name}")
    for failures in result.failures:
        yield from (outcome(result, status=Status(failures.status)) for _ in range(failures.count))
    for _ in range(result.evaluations):
        yield outcome(result, status=Status.TIMEOUT)


def outcome(
    result: KernelResult, unit: int = 0, level: Level = Level.SEEN, status: Status = Status.MATCH, **parts: Any
) -> Outcome:
    verdict = Verdict(status=status, level=level)
    target = Target(device="cpu", arch="fake")
    return Outcome(capture=result.kernel, unit=unit, variant="v", target=target, verdict=verdict, binary="b", **parts)
