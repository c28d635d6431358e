"""cluster.yaml is what Ray's own launcher accepts, and its workers offer what a trial takes."""

from pathlib import Path

import yaml

from ddtree_tune.cluster.placement import NODE_RESOURCE

CLUSTER = Path(__file__).parents[2] / "cluster.yaml"


def test_ray_accepts_the_cluster_and_its_workers_are_exclusive_nodes():
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = yaml.safe_load(CLUSTER.read_text())
    validate_config(prepare_config(config))
    workers = {name: one for name, one in config["available_node_types"].items() if name != config["head_node_type"]}
    assert workers
    assert all(one["resources"][NODE_RESOURCE] == 1 for one in workers.values())
    assert "127.0.0.1" in " ".join(config["head_start_ray_commands"])
