"""The cluster files are what Ray's launcher and KubeRay accept, and their workers offer what a trial takes."""

import contextlib
import copy
import json
import re
import shlex
from pathlib import Path

import jsonschema
import pytest
import yaml

from ddtree_tune.arguments import add_run_arguments
from ddtree_tune.cluster.room import LOAD_RESOURCE, NODE_RESOURCE, trial_bundles

ROOT = Path(__file__).parents[2]
FILES = ["cluster.yaml", "cluster_local.yaml"]
RAY_VERSION = re.search(r'"ray\[.*\]==([\d.]+)"', (ROOT / "pyproject.toml").read_text()).group(1)


def loaded(name):
    return yaml.safe_load((ROOT / name).read_text())


def prepared(config):
    from ray.autoscaler._private.util import prepare_config, validate_config

    whole = prepare_config(copy.deepcopy(config))
    validate_config(whole)
    return whole


@pytest.mark.parametrize("name", FILES)
def test_rays_launcher_accepts_the_cluster(name):
    config = loaded(name)
    whole = prepared(config)
    assert whole["head_start_ray_commands"] == config["head_start_ray_commands"]
    assert any("sglang==" in command for command in whole["worker_setup_commands"])
    assert not any("sglang" in command for command in whole["head_setup_commands"])


@pytest.mark.parametrize("name", FILES)
def test_rays_launcher_refuses_an_unknown_key(name):
    with pytest.raises(jsonschema.ValidationError, match="wrokers"):
        prepared(loaded(name) | {"wrokers": 2})


def test_every_worker_type_is_an_exclusive_gpu_node_and_one_type_alone_starts():
    config = loaded("cluster.yaml")
    types = config["available_node_types"]
    workers = {name: one for name, one in types.items() if name not in {config["head_node_type"], "load"}}
    assert {name: one["node_config"]["InstanceType"] for name, one in workers.items()} == {
        "b300": "p6-b300.48xlarge",
        "b200": "p6-b200.48xlarge",
        "h200": "p5en.48xlarge",
    }
    for one in workers.values():
        assert one["resources"][NODE_RESOURCE] == 1
        assert one["resources"]["GPU"] == 8
        assert one["resources"]["CPU"] >= sum(bundle["CPU"] for bundle in trial_bundles()[0])
    assert NODE_RESOURCE not in types[config["head_node_type"]]["resources"]
    sending = types["load"]["resources"]
    assert NODE_RESOURCE not in sending
    assert "GPU" not in sending
    assert sending["CPU"] >= 2 * sending[LOAD_RESOURCE] > 0
    assert sum(one["min_workers"] > 0 for one in workers.values()) == 1


@pytest.mark.parametrize("name", FILES)
def test_the_dashboard_stays_on_loopback_and_every_ray_has_the_token(name):
    config = loaded(name)
    head, worker = config["head_start_ray_commands"][-1], config["worker_start_ray_commands"][-1]
    assert "--dashboard-host=127.0.0.1" in head
    assert "RAY_AUTH_MODE=token" in head
    assert "RAY_AUTH_MODE=token" in worker
    assert any(at.endswith("/.ray/auth_token") for at in config["file_mounts"])
    assert "/shared" in " ".join(config["setup_commands"])


def test_workers_that_exist_already_offer_the_node_in_their_command():
    worker = loaded("cluster_local.yaml")["worker_start_ray_commands"][-1]
    (resources,) = (word for word in shlex.split(worker) if word.startswith("--resources="))
    assert json.loads(resources.partition("=")[2]) == {NODE_RESOURCE: 1}
    assert "--resources" not in loaded("cluster_local.yaml")["head_start_ray_commands"][-1]


def test_the_rayjob_has_exclusive_gpu_nodes_and_an_entrypoint_that_parses():
    job = loaded("docs/rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]["rayClusterSpec"]
    assert spec["rayVersion"] == RAY_VERSION
    assert spec["authOptions"] == {"mode": "token"}
    assert "resources" not in spec["headGroupSpec"]["rayStartParams"]
    images = {group["template"]["spec"]["containers"][0]["image"] for group in groups(spec)}
    assert len(images) == 1
    for worker in spec["workerGroupSpecs"]:
        params = worker["rayStartParams"]
        assert all(isinstance(value, str) for value in params.values())
        # The operator pastes the value into `ray start --resources=…`, which a shell then reads.
        (given,) = shlex.split(params["resources"])
        assert json.loads(given) == {NODE_RESOURCE: 1}
        size = worker["template"]["spec"]["containers"][0]["resources"]
        assert size["limits"] == size["requests"]
        assert size["limits"]["nvidia.com/gpu"] == params["num-gpus"]
        assert worker["minReplicas"] <= worker["replicas"] <= worker["maxReplicas"]
    for group in groups(spec):
        pod = group["template"]["spec"]
        assert {"/shared", "/dev/shm"} == {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        assert {mount["name"] for mount in pod["containers"][0]["volumeMounts"]} == {
            one["name"] for one in pod["volumes"]
        }
    arguments = entrypoint(job["spec"]["entrypoint"])
    assert arguments.results.is_absolute()
    variables = yaml.safe_load(job["spec"]["runtimeEnvYAML"])["env_vars"]
    assert variables == {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "120"}


@pytest.mark.parametrize("page", ["docs/cluster.md", "README.md"])
def test_the_submitted_command_of_a_page_parses_and_ends_in_order(page):
    found = [line for line in (ROOT / page).read_text().splitlines() if "-- python -m ddtree_tune.run" in line]
    assert found
    for line in found:
        options, _, command = line.partition(" -- ")
        arguments = entrypoint(command)
        assert arguments.results.is_absolute()
        assert (ROOT / arguments.spec).is_file()
        words = shlex.split(options)
        variables = json.loads(words[words.index("--runtime-env-json") + 1])["env_vars"]
        assert variables == {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "120"}


def groups(spec):
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def entrypoint(command):
    """The command's arguments as our own parser reads them."""
    import argparse

    python, dash, module, *rest = shlex.split(command)
    assert (python, dash, module) == ("python", "-m", "ddtree_tune.run")
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_run_arguments(parser)
    with contextlib.suppress(SystemExit):
        return parser.parse_args(rest)
    return pytest.fail(command)
