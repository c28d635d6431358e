"""The benchmark of the search: what is kept comes back, trials are real repeats, and sweeps are counted right."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import CellResult, Origin, TrialStatus
from ddtree_tune.core.rungs import Pace, PaceCell
from ddtree_tune.core.spec import FirstSpec, SweepSpec
from tests.builders import NONE, cell, proposal, record, surface, tree

FOLDER = Path(__file__).parents[1] / "benchmarks/search"


@pytest.fixture
def measured(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import measured

    return measured


def trials(sweep, configs, rounds=2, speed=lambda: 1.0):
    """Trials of an engine that gives ``surface``, on a machine that is ``speed`` times as fast as usual."""
    found = []
    for number, config in enumerate(configs * rounds):
        cells = []
        for shape in sweep.load.cells():
            factor = speed()
            known = cell(shape.context, shape.concurrency, factor * surface(config))
            ttft_s = replace(known.ttft_s, mean=0.1 / factor)
            known = replace(known, cell_id=shape.cell_id, ttft_s=ttft_s, families=())
            cells.append(CellResult(known, ()))
        asked = replace(proposal(number, config, coding=False), round=number // len(configs))
        found.append(record(sweep, asked, cells=tuple(cells)))
    return found


@pytest.fixture
def sweep(measured):
    return SweepSpec.parse(measured.SPEC, "test")


SETTINGS = [NONE, *(tree(budget, topk, window) for budget in (4, 8, 16) for topk in (2, 4) for window in (64, None))]


def test_kept_trials_come_back_with_their_cells_their_times_and_their_failures(tmp_path, measured, sweep):
    whole = trials(sweep, [tree(8, 4, 64)], rounds=1)[0]
    broken = record(sweep, proposal(7, tree(32, 8), coding=False), failure=FailureClass.STARTUP_OOM)
    rows = [*measured.rows_of(whole, 0), *measured.rows_of(broken, 7)]
    assert len(rows) == len(whole.cells) + 1
    measured.keep(rows, tmp_path / "kept.parquet")
    again = measured.trials_of(pq.read_table(tmp_path / "kept.parquet").to_pylist())
    for before, after in zip([whole, broken], again, strict=True):
        assert after.cells == before.cells
        same = ("config", "status", "failure", "effective", "spans", "started_utc")
        assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]


def test_a_trial_says_what_is_true_with_noise_that_was_measured(tmp_path, measured, sweep):
    rng = np.random.default_rng(4)
    told = trials(sweep, SETTINGS, rounds=2, speed=lambda: math.exp(0.03 * rng.standard_normal()))
    spoilt = replace(told[1].cells[0].metrics, flags=("unsteady",))
    told[1] = replace(told[1], cells=(CellResult(spoilt, ()), *told[1].cells[1:]))  # no trial of the surface
    measured.keep([row for at, one in enumerate(told) for row in measured.rows_of(one, at)], tmp_path / "kept.parquet")
    kept = measured.Measured.read(tmp_path / "kept.parquet", steady=False, pooled=False)
    once, twice = told[1].config, told[2].config
    assert [len(kept.trials[one]) for one in (once, twice)] == [1, 2]
    assert len(kept.noise) == 2 * (len(SETTINGS) - 1)
    left = told[1 + len(SETTINGS)]
    assert kept.levels[once] == pytest.approx([math.log(one.metrics.output_tps) for one in left.cells])
    drawn = [kept.measure(proposal(99, once), rng) for _ in range(400)]
    off = np.asarray([[math.log(one.metrics.output_tps) for one in trial.cells] for trial in drawn]) - kept.levels[once]
    assert all(np.abs(kept.noise - one).max(axis=1).min() < 1e-9 for one in off)
    assert np.abs(off.mean(axis=0)).max() < 0.01
    assert kept.log_score(twice) == pytest.approx(math.log(surface(twice) / 100.0), abs=0.05)
    assert all(one.proposal.trial_id.startswith("0099") and one.status is TrialStatus.COMPLETE for one in drawn)


def test_what_is_true_of_a_setting_is_nearer_with_what_the_others_say(tmp_path, measured, sweep):
    rng = np.random.default_rng(2)
    trees = [tree(budget, topk, window) for budget in (4, 6, 8, 12, 16) for topk in (2, 3, 4) for window in (64, 128)]
    many = [NONE, *trees]
    told = trials(sweep, many, speed=lambda: math.exp(0.05 * rng.standard_normal()))
    measured.keep([row for at, one in enumerate(told) for row in measured.rows_of(one, at)], tmp_path / "kept.parquet")
    off = {}
    for pooled in (False, True):
        kept = measured.Measured.read(tmp_path / "kept.parquet", steady=False, pooled=pooled)
        off[pooled] = float(np.std([kept.levels[one] - math.log(surface(one)) for one in trees]))
    assert off[True] < 0.8 * off[False]


def test_a_trial_that_is_behind_is_stopped_and_costs_less(tmp_path, measured, sweep):
    told = trials(sweep, SETTINGS)
    measured.keep([row for at, one in enumerate(told) for row in measured.rows_of(one, at)], tmp_path / "kept.parquet")
    kept = measured.Measured.read(tmp_path / "kept.parquet").with_first(FirstSpec(contexts=(60,), concurrency=(1, 16)))
    cells = tuple(PaceCell(one.cell_id, 100.0, 1.0) for one in kept.spec.load.first_cells())
    asked = proposal(1, tree(4, 2), origin=Origin.SEARCH)
    for score, status, count in ((9.0, TrialStatus.STOPPED, 2), (0.1, TrialStatus.COMPLETE, 6)):
        paced = replace(asked, pace=Pace(cells, score, 0.01))
        left = kept.measure(paced, np.random.default_rng(0))
        assert (left.status, len(left.cells)) == (status, count)
        assert left.seconds == pytest.approx(2.5 + 20.0 * count / 6)


def test_the_speed_of_a_shared_machine_is_taken_out_of_every_cell(tmp_path, measured, sweep):
    rng = np.random.default_rng(1)
    told = trials(sweep, SETTINGS, speed=lambda: math.exp(0.1 * rng.standard_normal()))
    measured.keep([row for at, one in enumerate(told) for row in measured.rows_of(one, at)], tmp_path / "kept.parquet")
    off = {}
    for steady in (False, True):
        kept = measured.Measured.read(tmp_path / "kept.parquet", steady=steady)
        logs = [kept.logs[config] - math.log(surface(config)) for config in SETTINGS]
        off[steady] = float(np.concatenate(logs).std())
    assert off[False] > 0.08
    assert off[True] < 0.05


def test_the_proof_counts_trials_until_the_recommendation_is_close(tmp_path, measured):
    from proof_table import Sweep, table

    one = Sweep("s", "ours", 0, [math.inf, math.inf, 0.5, 0.015, 0.03, 0.005], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0)
    never = Sweep("s", "ours", 1, [math.inf] * 6, [1.0] * 6, 0)
    assert (one.reached(0.02), one.reached(0.01), never.reached(0.02)) == (4, 6, None)
    rows = list(table([one, never, one, one]))
    assert rows[2].startswith("| s | ours | 4 | 4 (4, > 60) | 6 (6, > 60) | 4 (4, -) | 6 (6, -) |")


def test_the_proof_runs_again_only_what_is_missing(tmp_path, measured, monkeypatch, capsys):
    import proof

    out = tmp_path / "proof.parquet"
    before = {}
    for other, seeds in (("ours", "1"), ("grid order", "2")):
        argv = ["--surfaces", "cliffs", "--searches", "random", other, "--seeds", seeds, "--out", str(out)]
        monkeypatch.setattr(sys, "argv", ["proof.py", *argv])
        proof.main()
        rows = {(row["search"], row["seed"]): row for row in pq.read_table(out).to_pylist()}
        assert all(rows[key] == row for key, row in before.items())
        before = rows
    assert set(rows) == {("random", 0), ("ours", 0), ("grid order", 0), ("random", 1), ("grid order", 1)}
    assert "| cliffs | ours | 1 |" in capsys.readouterr().out
    assert all(len(row["gaps"]) == len(row["minutes"]) >= 24 for row in rows.values())
    assert all(row["minutes"][1] == 24.0 for row in rows.values())  # two baselines of six minutes and six cells
    assert "<svg" in out.with_suffix(".svg").read_text()
