"""What a report takes from ledgers beside their results: curves, archives, proposals, wrong results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from r3bench.ledger import KernelResult, Ledger, encode
from r3bench.report import document, gather
from tests.unit.test_report import IMPROVED


def outcome(ns: float | None, unit: int = 0, picture: tuple[str, ...] = ()) -> dict[str, Any]:
    """An outcome as a ledger holds it."""
    differences = [{"buffer": "state", "count": 1, "elements": 4, "first": [0], "worst": [0], "picture": list(picture)}]
    verdict = {"status": "match" if ns else "mismatch", "detail": "", "differences": differences if picture else []}
    return {"unit": unit, "verdict": verdict, "measurement": {"samples_ns": [ns + 5, ns]} if ns else None}


def written(folder: Path, name: str, result: KernelResult, records: list[tuple[str, dict[str, Any]]]) -> Path:
    path = folder / name
    with Ledger.open(path) as ledger:
        ledger.append("run", format=1, settings={"trials": 3})
        for kind, record in records:
            ledger.append(kind, kernel=result.kernel, **record)
        ledger.append("result", kernel=result.kernel, result=encode(result))
    return path


def evaluations(*times: float | None) -> list[tuple[str, dict[str, Any]]]:
    return [("outcome", {"key": str(n), "outcome": outcome(ns), "source": f"p{n}"}) for n, ns in enumerate(times)]


def program(id: str, cell: list[int], speedup: float, island: int = 0) -> tuple[str, dict[str, Any]]:
    fields = {"id": id, "cell": cell, "speedup": speedup, "island": island, "origin": "rules", "status": "matched"}
    return "program", {"step": 1, "program": fields}


def test_a_curve_has_every_improvement_and_the_end(tmp_path: Path) -> None:
    path = written(tmp_path, "k.jsonl", IMPROVED, evaluations(100.0, None, 120.0, 80.0, 90.0))
    _, run = gather([path])
    curve = run.of("demo/k")["convergence"]["full"]
    assert [(point[0], point[2], point[3]) for point in curve] == [(1, 100.0, "p0"), (4, 80.0, "p3"), (5, 80.0, "p4")]
    assert run.settings == {"trials": 3}


def test_other_launches_and_failures_are_no_part_of_a_curve(tmp_path: Path) -> None:
    held_out = ("outcome", {"key": "x", "outcome": outcome(1.0, unit=1), "source": "p0"})
    _, run = gather([written(tmp_path, "k.jsonl", IMPROVED, [*evaluations(None, 50.0), held_out])])
    assert [point[2] for point in run.of("demo/k")["convergence"]["full"]] == [50.0, 50.0]
    _, nothing = gather([written(tmp_path, "n.jsonl", IMPROVED, evaluations(None, None))])
    assert "convergence" not in nothing.of("demo/k")


def test_a_long_curve_is_thinned_and_keeps_its_end(tmp_path: Path) -> None:
    path = written(tmp_path, "k.jsonl", IMPROVED, evaluations(*(1000.0 - n for n in range(300))))
    _, run = gather([path])
    curve = run.of("demo/k")["convergence"]["full"]
    assert len(curve) == 100
    assert curve[-1][:1] + curve[-1][2:3] == [300, 701.0]


def test_another_kind_of_search_adds_its_curve_and_no_result(tmp_path: Path) -> None:
    full = written(tmp_path, "k.jsonl", IMPROVED, evaluations(100.0, 60.0))
    bo = written(
        tmp_path, "k.bo.jsonl", replace(IMPROVED, search="bo", status="not improved"), evaluations(100.0, 70.0)
    )
    found, run = gather([bo, full])
    assert [kernel.status for kernel in found["demo"]] == ["improved"]
    assert {name: curve[-1][2] for name, curve in run.of("demo/k")["convergence"].items()} == {"full": 60.0, "bo": 70.0}


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
    placeless = ("program", {"step": 1, "program": {"id": "p1", "cell": None, "speedup": None, "status": "failed"}})
    _, bare = gather([written(tmp_path, "b.jsonl", IMPROVED, [axes, placeless])])
    assert "archive" not in bare.of("demo/k")


def test_proposals_are_added_up_by_model(tmp_path: Path) -> None:
    answer = {"model": "m", "tokens": 100, "cached_tokens": 60, "answer_tokens": 10, "cost": 0.5, "seconds": 2.0}
    trouble = {"model": "m", "trouble": {"reason": "rate limit", "text": "", "fatal": False}}
    replies = [
        ("reply", answer),
        ("reply", {**answer, "cost": None}),
        ("reply", trouble),
        ("reply", {"origin": "rules:hoist"}),
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
