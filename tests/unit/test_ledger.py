"""The journal: what is written is read back, a crash costs a line, two writers exclude each other."""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest

from r3bench.errors import LedgerError
from r3bench.ledger import Arm, KernelResult, Ledger, Promotion, read, results
from r3bench.model import Difference, Measurement, Outcome, Status, Target, Verdict
from r3bench.nouns import decode, encode
from r3bench.stats import Comparison, Decision
from tests.search.fake_server import comparison
from tests.unit.grounds import keep

TARGET = Target(device="cpu", arch="fake")
MATCHED = Outcome(
    capture="demo/k",
    unit=0,
    variant="v",
    target=TARGET,
    verdict=Verdict(status=Status.MATCH),
    measurement=Measurement(samples_ns=(1.5, 2.0), binary="b", conditions=(("load", "0.1"),)),
    module="m",
    binary="b",
    facts=(("registers", 32),),
    stages=(("frontend", 0.25),),
)
DIFFERS = replace(
    MATCHED,
    measurement=None,
    verdict=Verdict(
        status=Status.MISMATCH,
        detail="tendency differs",
        differences=(
            Difference(
                buffer="a", count=1, elements=4, first=(1,), first_expected="1", first_actual="nan", worst=(1,),
                worst_expected="1", worst_actual="nan", error=math.inf, limit=0.0,
            ),
        ),
    ),
)  # fmt: skip
RESULT = KernelResult(
    kernel="demo/k", capture="k.zarr", content_hash="h", status="improved", detail="", device="cpu", target="fake",
    baseline="recorded source", baseline_ns=10.0, seed=1, evaluations=2, seconds=1.5, before="a\n", after="b\n",
    arms=(Arm(name="patch", comparison=comparison(1.5, baseline_ns=10.0)),),
    promotions=(Promotion(rule="p1", promoted=True, reason="", held_out=1, units=1, decision=Decision.FASTER),),
)  # fmt: skip


@pytest.mark.parametrize("outcome", [MATCHED, DIFFERS])
def test_an_outcome_survives_json(outcome: Outcome) -> None:
    text = json.dumps(encode(outcome), allow_nan=False)
    assert decode(Outcome, json.loads(text)) == outcome


def test_a_comparison_survives_json_with_its_repetition() -> None:
    claim = replace(comparison(1.5), d=(0.1, -0.2), smallest_effect=math.inf, repeat=comparison(1.4))
    found = decode(Comparison, json.loads(json.dumps(encode(claim), allow_nan=False)))
    assert found == claim
    assert found.repeat is not None
    assert found.repeat.decision is Decision.FASTER


def test_what_was_written_is_known_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        assert ledger.outcome("key") is None
        ledger.add_outcome("key", MATCHED, source="recorded")
        ledger.add_comparison("duel", comparison(1.2))
        assert ledger.outcome("key") == MATCHED
    with Ledger.open(path) as ledger:
        assert ledger.outcome("key") == MATCHED
        assert ledger.comparison("duel") == comparison(1.2)
        assert ledger.outcome("duel") is None


def test_every_line_is_there_at_once_and_says_when(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append("note", text="zeile\n2")
        records, damaged = read(path)
        assert [r["kind"] for r in records] == ["note"]
        assert records[0]["text"] == "zeile\n2"
        assert records[0]["time"] > 1.7e9
        assert damaged == []


@pytest.mark.parametrize("tail", [b'{"kind":"outcome","key":"x"', b"\x00\xff\x00", b'{"kind":"note"}'])
def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.add_outcome("key", MATCHED)
    path.write_bytes(path.read_bytes() + tail)
    assert len(read(path)[1]) == 1
    with Ledger.open(path) as ledger:
        assert ledger.outcome("key") == MATCHED
        ledger.append("note")
    records, damaged = read(path)
    assert [r["kind"] for r in records] == ["outcome", "note"]
    assert damaged == []


def test_damaged_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append("note", number=1)
        ledger.add_outcome("key", MATCHED)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([lines[0], b"garbage {", b"[1]", lines[1].replace(b'"match"', b'"maybe"')]) + b"\n")
    records, damaged = read(path)
    assert [record["kind"] for record in records] == ["note"]
    assert len(damaged) == 3
    with Ledger.open(path) as ledger:
        assert ledger.outcome("key") is None, "a status of another version is evaluated again"


def test_two_writers_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path), pytest.raises(LedgerError, match="being written by another run"):
        Ledger.open(path)
    Ledger.open(path).close()


def test_a_new_ledger_sets_the_older_ones_of_its_name_aside(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    earlier = []
    for number in range(3):
        with Ledger.open(path, resume=False) as ledger:
            assert ledger.outcome("key") is None
            ledger.add_outcome("key", MATCHED, number=number)
            earlier.append(ledger.earlier)
    assert earlier[0] is None
    assert [read(place)[0][0]["number"] for place in (*earlier, path) if place is not None] == [0, 1, 2]


def test_a_ledger_that_another_run_writes_is_not_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append("note", number=1)
        with pytest.raises(LedgerError, match="being written by another run"):
            Ledger.open(path, resume=False)
    assert len(read(path)[0]) == 1


def test_a_newer_format_is_refused_and_the_lock_given_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        ledger.append("run", format=99)
    for _ in range(2):
        with pytest.raises(LedgerError, match="format 99"):
            Ledger.open(path)


def test_a_ledger_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"gone\.jsonl cannot be read"):
        read(tmp_path / "gone.jsonl")
    (tmp_path / "folder").mkdir()
    with pytest.raises(LedgerError, match="cannot be written"):
        Ledger.open(tmp_path / "folder", resume=False)


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.jsonl")
    ledger.close()
    ledger.close()


def test_the_last_result_of_a_kernel_counts(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        for result in (RESULT, replace(RESULT, kernel="demo/other"), replace(RESULT, seed=2)):
            keep(ledger, result)
    found = list(results(read(path)[0]))
    assert [(r.kernel, r.seed) for r in found] == [("demo/k", 2), ("demo/other", 1)]
    assert found[0] == replace(RESULT, seed=2)


def test_nothing_but_the_ledger_is_left_behind(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        ledger.append("note", number=1)
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.jsonl"]


def test_a_process_forked_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.jsonl")
    double = os.dup(ledger._file.fileno())
    ledger.close()
    Ledger.open(tmp_path / "ledger.jsonl").close()
    os.close(double)


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.jsonl")
    with Path("/dev/full").open("wb", buffering=0) as full:
        os.dup2(full.fileno(), ledger._file.fileno())
    with pytest.raises(LedgerError, match=r"ledger\.jsonl cannot be written \(No space left on device\)"):
        ledger.append("note", number=1)
    with contextlib.suppress(LedgerError):
        ledger.close()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"ledger\.jsonl cannot be written"):
        Ledger.open(tmp_path / "file" / "ledger.jsonl")
