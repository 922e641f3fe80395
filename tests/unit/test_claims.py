"""What a ledger or a report claims follows from what stands beside it, or is not believed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r3bench import report
from r3bench.cli.report import documents
from r3bench.errors import LedgerError
from r3bench.ledger import Arm, FileChange, KernelResult, Ledger, Share, Spent, named, read
from r3bench.model import Configuration, Level, Status, Variant, Verdict
from r3bench.nouns import decode, encode
from r3bench.stats import Comparison, Decision, confirmed, contradiction, identical, refused
from tests.search.fake_server import comparison
from tests.unit.demo import AFTER, GUARD, IMPROVED, PLAIN, contest
from tests.unit.grounds import keep
from tests.unit.test_ledger import MATCHED, RESULT

CLAIM = comparison(1.5)
PASSED = Verdict(status=Status.MATCH)
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


def forged(path: Path, honest: KernelResult, forgery: Any) -> str:
    """What is said of a result that follows an honest one in a ledger; empty where it is believed."""
    with Ledger.open(path, resume=False) as ledger:
        keep(ledger, honest)
    assert read(path)[1] == []
    records, damage = read(lines(path, ("result", {"result": forgery})))
    assert len([record for record in records if record["kind"] == "result"]) == 2 - len(damage)
    return damage[0] if damage else ""


@pytest.mark.parametrize("says", LIES)
def test_a_result_that_claims_without_reason_is_left_out(tmp_path: Path, says: str) -> None:
    wrong = forged(tmp_path / "k.jsonl", RESULT, LIES[says](encode(RESULT)))
    assert " of k.jsonl: " in wrong
    assert says in wrong


FULL = replace(
    IMPROVED, split=(Share(name="source", factor=1.25), Share(name="launch", factor=1.0)), steps=1, evaluations=9,
    also_checked=("halo",), spent=Spent(prompt_tokens=90, answer_tokens=9, dollars=0.5),
)  # fmt: skip
FORGERIES: dict[str, tuple[str, dict[str, Any]]] = {
    "baseline": ("its baseline's time is not that of its contest", {"baseline_ns": 99999.0}),
    "split": ("do not come to what is claimed", {"split": (Share(name="source", factor=9.0),)}),
    "parts": ("no two times", {"split": (Share(name="source", factor=1.26),)}),
    "no contest": ("no contest of this ledger", {"arms": (Arm(name="patch", comparison=contest(1.5)),), "split": ()}),
    "another text": ("a contest of another source", {"after": f"{AFTER}// other\n"}),
    "other settings": ("a contest of another source or configuration", {"configuration": '{"launch": null}'}),
    "another arm": ("of another source", {"arms": (replace(FULL.arms[0], name="configuration"), FULL.arms[1])}),
    "another baseline": ("of another source", {"baseline": "working tree, default pipeline"}),
    "evaluations": ("more evaluations", {"evaluations": 10**6}),
    "steps": ("more evaluations or texts", {"steps": 2}),
    "trials": ("more evaluations", {"sources": (replace(IMPROVED.sources[0], trials=10**6),)}),
    "ranking time": ("a time that no evaluation", {"sources": (replace(IMPROVED.sources[0], best_ns=1.0),)}),
    "failures": ("more failures", {"failures": (replace(IMPROVED.failures[0], count=10**6),)}),
    "tokens": ("more asked of models", {"spent": replace(FULL.spent, prompt_tokens=10**6)}),
    "dollars": ("more asked of models", {"spent": replace(FULL.spent, dollars=10.0)}),
    "held-out launches": (
        "checks that are not in this ledger",
        {"promotions": (replace(IMPROVED.promotions[0], held_out=3, units=3),)},
    ),
    "levels": (
        "checks that are not in this ledger",
        {"promotions": (replace(IMPROVED.promotions[0], levels=(replace(PASSED, level=Level.SANITIZED),)),)},
    ),
    "neighbours": ("update is said to match", {"also_checked": ("update",)}),
}


@pytest.mark.parametrize("what", FORGERIES)
def test_a_result_says_no_more_than_its_ledger_carries(tmp_path: Path, what: str) -> None:
    says, other = FORGERIES[what]
    wrong = forged(tmp_path / "k.jsonl", FULL, encode(replace(FULL, **other)))
    assert says in wrong


@pytest.mark.parametrize("kind", ["comparison", "outcome", "program", "reply"])
def test_a_result_whose_grounds_are_gone_is_left_out(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "k.jsonl"
    with Ledger.open(path) as ledger:
        keep(ledger, FULL)
    left = [line for line in path.read_text().splitlines(keepends=True) if json.loads(line)["kind"] != kind]
    path.write_text("".join(left))
    assert len(read(path)[1]) == 1
    with pytest.raises(LedgerError, match="hold no result that can be drawn"):
        list(documents(path))


@pytest.mark.parametrize(("code", "believed"), [("tuned", True), ("other", False)])
def test_a_contest_without_hashes_is_known_by_its_machine_code(tmp_path: Path, code: str, believed: bool) -> None:
    binaries = {"baseline_binary": "base", "candidate_binary": code}
    arms = (Arm(name="patch", comparison=replace(RESULT.arms[0].comparison, **binaries)),)
    found = replace(RESULT, source="k.cu", arms=arms)
    patched = Variant(files=(("k.cu", RESULT.after or ""),), configuration=Configuration())
    path = tmp_path / "k.jsonl"
    with Ledger.open(path) as ledger:
        for variant, binary in ((Variant(), "base"), (patched, "tuned")):
            outcome = replace(MATCHED, measurement=None, variant=named(variant), binary=binary)
            ledger.add_outcome(binary, outcome, kernel="demo/k")
        keep(ledger, found)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    plain = [{name: held for name, held in record.items() if name not in ("baseline", "candidate")} for record in kept]
    path.write_text("".join(f"{json.dumps(record)}\n" for record in plain))
    assert (read(path)[1] == []) is believed


def test_a_contest_of_what_is_slower_names_no_change(tmp_path: Path) -> None:
    """The best that was tried may be slower than the baseline: its text is on record, but no part of the result."""
    slower = Arm(name="patch", comparison=confirmed(comparison(0.5), comparison(0.5)))
    tried = replace(PLAIN, kernel="demo/k", baseline_ns=1000.0, arms=(slower,))
    path = tmp_path / "k.jsonl"
    with Ledger.open(path) as ledger:
        keep(ledger, replace(tried, before="a", after="b", source="k.cu"))
        keep(ledger, replace(tried, before="a", source="k.cu"))
    assert read(path)[1] == []


FIRST, SECOND = FileChange(path="a/f.cuh", before="f", after="h"), FileChange(path="a/g.cuh", before="old", after="i")
SEVERAL = replace(RESULT, source="a/k.cu", before="old", after="new", others=(FIRST, SECOND))
FALSE_CHANGES: dict[str, dict[str, Any]] = {
    "a file left out": {"others": (FIRST,)},
    "all further files left out": {"others": ()},
    "another text": {"others": (FIRST, replace(SECOND, after="j"))},
    "another text before": {"others": (FIRST, replace(SECOND, before="f"))},
    "texts exchanged": {"others": (replace(FIRST, after="i"), replace(SECOND, after="h"))},
    "another file": {"others": (FIRST, replace(SECOND, path="a/x.cuh"))},
    "a file that is not there": {"others": (*SEVERAL.others, replace(FIRST, path="a/x.cuh"))},
    "another kernel's file": {"source": "a/g.cuh"},
    "another folder": {"others": (FIRST, replace(SECOND, path="b/g.cuh"))},
    "the change of another file": {"source": "a/f.cuh", "before": "f", "after": "h", "others": (SECOND,)},
}


HEADER_ALONE = replace(SEVERAL, after="old")


def test_a_change_of_a_further_file_alone_is_no_unchanged_text(tmp_path: Path) -> None:
    """Nor a configuration's gain: the kernel's own file is that of another program."""
    wrong = forged(tmp_path / "k.jsonl", HEADER_ALONE, encode(replace(HEADER_ALONE, others=())))
    assert "a contest of another source" in wrong
    alone = replace(HEADER_ALONE, arms=(replace(SEVERAL.arms[0], name="patch and configuration"),), configuration="{}")
    without = replace(alone, after=None, others=(), arms=(replace(SEVERAL.arms[0], name="configuration"),))
    assert "a contest of another source" in forged(tmp_path / "c.jsonl", alone, encode(without))


@pytest.mark.parametrize("what", FALSE_CHANGES)
def test_a_change_of_several_files_is_the_one_that_was_contested(tmp_path: Path, what: str) -> None:
    wrong = forged(tmp_path / "k.jsonl", SEVERAL, encode(replace(SEVERAL, **FALSE_CHANGES[what])))
    assert "a contest of another source" in wrong


def test_a_contest_that_claims_nothing_has_to_be_on_record_only(tmp_path: Path) -> None:
    tried = replace(PLAIN, kernel="demo/k", baseline_ns=1000.0, arms=(Arm(name="patch", comparison=comparison(1.01)),))
    assert forged(tmp_path / "k.jsonl", tried, encode(replace(tried, seed=7))) == ""


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
    for other_contest in (None, encode(comparison(1.0))):
        finding["comparison"] = other_contest
        path.write_text(json.dumps(whole))
        with pytest.raises(LedgerError, match="demo/k is slower, but no contest says so"):
            report.load(path)
