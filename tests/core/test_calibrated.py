"""A sure drafter's acceptance: nothing drafted commits one token, more nodes more, and one setting tells of all."""

import itertools
import math

import pytest

from ddtree_tune.core.calibrated import Calibrated, accept_len
from ddtree_tune.core.speedup import NO_SPECULATION, PLAIN_CHAIN
from tests.builders import tree
from tests.engines import trial

DEPTH = 15


@pytest.mark.parametrize(("chance", "topk"), list(itertools.product((0.2, 0.6, 0.9), (1, 2, 8))))
def test_each_node_adds_less_than_the_one_before(chance, topk):
    lengths = [accept_len(chance, budget, topk, DEPTH) for budget in range(40)]
    gains = [after - before for before, after in itertools.pairwise(lengths)]
    assert lengths[0] == 1.0
    assert gains[0] == pytest.approx(chance)
    assert all(before >= after - 1e-12 >= -1e-12 for before, after in itertools.pairwise(gains))


@pytest.mark.parametrize("chance", [0.3, 0.8])
def test_a_chain_is_a_geometric_series_and_ends_with_its_block(chance):
    whole = (1 - chance ** (DEPTH + 1)) / (1 - chance)
    assert accept_len(chance, DEPTH, 1, DEPTH) == pytest.approx(whole)
    assert accept_len(chance, 4, 1, DEPTH) == pytest.approx((1 - chance**5) / (1 - chance))
    assert accept_len(chance, 64, 1, DEPTH) == pytest.approx(whole)


def test_of_all_trees_of_a_budget_it_is_the_best():
    chance = 0.6

    def best(budget, worth, depth):
        """The most that two subtrees below a node can be worth, by trying every split of the budget."""
        if budget == 0 or depth == 0:
            return 0.0
        first, second = worth * chance, worth * chance * (1 - chance)
        found = 0.0
        for left in range(budget + 1):
            one = first + best(left - 1, first, depth - 1) if left else 0.0
            right = budget - left
            other = second + best(right - 1, second, depth - 1) if right else 0.0
            found = max(found, one + other)
        return found

    for budget in range(7):
        assert accept_len(chance, budget, 2, 3) == pytest.approx(1 + best(budget, 1.0, 3))


@pytest.mark.parametrize("known", [PLAIN_CHAIN, tree(8, 4), tree(4, 2, 64)])
def test_one_measured_setting_tells_of_all_others_of_the_same_drafter(known):
    chances = {60: 0.7, 512: 0.5}

    def truth(config):
        return lambda context: accept_len(chances[context], config.budget or DEPTH, config.topk or 1, DEPTH)

    told = Calibrated.of([trial(0, NO_SPECULATION, 1, lambda _: 1.0), trial(1, known, 16, truth(known))])
    for config in (tree(8, 2), tree(32, 8, 128), PLAIN_CHAIN):
        for context in chances:
            assert told(config, context).log == pytest.approx(math.log(truth(config)(context)), abs=1e-6)
    assert told(tree(8, 2), 4096) is None
    assert [told.width(one) for one in (tree(8, 2), tree(32, 1), PLAIN_CHAIN, NO_SPECULATION)] == [9, 16, 16, None]


def test_without_drafts_nothing_is_told():
    assert Calibrated.of([]) is None
    assert Calibrated.of([trial(0, NO_SPECULATION, 1, lambda _: 1.0)]) is None
