"""The tuner: defaults first, nothing twice, failures avoided, repeatable, quick."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from optuna.distributions import IntDistribution

from r3bench.evolve.tuning import Ask, Columns, Point, Tuner, _Table, specialized
from r3bench.model import Target
from r3bench.space import Knob, Space
from tests.search.fake_server import capture

CAPTURE = capture()
BLOCKS = ((64, 1, 1), (256, 1, 1), (512, 1, 1))
SPACE = Space.for_unit(CAPTURE, CAPTURE.units[0], Target(device="cpu", arch="fake"), BLOCKS)


def run(tuner: Tuner, trials: int, cost: Callable[[Point], float | None]) -> list[Point]:
    points = []
    for _ in range(trials):
        ask = tuner.ask()
        assert ask is not None
        points.append(ask.point)
        tuner.tell(ask, cost(ask.point))
    return points


def wins(point: Point) -> float:
    """Best with all scalars compiled in, blocks of 256 and no extra passes."""
    extra = sum(value != "off" for name, value in point.items() if name.startswith("pass."))
    slow = 0.4 * (point["specialize.arguments"] != "all") + 0.3 * (point["block"] != "256x1x1")
    return 1000.0 * (1.0 + slow + 0.02 * extra)


def test_the_default_comes_first_then_what_is_suggested_then_all_specializations() -> None:
    best = SPACE.default | {"pipeline": "O2"}
    early, late = Tuner(SPACE, 0), Tuner(SPACE, 0)
    early.suggest(best)
    assert run(early, 3, wins) == [SPACE.default, best, specialized(SPACE)]
    run(late, 1, wins)
    late.suggest(best)
    points = run(late, 2, wins)
    assert points == [best, specialized(SPACE)]
    assert points[1]["specialize.arguments"] == "all"
    assert points[1]["specialize.noalias"] is True


def test_some_other_blocks_are_tried_early() -> None:
    points = run(Tuner(SPACE, 0), 2 + len(SPACE.knob("block").values[1:4]), wins)
    assert {point["block"] for point in points} == set(SPACE.knob("block").values[:4])


def test_a_suggestion_that_is_known_already_costs_no_trial() -> None:
    tuner = Tuner(SPACE, 0)
    run(tuner, 1, wins)
    tuner.suggest(SPACE.default)
    assert run(tuner, 1, wins) == [specialized(SPACE)]


def test_every_point_is_legal_and_asked_for_once() -> None:
    points = run(Tuner(SPACE, 1), 40, wins)
    for point in points:
        SPACE.decode(point)
    assert len({tuple(sorted(p.items(), key=str)) for p in points}) == 40


def test_equal_seeds_and_answers_give_equal_points() -> None:
    assert run(Tuner(SPACE, 3), 15, wins) == run(Tuner(SPACE, 3), 15, wins)
    assert run(Tuner(SPACE, 3), 15, wins) != run(Tuner(SPACE, 4), 15, wins)


def test_it_finds_better_points_than_the_default() -> None:
    best = []
    for seed in range(3):
        tuner = Tuner(SPACE, seed)
        run(tuner, 30, wins)
        assert tuner.best is not None
        best.append(wins(tuner.best))
    assert sorted(best)[1] < 0.75 * wins(SPACE.default)


def test_it_learns_to_avoid_what_fails() -> None:
    def fails(point: Point) -> float | None:
        return None if point["block"] == "64x1x1" or point["pipeline"] == "O1" else wins(point)

    failed = [sum(fails(p) is None for p in run(Tuner(SPACE, seed), 40, fails)[10:]) for seed in range(2)]
    assert sum(failed) / (2 * 30) < 0.35, "at random half of the points fail"


def test_a_search_where_everything_fails_goes_on() -> None:
    tuner = Tuner(SPACE, 0)
    run(tuner, 12, lambda point: None)
    assert tuner.best is None


def test_several_points_may_be_out_at_once_and_come_back_in_any_order() -> None:
    tuner = Tuner(SPACE, 2)
    for _ in range(5):
        asks = [ask for _ in range(4) if (ask := tuner.ask()) is not None]
        assert len({str(a.point) for a in asks}) == 4
        for ask in reversed(asks):
            tuner.tell(ask, wins(ask.point))
    assert tuner.best is not None


def test_a_small_space_is_used_up_and_says_so() -> None:
    knobs = (Knob("pipeline", ("O3", "O2", "O1"), ordered=True), Knob("specialize.block", (False, True)))
    tuner = Tuner(replace(SPACE, knobs=knobs), 0)
    asks: list[Ask] = []
    while (ask := tuner.ask()) is not None and len(asks) < 20:
        asks.append(ask)
        tuner.tell(ask, 1.0 + len(asks))
    assert 4 <= len(asks) <= 6
    assert len({str(a.point) for a in asks}) == len(asks)


def test_it_is_quiet(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(logging.DEBUG)
    run(Tuner(SPACE, 0), 12, wins)
    assert capsys.readouterr() == ("", "")
    assert not caplog.records


SIZES = {"a": IntDistribution(0, 2), "b": IntDistribution(0, 3), "c": IntDistribution(0, 1)}
EVERY = dict(zip(SIZES, np.array(list(product(range(3), range(4), range(2)))).T, strict=True))


def table(**seen: list[int]) -> _Table:
    columns = {name: np.array(seen.get(name, [])) for name in SIZES}
    return _Table(columns, SIZES, None, ordered={"b"})


def test_a_density_sums_to_one_over_all_points_and_is_the_mean_of_its_components() -> None:
    assert np.exp(table().log_pdf(EVERY)).tolist() == pytest.approx([1 / 24] * 24)
    density = np.exp(table(a=[0, 2], b=[1, 3], c=[1, 0]).log_pdf(EVERY))
    assert density.sum() == pytest.approx(1.0)


def test_neighbours_share_in_what_was_seen_of_an_ordered_knob_only() -> None:
    density = np.exp(table(a=[0], b=[0], c=[0]).log_pdf(EVERY)).reshape(3, 4, 2)
    over_a, over_b = density.sum(axis=(1, 2)), density.sum(axis=(0, 2))
    assert over_a[0] > over_a[1] == pytest.approx(over_a[2])
    assert over_b[0] > over_b[1] > over_b[2]


def test_the_sampler_estimates_with_our_table(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[int] = []
    original = _Table.sample

    def sample(self: _Table, rng: np.random.RandomState, size: int) -> Columns:
        used.append(size)
        return original(self, rng, size)

    monkeypatch.setattr(_Table, "sample", sample)
    run(Tuner(SPACE, 0), 8, wins)
    assert used, "Optuna has moved the estimator that its sampler uses"
