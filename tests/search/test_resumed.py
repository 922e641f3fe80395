"""Searches that are repeated, cut short, and gone on with."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r3bench.evolve import Limits
from r3bench.ledger import read
from r3bench.report import document, markdown
from r3bench.report.words import course
from tests.search.fake_server import FakeServer, capture
from tests.search.searching import ONE_BY_ONE, by_text, interrupted_after, search


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


@pytest.mark.parametrize(
    ("evaluations", "loads"),
    [(17, ["7.80", "0.40"]), (10**6, ["7.80", "7.80"])],  # cut short before any contest; nothing left to do
)
def test_the_load_is_that_of_the_run_that_measured(tmp_path: Path, evaluations: int, loads: list[str]) -> None:
    gains = by_text(inverse_width=1.5)
    cut = interrupted_after(evaluations, gains)
    cut.load = "7.80"
    told = [
        dict(search(tmp_path, server, ONE_BY_ONE)[0].conditions)["load"]
        for server in (cut, FakeServer(gains), FakeServer(gains, load="3.00"))
    ]
    assert told == [*loads, loads[-1]], "the third measures nothing"


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


def test_an_interrupt_reports_what_is_there_and_stops(tmp_path: Path) -> None:
    server = interrupted_after(12, by_text(inverse_width=1.5))
    results = search(tmp_path, server, captures=[capture(), capture(symbol="next")])
    result, other = results
    assert result.status == other.status == "interrupted"
    assert re.fullmatch(r"stopped after \d+ evaluations, before promotion", result.detail)
    assert result.baseline_ns is not None
    assert any(s.trials for s in result.sources)
    written = [r["result"]["status"] for r in read(tmp_path / "ledger.jsonl")[0] if r["kind"] == "result"]
    assert written == ["interrupted", "interrupted"]


def test_an_interrupt_while_the_best_are_promoted_is_the_only_ending(tmp_path: Path) -> None:
    class Impatient(FakeServer):
        def compare(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    settings = replace(ONE_BY_ONE, limits=Limits(evaluations=12))
    server = Impatient(by_text(inverse_width=1.5))
    result, other = search(tmp_path, server, settings, captures=[capture(), capture(symbol="next")])
    assert result.stopped == "the budget of 12 evaluations, shared by 2 kernels, was used up"
    assert re.fullmatch(r"stopped after \d+ evaluations, during promotion", result.detail)
    assert re.fullmatch(r"stopped after \d+ evaluations, before promotion", other.detail)
    text = markdown(document("demo", [result, other]))
    assert text.count("Interrupted: stopped after") == 2
    assert "It ended" not in text
    assert "It ended when the budget of 12 evaluations" in " ".join(course(replace(result, status="not improved")))
