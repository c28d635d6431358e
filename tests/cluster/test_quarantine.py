"""A node that does not come free gets no trial until it does, and what ran there is tried again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.node.store import Store
from tests.gpu.folder import FakeGpus
from tests.sglang.harness import PAIR
from tests.sglang.scenario import VARIABLE, Scenario

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
SPEC = f"""
name: held
engine:
  kind: sglang
  dialect: ddtree_tune
  command: [python, -m, tests.sglang.fake]
  model: {PAIR / "target"}
  draft_model: {PAIR / "draft"}
  release_s: 1
space: {{budget: [8], topk: [4], window: [none]}}
baselines: [none]
load: {{contexts: [60], concurrency: [2], output_tokens: 16, window_s: 0.3}}
coding: null
search: {{trials: 2, final: {{settings: 0}}}}
"""


def test_a_dirty_node_is_held_until_it_is_clean_and_its_trial_comes_again(tmp_path):
    scenario, spec, gpus = tmp_path / "scenario.json", tmp_path / "held.yaml", tmp_path / "gpus"
    gpus.mkdir()
    fake = FakeGpus(gpus)
    quick = {"build": "ddtree_tune", "load_s": 0.0, "capture_s": 0.0, "step_s": 0.004, "prefill_s": 0.002}
    Scenario.parse(json.dumps(quick | {"memory_lingers_s": 3600.0}))
    scenario.write_text(json.dumps(quick | {"memory_lingers_s": 3600.0}))
    spec.write_text(SPEC)
    path = os.pathsep.join((str(ROOT), fake.env["PYTHONPATH"]))
    env = os.environ | fake.env | {"PYTHONPATH": path, VARIABLE: str(scenario)}
    argv = [sys.executable, "-m", "ddtree_tune.run", str(spec), "--results", str(tmp_path / "out")]
    lines = []
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, text=True, cwd=ROOT
    ) as sweep:
        for line in sweep.stdout:
            lines.append(line)
            if "is quarantined" in line:  # an operator frees the node
                scenario.write_text(json.dumps(quick))
                for held in gpus.glob("[0-9]*.json"):
                    held.unlink()
    text = "".join(lines)
    assert sweep.returncode == 0, text
    assert "gets no trial until it is clean: every GPU must hold at most 512 MiB more than before" in text
    assert "is clean again" in text
    (folder,) = (tmp_path / "out").iterdir()
    dirty, *rest = sorted(Store(str(folder)).read_records(), key=lambda record: record.trial_id)
    assert dirty.failure.failure is FailureClass.DIRTY_NODE
    # A busy machine may have a cell measured once more.
    assert {record.status for record in rest} == {TrialStatus.COMPLETE}
    assert [record.config.label for record in rest[:1]] == [dirty.config.label]
    assert {record.config.label for record in rest} == {"no speculation", "8/4/none"}
    for record in rest:
        assert record.cells[0].metrics.gpu_memory_gib > 0.9
