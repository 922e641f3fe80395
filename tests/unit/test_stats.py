"""The exact statistics against enumeration of every sign pattern, and the decisions that rest on them."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations_with_replacement, product
from math import inf, log, log1p
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r3bench import stats
from r3bench.cli.record import profile
from r3bench.model import Status, Verdict
from r3bench.stats import Budget, Comparison, Decision, Interval, Predicted

LOG = st.floats(-1, 1, allow_nan=False)


def rank_sums(n: int) -> list[int]:
    """The rank sum of the positive values for each of the 2**n sign patterns."""
    return [sum(rank for rank, sign in enumerate(signs, 1) if sign) for signs in product((0, 1), repeat=n)]


# -- the signed-rank distribution -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
def test_counts_are_those_of_enumeration(n: int) -> None:
    sums = rank_sums(n)
    assert stats.signed_rank_counts(n) == tuple(sums.count(total) for total in range(n * (n + 1) // 2 + 1))


@pytest.mark.parametrize("n", [5, 9, 12])
@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.01, 1e-3])
def test_the_rank_is_the_largest_whose_tail_is_allowed(n: int, alpha: float) -> None:
    sums = rank_sums(n)
    rank = stats.outer_rank(n, alpha)

    def tail(k: int) -> float:
        return 2 * sum(total <= k - 1 for total in sums) / len(sums)

    assert rank == 0 or tail(rank) <= alpha
    assert tail(rank + 1) > alpha


def test_known_critical_values() -> None:
    """Tables of the two-sided test: W <= 8 for 10 values at 5 %, 3 at 1 %; 52 for 20 values at 5 %."""
    assert stats.outer_rank(10, 0.05) == 9
    assert stats.outer_rank(10, 0.01) == 4
    assert stats.outer_rank(20, 0.05) == 53


# -- estimate and interval ------------------------------------------------------------------------------------------


@given(st.lists(LOG, min_size=1, max_size=12))
def test_the_estimate_is_the_median_of_all_pairwise_averages(d: list[float]) -> None:
    averages = sorted((a + b) / 2 for a, b in combinations_with_replacement(d, 2))
    assert stats.walsh_averages(d).tolist() == averages
    assert stats.signed_rank_interval(d, 0.05).estimate == pytest.approx(median(averages), abs=1e-15)


def test_the_interval_ends_at_the_outer_walsh_averages() -> None:
    d = [0.01, 0.02, -0.01, 0.03, 0.015, 0.025, 0.005, 0.012, 0.018, 0.022]
    averages = sorted((a + b) / 2 for a, b in combinations_with_replacement(d, 2))
    interval = stats.signed_rank_interval(d, 0.05)
    assert (interval.low, interval.high) == (averages[8], averages[-9])
    assert interval.confidence == 0.95


def test_too_few_blocks_bound_nothing() -> None:
    interval = stats.signed_rank_interval([0.5] * 7, 0.01)
    assert (interval.low, interval.high, interval.smallest_effect) == (-inf, inf, inf)
    assert stats.decide(interval, 0.01) is None


def test_an_interval_needs_a_block() -> None:
    with pytest.raises(ValueError, match="one block"):
        stats.signed_rank_interval([], 0.05)


@given(st.lists(LOG, min_size=8, max_size=20), st.randoms())
def test_the_answer_does_not_depend_on_the_order_of_blocks(d: list[float], chance: random.Random) -> None:
    other = list(d)
    chance.shuffle(other)
    assert stats.signed_rank_interval(d, 0.02) == stats.signed_rank_interval(other, 0.02)


@given(st.lists(LOG, min_size=10, max_size=16))
def test_exchanging_the_arms_turns_the_interval_round(d: list[float]) -> None:
    there, back = stats.signed_rank_interval(d, 0.01), stats.signed_rank_interval([-x for x in d], 0.01)
    assert (back.low, back.high) == (-there.high, -there.low)
    assert back.estimate == pytest.approx(-there.estimate, abs=1e-15)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-3, 1, allow_nan=False), min_size=6, max_size=9, unique=True), st.sampled_from([0.3, 0.1]))
def test_coverage_is_exact_over_all_signs(sizes: list[float], alpha: float) -> None:
    """For values symmetric about 0, at most alpha of the equally likely sign patterns have an interval without 0."""
    missed = 0
    for signs in product((-1, 1), repeat=len(sizes)):
        interval = stats.signed_rank_interval([s * x for s, x in zip(signs, sizes, strict=True)], alpha)
        missed += not interval.low <= 0 <= interval.high
    assert missed / 2 ** len(sizes) <= alpha


# -- the error budget -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernels", "first"), [(1, 10), (10, 13), (50, 15), (200, 17)])
def test_the_first_look_comes_when_the_test_can_decide(kernels: int, first: int) -> None:
    budget = Budget(kernels=kernels)
    assert budget.schedule == (first, 2 * first, 4 * first)
    assert stats.outer_rank(first, budget.alpha) >= 1
    assert stats.outer_rank(first - 1, budget.alpha) == 0


def test_the_budget_is_split_over_kernels_and_looks() -> None:
    assert Budget(error=0.06, kernels=4, looks=3).alpha == pytest.approx(0.005)


@pytest.mark.parametrize("wrong", [{"error": 0.0}, {"error": 1.0}, {"kernels": 0}, {"looks": 0}])
def test_a_budget_of_nothing_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="error budget"):
        Budget(**wrong)  # type: ignore[arg-type]


# -- decisions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "decision"),
    [
        (-0.20, -0.06, Decision.FASTER),
        (0.06, 0.20, Decision.SLOWER),
        (-0.04, 0.04, Decision.SAME),
        (-0.06, 0.04, None),
        (0.04, 0.06, None),
        (-0.06, -0.04, None),
    ],
)
def test_the_whole_interval_decides(low: float, high: float, decision: Decision | None) -> None:
    assert stats.decide(Interval(estimate=0.0, low=low, high=high, confidence=0.99), gate=0.05) is decision


def test_the_gate_is_a_ratio() -> None:
    edge = log1p(0.05)
    assert stats.decide(Interval(estimate=0, low=edge + 1e-9, high=1, confidence=0.9), 0.05) is Decision.SLOWER
    assert stats.decide(Interval(estimate=0, low=edge - 1e-9, high=1, confidence=0.9), 0.05) is None


def test_the_smallest_effect_is_half_the_width() -> None:
    interval = Interval(estimate=0.0, low=-log(1.02), high=log(1.02), confidence=0.99)
    assert interval.smallest_effect == pytest.approx(0.02)


def test_a_block_is_its_shortest_window() -> None:
    assert stats.block_statistic([5, 1, 2, 3, 4]) == 1
    assert stats.block_statistic([10, 11, 12, 13, 1e9]) == 10
    assert stats.block_statistic([7.5]) == 7.5


def test_false_claims_stay_within_the_budget() -> None:
    """Noise symmetric about 0 with wild tails, 4000 sessions at 10 %: three looks claim in at most that share."""
    chance, claimed = random.Random(7), 0
    budget = Budget(error=0.1)
    for _ in range(4000):
        d = [chance.gauss(0, 0.01) * (20 if chance.random() < 0.1 else 1) for _ in range(budget.schedule[-1])]
        answers = (stats.decide(stats.signed_rank_interval(d[:n], budget.alpha), 0.0) for n in budget.schedule)
        claimed += any(answers)
    assert claimed / 4000 <= 0.1


# -- claims and their repetition ------------------------------------------------------------------------------------


def comparison(decision: Decision) -> Comparison:
    return Comparison(
        decision=decision,
        speedup=1.2,
        low=1.1,
        high=1.3,
        confidence=0.99,
        blocks=10,
        baseline_ns=120.0,
        candidate_ns=100.0,
        smallest_effect=0.01,
        gate=0.05,
    )


@pytest.mark.parametrize("decision", Decision)
def test_only_faster_and_slower_are_claims(decision: Decision) -> None:
    assert stats.claims(comparison(decision)) == (decision in (Decision.FASTER, Decision.SLOWER))


def test_an_agreeing_repetition_confirms() -> None:
    first, again = comparison(Decision.FASTER), comparison(Decision.FASTER)
    found = stats.confirmed(first, again)
    assert (found.decision, found.repeat) == (Decision.FASTER, again)


@pytest.mark.parametrize("other", [Decision.SAME, Decision.SLOWER, Decision.UNCLEAR])
def test_what_a_repetition_does_not_confirm_is_unstable(other: Decision) -> None:
    assert stats.confirmed(comparison(Decision.FASTER), comparison(other)).decision is Decision.UNSTABLE


@pytest.mark.parametrize(
    ("claim", "control", "left"),
    [
        (Decision.FASTER, 1.02, Decision.FASTER),
        (Decision.FASTER, 1.15, Decision.UNCLEAR),
        (Decision.FASTER, 1 / 1.15, Decision.UNCLEAR),
        (Decision.SLOWER, 1 / 1.02, Decision.SLOWER),
        (Decision.SLOWER, 1.15, Decision.UNCLEAR),
        (Decision.SAME, 1.15, Decision.SAME),
    ],
)
def test_a_claim_lies_beyond_what_two_binaries_of_equal_work_seem_apart(
    claim: Decision, control: float, left: Decision
) -> None:
    low, high = {Decision.FASTER: (1.1, 1.3), Decision.SLOWER: (1 / 1.3, 1 / 1.1)}.get(claim, (0.97, 1.03))
    first = replace(comparison(claim), low=low, high=high)
    found = stats.confirmed(first, first, replace(first, speedup=control))
    assert found.decision is left
    assert found.in_noise == (left is Decision.UNCLEAR)


def test_an_arm_that_fails_in_the_repetition_has_no_speedup() -> None:
    first, wrong = comparison(Decision.FASTER), Verdict(status=Status.MISMATCH, detail="x[0] is 1 instead of 2.")
    found = stats.confirmed(first, stats.refused(0.05, "candidate", wrong))
    assert (found.decision, found.speedup, found.verdict, found.repeat) == (Decision.REFUSED, None, wrong, first)


def test_identical_code_was_not_timed() -> None:
    found = stats.identical(0.05, "ab")
    assert (found.decision, found.speedup, found.blocks, found.baseline_ns) == (Decision.IDENTICAL, 1.0, 0, None)


# -- what is not measured -------------------------------------------------------------------------------------------


def test_a_predicted_number_says_so_and_is_no_number_to_compare_with() -> None:
    bound = Predicted(1.2345)
    assert (str(bound), f"{bound:.2f}x", f"{bound:.0%}") == ("predicted 1.2345", "predicted 1.23x", "predicted 123%")
    for mixed in (lambda: bound < 2.0, lambda: bound * 2, lambda: stats.decide(bound, 0.1), lambda: float(bound)):
        with pytest.raises((TypeError, AttributeError)):
            mixed()


def test_what_a_faster_kernel_can_bring_is_printed_as_predicted() -> None:
    kernel = {"kernel": "k", "launches": 1, "gpu_seconds": 0.003, "timed": 1, "recorded": 0, "conditional": 0}
    shape = {"grid": [1, 1, 1], "block": [32, 1, 1], "reasons": {}}
    table = profile([{"kernels": [{**kernel, **shape}, {**kernel, **shape, "kernel": "other", "gpu_seconds": 0.001}]}])
    assert "predicted 4.00x" in table
    assert "predicted 1.33x" in table
