"""Rungs in the study: who is held against a pace, what a stopped trial teaches, and that resuming forgets nothing."""

import math
from dataclasses import replace

import numpy as np
import optuna
import pytest

from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.plan import plan
from ddtree_tune.core.record import CellTexts, Origin, TrialStatus
from ddtree_tune.core.report import answer_lines, plan_lines
from ddtree_tune.core.rungs import behind
from ddtree_tune.node.search import Study
from tests.builders import DIALECT, NONE, SPEC, matrix, record, spec, surface

TEXT = SPEC.replace("concurrency: [1, 8]}", "concurrency: [1, 8], first: {contexts: [60], concurrency: [1, 8]}}")
WIDE = TEXT.replace("budget: [4, 8, 16, 32]", "budget: [1, 2, 4, 8, 16, 32, 64, 128]").replace(
    "[1, 2, 4]", "[1, 2, 4, 8]"
)


class Sim:
    """Trials on the made-up surface, with noise and, at 512 tokens, a slope of the budget of its own."""

    def __init__(self, sweep, seed=0, drift=0.0, noise=0.0, slope=0.0):
        self.sweep, self.rng = sweep, np.random.default_rng(seed)
        self.drift, self.noise, self.slope = drift, noise, slope
        self.first = {cell.cell_id for cell in sweep.load.first_cells()}

    def true(self, config, context):
        extra = self.slope * math.log2(config.budget / 16) if context == 512 and config.budget else 0.0
        return math.log(surface(config)) + extra

    def score(self, config):
        return (self.true(config, 60) + self.true(config, 512)) / 2

    def __call__(self, proposal):
        moved = self.drift * self.rng.standard_normal()

        def tps(context, concurrency):
            noise = self.noise * self.rng.standard_normal()
            return concurrency * math.exp(self.true(proposal.config, context) + moved + noise)

        cells = matrix(self.sweep, tps)
        own = [one for one in cells if one.metrics.cell_id in self.first]
        if proposal.pace and behind([one.metrics for one in own], proposal.pace):
            return record(
                self.sweep, proposal, status=TrialStatus.STOPPED, cells=tuple(own), attempts=(), pass_rate=None
            )
        return record(self.sweep, proposal, cells=cells)


def drive(study, sim, most=300):
    told = []
    while (proposal := study.ask()) is not None:
        assert len(told) < most
        told.append(sim(proposal))
        study.tell(told[-1])
    return told


@pytest.fixture(scope="module")
def swept():
    sweep = spec(WIDE, trials=24)
    study = Study(sweep, DIALECT)
    return sweep, study, drive(study, Sim(sweep))


def test_only_proposals_of_the_search_have_a_pace_and_it_is_the_best_setting_so_far(swept):
    _, _, told = swept
    for n, one in enumerate(told):
        pace = one.proposal.pace
        assert (pace is not None) == (one.proposal.origin is Origin.SEARCH)
        if pace is not None:
            complete = [other.config for other in told[:n] if other.status is TrialStatus.COMPLETE]
            best = max(surface(config) for config in complete if config.algorithm is Algorithm.TREE)
            assert pace.score == pytest.approx(best / 100)
            base = {cell.cell_id: cell.base_tps for cell in pace.cells}
            assert base == pytest.approx({"chat_i60_o128_c1": 100.0, "chat_i60_o128_c8": 800.0})


def test_what_was_stopped_counts_as_a_trial_is_not_asked_again_and_is_no_finalist(swept):
    sweep, study, told = swept
    stopped = [one for one in told if one.status is TrialStatus.STOPPED]
    assert len(stopped) > 4
    assert study.done
    searched = [one for one in told if one.proposal.origin is not Origin.FINAL]
    assert len(searched) == 24
    assert len({one.config for one in searched}) == 24
    finals = [one for one in told if one.proposal.origin is Origin.FINAL]
    assert len(finals) == 8
    assert not {one.config for one in finals} & {one.config for one in stopped}
    best = max((one.config for one in searched), key=surface)
    assert best in {one.config for one in finals}
    page = "\n".join(answer_lines(conclude(told, sweep), told, sweep))
    assert page.count("stopped: behind after the first cells") == len(stopped)
    assert "x no speculation over them; the best had" in page


def test_optuna_hears_of_a_stopped_trial_as_pruned_with_what_it_reached(swept):
    _, study, told = swept
    pruned = [one for one in study.snapshot().trials if one.state is optuna.trial.TrialState.PRUNED]
    reached = sorted(math.log(surface(one.config) / 100) for one in told if one.status is TrialStatus.STOPPED)
    assert sorted(one.intermediate_values[0] for one in pruned) == pytest.approx(reached)
    assert not any(one.constraints for one in pruned)


def test_a_resumed_sweep_proposes_and_paces_as_if_it_had_never_stopped(swept):
    sweep, _, told = swept
    asked = [one.proposal for one in told]
    for count in range(0, len(told), 5):
        assert Study(sweep, DIALECT, told[:count]).ask() == asked[count]
    assert Study(sweep, DIALECT, told).done


@pytest.mark.parametrize("sampler", ["tpe", "random", "grid"])
def test_every_sampler_lives_with_stopped_trials(sampler):
    sweep = spec(WIDE, trials=12, sampler=sampler)
    told = drive(Study(sweep, DIALECT), Sim(sweep))
    assert sum(one.status is TrialStatus.STOPPED for one in told) > 1


@pytest.mark.parametrize("seed", range(3))
def test_a_stopped_trial_teaches_where_not_to_go(seed):
    sweep = replace_seed(spec(WIDE, trials=12), seed)
    study = Study(sweep, DIALECT)
    told = drive(study, Sim(sweep, seed, noise=0.02))
    searched = [one for one in told if one.proposal.origin is Origin.SEARCH]
    every = [surface(config) for config in study._space.points.values()]
    speeds = [surface(one.config) for one in searched]
    far = 0.8 * max(every)
    assert len(searched) == 8
    assert sum(one.status is TrialStatus.STOPPED for one in searched) >= 3
    assert max(speeds) > 0.98 * max(every)
    assert sum(speed < far for speed in speeds) <= 2
    assert np.mean([speed < far for speed in every]) > 0.5  # most of the space is no good: that must be learned


def test_the_true_best_is_hardly_ever_stopped():
    """Drift, noise in every cell, and a best that lies elsewhere in the cells that come later."""
    sweep = spec(WIDE, trials=14)
    best_stopped = asked = stopped = 0
    for seed in range(8):
        sim = Sim(sweep, seed, drift=0.015, noise=0.02, slope=0.02)
        study = Study(replace_seed(sweep, seed), DIALECT)
        best = max(study._space.points.values(), key=sim.score)
        for one in drive(study, sim):
            stopped += one.status is TrialStatus.STOPPED
            if one.config == best and one.proposal.origin is not Origin.FINAL:
                asked += 1
                best_stopped += one.status is TrialStatus.STOPPED
    assert stopped > 10
    assert asked > 3
    assert best_stopped <= 1


def replace_seed(sweep, seed):
    return sweep.model_copy(update={"search": sweep.search.model_copy(update={"seed": seed})})


def test_without_a_base_or_a_complete_setting_there_is_no_pace():
    sweep = spec(TEXT.replace("seeds:", "unused:").split("unused:")[0] + TEXT[TEXT.index("load:") :])
    study = Study(sweep, DIALECT)
    flying = [study.ask() for _ in range(4)]
    assert [one.origin for one in flying] == [Origin.BASELINE] * 2 + [Origin.SEARCH] * 2
    assert [one.pace for one in flying] == [None] * 4
    sim = Sim(sweep)
    for one in flying[:2]:
        study.tell(sim(one))
    assert study.ask().pace is None
    study.tell(sim(flying[2]))
    assert study.ask().pace is not None


def test_the_whole_matrix_is_measured_where_no_cells_come_first():
    sweep = spec()
    told = drive(Study(sweep, DIALECT), Sim(sweep))
    assert {one.status for one in told} == {TrialStatus.COMPLETE}
    assert {one.proposal.pace for one in told} == {None}


def test_the_plan_says_what_stopping_saves_at_most():
    whole, rungs = plan(spec()), plan(spec(TEXT))
    assert whole.saved_s == 0
    assert rungs.node_s == whole.node_s
    assert 0 < rungs.saved_s < rungs.node_s
    said = " ".join(plan_lines(spec(TEXT), rungs))
    assert "of which stopping behind after the first 2 cells saves at most" in said
    assert not any("stopping" in line for line in plan_lines(spec(), whole))


def test_a_stopped_trial_that_writes_garbage_is_infeasible_to_the_search(swept):
    sweep, _, told = swept
    slow = next(one for one in told if one.status is TrialStatus.STOPPED)
    prompts = tuple(map(str, range(40)))
    said = {NONE: (), slow.config: prompts}
    texts = {config: (CellTexts("chat_i60_o128_c8", prompts, bad),) for config, bad in said.items()}
    study = Study(sweep, DIALECT, [replace(one, texts=texts.get(one.config, ())) for one in told])
    (seen,) = [one for one in study.snapshot().trials if one.constraints.get("failed")]
    assert seen.params == study._space.place(slow.config)
