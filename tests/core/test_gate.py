"""The gate: each lie a server can tell is found, under its own class, in the order of the gate."""

from dataclasses import replace

import pytest

from ddtree_tune.core.engine import Algorithm, Difference, EffectiveConfig, EngineConfig
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.gate import Probe, judge
from ddtree_tune.core.spec import GateSpec
from ddtree_tune.core.trace import Phase, RequestError, RequestTrace, SpecCounters

GOOD_TEXT = "```python\ndef clamp(value, low, high):\n    return max(low, min(value, high))\n```"
TREE = EngineConfig(Algorithm.TREE, 8, 4, None)
NONE = EngineConfig(Algorithm.NONE)
EFFECTIVE = EffectiveConfig(Algorithm.TREE, 8, 4, None, 16, 8, "trial-1-abc", "0.1.0")


def trace(text=GOOD_TEXT, spec=SpecCounters(10, (2, 3, 5)), error=None):
    return RequestTrace(
        request_id="r",
        phase=Phase.WARMUP,
        prompt_sha="0" * 16,
        prompt_family="gate",
        sent_ns=0,
        first_byte_ns=1,
        chunk_ns=(1, 2),
        chunk_tokens=(1, 2),
        end_ns=3,
        prompt_tokens=20,
        cached_tokens=0,
        completion_tokens=2,
        finish_reason="stop",
        spec=spec,
        text=text,
        reasoning="thought. ",
        error=error,
        error_detail=error and "detail",
    )


PROBE = Probe(
    alive=True,
    port_owned=True,
    served_models=("trial-1-abc",),
    server_info={},
    answers=(trace(), trace()),
    crowd=(trace(),) * 8,
)


def verdict(probe=PROBE, asked=TREE, effective=EFFECTIVE, different=(), reference=None, **gate):
    return judge(
        GateSpec(**gate),
        asked,
        effective,
        different,
        probe,
        nonce="trial-1-abc",
        max_concurrency=8,
        reference=reference,
    )


def test_a_right_server_passes_every_check_in_order():
    got = verdict(reference="thought. " + GOOD_TEXT)
    assert got.answered
    assert [check.name for check in got.checks] == [
        "identity",
        "effective",
        "capacity",
        "completion",
        "crowd",
        "speculation",
        "lossless",
    ]
    assert got.lossless is True
    assert got.accept_len == pytest.approx((2 * 1 + 3 * 2 + 5 * 3) / 10)


DIFFERENCE = Difference("budget", 8, 15)


@pytest.mark.parametrize(
    ("changes", "failure", "words"),
    [
        ({"probe": replace(PROBE, alive=False)}, FailureClass.CRASH_REQUEST, "ended"),
        ({"probe": replace(PROBE, port_owned=False)}, FailureClass.PORT_CONFLICT, "another process"),
        ({"probe": replace(PROBE, served_models=("old",))}, FailureClass.IDENTITY, "old"),
        ({"different": (DIFFERENCE,)}, FailureClass.SILENT_OVERRIDE, "budget asked 8, server resolved 15"),
        ({"effective": replace(EFFECTIVE, max_running_requests=4)}, FailureClass.SILENT_OVERRIDE, "8 requests at once"),
        ({"effective": replace(EFFECTIVE, max_running_requests=None)}, FailureClass.SILENT_OVERRIDE, "None"),
        ({"probe": replace(PROBE, answers=())}, FailureClass.NO_GENERATION, "no answer"),
        ({"probe": replace(PROBE, answers=(trace(),))}, FailureClass.NO_GENERATION, "no answer"),
        (
            {"probe": replace(PROBE, answers=(trace(), trace(error=RequestError.STALLED)))},
            FailureClass.NO_GENERATION,
            "stalled",
        ),
        ({"probe": replace(PROBE, answers=(trace("hello"),) * 2)}, FailureClass.NO_GENERATION, "must match"),
        ({"probe": replace(PROBE, answers=(trace("!" * 500),) * 2)}, FailureClass.DEGENERATE_OUTPUT, "loop"),
        ({"probe": replace(PROBE, crowd=())}, FailureClass.NO_GENERATION, "8 requests at once"),
        (
            {"probe": replace(PROBE, crowd=(trace(error=RequestError.HTTP_5XX),) * 8)},
            FailureClass.NO_GENERATION,
            "8 failures",
        ),
        ({"asked": NONE}, FailureClass.SPEC_INERT, "must be off"),
        (
            {"probe": replace(PROBE, answers=(trace(spec=None),) * 2, crowd=(trace(spec=None),) * 8)},
            FailureClass.SPEC_INERT,
            "got None over 0",
        ),
        (
            {
                "probe": replace(
                    PROBE,
                    answers=(trace(spec=SpecCounters(9, (9,))),) * 2,
                    crowd=(trace(spec=SpecCounters(9, (9,))),) * 8,
                )
            },
            FailureClass.SPEC_INERT,
            "got 1.0",
        ),
        (
            {"reference": "thought. ```python\ndef clamp(a)", "lossless": "fatal"},
            FailureClass.LOSSY,
            "after 29 characters",
        ),
    ],
)
def test_each_lie_is_found_under_its_own_class(changes, failure, words):
    got = verdict(**changes)
    assert not got.answered
    assert got.failed is got.checks[-1]
    assert got.failed.failure is failure
    assert words in got.failed.detail


def test_a_divergence_is_recorded_where_the_spec_does_not_make_it_fatal():
    got = verdict(reference="thought. ```python\ndef clamp(a)")
    assert got.answered
    assert (got.lossless, got.first_divergence) == (False, 29)


def test_a_difference_may_be_allowed_by_name():
    assert verdict(different=(DIFFERENCE,), allow=("budget",)).answered
    assert not verdict(different=(DIFFERENCE,), allow=("topk",)).answered


def test_a_verdict_without_checks_is_no_pass():
    assert not replace(verdict(), checks=()).answered
