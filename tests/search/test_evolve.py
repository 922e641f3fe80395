"""The search on a made-up server: what is found, what is refused, what is reported when things go wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from r3bench.errors import CaptureError, DeviceFault, DeviceUnavailable, RecordError, Unsupported
from r3bench.evolve import Kernel, Limits, Search, Settings, evolve
from r3bench.evolve.program import Program
from r3bench.evolve.propose import Proposer, open_proposers
from r3bench.ledger import KernelResult, Ledger, Share, read
from r3bench.model import Capture, Configuration, Level, Outcome, Status, Target, Variant
from r3bench.nouns import decode
from r3bench.stats import Comparison, Decision
from tests.search.fake_server import TEXT, Behaviour, FakeServer, Model, capture, tree

QUICK = Settings(trials=3, iterations=24, race=False)
LONG = replace(QUICK, iterations=60)
ONE_BY_ONE = replace(QUICK, islands=1, stale=1)


def text_of(variant: Variant) -> str:
    return dict(variant.files or (("kernels.cu", TEXT),))["kernels.cu"]


def by_text(**gains: float) -> Model:
    """Times that depend on words in the text only: each word in it divides the time."""

    def model(variant: Variant, unit: int) -> Behaviour:
        ns = 1000.0
        for word, gain in gains.items():
            ns /= gain if word in text_of(variant) else 1.0
        return Behaviour(ns=ns)

    return model


def search(
    folder: Path,
    server: FakeServer,
    settings: Settings = QUICK,
    *,
    captures: list[Capture] | None = None,
    working: Callable[[Capture], Variant | None] | None = None,
    neighbours: list[Capture] | None = None,
    progress: Callable[[str], None] = lambda line: None,
    proposer: Proposer | None = None,
) -> list[KernelResult]:
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        return evolve(
            captures or [capture()],
            server,
            settings,
            ledger,
            proposer or open_proposers("rules", seed=settings.seed),
            progress,
            working=working or tree(),
            neighbours=neighbours or [],
        )


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


def specialized(variant: Variant, unit: int) -> Behaviour:
    """Only compiling in the block's shape gains anything."""
    chosen = variant.configuration is not None and variant.configuration.specialize.block
    return Behaviour(ns=500.0 if chosen else 1000.0)


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
    assert result.detail.endswith("; how its gain is made up is left out, for ranking times come to 1.01x")


def test_what_is_the_baseline_under_another_name_is_no_finalist(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        if variant.launch is not None:
            return Behaviour(ns=2000.0)
        return Behaviour(ns=1000.0 if variant == Variant() else 900.0, module="one")

    (result,) = search(tmp_path, FakeServer(model))
    assert (result.status, result.promotions) == ("not improved", ())
    assert result.detail == "nothing ranked ahead of the baseline when the best were timed again"


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


def test_sources_with_equal_code_are_tuned_once(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        default = variant.configuration in (None, Configuration()) and "inverse" not in text_of(variant)
        return replace(by_text(inverse_width=1.5)(variant, unit), module="same" if default else None)

    (result,) = search(tmp_path, FakeServer(model), LONG)
    copies = {s.rule: s for s in result.sources if s.same_as == "recorded"}
    assert {"restrict", "cache", "accumulate", "unroll", "expose"} <= set(copies)
    assert not any("reciprocal" in rule for rule in copies)
    assert all(s.trials == 1 for s in copies.values())


def test_every_source_gets_its_trials(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(by_text(inverse_width=1.5)))
    assert {s.trials for s in result.sources if s.same_as is None} == {3}


def test_in_a_race_only_what_stands_well_gets_a_second_trial_and_the_best_get_all(tmp_path: Path) -> None:
    settings = replace(QUICK, race=True, trials=12)
    (result,) = search(tmp_path, FakeServer(by_text(inverse_width=1.5)), settings)
    trials = {s.rule: s.trials for s in result.sources if s.same_as is None}
    best = sorted(result.sources, key=lambda source: source.best_ns or 1e9)[:3]
    assert [source.trials for source in best] == [12, 12, 12]
    assert all("reciprocal" in source.rule for source in best)
    assert trials["reciprocal"] > 1
    assert 1 in trials.values()


def test_the_best_of_a_text_is_timed_again_and_the_luckiest_does_not_win(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        """The default configuration is lucky at first; another is faster."""
        configuration = variant.configuration or Configuration()
        lucky = configuration == Configuration() and server.submitted[-1][3] == "once"
        ns = 100.0 if lucky else 800.0 if configuration.specialize.block else 900.0
        return Behaviour(ns=ns if "inverse" in text_of(variant) else 1000.0)

    server = FakeServer(model)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        kernel = Kernel(capture=capture(), ledger=ledger, working=tree())
        tried = Search([kernel], server, open_proposers("rules"), replace(QUICK, trials=8))
        tried.explore()
        best = tried.best(capture())
    assert best is not None
    assert best.configuration is not None
    assert best.configuration.specialize.block


def test_the_best_of_the_recorded_text_is_tried_early_on_the_others(tmp_path: Path) -> None:
    server = FakeServer(specialized)
    search(tmp_path, server)
    variants = [variant for _, variant, _, _ in server.submitted]
    recorded = [v for v in variants if v.files == (("kernels.cu", TEXT),)]
    best = next(v.configuration for v in recorded if specialized(v, 0).ns < 1000.0)
    edited = [v.configuration for v in variants if "inverse" in text_of(v) and "restrict" not in text_of(v)]
    assert edited[1] == best


def test_failures_are_counted_by_source_and_the_search_goes_on(tmp_path: Path) -> None:
    def model(variant: Variant, unit: int) -> Behaviour:
        if "#pragma unroll" in text_of(variant):
            return Behaviour(status=Status.BUILD_FAILED, detail="k.cu:1:1: no")
        if "in_value" in text_of(variant):
            return Behaviour(status=Status.FAULT, detail="signal 11")
        return by_text(inverse_width=1.5)(variant, unit)

    (result,) = search(tmp_path, FakeServer(model))
    found = {(f.source, f.status): f for f in result.failures}
    assert found["unroll", "build-failed"].count == 1
    assert found["cache", "fault"].detail == "signal 11"
    assert result.status == "improved"
    assert result.rule == "reciprocal"
    assert next(s for s in result.sources if s.rule == "cache").best_ns is None


def test_a_baseline_that_does_not_replay_is_a_failed_kernel(tmp_path: Path) -> None:
    server = FakeServer(lambda variant, unit: Behaviour(status=Status.TIMEOUT, detail="killed after 10 s"))
    (result,) = search(tmp_path, server)
    assert result.status == "failed"
    assert result.detail == (
        "the baseline (recorded source, default pipeline) does not replay: timeout: killed after 10 s"
    )
    assert len(server.submitted) == 1


def test_a_text_without_the_kernel_still_has_its_configuration_tuned(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(specialized), working=tree('#include "elsewhere.h"\n'))
    assert [s.rule for s in result.sources] == ["recorded"]
    assert result.status == "improved"
    assert "does not define the kernel smooth" in result.stopped


def test_what_was_recorded_as_ptx_is_tuned_and_not_rewritten(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(specialized), captures=[in_language("ptx")])
    assert [s.rule for s in result.sources] == ["recorded"]
    assert result.stopped == (
        "the kernel was recorded with PTX text only: it can be tested and its launch tuned, not rewritten"
    )


def in_language(language: Literal["ptx", "llvm"]) -> Capture:
    recorded = capture()
    assert recorded.source is not None
    return replace(recorded, source=replace(recorded.source, language=language))


def test_a_capture_without_source_is_one_sentence(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(specialized), captures=[replace(capture(), source=None)])
    assert result.status == "failed"
    assert result.detail == "captures/demo/smooth.zarr holds no source of smooth; record it again with its source"


def test_the_working_tree_is_the_baseline_where_it_differs(tmp_path: Path) -> None:
    edited = TEXT.replace("k < 4", "k < 5")
    server = FakeServer(by_text(inverse_width=1.5))
    (result,) = search(tmp_path, server, working=tree(edited))
    assert result.baseline == "working tree, default pipeline"
    assert result.before == edited
    assert server.submitted[0][1] == Variant(files=(("kernels.cu", edited),))


def test_pointers_that_overlap_in_one_launch_get_no_restrict(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(by_text()), captures=[capture(disjoint=False)])
    assert not any("restrict" in s.rule and "+" not in s.rule for s in result.sources)
    assert "accumulate" not in {s.rule for s in result.sources}


def test_an_edit_of_a_shared_function_must_suit_the_other_kernels_of_the_file(tmp_path: Path) -> None:
    other = capture(symbol="other")

    class Server(FakeServer):
        def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
            if capture.symbol == "other" and "inverse" in text_of(variant):
                self.model, own = (lambda v, u: Behaviour(status=Status.MISMATCH, detail="x differs")), self.model
                found = super().submit(capture, variant, unit, timing)
                self.model = own
                return found
            return super().submit(capture, variant, unit, timing)

    (result,) = search(tmp_path, Server(by_text(inverse_width=1.5, out_sum=1.2)), neighbours=[other])
    assert result.after is None or "inverse" not in result.after
    assert result.promotions[0].reason == "it changes other, too: mismatch: x differs"


def test_an_edit_is_not_to_blame_for_a_neighbour_that_fails_anyway(tmp_path: Path) -> None:
    class Server(FakeServer):
        def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
            if capture.symbol == "other":
                broken = FakeServer(lambda v, u: Behaviour(status=Status.UNSUPPORTED, detail="grid sync"))
                return broken.submit(capture, variant, unit, timing)
            return super().submit(capture, variant, unit, timing)

    (result,) = search(tmp_path, Server(by_text(inverse_width=1.5)), neighbours=[capture(symbol="other")])
    assert result.after is not None


SHARED = """\
__device__ float scaled(float x, float width) { return x / 3.0f + x / width + x / width; }
extern "C" __global__ void smooth(const float* in, float* out, float width, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = scaled(in[i], width);
}
extern "C" __global__ void other(float* out, float width) { out[threadIdx.x] = scaled(1.0f, width); }
extern "C" __global__ void alone(float* out) { out[threadIdx.x] = 1.0f; }
"""


def without_division(variant: Variant, unit: int) -> Behaviour:
    text = text_of(variant)
    return Behaviour(ns=500.0 if "scaled" in text and "x / 3.0f" not in text else 1000.0)


def test_kernels_that_share_an_edited_function_are_named_and_checked_on_all_launches(tmp_path: Path) -> None:
    server = FakeServer(without_division)
    neighbours = [capture(SHARED, symbol=symbol) for symbol in ("other", "alone")]
    (result,) = search(
        tmp_path, server, captures=[capture(SHARED)], working=tree(SHARED), neighbours=neighbours
    )  # fmt: skip
    assert result.after is not None
    assert result.also_changes == ("other",)
    assert result.also_checked == ("other",)
    checked = {(name, unit) for name, _, unit, timing in server.submitted if timing == "none"}
    assert {("demo/other", 0), ("demo/other", 1), ("demo/other", 2), ("demo/alone", 0)} <= checked
    assert ("demo/alone", 1) not in checked


def test_a_changed_kernel_without_a_recorded_launch_is_named_all_the_same(tmp_path: Path) -> None:
    server = FakeServer(without_division)
    (result,) = search(tmp_path, server, captures=[capture(SHARED)], working=tree(SHARED))
    assert (result.also_changes, result.also_checked) == (("other",), ())


def test_a_working_tree_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    def broken(_: Capture) -> Variant:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    (result,) = search(tmp_path, FakeServer(by_text()), working=broken)
    assert result.status == "failed"
    assert result.detail.startswith("the source of smooth in the working tree cannot be read ('utf-8' codec")
    assert "\n" not in result.detail


def test_a_source_that_cannot_be_used_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise Unsupported("smooth uses textures; take them out")

    monkeypatch.setattr("r3bench.remix.legal_blocks", unsupported)
    (result,) = search(tmp_path, FakeServer(by_text()))
    assert (result.status, result.detail) == ("failed", "smooth uses textures; take them out")


def test_the_same_seed_gives_the_same_search(tmp_path: Path) -> None:
    servers = [FakeServer(by_text(inverse_width=1.5)) for _ in range(3)]
    for number, server in enumerate(servers):
        search(tmp_path / str(number), server, replace(ONE_BY_ONE, seed=number // 2))
    assert servers[0].submitted == servers[1].submitted
    assert servers[0].submitted != servers[2].submitted


def test_a_resumed_search_evaluates_nothing_twice(tmp_path: Path) -> None:
    first, second = (FakeServer(by_text(inverse_width=1.5)) for _ in range(2))
    (before,) = search(tmp_path, first)
    (after,) = search(tmp_path, second)
    assert second.submitted == []
    assert second.compared == []
    assert replace(after, seconds=0.0, searched=0.0) == replace(before, seconds=0.0, searched=0.0)


def test_a_resumed_search_has_the_time_of_the_runs_before_it_as_it_has_their_outcomes(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    for calls, hours in ((9, 1), (17, 2)):
        known = ledger.read_bytes() if ledger.exists() else b""
        search(tmp_path, interrupted_after(calls, by_text(inverse_width=1.5)), ONE_BY_ONE)
        run, *others = [json.loads(line) for line in ledger.read_bytes()[len(known) :].splitlines()]
        later = [run, *({**record, "time": run["time"] + 3600 * hours} for record in others)]
        ledger.write_bytes(known + b"".join(json.dumps(record).encode() + b"\n" for record in later))
    (result,) = search(tmp_path, FakeServer(by_text(inverse_width=1.5)), ONE_BY_ONE)
    assert 3 * 3600 <= result.searched < 3 * 3600 + 600


def test_what_was_judged_by_other_tolerances_is_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, second = (FakeServer(by_text(inverse_width=1.5)) for _ in range(2))
    search(tmp_path, first)
    tolerances = tmp_path / "captures/demo/smooth.tolerance.toml"
    tolerances.parent.mkdir(parents=True)
    tolerances.write_text("[out]\nrtol = 0.01\n")
    search(tmp_path, second)
    assert second.submitted[0] == first.submitted[0]
    assert len(second.submitted) >= len(first.submitted) // 2 > 0, (
        "what was proposed is on record, and all of it is replayed"
    )


def test_a_search_cut_short_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = FakeServer(by_text(inverse_width=1.5))
    search(tmp_path / "whole", whole, ONE_BY_ONE)
    cut = interrupted_after(17, by_text(inverse_width=1.5))
    search(tmp_path / "cut", cut, ONE_BY_ONE)
    told = sum(r["kind"] == "outcome" for r in read(tmp_path / "cut" / "ledger.jsonl")[0])
    rest = FakeServer(by_text(inverse_width=1.5))
    (result,) = search(tmp_path / "cut", rest, ONE_BY_ONE)
    assert result.status == "improved"
    assert 12 <= told <= 17
    assert cut.submitted[:told] + rest.submitted == whole.submitted, "only what was in flight is done again"


def interrupted_after(calls: int, model: Model) -> FakeServer:
    """A server at whose n-th request the user presses ctrl-C."""

    class Server(FakeServer):
        def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
            if len(self.submitted) >= calls:
                raise KeyboardInterrupt
            return super().submit(capture, variant, unit, timing)

    return Server(model)


def test_an_interrupt_reports_what_is_there_and_stops(tmp_path: Path) -> None:
    server = interrupted_after(12, by_text(inverse_width=1.5))
    results = search(tmp_path, server, captures=[capture(), capture(symbol="next")])
    result, other = results
    assert result.status == other.status == "interrupted"
    assert result.detail.startswith("interrupted after ")
    assert result.baseline_ns is not None
    assert any(s.trials for s in result.sources)
    written = [r["result"]["status"] for r in read(tmp_path / "ledger.jsonl")[0] if r["kind"] == "result"]
    assert written == ["interrupted", "interrupted"]


def test_a_damaged_capture_ends_its_own_search_only(tmp_path: Path) -> None:
    class Server(FakeServer):
        def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
            if capture.symbol != "broken":
                return super().submit(capture, variant, unit, timing)
            failed: Future[Outcome] = Future()
            failed.set_exception(CaptureError("captures/demo/broken.zarr: chunk 3 is damaged; record it again"))
            return failed

    broken, sound = search(tmp_path, Server(by_text(inverse_width=1.5)), captures=[capture(symbol="broken"), capture()])
    assert (broken.status, broken.detail) == (
        "failed",
        "captures/demo/broken.zarr: chunk 3 is damaged; record it again",
    )
    assert sound.status == "improved"


def test_an_unusable_device_stops_the_run(tmp_path: Path) -> None:
    class Server(FakeServer):
        def submit(self, capture: Capture, variant: Variant, unit: int = 0, timing: str = "rank") -> Future[Outcome]:
            failed: Future[Outcome] = Future()
            failed.set_exception(DeviceUnavailable("no"))
            return failed

    with pytest.raises(DeviceUnavailable):
        search(tmp_path, Server(by_text()))


def test_time_that_runs_out_ends_the_tuning(tmp_path: Path) -> None:
    (result,) = search(tmp_path, FakeServer(by_text(inverse_width=1.5)), replace(QUICK, limits=Limits(seconds=0)))
    assert sum(s.trials for s in result.sources) == 0
    assert result.status == "not improved"


def test_progress_is_told(tmp_path: Path) -> None:
    lines: list[str] = []
    search(tmp_path, FakeServer(by_text(inverse_width=1.5)), progress=lines.append)
    assert any("best 1.50x" in line and line.startswith("demo/smooth: ") for line in lines)
    assert all("\n" not in line for line in lines)


def test_seeds_and_sources_are_on_record(tmp_path: Path) -> None:
    search(tmp_path, FakeServer(by_text()), replace(QUICK, seed=7))
    records = read(tmp_path / "ledger.jsonl")[0]
    assert records[0]["kind"] == "run"
    assert records[0]["seed"] == 7
    programs = [r for r in records if r["kind"] == "program"]
    assert programs[0]["rule"] == "recorded"
    assert decode(Program, programs[0]["program"]).files == (("kernels.cu", TEXT),)
    assert len(programs) > 5
