"""The study: order of phases, what it learns from, what it asks again, and that it can be resumed."""

import warnings
from dataclasses import replace
from importlib.util import find_spec

import optuna
import pytest

from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.errors import INFRASTRUCTURE, Blame, FailureClass, SpecError, blame
from ddtree_tune.core.record import CellResult, Origin, TrialStatus
from ddtree_tune.core.search_spec import FinalSpec
from ddtree_tune.core.spec import Point
from ddtree_tune.node.search import Study
from tests.builders import CHAIN, DIALECT, NONE, SPEC, attempts, record, spec, surface, tree


def measured(sweep, proposal):
    return record(sweep, proposal, surface(proposal.config))


def drive(study, sweep, outcome=measured, stop=lambda asked: False):
    """Ask and tell one after the other; returns what was asked and what was told."""
    asked, told = [], []
    while not stop(asked) and (proposal := study.ask()) is not None:
        assert len(asked) < 500
        asked.append(proposal)
        told.append(outcome(sweep, proposal))
        study.tell(told[-1])
    return asked, told


def test_baselines_then_seeds_then_search_then_finals():
    sweep = spec()
    study = Study(sweep, DIALECT)
    asked, _ = drive(study, sweep)
    assert study.done
    assert study.stopped is None
    assert [one.config for one in asked[:4]] == [NONE, CHAIN, tree(8, 4, 64), tree(16, 6)]
    origins = [one.origin for one in asked]
    assert origins == [Origin.BASELINE] * 2 + [Origin.SEED] * 2 + [Origin.SEARCH] * 4 + [Origin.FINAL] * 8
    assert all(one.coding != (one.origin is Origin.FINAL) for one in asked)
    assert [one.trial_id[:4] for one in asked] == [f"{n:04d}" for n in range(1, 17)]
    assert all(one.config.config_id in one.trial_id for one in asked)
    searched = [one.config.config_id for one in asked[:8]]
    assert len(set(searched)) == 8


def test_finals_alternate_their_order_so_that_drift_cancels():
    sweep = spec()
    asked, _ = drive(Study(sweep, DIALECT), sweep)
    finals = [one for one in asked if one.origin is Origin.FINAL]
    first, second = finals[:4], finals[4:]
    assert [one.config for one in second] == [one.config for one in first][::-1]
    assert [one.round for one in finals] == [0] * 4 + [1] * 4
    assert finals[0].trial_id.endswith("-r1")
    assert finals[4].trial_id.endswith("-r2")
    best = sorted((surface(one.config) for one in asked[2:8]), reverse=True)
    assert [surface(one.config) for one in first[:2]] == best[:2]
    assert [one.config for one in first[2:]] == [NONE, CHAIN]


def test_an_odd_number_of_rounds_and_no_finals_at_all():
    for rounds, settings, expected in ((3, 1, 9), (0, 2, 0), (2, 0, 0)):
        sweep = spec(final=FinalSpec(settings=settings, rounds=rounds))
        asked, _ = drive(Study(sweep, DIALECT), sweep)
        assert sum(one.origin is Origin.FINAL for one in asked) == expected


def test_the_reference_is_the_plain_baselines_answer_once_it_is_known():
    sweep = spec()
    asked, told = drive(Study(sweep, DIALECT), sweep)
    assert asked[0].reference is None
    assert told[0].answer
    assert {one.reference for one in asked[1:]} == {told[0].answer}


def test_equal_seeds_run_once():
    sweep = spec()
    twice = (*sweep.seeds, sweep.seeds[0])
    sweep = sweep.model_copy(update={"seeds": twice})
    asked, _ = drive(Study(sweep, DIALECT), sweep)
    assert [one.origin for one in asked].count(Origin.SEED) == 2


NEEDS_TORCH = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("scipy", "torch")), reason="needs scipy and torch"
)
SAMPLERS = ["surrogate", "tpe", pytest.param("gp", marks=NEEDS_TORCH), "nsga2", "random", "grid"]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_every_sampler_covers_a_small_space_exactly_once_and_then_ends(sampler):
    sweep = spec(SPEC.replace("[4, 8, 16, 32]", "[4, 8]"), sampler=sampler, trials=200)
    study = Study(sweep, DIALECT)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asked, _ = drive(study, sweep)
    searched = [one.config.config_id for one in asked if one.origin in {Origin.SEED, Origin.SEARCH}]
    listed = {
        DIALECT.canonical(tree(budget, topk, window)).config_id
        for budget in (4, 8)
        for topk in (1, 2, 4)
        for window in (64, None)
    }
    assert len(searched) == len(set(searched))
    assert set(searched) == listed | {tree(16, 6).config_id}
    assert study.done


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_study_rebuilt_from_any_point_asks_the_same_next_trial(sampler):
    sweep = spec(sampler=sampler)

    def outcome(sweep, proposal):
        if proposal.config == tree(16, 6):
            return record(sweep, proposal, failure=FailureClass.STARTUP_OOM)
        return measured(sweep, proposal)

    asked, told = drive(Study(sweep, DIALECT), sweep, outcome)
    assert len(asked) == 17
    for count in range(len(told)):
        assert Study(sweep, DIALECT, told[:count]).ask() == asked[count]
    assert Study(sweep, DIALECT, told).done


@pytest.mark.skipif(find_spec("torch") is not None, reason="needs a machine without torch")
def test_a_sampler_whose_packages_are_missing_is_refused_before_anything_runs():
    with pytest.raises(SpecError, match=r"sampler gp must find scipy and torch, but got no .*torch; pip install"):
        Study(spec(sampler="gp"), DIALECT)


def test_the_genetic_sampler_breeds_from_the_generations_that_it_was_told():
    """With the whole first generation in one corner, children that are not mutations lie there too."""
    text = "name: s\nspace: {budget: {low: 1, high: 32}, topk: {low: 1, high: 8}, window: [64, 128, 256, none]}\n"
    text += "load: {contexts: [60], concurrency: [1]}\nsearch: {trials: 40, final: {settings: 0}}"
    corner = [tree(budget, topk, 64) for budget in (29, 30, 31, 32) for topk in (7, 8)]
    seeds = tuple(Point(budget=one.budget, topk=one.topk, window=one.window) for one in corner)
    near = {}
    for sampler in ("nsga2", "random"):
        sweep = spec(text, sampler=sampler).model_copy(update={"seeds": seeds})
        asked, _ = drive(Study(sweep, DIALECT), sweep)
        bred = [one.config for one in asked if one.origin is Origin.SEARCH][:8]
        near[sampler] = sum(one.budget >= 24 and one.window == 64 for one in bred)
    assert near["random"] <= 3
    assert near["nsga2"] >= 5


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


def test_a_setting_that_solves_fewer_problems_violates_a_constraint():
    sweep = spec(pass_rate_margin=0.05)
    worse = tree(8, 4, 64)
    study = Study(sweep, DIALECT)

    def outcome(sweep, proposal):
        passed = 16 if proposal.config == worse else 17
        tps = 900.0 if proposal.config == worse else surface(proposal.config)
        return record(sweep, proposal, tps, attempts=attempts(passed if proposal.config != NONE else 18))

    asked, _ = drive(study, sweep, outcome)
    violated = [one for one in study.snapshot().trials if any(value > 1e-9 for value in one.constraints.values())]
    assert len(violated) == 1
    assert violated[0].state is optuna.trial.TrialState.COMPLETE
    assert violated[0].constraints["pass_rate"] == pytest.approx(0.05)
    assert worse not in [one.config for one in asked if one.origin is Origin.FINAL]


def test_nodes_in_parallel_get_different_settings_and_the_finals_wait():
    sweep = spec()
    study = Study(sweep, DIALECT)
    flying = [study.ask() for _ in range(8)]
    assert len({one.config for one in flying}) == 8
    assert study.ask() is None
    assert not study.done
    running = [one for one in study.snapshot().trials if one.state is optuna.trial.TrialState.RUNNING]
    assert len(running) == 6  # baselines have no place in the space
    for one in flying[:-1]:
        study.tell(measured(sweep, one))
    assert study.ask() is None  # the last trial of the search may be a finalist
    assert not study.done
    study.tell(measured(sweep, flying[-1]))
    assert study.ask().origin is Origin.FINAL


def test_a_record_that_its_writer_did_not_finish_counts_as_not_asked():
    sweep = spec()
    study = Study(sweep, DIALECT)
    _, told = drive(study, sweep, stop=lambda asked: len(asked) == 5)
    half = record(sweep, study.ask(), status=TrialStatus.FAILED)
    assert half.failure is None
    resumed = Study(sweep, DIALECT, [*told, half])
    again = resumed.ask()
    assert again.config == half.config
    assert again.trial_id.startswith("0007-")


def test_the_value_told_to_optuna_is_the_log_of_the_speed_up():
    sweep = spec()
    study = Study(sweep, DIALECT)
    drive(study, sweep, stop=lambda asked: len(asked) == 3)
    (seed,) = study.snapshot().trials
    assert seed.value == pytest.approx(0.5077866649)  # by hand: ln 1.8 - 0.08 for one octave from the optimum
    assert seed.params == {"budget": 3.0, "topk": 2.0, "window": 6.0}


def test_asking_does_not_change_optunas_own_log_level():
    before = optuna.logging.get_verbosity()
    sweep = spec()
    drive(Study(sweep, DIALECT), sweep)
    assert optuna.logging.get_verbosity() == before
