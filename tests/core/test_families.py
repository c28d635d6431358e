"""Families of prompts, told apart in one cell: figures computed by hand."""

from dataclasses import replace

import pytest

from ddtree_tune.core.metrics import FamilyMetrics, measure
from ddtree_tune.core.schema import schema
from ddtree_tune.core.trace import CellRun, Phase, RequestError, RequestTrace, SpecCounters, Window
from ddtree_tune.core.workload import Cell, ClosedLoop

MS = 1_000_000
CELL = Cell(1000, 12, ClosedLoop(1), window_s=1.0)


def trace(family, chunks_ms, per_chunk, histogram, **changes):
    """A request with chunks of equal size at the given times."""
    times = tuple(at * MS for at in chunks_ms)
    made = RequestTrace(
        request_id="r",
        phase=Phase.WINDOW,
        prompt_sha="0" * 16,
        prompt_family=family,
        sent_ns=(chunks_ms[0] - 10) * MS,
        first_byte_ns=times[0],
        chunk_ns=times,
        chunk_tokens=tuple(per_chunk * (i + 1) for i in range(len(times))),
        end_ns=times[-1] + 1,
        prompt_tokens=1000,
        cached_tokens=0,
        completion_tokens=per_chunk * len(times),
        finish_reason="length",
        spec=SpecCounters(sum(histogram), histogram) if histogram else None,
        text="x",
        reasoning="",
    )
    return replace(made, **changes)


def run(*traces, repeat=0, **changes):
    return replace(CellRun(CELL, repeat, Window(0, 1000 * MS), traces), **changes)


CODE = trace("code/anagrams/prose", (100, 200, 300), 4, (0, 0, 0, 3))
OTHER_CODE = trace("code/rle/bare", (400, 600, 800), 4, (1, 0, 1, 1))
CHAT = trace("chat/advice/prose", (100, 150, 250, 400), 3, (2, 2))


def test_each_family_has_its_own_figures():
    metrics = measure([run(CODE, OTHER_CODE, CHAT)])
    chat, code = metrics.families
    # Code: 8 tokens in 200 ms and in 400 ms after the first chunks, 25 and 50 ms a token, 37.5 in the mean.
    # Six steps of 4 + 4 + 4 + 1 + 3 + 4 tokens. Chat: 9 tokens in 300 ms, two steps of 1 and two of 2.
    assert (code.family, code.requests_ok, code.output_tokens) == ("code", 2, 24)
    assert (code.user_tps, code.accept_len) == (pytest.approx(1 / 0.0375), pytest.approx(20 / 6))
    assert (chat.family, chat.requests_ok, chat.output_tokens) == ("chat", 1, 12)
    assert (chat.user_tps, chat.accept_len) == (pytest.approx(30), pytest.approx(6 / 4))
    assert metrics.accept_len == pytest.approx(26 / 10)
    assert metrics.output_tokens == 36
    assert metrics.requests_ok == 3


def test_a_single_family_is_listed_as_well():
    metrics = measure([run(CODE)])
    assert metrics.families == (FamilyMetrics("code", 1, 12, pytest.approx(40), pytest.approx(4)),)
    assert metrics.user_tps == metrics.families[0].user_tps


def test_repeats_are_pooled_and_only_the_window_counts():
    late = trace("chat/advice/prose", (900, 1100, 1300), 4, (0, 0, 0, 3))  # ends behind the window
    warm = trace("chat/ideas/bare", (20, 40, 60), 4, (0, 0, 0, 3), phase=Phase.WARMUP)
    chat, code = measure([run(CODE, late), run(OTHER_CODE, warm, repeat=1)]).families
    assert (code.requests_ok, code.output_tokens, code.accept_len) == (2, 24, pytest.approx(20 / 6))
    assert (chat.requests_ok, chat.output_tokens) == (0, 4 + 12)  # tokens count, whoever brought them
    assert (chat.user_tps, chat.accept_len) == (None, None)


def test_what_a_family_alone_lacks_has_its_reason():
    failed = trace("maths/rates/bare", (100, 200), 4, (), error=RequestError.CLOSED)
    metrics = measure([run(CODE, failed, replace(CHAT, spec=None))])
    chat, _, maths = metrics.families
    assert chat.accept_len is None
    assert chat.user_tps is not None
    assert (maths.requests_ok, maths.output_tokens, maths.user_tps, maths.accept_len) == (0, 0, None, None)
    reasons = dict(metrics.reasons)
    assert {"accept_len of chat", "accept_len of maths", "user_tps of maths"} <= set(reasons)
    assert all(reasons.values())
    assert "user_tps of chat" not in reasons


def test_uncounted_tokens_of_one_family_leave_the_other_its_own():
    silent = replace(CHAT, chunk_tokens=None, completion_tokens=None)
    chat, code = measure([run(CODE, silent)]).families
    assert (chat.output_tokens, code.output_tokens) == (None, 12)


def test_without_a_window_families_are_named_and_have_no_figures():
    assert measure([run(CODE, CHAT, window=None)]).families == tuple(
        FamilyMetrics(name, 0, None, None, None) for name in ("chat", "code")
    )


def test_families_are_kept_in_the_cells_table():
    kept = schema("cells").field("families")
    assert {field.name for field in kept.type.value_type} == set(FamilyMetrics.__dataclass_fields__)
