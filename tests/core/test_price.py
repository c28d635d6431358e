"""What tokens cost: from the price of a node and the throughput, absent where either is."""

from dataclasses import replace

import pytest

from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.plan import plan
from ddtree_tune.core.price import PriceSpec, setting_costs
from ddtree_tune.core.record import CellResult
from ddtree_tune.core.report import answer_lines, plan_lines
from ddtree_tune.core.tables import WIDTH, money
from tests.builders import NONE, SPEC, spec
from tests.core.test_conclusion import BIG, SPEED, finals, search

PRICED = spec(SPEC + "price: {per_node_hour: 98.32}\n")
WEIGHTED = spec(SPEC + "price: {per_node_hour: 98.32}\nobjective: {weights: [{concurrency: 8, weight: 0}]}\n")


def test_a_million_tokens_cost_the_node_for_as_long_as_they_take():
    price = PriceSpec(per_node_hour=98.32)
    assert price.per_million(1e6 / 3600) == pytest.approx(98.32)
    assert price.per_million(2e6 / 3600) == pytest.approx(49.16)
    assert price.of(1800) == pytest.approx(49.16)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("{per_node_hour: 0}", "price.per_node_hour"),
        ("{per_node_hour: .inf}", "price.per_node_hour"),
        ("{currency: EUR}", "price.per_node_hour"),
        ("{per_node_hour: 1, currency: 'a b'}", "price.currency"),
    ],
)
def test_a_price_must_be_one(given, words):
    with pytest.raises(SpecError, match=words):
        spec(SPEC + f"price: {given}\n")


def test_the_mean_is_that_of_tokens_spread_over_the_cells_as_they_count():
    conclusion = conclude([*search(), *finals(noise=0)], PRICED)
    even = {one.config: one for one in setting_costs(conclusion, PRICED.price, PRICED.weights())}
    assert even[BIG].mean == pytest.approx(sum(cost for _, cost in even[BIG].cells) / 4)
    assert even[BIG].mean == pytest.approx(even[NONE].mean / SPEED[BIG])
    weighted = conclude([*search(), *finals(noise=0)], WEIGHTED)
    one_user = {one.config: one for one in setting_costs(weighted, WEIGHTED.price, WEIGHTED.weights())}
    assert len(one_user[BIG].cells) == 4
    assert one_user[BIG].mean == pytest.approx(98.32 / 3600 / 150 * 1e6)


def test_a_cell_without_a_score_has_no_cost_and_its_setting_no_mean():
    trials = search()
    blind = CellResult(replace(trials[2].cells[0].metrics, output_tps=None), ())
    trials[2] = replace(trials[2], cells=(blind, *trials[2].cells[1:]))
    costs = {one.config: one for one in setting_costs(conclude(trials, PRICED), PRICED.price, PRICED.weights())}
    assert len(costs[BIG].cells) == 3
    assert costs[BIG].mean is None
    row = next(
        line
        for line in answer_lines(conclude(trials, PRICED), trials, PRICED)
        if "16/4/64  " in line and "chat" in line
    )
    assert row.split()[1] == "-"


def test_the_answer_tells_costs_only_where_there_is_a_price():
    trials = [*search(), *finals()]
    priced, plain = (answer_lines(conclude(trials, sweep), trials, sweep) for sweep in (PRICED, spec()))
    page = "\n".join(priced)
    assert "USD per million output tokens, at 98.32 a node-hour; mean: spread over the 4 cells as they count" in page
    assert "USD/M" in page
    assert f"trials, {money(98.32 * sum(one.seconds for one in trials) / 3600)} USD." in page
    assert max(map(len, priced)) <= WIDTH
    assert "USD" not in "\n".join(plain)


def test_the_plan_tells_what_the_sweep_would_cost():
    said = plan(PRICED)
    assert f"({98.32 * said.node_s / 3600:.0f} USD)" in " ".join(plan_lines(PRICED, said))


def test_small_amounts_keep_three_digits():
    assert [money(one) for one in (98.321, 1.0, 0.12345, 0.00123)] == ["98.32", "1.00", "0.123", "0.00123"]
