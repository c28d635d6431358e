"""Configurations, their identity, and how the embedded engine spells them."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.engine import Algorithm, EngineConfig, Slot, differences
from ddtree_tune.core.errors import EngineError, FailureClass, TuneError, boundary

SLOT = Slot("127.0.0.1", 4000, "trial-1-abc", None, None, 8)

configs = st.one_of(
    st.just(EngineConfig(Algorithm.NONE)),
    st.builds(EngineConfig, st.just(Algorithm.CHAIN), window=st.one_of(st.none(), st.integers(16, 999))),
    st.builds(
        EngineConfig,
        st.just(Algorithm.TREE),
        st.integers(1, 99),
        st.integers(1, 20),
        st.one_of(st.none(), st.integers(16, 999)),
    ),
)


def server_info(config):
    """What a server answers that does what it was asked."""
    return {
        "speculative_algorithm": {"tree": "DDTREE", "chain": "DFLASH", "none": None}[config.algorithm],
        "speculative_ddtree_budget": config.budget,
        "speculative_ddtree_topk": config.topk,
        "speculative_draft_window_size": config.window,
        "speculative_dflash_block_size": 16,
        "max_running_requests": 8,
        "served_model_name": "trial-1-abc",
        "version": "0.1.0",
    }


@given(configs)
def test_the_canonical_form_is_stable_and_reads_back_without_a_difference(config):
    dialect = BuiltinDialect()
    canonical = dialect.canonical(config)
    assert dialect.canonical(canonical) == canonical
    assert differences(canonical, dialect.read_back(server_info(canonical), canonical)) == ()


def test_no_two_ways_of_speculating_have_one_name():
    assert len({EngineConfig(one).label for one in Algorithm}) == len(Algorithm)


@given(configs, configs)
def test_equal_configurations_have_equal_ids_and_others_do_not(one, other):
    assert (one.config_id == other.config_id) == (one == other)
    assert pickle.loads(pickle.dumps(one)).config_id == one.config_id


def test_candidates_beyond_the_budget_are_the_same_server():
    dialect = BuiltinDialect(block_size=16)
    tree = EngineConfig(Algorithm.TREE, 4, 8, None)
    assert dialect.canonical(tree) == EngineConfig(Algorithm.TREE, 4, 4, None)
    assert dialect.canonical(EngineConfig(Algorithm.TREE, 40, 1, None)).budget == 15


def test_the_plan_is_a_command_that_people_can_paste():
    plan = BuiltinDialect().plan(EngineConfig(Algorithm.TREE, 8, 4, 256, (("threads", 2),)), SLOT)
    assert " ".join(plan.argv) == (
        "python -m ddtree_tune.builtin --algorithm tree --budget 8 --topk 4 --window 256 --threads 2 "
        "--max-running-requests 8 --host 127.0.0.1 --port 4000 --served-model-name trial-1-abc"
    )
    none = BuiltinDialect().plan(EngineConfig(Algorithm.NONE), SLOT)
    assert "--budget" not in none.argv
    assert "--window" not in none.argv


@pytest.mark.parametrize("field", ["speculative_ddtree_topk", "max_running_requests", "speculative_algorithm"])
def test_a_server_that_does_not_say_what_it_resolved_is_an_error_that_names_the_field(field):
    info = server_info(EngineConfig(Algorithm.TREE, 8, 4, None))
    del info[field]
    with pytest.raises(EngineError, match=field):
        BuiltinDialect().read_back(info, EngineConfig(Algorithm.TREE, 8, 4, None))


def test_every_differing_knob_is_named():
    asked = EngineConfig(Algorithm.TREE, 32, 4, 256)
    info = server_info(asked) | {"speculative_ddtree_budget": 15, "speculative_draft_window_size": None}
    found = differences(asked, BuiltinDialect().read_back(info, asked))
    assert [str(one) for one in found] == [
        "budget asked 32, server resolved 15",
        "window asked 256, server resolved None",
    ]


def every_error(kind=TuneError):
    return [kind, *(error for sub in kind.__subclasses__() for error in every_error(sub))]


@pytest.mark.parametrize("kind", every_error())
def test_errors_survive_a_process_boundary(kind):
    error = kind("a sentence", FailureClass.HANG) if kind is EngineError else kind("a sentence")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error) == "a sentence"
    assert getattr(back, "failure", None) == getattr(error, "failure", None)


def test_a_boundary_attributes_what_escapes_and_keeps_what_is_typed():
    with pytest.raises(EngineError, match="cannot start: OSError: no"), boundary(EngineError, "start"):
        raise OSError("no")
    with pytest.raises(EngineError) as raised, boundary(TuneError, "start"):
        raise EngineError("mine", FailureClass.HANG)
    assert raised.value.failure is FailureClass.HANG
