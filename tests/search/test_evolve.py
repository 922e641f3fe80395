"""The search on a made-up server: what is tried, and what is said when things go wrong."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from r3bench.errors import CaptureError, DeviceUnavailable, Unsupported
from r3bench.evolve import Kernel, Limits, Search
from r3bench.evolve.program import Program
from r3bench.evolve.propose import open_proposers
from r3bench.ledger import Ledger, read
from r3bench.model import Capture, Configuration, Outcome, Status, Variant
from r3bench.nouns import decode
from tests.search.fake_server import TEXT, Behaviour, FakeServer, capture, tree
from tests.search.searching import LONG, QUICK, by_text, search, specialized, text_of


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
    assert any("best ranked 1.50x" in line and line.startswith("demo/smooth: ") for line in lines)
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
