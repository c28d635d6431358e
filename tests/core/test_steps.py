"""The time of a step is what decoding alone takes, or it is not known."""

from dataclasses import replace
from pathlib import Path

import pytest

from ddtree_tune.core.record import CellResult, TrialStatus
from ddtree_tune.core.speedup import NO_SPECULATION, PLAIN_CHAIN
from ddtree_tune.core.steps import first_token_seconds, held_seconds, prefill_share, step_points, step_seconds
from ddtree_tune.node.results import load
from tests.builders import tree
from tests.engines import PREFILL_S, SHAPES, measured_cell, step_of, trial


@pytest.mark.parametrize(("context", "users"), SHAPES)
@pytest.mark.parametrize(("width", "accept_len"), [(1, 1.0), (9, 4.2), (33, 6.5)])
def test_a_step_is_what_decoding_takes_without_the_prompts(context, users, width, accept_len):
    cell = measured_cell(context, users, width, accept_len)
    share = prefill_share(cell, PREFILL_S[context], PREFILL_S[context])
    found = step_seconds(cell, share, speculates=width > 1)
    assert found == pytest.approx(step_of(width, users))


def test_a_first_token_takes_what_it_takes_with_the_fewest_others():
    cells = [measured_cell(context, users, 9, 4.0) for context, users in reversed(SHAPES)]
    assert first_token_seconds(cells) == pytest.approx(PREFILL_S)
    assert first_token_seconds([replace(cells[0], in_flight_mean=None)]) == {}


@pytest.mark.parametrize("missing", ["accept_len", "output_tps", "in_flight_mean"])
def test_a_cell_that_lacks_a_number_has_no_step_time(missing):
    cell = replace(measured_cell(60, 1, 9, 4.0), **{missing: None})
    assert step_seconds(cell, 0.01, speculates=True) is None


def test_an_engine_that_only_reads_prompts_has_no_step_time():
    cell = measured_cell(60, 1, 9, 4.0)
    assert step_seconds(cell, prefill_share(cell, 100.0, 100.0), speculates=True) is None


def test_complete_trials_give_points():
    def accept_len(_):
        return 4.0

    trials = [trial(1, NO_SPECULATION, 1, lambda _: 1.0), trial(2, PLAIN_CHAIN, 16, accept_len)]
    trials += [trial(3, tree(8), 9, accept_len), trial(4, tree(32), 33, accept_len, status=TrialStatus.REJECTED)]
    found = step_points(trials)
    assert sorted({point.width for point in found}) == [1, 9, 16]
    assert len(found) == 3 * len(SHAPES)


LATENCY_S = 0.02
"""On a request's way to the engine and back, while others go on."""


def remote(number, config, width, accept_len, step_s):
    """A trial on an engine that is far away, whose steps take this long at any number of users."""
    cells = []
    for context, users in SHAPES:
        one = measured_cell(context, users, width, accept_len, step_s)
        e2e_s = one.e2e_s.mean + LATENCY_S
        tokens = users * one.output_tps * one.e2e_s.mean / users
        far = replace(one, e2e_s=replace(one.e2e_s, mean=e2e_s), output_tps=tokens / e2e_s)
        cells.append(replace(far, ttft_s=replace(one.ttft_s, mean=one.ttft_s.mean + LATENCY_S)))
    whole = trial(number, config, width, lambda _: accept_len)
    return replace(whole, cells=tuple(CellResult(cell, ()) for cell in cells))


def test_the_way_to_the_engine_and_back_holds_up_nobody_else():
    """TTFT alone would take it off every other request's steps: at 32 users there would be nothing left of them."""
    plain, drafted = remote(1, NO_SPECULATION, 1, 1.0, 0.004), remote(2, tree(8), 9, 4.0, 0.007)
    several = {context for context, users in SHAPES if users > 1}
    assert held_seconds([plain]) == pytest.approx({context: PREFILL_S[context] for context in several})
    assert [one.step_s for one in step_points([plain])] == pytest.approx([0.004] * len(SHAPES))
    assert [one.step_s for one in step_points([drafted], [plain, drafted])] == pytest.approx([0.007] * len(SHAPES))


def test_trials_with_drafts_say_nothing_of_how_long_a_prompt_holds_others_up():
    assert held_seconds([remote(2, tree(8), 9, 4.0, 0.007)]) == {}


def test_steps_that_grow_leave_a_prompt_what_its_first_token_takes():
    grows = trial(1, NO_SPECULATION, 1, lambda _: 1.0)
    assert all(bound > PREFILL_S[context] for context, bound in held_seconds([grows]).items())
    assert [one.step_s for one in step_points([grows])] == pytest.approx([step_of(1, users) for _, users in SHAPES])


def test_steps_measured_in_sglang_are_no_shorter_with_more_users():
    kept = load(str(Path(__file__).parents[1] / "golden" / "h200" / "sweep")).records
    seen = 0
    for one in kept:
        steps = {point.cell_id: point.step_s for point in step_points([one], kept)}
        if steps:
            fewest, most = (steps[f"chat_i60_o128_c{users}"] for users in (1, 16))
            assert most > 0.75 * fewest
            seen += 1
    assert seen == 6
