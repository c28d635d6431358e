"""Bad input is one sentence before anything is loaded."""

from types import SimpleNamespace

import pytest

from ddtree_tune.sglang_plugin.knobs import Knobs, check_engine, read_knobs

SERVED = {
    "page_size": 1,
    "attention_backend": "triton",
    "prefill_attention_backend": None,
    "decode_attention_backend": None,
    "speculative_draft_attention_backend": None,
    "sampling_backend": "pytorch",
    "speculative_accept_threshold_single": 1.0,
    "speculative_accept_threshold_acc": 1.0,
    "speculative_adaptive": False,
    "enable_deterministic_inference": False,
    "enable_two_batch_overlap": False,
    "enable_pdmux": False,
    "disaggregation_mode": "null",
    "dcp_size": 1,
    "attn_cp_size": 1,
}


def read(width=17, topk=4, block=None, trained=16, vocabulary=2048):
    return read_knobs(width, topk, block, trained, vocabulary)


def test_knobs_are_what_is_asked_and_a_block_is_the_drafters_own():
    assert read() == Knobs(16, 4, 16)
    assert read(block=8) == Knobs(16, 4, 8)
    assert (read(width=5).depth, read(width=5).longest, read(width=65).longest) == (4, 5, 16)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"width": None}, "--speculative-num-draft-tokens must be at least 2"),
        ({"width": 1}, "but got 1; a budget of 16 is 17"),
        ({"topk": None}, "--speculative-eagle-topk must be between 1 and the vocabulary's 2048"),
        ({"topk": 0}, "but got 0"),
        ({"topk": 2049}, "but got 2049"),
        ({"block": 17}, "between 2 and the drafter's own 16 with DDTREE, but got 17"),
        ({"block": 1}, "but got 1"),
        ({"topk": 1}, "at most 16 with DDTREE at --speculative-eagle-topk 1 and a block of 16"),
        ({"width": 16, "block": 4, "topk": 2}, "no more than 14 nodes and the root, but got 16"),
    ],
)
def test_a_flag_that_is_wrong_is_named(asked, says):
    with pytest.raises(ValueError, match=says.replace("(", r"\(")) as refused:
        read(**asked)
    assert "\n" not in str(refused.value)


def test_an_engine_as_it_must_be_passes():
    check_engine(SimpleNamespace(**SERVED), None)
    check_engine(SimpleNamespace(**SERVED | {"speculative_draft_attention_backend": "triton"}), "-1")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"page_size": 16}, "page_size 1, but got 16; use --page-size 1"),
        (
            {"attention_backend": "fa3"},
            "prefill_attention_backend 'triton', but got 'fa3'; use --attention-backend triton",
        ),
        ({"decode_attention_backend": "fa3"}, "decode_attention_backend 'triton', but got 'fa3'"),
        ({"speculative_draft_attention_backend": "fa3"}, "use --speculative-draft-attention-backend triton"),
        ({"sampling_backend": "ascend"}, "but got 'ascend'; use --sampling-backend pytorch"),
        ({"speculative_accept_threshold_acc": 0.9}, "but got 0.9"),
        ({"disaggregation_mode": "decode"}, "but got 'decode'"),
        ({"enable_deterministic_inference": True}, "no --enable-deterministic-inference"),
    ],
)
def test_an_engine_that_cannot_hold_a_tree_is_refused(changed, says):
    with pytest.raises(ValueError, match=says):
        check_engine(SimpleNamespace(**SERVED | changed), None)


def test_pretended_acceptance_is_refused():
    with pytest.raises(ValueError, match="SGLANG_SIMULATE_ACC_LEN must be unset"):
        check_engine(SimpleNamespace(**SERVED), "3.5")
