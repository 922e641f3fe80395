"""Answers that a person wrote to prompts of ``files:``, as the ledger of that search holds them: no model's.

They were written from the prompts alone, for three kernels of miniWeather, and are what ``recorded:`` takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from r3bench import store
from r3bench.evolve import Kernel, Search, Settings
from r3bench.evolve.edits import revised
from r3bench.evolve.program import Program
from r3bench.evolve.propose import open_proposers
from r3bench.ledger import Ledger, read
from r3bench.model import Configuration, Status, Variant
from r3bench.nouns import decode
from r3bench.server import ReplayServer

ANSWERS = Path(__file__).parent / "by_hand.jsonl"
CAPTURES = Path(__file__).parents[2] / "captures" / "miniweather"
REPLIES = [record for record in read(ANSWERS)[0] if record["kind"] == "reply"]


@pytest.fixture(scope="module")
def replays() -> Iterator[ReplayServer]:
    with ReplayServer("cpu") as server:
        yield server


@pytest.mark.parametrize("reply", REPLIES, ids=lambda r: f"{Path(r['kernel']).name}-{r['step']}")
def test_every_answer_matches_on_every_recorded_launch(replays: ReplayServer, reply: dict[str, str]) -> None:
    capture = store.open_capture(CAPTURES / f"{Path(reply['kernel']).name}.zarr")
    assert capture.source is not None
    made = revised(reply["text"], store.sources(capture), capture.source.main, capture.symbol)
    variant = Variant(files=made.files, launch=made.launch, configuration=Configuration())
    waiting = [replays.submit(capture, variant, unit, "none") for unit in range(len(capture.units))]
    assert {each.result().verdict.status for each in waiting} == {Status.MATCH}


def test_a_search_takes_them_step_by_step(tmp_path: Path, replays: ReplayServer) -> None:
    capture = store.open_capture(CAPTURES / "diagnostics.zarr")
    steps = sum(reply["kernel"] == capture.name for reply in REPLIES)
    settings = Settings(iterations=steps, trials=2, islands=1, stale=1)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        kernel = Kernel(capture=capture, ledger=ledger, working=lambda _: None)
        Search([kernel], replays, open_proposers(f"recorded:{ANSWERS}"), settings).explore()
    programs = [decode(Program, r["program"]) for r in read(tmp_path / "ledger.jsonl")[0] if r["kind"] == "program"]
    assert [(p.id, p.origin, p.status) for p in programs[1:]] == [
        (f"p{n}", "files", "matched") for n in range(1, steps + 1)
    ]
