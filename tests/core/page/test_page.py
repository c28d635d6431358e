"""The report's page: every section in any state of a sweep, and numbers as core has them."""

from dataclasses import replace
from pathlib import Path

import pytest

from ddtree_tune.core.coding import Outcome
from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.engine import Difference, LaunchPlan
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.frontier import frontier
from ddtree_tune.core.headline import gain_text, headline
from ddtree_tune.core.page.build import build
from ddtree_tune.core.page.html import html
from ddtree_tune.core.page.trials_section import best_so_far
from ddtree_tune.core.record import CellResult, Origin, TrialStatus
from ddtree_tune.core.steps import step_points
from ddtree_tune.node.results import load
from tests.builders import CHAIN, FINGERPRINT, NONE, SPEC, attempts, proposal, record, spec, tree
from tests.core.page.reading import charts, data, read, sections
from tests.core.test_conclusion import SWEEP, finals, origin, search

GOLDEN = Path(__file__).parents[2] / "golden/results"
KEYS = [
    "frontier",
    "cells",
    "acceptance",
    "trials",
    "coding",
    "failures",
    "time",
    "cost",
    "energy",
    "launch",
    "provenance",
]
SCRIPT = "draw();"


def page(records, sweep=SWEEP, **more):
    """A page as a browser reads it, and its text."""
    text = html(build(records, conclude(records, sweep), sweep, **more), SCRIPT)
    return read(text), text


def rows(section, table=0):
    """Cells of a table, row by row."""
    return [[one.text for one in row.find("td")] for row in section.find("tbody")[table].find("tr")]


@pytest.fixture(scope="module")
def golden():
    return load(GOLDEN)


@pytest.fixture(scope="module")
def golden_page(golden):
    return page(golden.records, golden.spec, spec_text=golden.store.read_spec())[0]


def failed(n, config, failure, **changes):
    return record(SWEEP, proposal(n, config, origin(config)), failure=failure, **changes)


def broken():
    """A sweep in which nothing ran."""
    kinds = (FailureClass.STARTUP_OOM, FailureClass.STARTUP_OOM, FailureClass.SILENT_OVERRIDE, FailureClass.NODE_LOST)
    return [
        failed(n, config, kind)
        for n, (config, kind) in enumerate(zip((NONE, CHAIN, tree(8), tree(16)), kinds, strict=True), 1)
    ]


def sglang():
    """Trials of a server on GPUs that were metered, one of them stopped early and one not as asked."""
    node = replace(FINGERPRINT, gpus=("H200 143771 MiB", "H200 143771 MiB"), driver="570.1")
    argv = ("python", "-m", "sglang.launch_server", "--speculative-algorithm", "DDTREE", "--port", "40123")
    plan = LaunchPlan(argv, (("SGLANG_DDTREE_MAX_TOPK", "4"),), "127.0.0.1", 40123, "nonce")

    def metered(cell):
        return replace(cell, metrics=replace(cell.metrics, joules_per_token=0.5, power_w=1200.0, gpu_memory_gib=270.0))

    found = [
        replace(one, fingerprint=node, plan=plan, cells=tuple(map(metered, one.cells)))
        for one in (*search(), *finals())
    ]
    last = replace(found[3], differences=(Difference("budget", 16, 15),))
    return [*found[:3], last, *found[4:]]


def states():
    done = [*search(), *finals()]
    return {
        "whole": done,
        "interrupted": done[:2],
        "one": done[:1],
        "nothing": [],
        "broken": broken(),
        "sglang": sglang(),
    }


@pytest.mark.parametrize("state", states())
def test_every_section_stands_in_every_state_of_a_sweep(state):
    records = states()[state]
    root, _ = page(records)
    found = sections(root)
    assert list(found) == KEYS
    assert [one.attributes["href"] for one in root.find("nav")[0].find("a")] == [f"#{key}" for key in KEYS]
    blocks = {key: [one.find(tag) for tag in ("p", "figure", "table", "pre")] for key, one in found.items()}
    assert all(sum(map(len, tags)) >= 2 for tags in blocks.values()), "how to read it, and something to read"
    assert root.find("p", **{"class": "answer"})[0].text == headline(conclude(records, SWEEP))
    drawn = charts(root)
    assert list(drawn) == [one.attributes["id"] for one in root.find("div") if one.attributes.get("class") == "chart"]
    assert all(data(spec) for spec in drawn.values())
    ids = [
        one.attributes["id"] for tag in ("section", "div", "script") for one in root.find(tag) if "id" in one.attributes
    ]
    assert len(ids) == len(set(ids))


def test_a_whole_sweep_is_not_called_partial_and_an_interrupted_one_says_how_far_it_came():
    sweep = SWEEP.model_copy(update={"seeds": (), "search": SWEEP.search.model_copy(update={"trials": 4})})
    whole = [*search(), *finals()]
    assert not page(whole, sweep)[0].find("p", **{"class": "partial"})
    (said,) = page(whole[:2], sweep)[0].find("p", **{"class": "partial"})
    assert said.text.startswith("Partial: 2 of 4 settings and 0 of 8 repeated measurements are in.")


def test_a_sweep_that_gave_up_says_why():
    lost = [failed(n, NONE, FailureClass.STARTUP_OOM) for n in (1, 2)]
    (said,) = page(lost)[0].find("p", **{"class": "partial"})
    assert said.text == "The sweep gave up: no speculation, the base of every gain, could not be measured."


def test_the_golden_sweep_shows_what_core_says(golden, golden_page):
    root, conclusion = golden_page, golden.conclusion()
    drawn = charts(root)
    shown = sections(root)
    points = [row for chart in (drawn["chart-1"], drawn["chart-2"]) for row in chart["data"]["values"]]
    scored = sum(
        cell.metrics.scored and cell.metrics.user_tps is not None for one in golden.records for cell in one.cells
    )
    assert len(points) == scored > 100
    rings = [one["data"]["values"] for chart in ("chart-1", "chart-2") for one in drawn[chart]["layer"][3:4]]
    assert sum(map(len, rings)) == sum(point.on_frontier for point in frontier(golden.records)) > 0
    cells, bands = rows(shown["cells"]), rows(shown["cells"], 1)
    assert [row[:2] for row in bands] == [[str(one.concurrency), one.config.label] for one in conclusion.bands]
    assert [row[2] for row in cells] == [one.config.label for one in conclusion.cells]
    assert [row[4] for row in cells if row[2] != "no speculation"] == [
        gain_text(one.vs_none) for one in conclusion.cells if one.config != NONE
    ]
    assert len(data(drawn["chart-5"])) == len(step_points(golden.records)) > 100
    assert len(rows(shown["trials"])) == len(golden.records)
    assert "No trial failed." in shown["failures"].text
    assert "no GPU was metered" in shown["energy"].text
    outcomes = data(drawn["chart-7"])
    assert sum(row["count"] for row in outcomes) == sum(len(one.attempts) for one in golden.records) > 0
    minutes = sum(row["time"] for row in data(drawn["chart-8"]))
    assert minutes * 60 == pytest.approx(sum(one.seconds for one in golden.records))
    assert "exec python -m ddtree_tune.builtin" in shown["launch"].find("pre")[0].text
    assert golden.store.read_spec().strip() == shown["provenance"].find("pre")[-1].text
    assert "AMD EPYC x 2" in shown["provenance"].text


def test_failures_stand_by_class_with_blame_reason_and_last_lines():
    shown = sections(page(broken())[0])["failures"]
    titles = [one.text for one in shown.find("caption")]
    assert titles == [
        "startup_oom: 2 trials, the configuration's fault",
        "node_lost: 1 trial, the node's fault",
        "silent_override: 1 trial, the configuration's fault",
    ]
    assert rows(shown)[0] == ["0001", "no speculation", "launch", "it did not work"]
    assert "CUDA out of memory" in shown.find("pre")[0].text


def test_trials_on_gpus_show_speed_per_gpu_energy_and_what_was_not_as_asked():
    trials = sglang()
    root, _ = page(trials)
    drawn, shown = charts(root), sections(root)
    mine = {(row["trial"], row["users"]): row["output_tps"] for row in drawn["chart-1"]["data"]["values"]}
    one = trials[0].cells[0].metrics
    assert mine["0001", "1"] == one.output_tps / 2
    assert drawn["chart-1"]["layer"][1]["encoding"]["y"]["title"] == "tok/s per GPU (of 2)"
    energy = rows(shown["energy"])
    assert len(energy) == sum(len(one.cells) for one in trials)
    assert {row[3] for row in energy} == {"0.500"}
    kwh = sum(1200.0 * cell.metrics.window_s for one in trials for cell in one.cells) / 3.6e6
    assert f"{kwh:.3f} kWh" in shown["energy"].text
    assert "budget asked 16, server resolved 15" in shown["provenance"].text
    assert "export SGLANG_DDTREE_MAX_TOPK=4" in shown["launch"].text


def test_tokens_cost_what_the_spec_says_of_a_node_cell_by_cell():
    sweep = spec(SPEC + "price: {per_node_hour: 36.0, currency: EUR}\n")
    trials = [*search(), *finals(noise=0)]
    root, _ = page(trials, sweep)
    shown, best = sections(root), conclude(trials, sweep).best
    costs = {row[0]: row[1:] for row in rows(shown["cost"])}
    tps = dict(best.output_tps)
    per_cell = [36.0 / 3600 / tps[cell.cell_id] * 1e6 for cell in sweep.load.cells()]
    assert costs[best.config.label][1:] == [f"{cost:.2f}" for cost in per_cell]
    mean = sum(per_cell) / len(per_cell)
    assert costs[best.config.label][0] == f"{mean:.2f}"
    figures = {one.find("dt")[0].text: one.find("dd")[0].text for one in root.find("dl")[0].find("div")}
    assert figures["per million output tokens of what to run"] == f"{mean:.2f} EUR"
    drawn = next(one for one in charts(root).values() if any("cost" in row for row in data(one)))
    assert len(data(drawn)) == sum(len(one.output_tps) for one in conclude(trials, sweep).settings) == 16
    assert [row[4] for row in rows(shown["cells"])] == costs[best.config.label][1:]
    assert f"{36.0 * sum(one.seconds for one in trials) / 3600:.2f} EUR" in shown["time"].text


def test_without_a_price_no_cost_is_told():
    root, text = page([*search(), *finals()])
    assert "The spec names no price of a node" in sections(root)["cost"].text
    assert "per million" not in text


def test_the_best_so_far_never_falls_and_no_final_or_unfit_setting_raises_it():
    records = [*search(), *finals()]
    conclusion = conclude(records, SWEEP)
    best = best_so_far(conclusion.rows, SWEEP)
    known = [one for one in best if one is not None]
    assert known == sorted(known)
    assert known[-1] == max(row.vs_none for row in conclusion.rows if row.record.proposal.origin is not Origin.FINAL)
    fast = record(SWEEP, proposal(50, tree(32)), 1000.0, attempts=attempts(2))
    unfit = conclude([*search(), fast], SWEEP)
    assert unfit.rows[-1].vs_none > known[-1]
    assert best_so_far(unfit.rows, SWEEP)[-1] == known[-1]


def test_latencies_and_limits_of_what_to_run_stand_below_the_winners():
    text = (
        SPEC.replace("load: {", "load: {min_requests: 20, ")
        + "objective: {slos: [{concurrency: 8, ttft_p95_s: 0.15}]}\n"
    )
    shown = sections(page([*search(), *finals()], spec(text))[0])["cells"]
    assert [one.text for one in shown.find("caption")] == [
        "Best for each number of requests in flight, over its contexts",
        "Latency limits that are not kept (95th percentiles)",
    ]
    broken_limits = rows(shown, 2)
    assert len(broken_limits) == 8
    assert {tuple(row[2:]) for row in broken_limits} == {("ttft_p95_s", "0.2", "0.15")}
    kept = sections(page([*search(), *finals()])[0])["cells"]
    titles = [one.text for one in kept.find("summary")]
    assert titles[0].startswith("Latencies, counts and flags of 16/4/64, trial 005")
    assert titles[1].startswith("Latencies, counts and flags of no speculation, trial 005")
    assert all("ttft ms" in one.text and "i512 c8" in one.text for one in kept.find("pre"))


def test_coding_keeps_truncated_and_broken_apart_from_wrong():
    records = [record(SWEEP, proposal(1, NONE, Origin.BASELINE), attempts=attempts(12, 20, truncated=3))]
    root, _ = page(records)
    bars = next(spec for spec in charts(root).values() if any("outcome" in row for row in data(spec)))
    assert {row["outcome"]: row["count"] for row in data(bars)} == {
        Outcome.PASS: 12,
        Outcome.WRONG_ANSWER: 5,
        Outcome.TRUNCATED: 3,
    }
    assert rows(sections(root)["coding"])[0][1:3] == ["12/20", "5 wrong_answer, 3 truncated"]


def test_without_a_coding_evaluation_the_page_says_so():
    sweep = SWEEP.model_copy(update={"coding": None})
    plain = [replace(one, attempts=(), pass_rate=None) for one in search()]
    root, _ = page(plain, sweep)
    assert "No problems were to be graded" in sections(root)["coding"].text
    assert "no coding evaluation gave a pass rate" in sections(root)["frontier"].text


def test_a_number_that_is_not_known_is_a_dash_under_the_pointer():
    rows_of = charts(page(search())[0])["chart-1"]["data"]["values"]
    assert {row["accept_len_text"] for row in rows_of} == {"-"}
    assert all(row["user_tps_text"] == f"{row['user_tps']:.1f}" for row in rows_of)


def test_an_unscored_cell_is_not_drawn_and_its_trial_says_why():
    records = search()
    blind = tuple(CellResult(replace(one.metrics, output_tps=None), ()) for one in records[-1].cells)
    root, _ = page([*records[:-1], replace(records[-1], cells=blind)])
    trial = records[-1].trial_id.partition("-")[0]
    assert trial not in {row["trial"] for row in charts(root)["chart-1"]["data"]["values"]}
    titles = [one.text for one in sections(root)["failures"].find("caption")]
    assert titles == ["Without a score"]
    assert "not scored" in rows(sections(root)["failures"])[0][3]


def test_a_stopped_trial_says_how_far_behind_it_was():
    stopped = replace(search()[-1], status=TrialStatus.STOPPED)
    root, _ = page([*search()[:-1], stopped])
    assert any(row[2] == "stopped early" for row in rows(sections(root)["failures"]))
