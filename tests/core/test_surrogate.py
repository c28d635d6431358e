"""The surrogate: finds a known optimum from few points and stays away from what fails."""

import numpy as np
import pytest

from ddtree_tune.core.surrogate import Foretold, Told, believed, promising

GRID = np.asarray([(b, k) for b in (2.0, 3.0, 4.0, 5.0) for k in (0.0, 1.0, 2.0)])
COLUMNS = (slice(0, 1), slice(1, 2))
NOWHERE = np.empty((0, 2))


def told(points, score, infeasible=NOWHERE, pending=NOWHERE):
    points = np.asarray(points, dtype=float).reshape(-1, 2)
    scores = np.asarray([score(*point) for point in points])
    return Told(points, scores, np.full(len(points), 0.02), np.asarray(infeasible), np.asarray(pending))


def hill(budget, topk):
    return -0.05 * (budget - 4) ** 2 - 0.05 * (topk - 1) ** 2


def test_with_nothing_known_it_starts_in_the_middle():
    assert tuple(GRID[promising(GRID, told([], hill), COLUMNS)]) in {(3.0, 1.0), (4.0, 1.0)}


def test_it_reaches_the_top_of_a_hill_within_six_points_of_twelve():
    known = [(2.0, 0.0), (2.0, 2.0)]
    for _ in range(6):
        left = np.asarray([point for point in GRID.tolist() if tuple(point) not in known])
        known.append(tuple(left[promising(left, told(known, hill), COLUMNS)]))
    assert (4.0, 1.0) in known


def test_points_under_way_are_not_doubled_by_their_neighbours():
    known = [(2.0, 1.0), (3.0, 1.0)]
    choices = np.asarray([(5.0, 1.0), (5.0, 1.05), (4.0, 0.0)])
    alone = promising(choices, told(known, lambda budget, _: 0.2 * budget), COLUMNS)
    beside = promising(choices[1:], told(known, lambda budget, _: 0.2 * budget, pending=[(5.0, 1.0)]), COLUMNS)
    assert alone in {0, 1}
    assert tuple(choices[1:][beside]) == (4.0, 0.0)


def test_it_keeps_away_from_where_the_engine_fails():
    known = [(2.0, 1.0), (3.0, 1.0)]
    uphill = told(known, lambda budget, _: 0.2 * budget)
    failing = told(known, lambda budget, _: 0.2 * budget, infeasible=[(5.0, 0.0), (5.0, 1.0)])
    left = np.asarray([point for point in GRID.tolist() if tuple(point) not in {*known, (5.0, 0.0), (5.0, 1.0)}])
    assert left[promising(left, uphill, COLUMNS)][0] == 5
    assert left[promising(left, failing, COLUMNS)][0] == 4


def test_where_everything_fails_it_still_answers():
    index = promising(GRID, told([], hill, infeasible=GRID), COLUMNS)
    assert 0 <= index < len(GRID)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 5.0])
def test_scores_of_any_size_give_a_finite_choice(scale):
    known = GRID[::3]
    index = promising(GRID[1::3], told(known, lambda b, k: scale * hill(b, k)), COLUMNS)
    assert 0 <= index < 4


def test_of_settings_of_which_as_much_is_foretold_it_starts_in_the_middle():
    even = Foretold(np.empty((2, 0)), np.empty((2, 0)), np.stack([GRID[:, 0], 2 * GRID[:, 0]]))
    assert tuple(GRID[promising(GRID, told([], hill), COLUMNS, even)]) == (5.0, 1.0)


def test_an_account_of_the_engine_says_how_a_slope_goes_on_that_was_seen_only_at_its_foot():
    known = np.asarray([(2.0, 1.0), (3.0, 1.0)])
    left = np.asarray([(4.0, 1.0), (5.0, 1.0)])

    def bent(points):
        return -0.2 * np.abs(points[:, 0] - 4)

    straight, right = (lambda points: 0.2 * points[:, 0]), bent
    chosen = [
        left[
            promising(
                left,
                told(known, lambda budget, _: -0.2 * abs(budget - 4)),
                COLUMNS,
                Foretold(*(account(of)[None] for of in (known, NOWHERE, left))),
            )
        ][0]
        for account in (straight, right)
    ]
    assert chosen == [5.0, 4.0]


def test_an_account_is_believed_as_far_as_it_explains_what_was_measured():
    rng = np.random.default_rng(0)
    truth = np.asarray([hill(*point) for point in GRID.tolist()])
    off = {}
    for name, account in (("right", truth), ("none", None), ("wrong", -5 * truth)):
        misses = []
        for _ in range(20):
            noisy = Told(GRID, truth + 0.1 * rng.standard_normal(len(GRID)), np.full(len(GRID), 0.1), NOWHERE, NOWHERE)
            at = None if account is None else Foretold(account[None], np.empty((1, 0)), account[None])
            misses.append(believed(noisy, COLUMNS, at) - truth)
        off[name] = float(np.std(misses))
    assert off["right"] < 0.9 * off["none"]
    assert off["wrong"] < 1.1 * off["none"]
