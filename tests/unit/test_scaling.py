"""The simulation of clusters agrees with what can be reckoned by hand."""

from __future__ import annotations

import pytest

from tests.benchmarks.scaling import Case, Cost, costs, simulated


def test_one_gpu_without_waiting_for_answers_is_busy_all_the_time() -> None:
    row = simulated(Case(gpus=1, answer_s=0.001, answers=4), [Cost(0.1, 0.05)], cluster_s=0.001, seconds=20.0)
    assert row[6] == pytest.approx(1 / 0.05, rel=0.03)
    assert row[-2:] in (["99%", "GPUs"], ["100%", "GPUs"])


def test_a_text_takes_an_answer_and_then_its_trials() -> None:
    """One answer at once, of about a second; nothing else takes time."""
    row = simulated(Case(gpus=8, answer_s=1.0, answers=1), [Cost(0.0, 0.0)], cluster_s=0.0, seconds=400.0)
    assert row[7] == pytest.approx(0.9, abs=0.1)  # a log-normal time of spread 0.5 is 1.13 times its median on average
    assert row[-1] == "answers"


def test_what_an_outcome_waited_for_is_no_cost() -> None:
    stages = {"queue build": 1.0, "optimize": 0.25, "queue device": 2.0, "verify": 0.5, "time": 0.125}
    stages["device: run"] = 0.4  # of verifying
    assert costs([stages, {"optimize": 0.5}]) == [Cost(0.25, 0.625), Cost(0.5, 0.0)]
