"""What a search claims and offers, and what it leaves out: patches, configurations, or both."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from r3bench.errors import DeviceFault, RecordError
from r3bench.ledger import Share
from r3bench.model import Capture, Configuration, Level, Status, Target, Variant
from r3bench.stats import Comparison, Decision
from tests.search.fake_server import TEXT, Behaviour, FakeServer, capture
from tests.search.searching import LONG, QUICK, by_text, search, specialized, text_of


def test_a_faster_source_is_promoted_with_its_patch(tmp_path: Path) -> None:
    server = FakeServer(by_text(inverse_width=1.5, out_sum=1.2))
    (result,) = search(tmp_path, server)
    assert result.status == "improved"
    assert result.after is not None
    assert "inverse_width" in result.after
    assert "out_sum" in result.after
    assert result.before == TEXT
    assert result.source == "kernels/demo/kernels.cu"
    assert result.arm("own compiler") is None
    patch = result.arm("patch")
    assert patch is not None
    assert patch.decision is Decision.FASTER
    assert patch.speedup == pytest.approx(1.8)
    assert result.baseline == "recorded source, default pipeline"
    (promotion,) = [p for p in result.promotions if p.promoted]
    assert (promotion.held_out, promotion.units) == (2, 2)


def test_the_held_out_units_are_verified_before_anything_is_claimed(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        if unit == 2 and "out_sum" in text_of(variant):
            return Behaviour(status=Status.MISMATCH, detail="out differs")
        return by_text(inverse_width=1.5, out_sum=2.0)(variant, unit)

    (result,) = search(tmp_path, FakeServer(model), LONG)
    assert result.after is not None
    assert "out_sum" not in result.after
    refused = [p for p in result.promotions if not p.promoted]
    assert refused
    assert refused[0].reason == "held out, unit 2: mismatch: out differs"
    assert refused[0].held_out == 1


def test_a_promotion_says_which_levels_of_verification_it_passed(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(by_text(inverse_width=1.5)))
    (promotion,) = [p for p in result.promotions if p.promoted]
    assert [(each.level, each.status) for each in promotion.levels] == [
        (Level.HELD_OUT, Status.MATCH),
        (Level.PERTURBED, Status.MATCH),
    ]
    assert promotion.levels[0].detail == "2 launches"


def test_what_fails_on_changed_inputs_is_not_promoted(tmp_path: Path) -> None:
    def fails_at(variant: Variant, level: Level) -> str:
        return "with n = 7: out differs" if level is Level.PERTURBED and "out_sum" in text_of(variant) else ""

    server = FakeServer(by_text(inverse_width=1.5, out_sum=2.0), fails_at=fails_at)
    (result,) = search(tmp_path, server, LONG)
    assert result.after is not None
    assert "out_sum" not in result.after
    refused = [p for p in result.promotions if not p.promoted]
    assert refused[0].reason == "perturbed, unit 0: mismatch: with n = 7: out differs"
    assert refused[0].levels[-1].level is Level.PERTURBED
    assert not any("out_sum" in text_of(candidate) for _, candidate in server.compared)


def test_a_kernel_that_nothing_improves_yields_no_patch(tmp_path: Path) -> None:
    server = FakeServer(lambda variant, unit: Behaviour(ns=1000.0))
    (result,) = search(tmp_path, server)
    assert result.status == "not improved"
    assert result.after is None
    assert result.configuration is None
    assert result.arms == ()
    assert server.compared == []


def test_a_ranking_that_the_contest_does_not_confirm_is_no_gain(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(by_text(inverse_width=1.03)))
    assert result.status == "not improved"
    assert result.detail == "within 5% of the baseline"
    assert len(result.promotions) == QUICK.contests


def test_a_gain_of_the_configuration_alone_changes_no_source(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(specialized))
    assert result.status == "improved"
    assert result.after is None
    assert result.configuration is not None
    assert [arm.name for arm in result.arms] == ["configuration"]


def test_a_source_change_that_adds_nothing_to_its_configuration_is_dropped(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        found = specialized(variant, unit)
        return replace(found, ns=found.ns * (0.999 if "restrict" in text_of(variant) else 1.0))

    (result,) = search(tmp_path, FakeServer(model))
    assert result.after is None
    assert [arm.name for arm in result.arms] == ["configuration"]
    assert [(p.rule, p.promoted) for p in result.promotions][-1] == ("recorded", True)
    assert not any(p.promoted for p in result.promotions if p.rule != "recorded")


def test_a_patch_and_its_configuration_are_told_apart(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        return Behaviour(ns=by_text(inverse_width=1.5)(variant, unit).ns * specialized(variant, unit).ns / 1000.0)

    server = FakeServer(model)
    (result,) = search(tmp_path, server)
    alone, both = result.arm("patch"), result.arm("patch and configuration")
    assert alone is not None
    assert both is not None
    assert [alone.speedup, both.speedup] == pytest.approx([1.5, 3.0])
    assert (Variant(), Variant(files=(("kernels.cu", result.after or ""),), configuration=Configuration())) in (
        server.compared
    )


def test_a_patch_is_measured_under_the_applications_own_compiler_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nvcc(maker: str, texts: dict[str, str], main: str, flags: tuple[str, ...], arch: str) -> bytes:
        if maker == "nvcc":
            raise RecordError("nvcc is not here")
        return f"{arch} {main} {texts[main]}".encode()

    def model(variant: Variant, unit: int) -> Behaviour:
        return Behaviour(ns=800.0) if variant.image else by_text(inverse_width=1.5)(variant, unit)

    monkeypatch.setattr("r3bench.evolve.own.cubin", nvcc)
    held = replace(capture(), image_format="cubin", recorded_on=(("arch", "sm_90"),))
    server = FakeServer(model, target=Target(device="cuda", arch="sm_90"))
    (result,) = search(tmp_path, server, captures=[held])
    assert result.baseline == "recorded image"
    assert result.after is not None
    own = result.arm("own compiler")
    assert own is not None
    assert own.speedup == pytest.approx(1.25)
    image = f"sm_90 kernels.cu {result.after}".encode()
    assert (Variant(), Variant(files=(("kernels.cu", result.after),), image=image)) in server.compared


def test_a_winner_stays_where_its_parts_cannot_be_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*what: object) -> None:
        raise DeviceFault("the CUDA worker was lost")

    monkeypatch.setattr("r3bench.evolve.concluding.split", fails)
    (result,) = search(tmp_path, FakeServer(by_text(inverse_width=1.5)))
    assert (result.status, result.split) == ("improved", ())
    assert result.detail.endswith("how its gain is made up could not be measured: the CUDA worker was lost")


def test_parts_that_do_not_come_to_the_claim_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = Share(name="source", factor=1.01), Share(name="passes", factor=None)
    monkeypatch.setattr("r3bench.evolve.concluding.split", lambda *what: shares)
    (result,) = search(tmp_path, FakeServer(by_text(inverse_width=1.5)))
    assert (result.status, result.split) == ("improved", ())
    assert result.detail.endswith(
        "; how its gain is made up is not shown, for by ranking times its parts come to 1.01x"
    )


def test_what_is_the_baseline_under_another_name_is_no_finalist(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        if variant.launch is not None:
            return Behaviour(ns=2000.0)
        return Behaviour(ns=1000.0 if variant == Variant() else 900.0, module="one")

    (result,) = search(tmp_path, FakeServer(model))
    assert (result.status, result.promotions) == ("not improved", ())
    assert result.detail == "nothing ranked ahead of the baseline when the best were timed again"


def test_a_search_that_ended_before_anything_was_tried_says_so(tmp_path: Path) -> None:
    settings = replace(QUICK, iterations=0, trials=1)
    (result,) = search(tmp_path, FakeServer(by_text(inverse_width=1.5)), settings)
    assert result.status == "not improved"
    assert result.detail == "nothing but the baseline was tried before the search ended"


def test_the_reason_is_that_of_the_candidate_whose_contest_is_shown(tmp_path: Path) -> None:
    class Unsure(FakeServer):
        def _contest(self, old: Behaviour, new: Behaviour, gate: float) -> Comparison:
            decision = Decision.UNCLEAR if len(self.compared) == 1 else Decision.UNSTABLE
            return replace(super()._contest(old, new, gate), decision=decision)

    (result,) = search(tmp_path, Unsure(specialized))
    assert [p.decision for p in result.promotions][:2] == [Decision.UNCLEAR, Decision.UNSTABLE]
    assert result.detail == "not surely more than 5% faster"


def test_a_patch_that_is_slower_under_the_default_compiler_is_not_promoted(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        fast = specialized(variant, unit).ns < 1000.0
        edited = "inverse" in text_of(variant)
        return Behaviour(
            ns={(True, True): 400.0, (True, False): 600.0, (False, True): 1500.0}.get((fast, edited), 1000.0)
        )

    (result,) = search(tmp_path, FakeServer(model), replace(QUICK, contests=99))
    assert result.after is None
    assert [arm.name for arm in result.arms] == ["configuration"]
    reasons = [p.reason for p in result.promotions]
    assert reasons[0] == "faster with its configuration, but under the default compiler: slower than the baseline"


def test_a_configuration_that_adds_nothing_sure_to_the_patch_is_not_offered(tmp_path: Path) -> None:
    """The patch 1.31x (1.24 to 1.53), with its configuration 1.31x (1.10 to 1.39): the intervals overlap."""

    class Server(FakeServer):
        def _contest(self, old: Behaviour, new: Behaviour, gate: float) -> Comparison:
            found = super()._contest(old, new, gate)
            bounds = {800.0: (1.24, 1.53), 790.0: (1.10, 1.39)}
            low, high = bounds.get(new.ns, (found.low, found.high))
            return replace(found, low=low, high=high)

    def model(variant: Variant, unit: int) -> Behaviour:
        if "inverse" not in text_of(variant):
            return Behaviour(ns=1000.0)
        return Behaviour(ns=790.0 if specialized(variant, unit).ns < 1000.0 else 800.0)

    (result,) = search(tmp_path, Server(model))
    assert result.after is not None
    assert [arm.name for arm in result.arms] == ["patch"]
    assert (result.configuration, result.settings) == (None, ())
    assert result.promotions[-1].promoted
    assert result.promotions[-1].reason.endswith("so offered without")


def test_the_configuration_is_told_in_words(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(specialized))
    assert "the block's size compiled in" in result.settings


def test_a_claim_that_is_not_confirmed_is_on_record_as_unstable(tmp_path: Path) -> None:
    class Server(FakeServer):
        def _contest(self, old: Behaviour, new: Behaviour, gate: float) -> Comparison:
            return replace(super()._contest(old, new, gate), decision=Decision.UNSTABLE)

    (result,) = search(tmp_path, Server(by_text(inverse_width=1.5)))
    assert result.status == "not improved"
    assert {p.decision for p in result.promotions} == {Decision.UNSTABLE}


def test_the_error_budget_is_split_over_all_claims(tmp_path: Path) -> None:
    parts = set()

    class Server(FakeServer):
        def compare(
            self,
            capture: Capture,
            unit: int,
            baseline: Variant,
            candidate: Variant,
            gate: float = 0.05,
            kernels: int = 1,
            looks: int = 3,
        ) -> Future[Comparison]:
            parts.add(kernels)
            return super().compare(capture, unit, baseline, candidate, gate, kernels, looks)

    search(tmp_path, Server(by_text(inverse_width=1.5)), replace(QUICK, kernels=7, contests=3))
    assert parts == {7 * 3 * 2}, "each finalist's own claim, and that of what is offered in its place"
