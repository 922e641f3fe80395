"""The estimator: densities that are densities, proposals that are legal, repeatable and like the good trials."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np
import pytest

from r3bench.evolve.tpe import Estimator, log_probability

SIZES, ORDERED = (3, 4, 2), (False, True, False)
EVERY = np.array(list(product(*(range(size) for size in SIZES))))


def test_a_density_sums_to_one_over_all_points_and_has_none_outside() -> None:
    density = Estimator(SIZES, ORDERED, 0).density(np.array([[0, 1, 1], [2, 3, 0]]))
    assert density.shape == (3, 3, 4)
    assert np.exp(log_probability(density, EVERY)).sum() == pytest.approx(1.0)
    assert not density[:, 0, 3].any()
    assert not density[:, 2, 2:].any()


def test_neighbours_share_in_what_was_seen_of_an_ordered_knob_only() -> None:
    density = Estimator(SIZES, ORDERED, 0).density(np.array([[0, 0, 0]]))[0]
    assert density[0, 1] == pytest.approx(density[0, 2])
    assert density[1, 0] > density[1, 1] > density[1, 2]


def test_the_probability_of_a_mixture_is_the_mean_of_its_components_products() -> None:
    density = Estimator(SIZES, ORDERED, 0).density(np.array([[1, 2, 0]]))
    point = np.array([[1, 0, 1]])
    by_hand = np.mean([component[0, 1] * component[1, 0] * component[2, 1] for component in density])
    assert np.exp(log_probability(density, point))[0] == pytest.approx(by_hand)


def test_proposals_are_legal_and_repeat_with_the_seed() -> None:
    losses = np.linspace(0.0, 1.0, len(EVERY))
    first, second, other = (Estimator(SIZES, ORDERED, seed).propose(EVERY, losses) for seed in (1, 1, 2))
    assert (first == second).all()
    assert not (first == other).all()
    assert ((first >= 0) & (first < np.array(SIZES))).all()


def test_the_first_proposal_is_like_what_was_good_and_unlike_what_failed() -> None:
    losses = np.where(EVERY[:, 0] == 1, 0.0, np.where(EVERY[:, 2] == 0, inf, 1.0))
    best = [Estimator(SIZES, ORDERED, seed).propose(EVERY, losses)[0] for seed in range(5)]
    assert {int(point[0]) for point in best} == {1}
