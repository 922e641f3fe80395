"""What a report takes from ledgers beside their results: curves, archives, proposals, wrong results."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r3bench import report
from r3bench.errors import LedgerError
from r3bench.evolve.propose import Reply
from r3bench.ledger import Arm, KernelResult, Ledger, Promotion, read
from r3bench.model import Difference, Level, Measurement, Outcome, Status, Target, Verdict
from r3bench.nouns import decode, encode
from r3bench.plugin.searches import outdone
from r3bench.report import document, gather, load, table
from r3bench.report.files import RENDERINGS
from tests.unit.demo import GUARD, IMPROVED, contest
from tests.unit.grounds import keep


def outcome(ns: float | None, unit: int = 0, picture: tuple[str, ...] = ()) -> dict[str, Any]:
    """An outcome as a ledger holds it."""
    status = Status.MATCH if ns else Status.MISMATCH
    where = Difference(
        buffer="state", count=1, elements=4, first=(0,), first_expected="1", first_actual="2", worst=(0,),
        worst_expected="1", worst_actual="2", error=1.0, limit=0.0, picture=picture,
    )  # fmt: skip
    wrong = (where,) if picture else ()
    measured = Measurement(samples_ns=(ns + 5, ns), binary="b") if ns else None
    target = Target(device="cpu", arch="fake")
    found = Outcome(
        capture="demo/k", unit=unit, variant="v", target=target, verdict=Verdict(status=status, differences=wrong),
        measurement=measured, binary="b" if ns else None,
    )  # fmt: skip
    return dict(encode(found))


def written(
    folder: Path, name: str, result: KernelResult, records: list[tuple[str, dict[str, Any]]], **settings: Any
) -> Path:
    path = folder / name
    with Ledger.open(path) as ledger:
        ledger.append("run", format=1, settings={"trials": 3, **settings}, options={"gate": "5"})
        for kind, record in records:
            ledger.append(kind, kernel=result.kernel, **record)
        keep(ledger, result)
    return path


def evaluations(*times: float | None) -> list[tuple[str, dict[str, Any]]]:
    return [("outcome", {"key": str(n), "outcome": outcome(ns), "source": f"p{n}"}) for n, ns in enumerate(times)]


def program(id: str, cell: list[int], speedup: float, island: int = 0) -> tuple[str, dict[str, Any]]:
    fields = {"id": id, "cell": cell, "speedup": speedup, "island": island, "origin": "rules", "status": "matched"}
    return "program", {"step": int(id[1:]), "program": fields}


def test_a_curve_has_every_improvement_and_the_end(tmp_path: Path) -> None:
    path = written(tmp_path, "k.jsonl", IMPROVED, evaluations(100.0, None, 120.0, 80.0, 90.0))
    _, run = gather([path])
    curve = run.of("demo/k")["convergence"]["full"]
    assert [(point[0], point[2], point[3]) for point in curve] == [(1, 100.0, "p0"), (4, 80.0, "p3"), (5, 80.0, "p4")]
    assert [began["settings"] for began in run.began["demo/k", "full"]] == [{"trials": 3}]


def test_other_launches_and_failures_are_no_part_of_a_curve(tmp_path: Path) -> None:
    held_out = ("outcome", {"key": "x", "outcome": outcome(1.0, unit=1), "source": "p0"})
    _, run = gather([written(tmp_path, "k.jsonl", IMPROVED, [*evaluations(None, 50.0), held_out])])
    assert [point[2] for point in run.of("demo/k")["convergence"]["full"]] == [50.0, 50.0]
    _, nothing = gather([written(tmp_path, "n.jsonl", IMPROVED, evaluations(None, None))])
    assert "convergence" not in nothing.of("demo/k")


def test_what_was_timed_again_is_no_part_of_a_curve(tmp_path: Path) -> None:
    again = ("outcome", {"key": "x", "outcome": outcome(1.0), "source": "p0", "again": 1})
    _, run = gather([written(tmp_path, "k.jsonl", IMPROVED, [*evaluations(70.0, 50.0), again])])
    assert [point[:1] + point[2:3] for point in run.of("demo/k")["convergence"]["full"]] == [[1, 70.0], [2, 50.0]]


def test_a_text_that_proved_wrong_is_not_the_best_of_a_curve(tmp_path: Path) -> None:
    wrong = Verdict(status=Status.MISMATCH, detail="out differs", level=Level.PERTURBED)
    refused = Promotion(rule="p1", promoted=False, reason="wrong", held_out=2, units=2, levels=(wrong,))
    made_of_it = ("outcome", {"key": "x", "outcome": outcome(1.0), "source": "p1+p3"})
    result = replace(IMPROVED, status="not improved", after=None, configuration=None, arms=(), promotions=(refused,))
    _, run = gather([written(tmp_path, "k.jsonl", result, [*evaluations(70.0, 40.0, 50.0), made_of_it])])
    assert run.damage == []
    assert [point[2] for point in run.of("demo/k")["convergence"]["full"]] == [70.0, 50.0, 50.0]


def test_a_long_curve_is_thinned_and_keeps_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, "k.jsonl", IMPROVED, evaluations(*(1000.0 - n for n in range(300))))
    _, run = gather([path])
    curve = run.of("demo/k")["convergence"]["full"]
    assert len(curve) == 100
    assert curve[-1][:1] + curve[-1][2:3] == [300, 701.0]


def test_another_kind_of_search_that_claims_less_adds_its_curve_and_no_result(tmp_path: Path) -> None:
    full = written(tmp_path, "k.jsonl", IMPROVED, evaluations(100.0, 60.0))
    bo = written(
        tmp_path,
        "k.bo.jsonl",
        replace(IMPROVED, search="bo", status="not improved", promotions=()),
        evaluations(100.0, 70.0),
    )
    found, run = gather([bo, full])
    assert [kernel.status for kernel in found["demo"]] == ["improved"]
    assert set(run.of("demo/k")["searches"]) == {"full", "bo"}
    assert {name: curve[-1][2] for name, curve in run.of("demo/k")["convergence"].items()} == {"full": 60.0, "bo": 70.0}


def test_the_largest_claim_of_any_search_of_the_same_text_is_the_result_and_has_its_files(tmp_path: Path) -> None:
    ledgers = tmp_path / "demo" / "ledger"
    none = replace(IMPROVED, status="not improved", promotions=(), after=None, configuration=None, arms=())
    bo = replace(IMPROVED, search="bo", after=None, arms=(Arm(name="configuration", comparison=contest(2.0)),))
    written(ledgers, "k.jsonl", none, evaluations(100.0, 90.0))
    written(ledgers, "k.bo.jsonl", bo, evaluations(100.0, 50.0), search="bo")
    other = replace(none, kernel="demo/other", capture="captures/demo/other.zarr")
    written(ledgers, "other.jsonl", other, evaluations(100.0))
    report.write(ledgers.glob("*.jsonl"), tmp_path)
    made = json.loads((tmp_path / "demo" / "report.json").read_text())
    assert [(k["kernel"], k["search"], k["status"]) for k in made["kernels"]] == [
        ("demo/k", "bo", "improved"),
        ("demo/other", "full", "not improved"),
    ]
    assert (tmp_path / "demo" / "k.json").exists()
    assert not (tmp_path / "demo" / "k.patch").exists()
    first, second = made["reproduce"].split(" && ")
    assert "captures/demo/k.zarr --r3-device cpu --r3-seed 1 --r3-search bo" in first
    assert "pytest --r3-evolve captures/demo --r3-device cpu --r3-seed 1 --r3-trials" in second, "both kernels, in full"
    assert list(outdone([bo], [IMPROVED])) == ["demo/k: the report keeps what the search full found: improved, 1.75x"]
    assert list(outdone([bo], [none])) == ["demo/k: the report keeps what the search full found: no gain"]
    assert not list(outdone([bo], [bo]))
    mangled = [replace(each, kernel="demo/_Z1kPf") for each in (bo, none)]
    assert list(outdone(mangled[:1], mangled[1:])) == ["demo/k: the report keeps what the search full found: no gain"]


def test_a_clock_that_is_set_back_makes_no_curve_run_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, "k.jsonl", IMPROVED, evaluations(100.0))
    an_hour_ago = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: an_hour_ago)
    with Ledger.open(path, resume=True) as ledger:
        for key, ns in (("a", 90.0), ("b", 80.0)):
            ledger.append("outcome", kernel="demo/k", key=key, outcome=outcome(ns), source=key)
        keep(ledger, replace(IMPROVED, seconds=4.0))
    found, run = gather([path])
    curve = run.of("demo/k")["convergence"]["full"]
    assert [point[1] for point in curve] == [0.0, 0.0, 0.0]
    report.checked(report.document("demo", found["demo"], run), tmp_path)


def test_records_are_in_order_whatever_the_clock_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(tmp_path / "k.jsonl") as ledger:
        first = ledger.append("migration", kernel="demo/k", step=0)
        monkeypatch.setattr(time, "time", lambda: 0.0)
        assert ledger.append("migration", kernel="demo/k", step=1)["time"] >= first["time"]


def test_what_a_merged_report_says_of_a_search_is_said_of_that_one(tmp_path: Path) -> None:
    machine = replace(IMPROVED, conditions=(("cores", "2"), ("load", "0.4")))
    one = replace(machine, kernel="demo/one", capture="captures/demo/one.zarr")
    two = replace(machine, kernel="demo/two", capture="captures/demo/two.zarr")
    later = replace(machine, conditions=(("cores", "2"), ("load", "7.9")))
    paths = [written(tmp_path, f"{r.kernel[5:]}.jsonl", r, [], limits={"seconds": 20.0}, kernels=2) for r in (one, two)]
    paths.append(written(tmp_path, "k.jsonl", later, [], limits={"seconds": 10.0}, kernels=1))
    with Ledger.open(paths[-1], resume=True) as ledger:
        settings = {"trials": 3, "limits": {"seconds": 4.0}, "kernels": 1, "seed": 8}
        ledger.append("run", format=1, settings=settings, options={})
        keep(ledger, later)
    found, run = gather(paths)
    document = report.document("demo", found["demo"], run)
    rest = "--r3-trials 3 --r3-seconds"
    assert document["reproduce"].split(" && ") == [
        f"pytest --r3-evolve captures/demo/k.zarr --r3-device cpu --r3-seed 1 {rest} 10 --r3-gate 5",
        f"pytest --r3-evolve captures/demo/k.zarr --r3-device cpu --r3-seed 8 {rest} 4 --r3-resume",
        "pytest --r3-evolve captures/demo/one.zarr captures/demo/two.zarr "
        f"--r3-device cpu --r3-seed 1 {rest} 10 --r3-gate 5",
    ]
    assert document["conditions"] == {"cores": "2", "load": "0.4 to 7.9"}
    for text in (report.markdown(document), report.html(document)):
        assert "2 cores, load 0.4 to 7.9" in text
        assert text.count("While it was searched: load 0.4.") == 2
        assert text.count("While it was searched: load 7.9.") == 1
    alike = report.document("demo", [one, two], run)
    assert "While it was searched" not in report.markdown(alike)


def test_a_claim_of_an_earlier_text_is_no_result_of_the_text_searched_last(tmp_path: Path) -> None:
    bo = written(tmp_path, "k.bo.jsonl", replace(IMPROVED, search="bo"), evaluations(100.0, 50.0))
    patched = replace(IMPROVED, before=IMPROVED.after or "", status="not improved", promotions=(), after=None, arms=())
    full = written(tmp_path, "k.jsonl", patched, evaluations(60.0))
    (result,) = gather([bo, full])[0]["demo"]
    assert (result.search, result.status) == ("full", "not improved")


@pytest.mark.parametrize(("header", "standing"), [("int n = 1;\n", "bo"), ("int n = 2;\n", "full")])
def test_nor_is_one_of_an_earlier_text_of_a_further_file(tmp_path: Path, header: str, standing: str) -> None:
    def began(text: str) -> tuple[str, dict[str, Any]]:
        kind, fields = program("p0", [0], 1.0)
        return kind, {**fields, "program": {**fields["program"], "files": [["k.cu", IMPROVED.before], ["n.cuh", text]]}}

    bo = replace(IMPROVED, search="bo")
    first = written(tmp_path, "k.bo.jsonl", bo, [began("int n = 1;\n"), *evaluations(100.0, 50.0)])
    later = replace(IMPROVED, status="not improved", promotions=(), after=None, arms=())
    second = written(tmp_path, "k.jsonl", later, [began(header), *evaluations(60.0)])
    (result,) = gather([first, second])[0]["demo"]
    assert result.search == standing


def test_a_search_that_tried_nothing_takes_no_result_away(tmp_path: Path) -> None:
    kind, fields = program("p0", [0], 1.0)
    tried = kind, {**fields, "program": {**fields["program"], "files": [["k.cu", IMPROVED.before]]}}
    full = written(tmp_path, "k.jsonl", IMPROVED, [tried, *evaluations(100.0, 50.0)])
    none = replace(IMPROVED, search="bo", status="not improved", promotions=(), after=None, configuration=None, arms=())
    (result,) = gather([full, written(tmp_path, "k.bo.jsonl", none, [])])[0]["demo"]
    assert (result.search, result.status) == ("full", "improved")


def test_a_search_that_was_interrupted_before_it_began_takes_no_result_away(tmp_path: Path) -> None:
    full = written(tmp_path, "k.jsonl", IMPROVED, evaluations(100.0, 50.0))
    stopped = replace(IMPROVED, search="bo", status="interrupted", before="", after=None, arms=())
    bo = written(tmp_path, "k.bo.jsonl", stopped, [])
    assert gather([full, bo])[0]["demo"] == [IMPROVED]


def test_the_archive_is_the_best_of_every_cell(tmp_path: Path) -> None:
    axes = ("archive", {"axes": ["instructions"], "words": ["instructions of the IR"], "edges": [[16.0, 32.0]]})
    programs = [
        program("p1", [0], 1.1),
        program("p2", [0], 1.4),
        program("p3", [0], 1.2),
        program("p4", [0], 1.3, island=1),
    ]
    _, run = gather([written(tmp_path, "k.jsonl", IMPROVED, [axes, *programs])])
    archive = run.of("demo/k")["archive"]
    assert [(cell["id"], cell["island"]) for cell in archive["cells"]] == [("p2", 0), ("p4", 1)]
    assert archive["axes"] == ["instructions of the IR"]
    assert archive["fates"] == {"matched": 4}
    placeless = (
        "program",
        {"step": 1, "program": {**program("p1", [0], 1.0)[1]["program"], "cell": None, "speedup": None}},
    )
    _, bare = gather([written(tmp_path, "b.jsonl", IMPROVED, [axes, placeless])])
    assert "archive" not in bare.of("demo/k")


def test_proposals_are_added_up_by_model(tmp_path: Path) -> None:
    answer = {"model": "m", "tokens": 100, "cached_tokens": 60, "answer_tokens": 10, "cost": 0.5, "seconds": 2.0}
    asked = {"step": 1, "turn": 0, "text": "", "origin": "model"}
    trouble = {"model": "m", "trouble": {"reason": "rate limit", "text": "", "fatal": False}}
    replies = [
        ("reply", asked | answer),
        ("reply", asked | answer | {"cost": None}),
        ("reply", asked | trouble),
        ("reply", asked | {"origin": "rules:hoist"}),
    ]
    _, run = gather([written(tmp_path, "k.jsonl", IMPROVED, replies)])
    model, rules = run.of("demo/k")["replies"]
    assert (model["calls"], model["failed"], model["tokens"], model["cached_tokens"], model["cost"]) == (
        3,
        1,
        200,
        120,
        0.5,
    )
    assert (rules["model"], rules["calls"]) == ("rules:hoist", 1)


def test_a_wrong_result_of_every_source_is_pictured_once(tmp_path: Path) -> None:
    wrong = ("outcome", {"key": "w", "outcome": outcome(None, picture=("9.", "..")), "source": "p7"})
    _, run = gather([written(tmp_path, "k.jsonl", IMPROVED, [wrong, wrong])])
    (picture,) = run.of("demo/k")["pictures"]
    assert (picture["source"], picture["picture"]) == ("p7", ["9.", ".."])


def test_everything_stands_in_the_document(tmp_path: Path) -> None:
    found, run = gather([written(tmp_path, "k.jsonl", IMPROVED, evaluations(100.0, 60.0))])
    (entry,) = document("demo", found["demo"], run)["kernels"]
    assert entry["convergence"]["full"][-1][2] == 60.0
    assert "archive" not in entry


STRANGE: tuple[Any, ...] = (None, True, 10**400, 1e999, "nan", [[1]], {"x": 1})


def damaged(value: Any) -> Iterator[Any]:
    """A value with one part of it, itself included, replaced by something strange, or left out."""
    yield from (strange for strange in STRANGE if type(strange) is not type(value))
    if isinstance(value, dict):
        for key, part in value.items():
            yield {other: held for other, held in value.items() if other != key}
            yield from ({**value, key: found} for found in damaged(part))
    elif isinstance(value, list) and value:
        yield from ([found, *value[1:]] for found in damaged(value[0]))


def shape(value: Any) -> str:
    """What a value is made of: two lines of one shape are damaged alike."""
    if isinstance(value, dict):
        return str({key: value[key] if key == "kind" else shape(value[key]) for key in value})
    return f"[{shape(value[0])}]" if isinstance(value, list) and value else type(value).__name__


def test_a_damaged_line_is_left_out_or_read_through(tmp_path: Path) -> None:
    asked = {"step": 1, "turn": 0, "text": "", "origin": "model", "tokens": 1, "cost": 0.5, "seconds": 1.0}
    axes = ("archive", {"axes": ["instructions"], "words": ["instructions of the IR"], "edges": [[16.0, 32.0]]})
    refused = {"step": 2, "turn": 0, "trouble": {"reason": "rate limit", "text": "", "fatal": False}}
    wrong = ("outcome", {"key": "w", "outcome": outcome(None, picture=("9.", "..")), "source": "p7"})
    records = [axes, program("p1", [0], 1.1), ("reply", asked), ("reply", refused), wrong, *evaluations(2.0)]
    small = replace(IMPROVED, evaluations=1, failures=(), sources=(), arms=IMPROVED.arms[1:])
    whole = written(tmp_path, "k.jsonl", small, records).read_text().splitlines()
    assert not read(tmp_path / "k.jsonl")[1]
    path, count = tmp_path / "d.jsonl", 0
    shapes = {shape(json.loads(line)): number for number, line in enumerate(whole)}
    for number in shapes.values():
        for found in damaged(json.loads(whole[number])):
            path.write_text("\n".join([*whole[:number], json.dumps(found), *whole[number + 1 :]]) + "\n")
            with Ledger.open(path) as ledger:
                for reply in ledger.records("reply"):
                    assert "trouble" in reply or decode(Reply, reply)
            kernels, run = gather([path])
            assert all(document(name, held, run) for name, held in kernels.items())
            count += len(run.damage)
    assert count > 500


def test_a_line_nested_too_deeply_is_damaged(tmp_path: Path) -> None:
    path = written(tmp_path, "k.jsonl", IMPROVED, [])
    path.write_text("[" * 100_000 + "\n" + path.read_text())
    found, run = gather([path])
    assert (len(found["demo"]), len(run.damage)) == (1, 1)


def test_what_is_read_of_a_damaged_report_is_drawn(tmp_path: Path) -> None:
    axes = ("archive", {"axes": ["instructions"], "words": ["instructions of the IR"], "edges": [[16.0, 32.0]]})
    found, run = gather([written(tmp_path, "k.jsonl", IMPROVED, [axes, program("p1", [0], 1.1), *evaluations(2.0)])])
    path, refused = tmp_path / "report.json", 0
    for whole in (document("demo", found["demo"], run), GUARD):
        for other in damaged(json.loads(json.dumps(whole))):
            path.write_text(json.dumps(other))
            try:
                read = load(path)
            except LedgerError:
                refused += 1
                continue
            assert all(render(read) for render in (*RENDERINGS.values(), table))
    assert refused > 500
