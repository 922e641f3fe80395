"""Configurations that are cut off: learned from, and never compared as if they had been timed to the end."""

from __future__ import annotations

import asyncio

import pytest
from fake_server import FAKE, TEXT, Behaviour, FakeServer, capture, tree

from r3bench.evolve import Settings, evolve
from r3bench.evolve.evaluate import about, nanoseconds
from r3bench.evolve.inner import tune
from r3bench.evolve.propose import open_proposers
from r3bench.evolve.sources import Source, make_source
from r3bench.ledger import Ledger
from r3bench.model import Measurement, Outcome, Status, Variant, Verdict


def outcome(ns: float, cut_ns: float | None = None) -> Outcome:
    timed = Measurement(samples_ns=(ns, ns + 1), binary="b", cut_ns=cut_ns)
    verdict = Verdict(status=Status.MATCH)
    return Outcome(capture="c", unit=0, variant="v", target=FAKE, verdict=verdict, measurement=timed, binary="b")


def test_a_time_that_was_cut_off_is_no_time() -> None:
    assert (nanoseconds(outcome(5.0)), about(outcome(5.0))) == (5.0, None)
    assert (nanoseconds(outcome(5.0, 4.0)), about(outcome(5.0, 4.0))) == (None, 5.0)


def test_it_is_never_the_best_and_counts_as_a_match() -> None:
    files, raced = (("kernels.cu", TEXT),), []
    source = make_source(capture(), FAKE, Settings(), step=0, rule="recorded", description="", files=files)
    answers = [outcome(100.0), outcome(20.0, 10.0), outcome(90.0), outcome(30.0, 25.0)]

    async def evaluate(variant: Variant, of: Source, races: bool) -> Outcome:
        raced.append(races)
        return answers[len(raced) - 1]

    asyncio.run(tune(source, 4, evaluate, in_flight=1))
    assert raced == [False, True, True, True]
    assert source.best is not None
    assert source.best[1] == 90.0
    assert source.tuner.best == source.outcomes[2][0].point
    assert source.result().matched == 4


@pytest.mark.parametrize("race", [True, False])
def test_a_search_races_within_a_text_once_it_has_a_time(tmp_path, race: bool) -> None:  # type: ignore[no-untyped-def]
    server, kernel = FakeServer(lambda variant, unit: Behaviour()), capture()
    settings = Settings(search="bo", trials=8, in_flight=2, evaluating=2, race=race)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        evolve([kernel], server, settings, ledger, open_proposers("rules"), working=tree())
    timings = [timing for _, _, _, timing in server.submitted if timing in ("once", "race")]
    assert timings[:3] == ["once"] * 3  # the baseline, and the first two configurations
    assert timings.count("race") == (6 if race else 0)
