"""What is printed: the answer in sentences, what failed with its reason, and a command to paste."""

from dataclasses import replace

import pytest

from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.engine import Difference
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.headline import headline
from ddtree_tune.core.plan import plan as plan_of
from ddtree_tune.core.record import Origin
from ddtree_tune.core.report import answer_lines, plan_lines
from ddtree_tune.core.search_spec import FinalSpec
from ddtree_tune.core.tables import WIDTH, cut, text_table
from ddtree_tune.node.search import Study
from tests.builders import CHAIN, DIALECT, NONE, attempts, proposal, record, spec, surface, tree
from tests.core.test_conclusion import BIG, SMALL, SPEED, SWEEP, finals, search, users


def said(trials, sweep=SWEEP):
    conclusion = conclude(trials, sweep)
    return headline(conclusion), answer_lines(conclusion, trials, sweep, root="/results/small-1")


def test_a_clear_winner_is_named_with_both_gains_and_their_basis():
    text, lines = said([*search(), *finals()])
    assert text.startswith("Run budget 16, topk 4, window 64: it is 1.5")
    assert "x no speculation" in text
    assert "x the plain chain, over 4 cells, measured again in 2 rounds beside the baselines." in text
    assert "It passes 18 of 20 problems (0.70 to 0.97), the same ones as no speculation." in text
    page = "\n".join(lines)
    assert "Measured again" in page
    assert "Best for each cell" in page
    assert "Best for each number of requests in flight, over its cells" in page
    assert "/results/small-1" in page


@pytest.mark.parametrize(
    ("speed", "again", "words"),
    [
        (SPEED, {}, "looks best: it"),
        ({**SPEED, BIG: 1.2, SMALL: 1.1}, {"noise": 1e-6}, "Run the plain chain: no tree is faster by more than 1 %."),
        ({NONE: 1.0, CHAIN: 0.9, BIG: 0.95, SMALL: 0.8}, {"noise": 1e-6}, "Turn speculation off: nothing is faster"),
        ({**SPEED, BIG: 1.21, SMALL: 1.0}, {"noise": 0.08}, "Inconclusive. The best tree, budget 16,"),
    ],
)
def test_every_answer_has_its_sentence(speed, again, words):
    trials = [*search(speed), *(finals(speed, **again) if again else [])]
    text, _ = said(trials)
    if not again:
        assert "looks best: 1.50 x no speculation" in text
        assert "from the search's own measurement, not repeated" in text
    else:
        assert text.startswith(words)


def test_no_answer_says_why():
    text, lines = said([record(SWEEP, proposal(1, NONE, Origin.BASELINE), failure=FailureClass.STARTUP_OOM)])
    assert text == "No answer: no speculation, the base of every gain, has no scored measurement."
    assert any("failed: startup_oom" in line for line in lines)
    assert any(line.strip() == "0001 no speculation: startup_oom: it did not work" for line in lines)
    assert said([])[1]


def test_where_speculation_is_not_told_apart_from_none_it_is_not_called_off():
    by_load = {NONE: 1.0, CHAIN: users(1.2, 0.9), BIG: users(2.0, 0.98), SMALL: users(1.9, 0.97)}
    noise = iter((1.0, 1.1, 0.92, 1.05, 0.95, 1.08, 0.97, 1.02, 1.06, 0.94, 1.0, 1.03) * 20)

    def shaky(gain):
        return lambda context, concurrency: (gain(context, concurrency) if callable(gain) else gain) * next(noise)

    text, lines = said([*search(by_load), *finals({config: shaky(gain) for config, gain in by_load.items()})])
    assert any("no speculation" in line and "tie with" in line for line in lines)
    assert "Turn speculation off at" not in text
    assert "Speculation may not pay at: context" in text


def test_where_speculation_does_not_pay_is_said():
    by_load = {NONE: 1.0, CHAIN: users(1.2, 0.9), BIG: users(2.0, 0.7), SMALL: users(1.9, 0.8)}
    text, lines = said([*search(by_load), *finals(by_load)])
    assert "Turn speculation off at: context 60, concurrency 8; context 512, concurrency 8." in text
    rows = [line for line in lines if line.split()[:2] == ["60", "8"]]
    assert any("no speculation" in row and "sure" in row for row in rows)


def test_problems_that_differ_are_counted_both_ways():
    trials = search()
    trials[2] = replace(trials[2], attempts=attempts(19))
    text, _ = said([*trials, *finals()])
    assert "It passes 19 of 20 problems (0.76 to 0.99), 1 that no speculation fails, and fails 0" in text
    assert "(McNemar p = 1.00)" in text


def test_lossy_text_and_knobs_that_were_overridden_are_marked():
    trials = search()
    gate = replace(trials[2].gate, lossless=False, first_divergence=120)
    trials[2] = replace(trials[2], gate=gate, differences=(Difference("window", 64, 128),))
    _, lines = said(trials)
    row = next(line for line in lines if " 16/4/64 " in line and "search" in line)
    assert row.endswith("text differs, not as asked")


def test_a_reason_is_printed_up_to_four_lines():
    reason = "CUDA out of memory while capturing graphs " * 5
    broke = record(SWEEP, proposal(9, tree(32)), failure=FailureClass.STARTUP_OOM)
    whole = replace(broke, failure=replace(broke.failure, reason=reason))
    longer = replace(broke, failure=replace(broke.failure, reason=reason * 9))
    assert reason.strip() in " ".join(" ".join(said([*search(), whole])[1]).split())
    lines = said([*search(), longer])[1]
    assert sum("CUDA" in line for line in lines) == 4
    assert [line for line in lines if line.endswith(" …")]


def test_no_line_is_wider_than_the_page_whatever_the_sweep():
    sweep = spec(trials=20, final=FinalSpec(settings=3, rounds=3))
    study, trials = Study(sweep, DIALECT), []
    while (asked := study.ask()) is not None:
        outcome = {"failure": FailureClass.HANG} if asked.config.topk == 1 else {}
        trials.append(record(sweep, asked, surface(asked.config), **outcome))
        study.tell(trials[-1])
    _, lines = said(trials, sweep)
    assert len(lines) > 30
    assert max(map(len, lines)) <= WIDTH
    assert sum(line.endswith("failed: hang_no_progress") for line in lines) > 1


def test_the_plan_counts_what_will_run():
    lines = plan_lines(SWEEP, plan_of(SWEEP))
    page = " ".join(" ".join(lines).split())
    assert "8 trials: 2 baselines, 2 seeds, 4 by surrogate, then 2 rounds of the best 2 and the baselines: 8" in page
    assert "4 cells each: contexts 60, 512; concurrency 1, 8" in page
    assert "node-minutes" in page


def test_tables_align_numbers_to_the_right_and_stay_on_the_page():
    lines = text_table(("name", ">n", "note"), [("a", "1", ""), ("long", "1000", "x" * 200)])
    assert lines[0] == "  name     n  note"
    assert lines[1] == "  a        1"
    assert lines[2].startswith("  long  1000  xxx")
    assert len(lines[2]) == WIDTH
    assert lines[2].endswith("…")
    assert cut("a\nb") == "a b"
