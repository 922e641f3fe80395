"""What a ledger or a report claims follows from what stands beside it, or is not believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r3bench import report
from r3bench.errors import LedgerError
from r3bench.ledger import Ledger, read
from r3bench.model import Status, Verdict
from r3bench.nouns import decode, encode
from r3bench.stats import Comparison, Decision, confirmed, contradiction, identical, refused
from tests.search.fake_server import comparison
from tests.unit.test_ledger import MATCHED, RESULT
from tests.unit.test_report import GUARD, IMPROVED

CLAIM = comparison(1.5)
WRONG = Verdict(status=Status.MISMATCH, detail="a[0] is 2.0 instead of 1.0.")
# What no sample tells: the gate that was asked for, which arm went first, and what was said beside it.
FREE = ("gate", "orders", "conditions", "baseline_binary", "candidate_binary", "verdict", "refused")


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    return value * 1.5 + 1 if isinstance(value, float) else value + 1


def changed(data: Any) -> Iterator[tuple[str, Any]]:
    """A comparison's data with one of its numbers changed, or another decision."""
    for name, value in data.items():
        if name in FREE or value in (None, "inf", []):
            continue
        if name == "decision":
            yield from ((name, {**data, name: each.value}) for each in Decision if each.value != value)
        elif isinstance(value, dict):
            yield from ((f"{name}.{inner}", {**data, name: found}) for inner, found in changed(value))
        elif isinstance(value, list):
            nested = isinstance(value[0], list)
            yield name, {**data, name: [[other(value[0][0])] if nested else other(value[0]), *value[1:]]}
            yield name, {**data, name: value[1:]}
        else:
            yield name, {**data, name: other(value)}


@pytest.mark.parametrize(
    "sound",
    [
        CLAIM,
        comparison(1.0),
        confirmed(CLAIM, comparison(1.0)),
        confirmed(CLAIM, CLAIM, comparison(1.02)),
        confirmed(CLAIM, CLAIM, comparison(0.6)),
        identical(0.05, "b"),
        refused(0.05, "candidate", WRONG),
    ],
    ids=lambda found: found.decision.value,
)
def test_no_number_of_a_contest_can_be_changed_unnoticed(sound: Comparison) -> None:
    read_back = decode(Comparison, json.loads(json.dumps(encode(sound))))
    assert contradiction(read_back) == ""
    unnoticed = [name for name, data in changed(encode(sound)) if not contradiction(decode(Comparison, data))]
    assert unnoticed == []


def test_the_first_contest_of_a_claim_that_failed_later_is_checked_too() -> None:
    failed = confirmed(CLAIM, refused(0.05, "candidate", WRONG))
    assert contradiction(failed) == ""
    assert contradiction(replace(failed, repeat=replace(CLAIM, speedup=9.0))).startswith("its repetition: its speedup")


LIES = {
    "a claim that was not repeated": lambda r: {
        **r,
        "arms": [{**r["arms"][0], "comparison": {**r["arms"][0]["comparison"], "repeat": None}}],
    },
    "without having passed": lambda r: {**r, "promotions": [{**r["promotions"][0], "held_out": 0}]},
    "was promoted without": lambda r: {**r, "promotions": [{**r["promotions"][0], "levels": [encode(WRONG)]}]},
    "nothing that is faster was promoted": lambda r: {**r, "promotions": []},
    "it is improved, but": lambda r: {**r, "arms": []},
    "it is not improved, but": lambda r: {**r, "status": "not improved"},
    "less than no time": lambda r: {**r, "seconds": -5.0},
    "its line is of demo/k": lambda r: {**r, "kernel": "demo/other"},
    "is none of full": lambda r: {**r, "search": "everything"},
}


def lines(path: Path, *records: tuple[str, dict[str, Any]]) -> Path:
    with Ledger.open(path) as ledger:
        for kind, record in records:
            ledger.append(kind, kernel="demo/k", **record)
    return path


@pytest.mark.parametrize("says", LIES)
def test_a_result_that_claims_without_reason_is_left_out(tmp_path: Path, says: str) -> None:
    sound = encode(RESULT)
    path = lines(tmp_path / "k.jsonl", ("result", {"result": sound}), ("result", {"result": LIES[says](sound)}))
    records, damage = read(path)
    assert [record["result"] for record in records] == [sound]
    assert len(damage) == 1
    assert damage[0].startswith("line 2 of k.jsonl: ")
    assert says in damage[0]


def test_a_result_rests_on_contests_of_its_own_ledger(tmp_path: Path) -> None:
    contest, result = ("comparison", {"key": "c", "comparison": encode(CLAIM)}), ("result", {"result": encode(RESULT)})
    assert read(lines(tmp_path / "sound.jsonl", contest, result))[1] == []
    foreign = ("comparison", {"key": "c", "comparison": encode(comparison(1.4))})
    (wrong,) = read(lines(tmp_path / "k.jsonl", foreign, result))[1]
    assert wrong == "line 2 of k.jsonl: the result of demo/k: patch: no contest of this ledger"


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("outcome", encode(MATCHED), encode(replace(MATCHED, module="other"))),
        ("comparison", encode(CLAIM), encode(comparison(9.0))),
    ],
)
def test_records_that_stand_twice_or_contradict_each_other_are_named(
    tmp_path: Path, kind: str, first: Any, second: Any
) -> None:
    path = lines(tmp_path / "k.jsonl", (kind, {"key": "x", kind: first}), (kind, {"key": "x", kind: second}))
    text = path.read_text()
    path.write_text(text + text.splitlines()[0] + "\n")
    records, damage = read(path)
    assert [record[kind] for record in records] == [first]
    assert damage == [
        f"line 2 of k.jsonl: it contradicts line 1, the {kind} under the same key",
        "line 3 of k.jsonl: it repeats line 1",
    ]


def told(path: Path) -> str:
    """What is said of a report that is not believed; empty where it is."""
    try:
        report.load(path)
    except LedgerError as error:
        return str(error)
    return ""


def test_no_claim_of_a_report_can_be_changed_unnoticed(tmp_path: Path) -> None:
    whole = json.loads(json.dumps(report.document("demo", [IMPROVED])))
    path = tmp_path / "report.json"
    entry = whole["kernels"][0]
    for name, data in changed(entry["arms"]["patch"]):
        path.write_text(json.dumps({**whole, "kernels": [{**entry, "arms": {**entry["arms"], "patch": data}}]}))
        assert "is damaged" in told(path), name
    path.write_text(json.dumps(whole))
    assert report.load(path) == whole


def test_no_contest_of_a_guard_can_be_changed_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    report.write_document(GUARD, tmp_path)
    whole = json.loads(path.read_text())
    (finding,) = [each for each in whole["guard"]["kernels"] if each["comparison"]]
    finding["comparison"]["speedup"] *= 1.5
    path.write_text(json.dumps(whole))
    with pytest.raises(LedgerError, match="speedup does not follow"):
        report.load(path)
