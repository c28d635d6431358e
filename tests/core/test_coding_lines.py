"""The coding evaluation in words: no rate without its outcomes, no drop without its place."""

from dataclasses import replace

import pytest

from ddtree_tune.core.coding import Chunks, Outcome, Reply, count_outcomes
from ddtree_tune.core.coding_lines import coding_section, elsewhere, outcome_text, rate_text
from ddtree_tune.core.coding_result import coding_results
from ddtree_tune.core.record import Origin
from ddtree_tune.core.tables import WIDTH
from tests.builders import CHAIN, NONE, attempts, proposal, record, spec, tree

SWEEP = spec()


def asked(found, *, users=8, text=None, temperature=0.0):
    """The same attempts at a concurrency; ``text`` by problem is what the reply says instead."""
    chunks = Chunks((10, 20, 40), (3, 7, 12))
    return tuple(
        replace(
            one,
            concurrency=users,
            temperature=temperature,
            chunks=chunks,
            reply=Reply((text or {}).get(one.problem_id, "x" * 40), None, "stop"),
        )
        for one in found
    )


def section(*arms, margin=0.05):
    """The section for (configuration, attempts), as one line of words."""
    records = [record(SWEEP, proposal(n, config, Origin.SEARCH), attempts=of) for n, (config, of) in enumerate(arms)]
    lines = coding_section(coding_results(records), margin)
    assert max(map(len, lines)) <= WIDTH
    return lines, " ".join(" ".join(lines).split())


def test_a_rate_names_what_became_of_the_others():
    kinds = [Outcome.PASS] * 20 + [Outcome.WRONG_ANSWER] * 4 + [Outcome.TRUNCATED]
    assert outcome_text(count_outcomes(kinds)) == "20 of 25: 4 wrong_answer, 1 truncated"
    assert outcome_text(count_outcomes(kinds[:20])) == "20 of 20"
    apart = outcome_text(count_outcomes([*kinds, Outcome.REQUEST_ERROR, Outcome.HARNESS_ERROR, Outcome.REQUEST_ERROR]))
    assert apart == "20 of 25: 4 wrong_answer, 1 truncated; not counted: 2 request_error, 1 harness_error"
    assert rate_text(count_outcomes(kinds)) == "over all 0.80 (0.61 to 0.91), over completed 0.83 (0.64 to 0.93)"
    assert rate_text(count_outcomes([Outcome.REQUEST_ERROR])) == "over all unknown, over completed unknown"


def test_another_rate_alone_is_shown_and_the_same_is_not():
    both = (*asked(attempts(18)), *asked(attempts(17), users=1))
    assert elsewhere(both) == "17/20 at 1"
    assert elsewhere((*asked(attempts(18)), *asked(attempts(18), users=1))) == ""
    _, words = section((NONE, both))
    assert "no speculation: 2 wrong_answer; 17/20 at 1" in words


def test_each_setting_has_its_rates_its_difference_and_its_test():
    lines, words = section(
        (tree(8), asked(attempts(14, truncated=2))), (NONE, asked(attempts(18))), (CHAIN, asked(attempts(19)))
    )
    assert lines[0].startswith("Coding at concurrency 8")
    assert [line.split("  ")[1].strip() for line in lines[2:5]] == ["no speculation", "8/4/none", "chain"]
    row = next(line for line in lines if line.strip().startswith("8/4/none "))
    assert row.split()[1:] == [
        *("14/20", "0.70", "(0.48-0.85)", "0.78", "(0.55-0.91)", "-0.20", "(-0.41", "to", "+0.01)", "0.12")
    ]
    assert "8/4/none: 4 wrong_answer, 2 truncated" in words


def test_settings_that_nothing_tells_from_no_speculation_share_one_line():
    lines, words = section((NONE, asked(attempts(18))), (CHAIN, asked(attempts(18))), (tree(8), asked(attempts(18))))
    assert "Passed and failed as no speculation, and all 20 greedy texts are the same: chain, 8/4/none" in words
    assert not any(line.strip().startswith("8/4/none") for line in lines)
    assert "fault" not in words


def test_a_setting_with_the_same_texts_and_other_outcomes_has_its_row_and_says_so():
    lines, words = section((NONE, asked(attempts(18))), (tree(8), asked(attempts(17))))
    assert any(line.strip().startswith("8/4/none") for line in lines)
    assert "all 20 greedy texts as no speculation's" in words


def test_a_drop_is_a_probable_fault_with_the_place_of_the_first_difference():
    changed = {"p3": "x" * 12 + "y" * 28, "p7": "x" * 30 + "y" * 10}
    _, words = section((NONE, asked(attempts(18))), (tree(8), asked(attempts(10), text=changed)))
    assert "18 of 20 texts as no speculation's, first differs in p3 at concurrency 8 between tokens 4 and 7" in words
    assert (
        "Probable numerics fault of 8/4/none: it fails 8 problems that no speculation passes, and passes 0 that it "
        "fails (p = 0.01); its text first differs in p3 at concurrency 8 between tokens 4 and 7." in words
    )


@pytest.mark.parametrize(
    ("passed", "margin", "dropped"), [(18, 0.0, False), (17, 0.05, False), (17, 0.0, True), (16, 0.05, True)]
)
def test_a_drop_is_more_than_chance_or_more_than_is_allowed(passed, margin, dropped):
    _, words = section((NONE, asked(attempts(18))), (tree(8), asked(attempts(passed))), margin=margin)
    assert ("Probable numerics fault" in words) == dropped
    assert ("chance is not ruled out" in words) == dropped
    assert ("its greedy text is the same: look at how the programs were run" in words) == dropped


def test_sampled_text_is_not_compared_and_samples_give_pass_at_k():
    def twice(passed):
        found = asked(attempts(passed), temperature=0.8)
        return (*found, *(replace(one, sample=1, outcome=Outcome.PASS) for one in found))

    _, words = section((NONE, twice(18)), (tree(8), twice(2)))
    assert "no speculation: 2 wrong_answer; pass@1 0.95; pass@2 1.00" in words
    assert "8/4/none: 18 wrong_answer; pass@1 0.55; pass@2 1.00" in words
    assert "greedy" not in words
    assert "differs" not in words


def test_without_an_evaluation_there_is_no_section_and_without_a_baseline_no_difference():
    assert coding_section((), 0.05) == []
    lines, _ = section((tree(8), asked(attempts(18))))
    assert lines[2].split()[-2:] == ["-", "-"]
