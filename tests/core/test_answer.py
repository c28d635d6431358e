"""The answer and the plan as JSON: the same numbers as in the text, null where there is none."""

import json

import pytest

from ddtree_tune.core.answer import answer_fields, plan_fields
from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.headline import headline
from ddtree_tune.core.plan import plan
from ddtree_tune.core.record import Origin
from tests.builders import CHAIN, NONE, SPEC, proposal, record, spec
from tests.core.test_conclusion import BIG, SMALL, SWEEP, finals, search, users

PRICED = spec(SPEC + "price: {per_node_hour: 36.0, currency: EUR}\n")


def fields(trials, sweep=SWEEP, partial=None):
    """As a program reads it."""
    conclusion = conclude(trials, sweep)
    told = answer_fields(conclusion, trials, sweep, root="/results/small-1", partial=partial)
    return json.loads(json.dumps(told, allow_nan=False)), conclusion


def test_every_number_of_the_answer_is_there():
    by_load = {NONE: 1.0, CHAIN: users(1.2, 1.1), BIG: users(2.0, 0.7), SMALL: users(1.5, 1.4)}
    trials = [*search(by_load), *finals(by_load)]
    got, conclusion = fields(trials, PRICED)
    assert got["answer"] == conclusion.answer
    assert got["headline"] == headline(conclusion)
    best = next(one for one in got["settings"] if one["setting"] == conclusion.best.config.label)
    assert got["best"] == {name: best[name] for name in got["best"]}
    gain = conclusion.best.vs_none
    assert best["x_no_speculation"] == {
        "ratio": gain.ratio,
        "interval": list(gain.interval),
        "basis": "finals",
        "rounds": 2,
    }
    assert (best["passed"], best["attempted"], best["feasible"]) == (18, 20, True)
    assert [(one["context"], one["concurrency"], one["setting"]) for one in got["cells"]] == [
        (one.context, one.concurrency, one.config.label) for one in conclusion.cells
    ]
    assert got["cells"][0]["per_million"] == pytest.approx(36.0 / 3600 / got["cells"][0]["output_tps"] * 1e6)
    assert [(one["least"], one["setting"]) for one in got["schedule"]] == [(1, BIG.label), (8, SMALL.label)]
    assert len(got["trials"]) == len(trials)
    assert got["node_hours"] == pytest.approx(sum(one.seconds for one in trials) / 3600)
    assert got["cost"]["currency"] == "EUR"
    assert len(got["cost"]["per_million_output_tokens"]) == 4
    assert got["launch"]["argv"][-1] == "default"
    assert "30000" in got["launch"]["argv"]
    assert got["launch"]["env"] == {"A": "b c"}


def test_what_is_not_known_is_null():
    lost = [record(SWEEP, proposal(1, NONE, Origin.BASELINE), failure=FailureClass.STARTUP_OOM)]
    got, _ = fields(lost, partial="Partial: it runs.")
    assert got["answer"] == "no_answer"
    assert got["partial"] == "Partial: it runs."
    assert got["best"] is got["best_tree"] is got["cost"] is got["launch"] is None
    assert got["trials"][0]["failure"] == "startup_oom"
    assert got["trials"][0]["x_no_speculation"] is None
    assert {one["setting"] for one in got["cells"]} == {None}
    assert fields([])[0]["trials"] == []


def test_the_plan_of_a_sweep_as_data():
    said = plan(PRICED)
    got = json.loads(json.dumps(plan_fields(PRICED, said)))
    assert (got["trials"], got["finals"], got["cells"]) == (said.trials, said.finals, said.cells)
    assert got["cost"] == {"currency": "EUR", "sweep": pytest.approx(said.node_s / 100)}
    assert plan_fields(SWEEP, plan(SWEEP))["cost"] is None
