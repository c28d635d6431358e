"""The study: order of phases, what each sampler asks, what is told to Optuna, and that it can be resumed."""

import warnings
from importlib.util import find_spec

import optuna
import pytest

from ddtree_tune.core.errors import FailureClass, SpecError
from ddtree_tune.core.record import Origin, TrialStatus
from ddtree_tune.core.search_spec import FinalSpec
from ddtree_tune.core.spec import Point
from ddtree_tune.node.search import Study
from tests.builders import CHAIN, DIALECT, NONE, SPEC, attempts, record, spec, surface, tree
from tests.node.driving import drive, measured


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


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_in_which_order_nodes_in_parallel_tell_does_not_matter(sampler):
    sweep = spec(sampler=sampler, trials=14)

    def after(order):
        study = Study(sweep, DIALECT)
        flying = [study.ask() for _ in range(10)]
        for at in order:
            study.tell(measured(sweep, flying[at]))
        return [study.ask() for _ in range(4)]

    straight = after(range(10))
    assert None not in straight
    assert all(after(order) == straight for order in ([*range(9, -1, -1)], [4, 9, 1, 0, 7, 3, 8, 2, 6, 5]))


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
