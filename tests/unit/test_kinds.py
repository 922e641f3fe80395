"""Kinds of search side by side, and where evaluations spent their time."""

from __future__ import annotations

from dataclasses import replace

from report_case import large

from r3bench.ledger import Share
from r3bench.report import kinds, markdown
from r3bench.report.documents import result_of
from r3bench.report.words import course


def entry(**searches: tuple[int, float]) -> dict[str, object]:
    """A kernel of which each search made so many evaluations, the best time halved after the first ten."""
    return {
        "kernel": "app/k",
        "searches": {name: {"evaluations": count, "claimed": 2.0, "gain_from": "passes 2.00x", "building_s": 3.0,
                            "device_s": 1.0} for name, (count, _) in searches.items()},
        "convergence": {name: [[1, 0.1, 2 * best, "p0"], [10, 1.0, best, "p1"], [count, 9.0, best / 2, "p2"]]
                        for name, (count, best) in searches.items()},
    }  # fmt: skip


def test_searches_are_compared_after_as_many_evaluations_as_the_shortest_made_and_at_their_ends() -> None:
    rows = list(kinds.rows([entry(llm=(20, 400.0), full=(60, 300.0), bo=(30, 350.0))]))
    assert [row[:5] for row in rows] == [
        ("k", "full", "60", "300 ns after 20", "150 ns"),
        ("k", "bo", "30", "350 ns after 20", "175 ns"),
        ("k", "llm", "20", "200 ns after 20", "200 ns"),
    ]
    assert rows[0][5:] == ("2.00x", "passes 2.00x", "3.0 s", "1.0 s")


def test_one_kind_of_search_has_nothing_to_stand_beside() -> None:
    assert not list(kinds.rows([entry(full=(60, 300.0)), {"kernel": "app/old"}]))


def test_a_search_in_which_nothing_matched_has_no_times() -> None:
    one = entry(full=(60, 300.0), bo=(30, 350.0))
    del one["convergence"]["bo"]  # type: ignore[attr-defined]
    assert list(kinds.rows([one]))[1][:5] == ("k", "bo", "30", "-", "-")


def test_markdown_has_the_table_with_its_legend() -> None:
    text = markdown(large(kernels=2))
    assert "Kinds of search that were run:" in text
    assert "| kernel\\_0 | bo | 3000 |" in text
    assert "*kinds of search*: *full*: texts from the archive" in text


def test_stages_are_told_by_what_they_kept_busy_and_parts_of_the_gain_by_name() -> None:
    result = replace(
        result_of(large(kernels=1)["kernels"][0]),
        stages=(
            ("device: ping", 0.2),
            ("emit", 2.0),
            ("frontend", 1.0),
            ("load", 0.5),
            ("queue build", 4.0),
            ("time", 1.0),
        ),
        split=(Share(name="source", factor=1.5), Share(name="passes", factor=None)),
    )
    told = " ".join(course(result))
    assert (
        "building 3.0 s (emit 2.0, frontend 1.0); device 1.5 s (load 0.5, time 1.0); waiting 4.0 s (build 4.0)" in told
    )
    assert "the gain comes from: source 1.50x." in told
