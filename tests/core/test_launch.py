"""The winner as a script and as a manifest: what was measured, for any number of users, and valid."""

import subprocess
from dataclasses import replace

import pytest
import yaml

from ddtree_tune.core.conclusion import conclude
from ddtree_tune.core.engine import LaunchPlan
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.launch import winner_script
from ddtree_tune.core.manifest import winner_manifest
from ddtree_tune.core.record import Origin
from ddtree_tune.core.winners import Step, Winner, schedule
from tests.builders import CHAIN, FINGERPRINT, NONE, proposal, record, spec
from tests.core.test_conclusion import BIG, SMALL, SWEEP, finals, search, users

BY_LOAD = {NONE: 1.0, CHAIN: users(1.2, 1.1), BIG: users(2.0, 0.7), SMALL: users(1.5, 1.4)}
SGLANG = spec(
    """
name: Kimi_K2
engine: {kind: sglang, model: /models/target, draft_model: /models/drafter, dialect: sglang-dflash, model_gib: 554}
space: {budget: [15], topk: [1], window: [none]}
load: {contexts: [60, 512], concurrency: [1, 8]}
"""
)
PLAN = LaunchPlan(
    (
        *("python", "-m", "sglang.launch_server", "--host", "127.0.0.1", "--port", "30100", "--nccl-port", "30101"),
        *("--page-size", "1", "--served-model-name", "nonce"),
    ),
    (("SGLANG_DDTREE_MAX_TOPK", "4"), ("NOTE", "$(PORT)")),
    "127.0.0.1",
    30100,
    "nonce",
    (30101, 30333),
)


def band(concurrency, config):
    return Winner((f"chat_c{concurrency}",), None, concurrency, config)


def test_each_number_of_users_has_its_own_winner_over_its_contexts():
    got = conclude([*search(BY_LOAD), *finals(BY_LOAD)], SWEEP)
    one, eight = got.bands
    assert (one.concurrency, one.config, eight.concurrency, eight.config) == (1, BIG, 8, SMALL)
    assert one.vs_none.ratio == pytest.approx(2.0, rel=0.01)
    assert eight.vs_none.ratio == pytest.approx(1.4, rel=0.01)
    assert eight.vs_chain.ratio == pytest.approx(1.4 / 1.1, rel=0.01)
    assert len(one.cells) == len(eight.cells) == 2
    assert one.context is one.output_tps is None


def test_cells_that_do_not_count_are_left_out_of_a_band_unless_all_are():
    far = {**BY_LOAD, BIG: lambda context, concurrency: 3.0 if context == 512 else 1.0}
    light, none = (
        SWEEP.model_copy(update={"objective": spec(text).objective})
        for text in (
            _weighted("{context: 512, weight: 0}"),
            _weighted("{concurrency: 8, weight: 0}"),
        )
    )
    found = conclude([*search(far), *finals(far)], light).bands
    assert [len(one.cells) for one in found] == [1, 1]
    assert BIG not in {one.config for one in found}
    assert [len(one.cells) for one in conclude([*search(far), *finals(far)], none).bands] == [2, 2]


def _weighted(weight):
    return (
        "name: w\nspace: {budget: [4], topk: [1], window: [none]}\n"
        f"load: {{contexts: [60, 512], concurrency: [1, 8]}}\nobjective: {{weights: [{weight}]}}\n"
    )


def test_neighbours_that_run_the_same_are_one_step_of_the_schedule():
    bands = [band(2, BIG), band(4, BIG), band(8, SMALL), band(16, None), band(32, SMALL), band(64, NONE)]
    assert schedule(bands) == (Step(1, (2, 4), BIG), Step(8, (8, 32), SMALL), Step(64, (64,), NONE))
    assert schedule([]) == ()


def test_the_script_picks_by_the_number_of_users(tmp_path):
    trials = [
        replace(one, plan=replace(one.plan, argv=("echo", one.config.label)))
        for one in (*search(BY_LOAD), *finals(BY_LOAD))
    ]
    found = conclude(trials, SWEEP)
    path = tmp_path / "winner.sh"
    path.write_text(winner_script(found, trials, SWEEP))
    best = found.best.config.label

    def run(*argv):
        return subprocess.run(["sh", str(path), *argv], capture_output=True, text=True, check=True).stdout.strip()

    assert [run(), run("0"), run("1"), run("7"), run("8"), run("900")] == [
        best, best, BIG.label, BIG.label, SMALL.label, SMALL.label,
    ]  # fmt: skip


def test_where_one_setting_is_best_everywhere_the_script_takes_no_number():
    trials = [*search(), *finals()]
    script = winner_script(conclude(trials, SWEEP), trials, SWEEP)
    assert "users" not in script
    assert script.count("exec ") == 1
    assert len(list(yaml.safe_load_all(winner_manifest(conclude(trials, SWEEP), trials, SWEEP)))) == 2


def test_the_manifest_of_a_gpu_node_has_its_gpus_models_memory_and_patience():
    node = replace(FINGERPRINT, gpus=("B300",) * 8)
    trials = [replace(one, plan=PLAN, fingerprint=node) for one in (*search(BY_LOAD), *finals(BY_LOAD))]
    text = winner_manifest(conclude(trials, SGLANG), trials, SGLANG)
    assert text.startswith("# Sweep Kimi_K2: Run budget")
    *deployments, service = yaml.safe_load_all(text)
    assert deployments[0]["metadata"]["name"] == "kimi-k2"
    assert all(one["metadata"]["name"].startswith("kimi-k2-from-") for one in deployments[1:])
    assert service["spec"]["selector"] == {"app": "kimi-k2"}
    for one in deployments:
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert labels == one["spec"]["selector"]["matchLabels"]
        assert labels["app"] == "kimi-k2"
        pod = one["spec"]["template"]["spec"]
        (server,) = pod["containers"]
        assert server["image"] == "lmsysorg/sglang:v0.1.0"
        assert server["command"] == ["python", "-m", "sglang.launch_server"]
        assert server["args"] == [
            "--host", "$(HOST)", "--port", "$(PORT)", "--page-size", "1", "--served-model-name", "$(NAME)",
        ]  # fmt: skip
        variables = {entry["name"]: entry["value"] for entry in server["env"]}
        assert variables["HOST"] == "0.0.0.0"
        assert variables["NOTE"] == "$$(PORT)"
        assert variables["SGLANG_DDTREE_MAX_TOPK"] == "4"
        assert server["resources"] == {"limits": {"nvidia.com/gpu": "8"}}
        assert 10 * server["startupProbe"]["failureThreshold"] >= SGLANG.engine.deadline_s(None)
        mounted = {mount["mountPath"]: mount["name"] for mount in server["volumeMounts"]}
        assert set(mounted) == {"/models/target", "/models/drafter", "/dev/shm"}
        assert {volume["name"] for volume in pod["volumes"]} == set(mounted.values())
    assert not {"trial-", "30100", "nonce", "nccl", "&id"} & {
        word for word in ("trial-", "30100", "nonce", "nccl", "&id") if word in text
    }


def test_the_script_runs_the_winners_command_with_port_and_name_from_outside(tmp_path):
    trials = [*search(), *finals()]
    script = winner_script(conclude(trials, SWEEP), trials, SWEEP)
    echo = tmp_path / "python"
    echo.write_text('#!/bin/sh\nprintf "%s\\n" "$A" "$@"\n')
    echo.chmod(0o755)
    path = tmp_path / "winner.sh"
    path.write_text(script)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PORT": "31000"}
    done = subprocess.run(["sh", str(path)], env=env, capture_output=True, text=True, check=True)
    expected = ["b c", "-m", "ddtree_tune.builtin", "--budget", "8", "--host", "127.0.0.1", "--port", "31000"]
    assert done.stdout.splitlines() == [*expected, "--served-model-name", "default"]
    assert "40123" not in script
    assert "nonce" not in script


def test_the_ports_of_the_trial_stay_out_of_the_winners_command():
    trials = [replace(one, plan=PLAN) for one in (*search(), *finals())]
    script = winner_script(conclude(trials, SWEEP), trials, SWEEP)
    assert "nccl" not in script
    assert "export SGLANG_DDTREE_MAX_TOPK=4" in script
    assert "--page-size 1" in script
    assert '--port "${PORT:-30000}"' in script


def test_without_a_winner_there_is_no_script():
    lost = [record(SWEEP, proposal(1, NONE, Origin.BASELINE), failure=FailureClass.STARTUP_OOM)]
    assert winner_script(conclude(lost, SWEEP), lost, SWEEP) is None
    assert winner_manifest(conclude(lost, SWEEP), lost, SWEEP) is None
