"""Promotion by itself: who follows a finalist that failed verification, and who is not tried any more."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from r3bench.evolve.evaluate import Evaluator
from r3bench.evolve.promote import Court, Finalist, Verdicts, _launches, _of_units, promote
from r3bench.ledger import Ledger
from r3bench.model import Configuration, Level, Status, Variant, Verdict
from r3bench.stats import Decision
from tests.search.fake_server import TEXT, Behaviour, FakeServer, capture


def text_of(variant: Variant) -> str:
    return dict(variant.files or ())["kernels.cu"] if variant.files else TEXT


def finalist(rule: str, *words: str, passes: tuple[str, ...] = ()) -> Finalist:
    """A source of this rule whose text holds some words; ``passes`` set its configuration apart from the default."""
    files = (("kernels.cu", f"{TEXT}// {' '.join(words)}\n"),)
    source: Any = SimpleNamespace(rule=rule, description="", files=files)
    return Finalist(source=source, variant=Variant(files=files, configuration=Configuration(after=passes)), ns=1.0)


def faster(variant: Variant, unit: int) -> Behaviour:
    return Behaviour(ns=1000.0 if variant == Variant() else 500.0)


def promoted(folder: Path, server: FakeServer, finalists: list[Finalist], contests: int = 1) -> Verdicts:
    found = Verdicts()
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        evaluator = Evaluator(capture(), server, ledger)
        court = Court(evaluator=evaluator, baseline=Variant(), gate=0.05, kernels=1, contests=contests)
        promote(court, finalists, finalist("recorded").source, found)
    return found


def test_what_was_made_from_a_text_that_failed_is_passed_over_and_the_next_best_promoted(tmp_path: Path) -> None:
    def fails_at(variant: Variant, level: Level) -> str:
        return "out differs" if level is Level.PERTURBED and "bad" in text_of(variant) else ""

    server = FakeServer(faster, fails_at=fails_at)
    found = promoted(tmp_path, server, [finalist("a", "bad"), finalist("b+a", "bad", "good"), finalist("b", "good")])
    failed = "perturbed, unit 0: mismatch: out differs"
    assert [p.reason for p in found.promotions] == [
        failed,
        f"made from a, which failed: {failed}",
        "faster by the interval",
    ]
    assert found.winner is not None
    assert found.winner.source.rule == "b"
    assert found.refused == {"a": failed}
    assert len(server.compared) == 1


def test_where_none_is_promoted_the_contest_of_the_best_is_kept_and_a_promotion_replaces_it(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        return Behaviour(ns=500.0 if "good" in text_of(variant) else 1000.0)

    equal = [finalist("a", "x"), finalist("b", "y")]
    found = promoted(tmp_path / "none", FakeServer(model), equal, contests=2)
    assert (found.winner, len(found.promotions)) == (None, 2)
    assert [(arm.name, arm.comparison.decision) for arm in found.arms] == [("patch", found.promotions[0].decision)]
    assert found.arms[0].comparison.baseline_ns == 1000.0
    found = promoted(tmp_path / "one", FakeServer(model), [equal[0], finalist("c", "good")], contests=2)
    assert [arm.comparison.decision for arm in found.arms] == [Decision.FASTER]


def test_what_is_faster_together_only_is_offered_together(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        tuned, good = variant.configuration not in (None, Configuration()), "good" in text_of(variant)
        return Behaviour(ns=(925.0 if good else 965.0) if tuned else 1000.0)

    both = finalist("a", "good")
    both = replace(both, variant=replace(both.variant, configuration=Configuration(pipeline="O2")))
    found = promoted(tmp_path, FakeServer(model), [both])
    assert found.winner == both
    assert [(arm.name, arm.comparison.decision) for arm in found.arms] == [
        ("patch and configuration", Decision.FASTER),
        ("patch", Decision.SAME),
    ]
    assert [(p.rule, p.promoted, p.reason) for p in found.promotions] == [
        ("a", True, "faster by the interval; its configuration alone is not surely faster"),
        ("recorded", False, "within 5% of the baseline"),
    ]


def test_a_configuration_that_fails_does_not_mark_the_text(tmp_path: Path) -> None:
    def fails_at(variant: Variant, level: Level) -> str:
        return "out differs" if variant.configuration != Configuration() else ""

    found = promoted(
        tmp_path, FakeServer(faster, fails_at=fails_at), [finalist("a", "x", passes=("dce",)), finalist("a", "x")]
    )
    assert found.refused == {}
    assert found.winner is not None
    assert found.winner.variant.configuration == Configuration()


def test_a_text_that_fails_without_the_configuration_that_won_marks_its_family(tmp_path: Path) -> None:
    def fails_at(variant: Variant, level: Level) -> str:
        return "out differs" if variant.configuration == Configuration() and "bad" in text_of(variant) else ""

    tuned = [finalist("a", "bad", passes=("dce",)), finalist("a+c", "bad", "good", passes=("dce",))]
    found = promoted(tmp_path, FakeServer(faster, fails_at=fails_at), [*tuned, finalist("b", "good")], contests=2)
    assert found.refused == {"a": "held out, unit 1: mismatch: out differs"}
    assert found.promotions[0].reason.startswith("faster with its configuration, but under the default compiler: ")
    assert found.promotions[1].reason.startswith("made from a, which failed: ")
    assert found.winner is not None
    assert found.winner.source.rule == "b"


def test_what_is_refused_in_its_contest_costs_none_and_marks_its_family(tmp_path: Path) -> None:
    class Refusing(FakeServer):
        def compare(self, *args: Any, **how: Any) -> Any:
            self.model = lambda variant, unit: (
                Behaviour(status=Status.MISMATCH, detail="wrong from the third launch on")
                if "bad" in text_of(variant)
                else faster(variant, unit)
            )
            try:
                return super().compare(*args, **how)
            finally:
                self.model = faster

    found = promoted(tmp_path, Refusing(faster), [finalist("a", "bad"), finalist("b", "good")])
    assert [p.decision for p in found.promotions] == [Decision.REFUSED, Decision.FASTER]
    assert "wrong from the third launch on" in found.refused["a"]


def test_sanitizers_come_after_the_contest_and_may_still_refuse_its_winner(tmp_path: Path) -> None:
    def fails_at(variant: Variant, level: Level) -> str:
        return "Invalid __global__ write" if level is Level.SANITIZED and "bad" in text_of(variant) else ""

    server = FakeServer(faster, levels=tuple(Level), fails_at=fails_at)
    found = promoted(tmp_path, server, [finalist("a", "bad"), finalist("b", "good")], contests=2)
    assert [(p.rule, p.promoted, p.decision) for p in found.promotions] == [
        ("a", False, Decision.FASTER),
        ("b", True, Decision.FASTER),
    ]
    assert found.refused == {"a": "sanitized, unit 0: mismatch: Invalid __global__ write"}
    assert [each.level for each in found.promotions[1].levels] == [Level.HELD_OUT, Level.PERTURBED, Level.SANITIZED]
    assert found.winner is not None
    assert found.winner.source.rule == "b"


def test_a_contest_whose_winner_the_sanitizers_refused_counts(tmp_path: Path) -> None:
    server = FakeServer(
        faster, levels=tuple(Level), fails_at=lambda variant, level: "race" if level is Level.SANITIZED else ""
    )
    found = promoted(tmp_path, server, [finalist("a", "bad"), finalist("b", "good")], contests=1)
    assert len(server.compared) == len(found.promotions) == 1


def test_a_held_out_launch_in_which_nothing_changed_refuses_nobody() -> None:
    units = [SimpleNamespace(written=written, allocations=()) for written in (("x",), (), ("x",), ())]
    evaluator = SimpleNamespace(capture=SimpleNamespace(units=units), target=SimpleNamespace(device="cpu"))
    court: Any = SimpleNamespace(evaluator=evaluator, held_out=3)
    assert _launches(court, Level.HELD_OUT) == [2]
    assert _launches(court, Level.SANITIZED) == [0, 2]
    said = _of_units(court, Level.HELD_OUT, [Verdict(status=Status.MATCH)])
    assert said.detail == "1 launch, without 2 in which the recorded kernel changed nothing"
