"""Where evaluations go: the whole search is not far behind one that does only what pays on a landscape."""

from __future__ import annotations

from statistics import median

import pytest

from r3bench.evolve.returns import Returns
from tests.benchmarks.search_simulated import LANDSCAPES, contests


@pytest.mark.parametrize(
    ("landscape", "evaluations", "least_bo", "least_llm"),
    [("configurations", 40, 0.9, 1.2), ("texts", 80, 1.2, 0.85), ("both, in pairs", 60, 1.2, 1.2)],
)
def test_full_is_not_far_behind_what_does_only_what_pays(
    landscape: str, evaluations: int, least_bo: float, least_llm: float
) -> None:
    found = [contests(evaluations, LANDSCAPES[landscape], seed) for seed in range(3)]
    bo, llm = (median(column) for column in zip(*found, strict=True))
    assert (bo > least_bo, llm > least_llm) == (True, True), found


def spent(gains: dict[str, float], evaluations: int = 200) -> dict[str, int]:
    """What goes to either kind where an evaluation of each gains so much, as a share of the time."""
    returns, ns, used = Returns(), dict.fromkeys(gains, 1.0), dict.fromkeys(gains, 0)
    for _ in range(evaluations):
        kind = returns.next
        ns[kind] *= 1 - gains[kind]
        used[kind] += 1
        returns.add(kind, 1, ns[kind])
    return used


def test_what_gains_gets_four_fifths() -> None:
    assert spent({"texts": 0.02, "trials": 0.0})["texts"] == pytest.approx(160, abs=8)
    assert spent({"texts": 0.0, "trials": 0.02})["trials"] == pytest.approx(160, abs=8)


def test_better_texts_count_though_one_that_was_tuned_is_faster() -> None:
    returns, ns = Returns(), 100.0
    returns.add("texts", 1, ns)
    returns.add("trials", 20, 40.0)
    for _ in range(5):
        returns.add("texts", 1, ns := ns * 0.9)
        returns.add("trials", 5, 41.0)
    assert returns.next == "texts"


def test_what_has_stopped_to_gain_is_left() -> None:
    returns, ns = Returns(), 1.0
    for _ in range(40):
        returns.add("texts", 1, ns := ns * 0.98)
        returns.add("trials", 1, 2.0)
    assert returns.next == "texts"
    for _ in range(60):
        returns.add("texts", 1, 2.0)
        returns.add("trials", 1, ns := ns * 0.99)
    assert returns.next == "trials"
