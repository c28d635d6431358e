"""The study and trials that fail: what it learns from, what it asks again, and when it gives up."""

from dataclasses import replace

import optuna
import pytest

from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.errors import INFRASTRUCTURE, Blame, FailureClass, blame
from ddtree_tune.core.record import CellResult, Origin, TrialStatus
from ddtree_tune.node.search import Study
from tests.builders import CHAIN, DIALECT, NONE, record, spec, tree
from tests.node.driving import drive, measured


def test_what_the_engine_refuses_is_infeasible_and_never_failed():
    sweep = spec()
    study = Study(sweep, DIALECT)

    def outcome(sweep, proposal):
        if proposal.config.budget == 16:
            return record(sweep, proposal, failure=FailureClass.STARTUP_OOM)
        return measured(sweep, proposal)

    asked, told = drive(study, sweep, outcome)
    states = [trial.state for trial in study.snapshot().trials]
    refused = [trial for trial in study.snapshot().trials if trial.constraints.get("failed", 0) > 0]
    assert optuna.trial.TrialState.FAIL not in states
    assert refused
    assert all(trial.state is optuna.trial.TrialState.PRUNED for trial in refused)
    complete = {
        one.config.config_id
        for one in told
        if one.status is TrialStatus.COMPLETE and one.proposal.origin is not Origin.FINAL
    }
    assert len(complete) == 8  # failures do not count as valid
    tries = [one.config for one in asked if one.config.budget == 16]
    assert len(tries) == len(set(tries))  # and are not asked again
    assert all(one.config.budget != 16 for one in asked if one.origin is Origin.FINAL)


def test_the_search_stays_away_from_a_region_that_fails():
    text = "name: s\nspace: {budget: [4, 8, 16, 32, 64, 128], topk: [1, 2, 4, 8], window: [64, 128, 256, none]}\n"
    text += "load: {contexts: [60], concurrency: [1]}\nsearch: {trials: 26, final: {settings: 0, rounds: 0}}"
    for sampler, most in (("surrogate", 5), ("tpe", 40)):
        sweep = spec(text, sampler=sampler)

        def outcome(sweep, proposal):
            if (proposal.config.budget or 0) >= 32:
                return record(sweep, proposal, failure=FailureClass.STARTUP_OOM)
            return measured(sweep, proposal)

        _, told = drive(Study(sweep, DIALECT), sweep, outcome)
        failures = sum(one.status is TrialStatus.FAILED for one in told)
        assert 1 <= failures <= most, (sampler, failures)


def test_the_search_gives_up_when_the_engine_refuses_everything():
    sweep = spec(sampler="grid", trials=5)
    study = Study(sweep, DIALECT)

    def outcome(sweep, proposal):
        if proposal.origin is Origin.BASELINE:
            return measured(sweep, proposal)
        return record(sweep, proposal, failure=FailureClass.CAPTURE_CRASH)

    asked, _ = drive(study, sweep, outcome)
    assert study.done
    assert len(asked) == 2 + 5  # as many refusals as trials were wanted


DOUBTFUL = sorted(one for one in FailureClass if blame(one) is Blame.NOBODY)


@pytest.mark.parametrize("failure", DOUBTFUL)
@pytest.mark.parametrize("times", [1, 2, 9])
def test_a_failure_that_may_be_chance_is_believed_the_second_time(failure, times):
    sweep = spec()
    study = Study(sweep, DIALECT)
    shaky = tree(8, 4, 64)

    def outcome(sweep, proposal):
        tried = sum(one.config == shaky for one in failed)
        if proposal.config == shaky and tried < times:
            failed.append(proposal)
            return record(sweep, proposal, failure=failure)
        return measured(sweep, proposal)

    failed = []
    asked, told = drive(study, sweep, outcome)
    searched = [one for one in asked if one.origin is not Origin.FINAL and one.config == shaky]
    assert len(searched) == 2
    assert searched[1].trial_id != searched[0].trial_id
    place = study._space.place(shaky)
    (seen,) = [one for one in study.snapshot().trials if one.params == place]
    refused = times > 1
    assert (seen.state is optuna.trial.TrialState.PRUNED) == refused
    settings = {one.config: one.feasible for one in conclude(told, sweep).settings}
    assert settings.get(shaky) is not False or refused
    # A resumed sweep has as much doubt as one that never stopped.
    begun = told[: 1 + next(i for i, one in enumerate(told) if one.config == shaky)]
    again = Study(sweep, DIALECT, begun).ask()
    assert again.config == shaky


@pytest.mark.parametrize("failure", sorted(INFRASTRUCTURE - {FailureClass.INTERRUPTED}))
def test_a_lost_trial_is_failed_and_asked_again_at_once(failure):
    sweep = spec()
    study = Study(sweep, DIALECT)
    lost = []

    def outcome(sweep, proposal):
        if proposal.origin is Origin.SEARCH and not lost:
            lost.append(proposal)
            return record(sweep, proposal, failure=failure)
        return measured(sweep, proposal)

    asked, _ = drive(study, sweep, outcome)
    index = asked.index(lost[0])
    assert asked[index + 1].config == lost[0].config
    assert asked[index + 1].trial_id != lost[0].trial_id
    failed = [one for one in study.snapshot().trials if one.state is optuna.trial.TrialState.FAIL]
    assert len(failed) == 1
    assert sum(one.origin is Origin.SEARCH for one in asked) == 5


def test_an_interrupted_trial_was_not_tried():
    sweep = spec(max_failures=1)
    study = Study(sweep, DIALECT)
    first = study.ask()
    study.tell(record(sweep, first, failure=FailureClass.INTERRUPTED))
    assert study.stopped is None
    assert not study.done
    assert study.ask().config == first.config


def test_a_trial_that_was_lost_with_its_node_is_asked_again():
    sweep = spec()
    study = Study(sweep, DIALECT)
    first = study.ask()
    study.tell(record(sweep, first, failure=FailureClass.NODE_LOST))
    again = study.ask()
    assert again.config == first.config == NONE
    assert again.trial_id == f"0002-{NONE.config_id}"


def test_a_setting_under_which_everything_breaks_is_left_alone():
    sweep = spec(max_failures=50)

    def outcome(sweep, proposal):
        if proposal.config == CHAIN:
            return record(sweep, proposal, failure=FailureClass.NODE_LOST)
        return measured(sweep, proposal)

    study = Study(sweep, DIALECT)
    asked, _ = drive(study, sweep, outcome)
    assert [one.config for one in asked].count(CHAIN) == 3
    assert study.done
    assert study.stopped is None


def test_a_sweep_ends_after_too_many_lost_trials():
    sweep = spec(max_failures=4)
    study = Study(sweep, DIALECT)

    def outcome(sweep, proposal):
        if proposal.origin is Origin.BASELINE:
            return measured(sweep, proposal)
        return record(sweep, proposal, failure=FailureClass.DIRTY_NODE)

    asked, told = drive(study, sweep, outcome)
    assert len(asked) == 2 + 4
    assert study.done
    assert "4 trials were lost" in study.stopped
    assert Study(sweep, DIALECT, told).stopped is None  # the machinery was mended: go on


def test_without_the_plain_baseline_there_is_nothing_to_search_for():
    sweep = spec()
    study = Study(sweep, DIALECT)
    study.tell(record(sweep, study.ask(), failure=FailureClass.INVALID_CONFIG))
    assert study.ask() is None
    assert study.done
    assert "no speculation" in study.stopped


@pytest.mark.parametrize("again", [0, 1])
def test_a_trial_with_an_unusable_cell_is_measured_once_more(again):
    """The same cell is spoilt the second time, or another one; two halves make a whole."""
    sweep = spec()
    shaky, tries = tree(8, 4, 64), []

    def outcome(sweep, proposal):
        found = measured(sweep, proposal)
        if proposal.config != shaky or proposal.origin is Origin.FINAL:
            return found
        cells = list(found.cells)
        spoilt = again * len(tries)
        tries.append(proposal)
        cells[spoilt] = CellResult(replace(cells[spoilt].metrics, flags=("unsteady",)), ())
        return replace(found, cells=tuple(cells))

    study = Study(sweep, DIALECT)
    asked, _ = drive(study, sweep, outcome)
    assert len(tries) == 2
    assert sum(one.origin is not Origin.FINAL for one in asked) == 9  # it still is one of the eight
    scored = [one for one in study.snapshot().trials if one.params == {"budget": 3.0, "topk": 2.0, "window": 6.0}]
    assert [one.value is not None for one in scored] == [bool(again)]
