"""How builds of SGLang spell a configuration, and that what they resolve is read back."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.dialects import overridden, select
from ddtree_tune.core.dialects.pull_request import effective_width
from ddtree_tune.core.engine import Algorithm, EngineConfig, Slot, differences
from ddtree_tune.core.engine_spec import EngineSpec
from ddtree_tune.core.errors import EngineError, FailureClass, SpecError
from ddtree_tune.core.space import Space
from ddtree_tune.core.spec import SweepSpec
from tests.sglang.arguments import resolve
from tests.sglang.scenario import Scenario

MODEL = {"kind": "sglang", "model": "org/target", "draft_model": "org/drafter"}
STOCK = MODEL | {"dialect": "sglang-dflash"}
SLOT = Slot("127.0.0.1", 30100, "trial-1-abc", "org/target", "org/drafter", 64, (30101, 30333))
TREE = EngineConfig(Algorithm.TREE, 8, 4, 2048)
BASELINES = [EngineConfig(Algorithm.NONE), EngineConfig(Algorithm.CHAIN), EngineConfig(Algorithm.CHAIN_UNRESTRICTED)]
FORK = """
tree: {algorithm: DFLASH, args: [--enable-tree]}
budget: {flag: --nodes, plus: 1, read: tree.nodes}
topk: {env: FORK_TOPK}
window: {fixed: 2048}
"""


def dialect(name, block_size=16, **fields):
    return select(EngineSpec.model_validate(MODEL | {"dialect": name} | fields), block_size)


def answer(plan, build="stock", version="0.5.17", **override):
    """What a server of that build resolves from a command: by the fake's own reading of the flags."""
    scenario = Scenario(version=version, build=build, override=override)
    argv = plan.argv[plan.argv.index("--model-path") :]
    resolved = resolve(argv, scenario)
    return resolved.args | {"version": version, "internal_states": []} | override


budgets = st.integers(1, 96)
trees = st.builds(
    EngineConfig, st.just(Algorithm.TREE), budgets, st.integers(1, 16), st.one_of(st.none(), st.integers(16, 9000))
)


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
@pytest.mark.parametrize("config", BASELINES, ids=lambda config: config.label)
@pytest.mark.parametrize(("name", "build"), [("sglang-dflash", "stock"), ("ddtree_tune", "ddtree_tune")])
def test_baselines_are_spelled_as_both_versions_take_them_and_read_back(name, build, config, version):
    spoken = dialect(name)
    plan = spoken.plan(spoken.canonical(config), SLOT)
    info = answer(plan, build, version)
    effective = spoken.read_back(info, config)
    assert differences(config, effective) == ()
    assert overridden(plan.argv, info) == ()
    assert effective.max_running_requests == 64
    assert effective.served_model_name == "trial-1-abc"
    assert ("--attention-backend" in plan.argv) == (name == "ddtree_tune" and config.algorithm is Algorithm.CHAIN)


@given(trees)
def test_our_plugin_counts_the_root_as_sglang_does_and_reads_back_what_was_asked(config):
    spoken = dialect("ddtree_tune")
    canonical = spoken.canonical(config)
    assert spoken.canonical(canonical) == canonical
    plan = spoken.plan(canonical, SLOT)
    at = plan.argv.index("--speculative-num-draft-tokens")
    assert plan.argv[at + 1] == str(canonical.budget + 1)
    info = answer(plan, "ddtree_tune") | {"speculative_num_draft_tokens": canonical.budget + 1}
    effective = spoken.read_back(info, canonical)
    assert differences(canonical, effective) == ()
    assert effective.inferred == ()


def test_a_plan_is_a_command_that_people_can_paste():
    plan = dialect("ddtree_tune").plan(TREE, SLOT)
    assert " ".join(plan.argv) == (
        "python -m sglang.launch_server --model-path org/target --host 127.0.0.1 --port 30100 "
        "--served-model-name trial-1-abc --max-running-requests 64 --cuda-graph-max-bs-decode 64 --enable-cache-report "
        "--nccl-port 30101 --speculative-algorithm DDTREE --speculative-draft-model-path org/drafter "
        "--speculative-num-draft-tokens 9 --speculative-eagle-topk 4 --speculative-draft-window-size 2048 "
        "--attention-backend triton --page-size 1"
    )
    assert plan.further_ports == (30101, 30333)


@pytest.mark.parametrize(
    ("budget", "width"),
    [
        *((budget, 1) for budget in range(1, 8)),
        *((budget, 2) for budget in range(8, 14)),
        *((budget, 3) for budget in range(14, 21)),
        *((budget, 4) for budget in range(21, 28)),
        *((budget, 5) for budget in range(28, 35)),
        *((budget, 6) for budget in (35, 64, 500)),
    ],
)
def test_the_pull_request_widens_its_trees_with_the_budget(budget, width):
    # The table of Kimi K2.6's drafter, whose block of 8 gives a depth of 7, at the default cap of 6.
    assert effective_width(budget, 6, depth=7) == width


@given(trees)
def test_under_the_pull_request_the_record_shows_the_tree_that_was_really_built(config):
    spoken = dialect("sglang-pr29907", block_size=8)
    canonical = spoken.canonical(config)
    assert spoken.canonical(canonical) == canonical
    assert canonical.budget == config.budget
    assert canonical.topk == effective_width(config.budget, config.topk, 7)
    plan = spoken.plan(canonical, SLOT)
    assert dict(plan.env)["SGLANG_DDTREE_MAX_TOPK"] == str(canonical.topk)
    assert "--disable-overlap-schedule" in plan.argv
    info = answer(plan, "pr29907")
    effective = spoken.read_back(info, canonical)
    assert differences(canonical, effective) == ()
    assert effective.inferred == ("topk",)
    exposed = info | {"internal_states": [{"env_vars": dict(plan.env)}]}
    assert spoken.read_back(exposed, canonical).inferred == ()
    other = info | {"internal_states": [{"env_vars": {"SGLANG_DDTREE_MAX_TOPK": "none"}}]}
    assert [one.knob for one in differences(canonical, spoken.read_back(other, canonical))] == ["topk"]
    # A build lists the variables that it declares: one that a patch reads by itself is never among them.
    undeclared = spoken.read_back(info | {"internal_states": [{"env_vars": {"SGLANG_OTHER": "1"}}]}, canonical)
    assert differences(canonical, undeclared) == ()
    assert undeclared.inferred == ("topk",)


@pytest.mark.parametrize("version", ["0.5.17", "0.5.23"])
@pytest.mark.parametrize("name", ["sglang-pr29907", "custom"])
def test_a_patch_on_either_version_takes_what_every_launch_is_given(name, version):
    fields = {"custom": {"budget": {"flag": "--speculative-ddtree-budget"}, "topk": {"env": "FORK_TOPK"}}}
    fields["custom"]["window"] = {"flag": "--speculative-draft-window-size"}
    spoken = dialect(name, **(fields if name == "custom" else {}))
    info = answer(spoken.plan(spoken.canonical(TREE), SLOT), "pr29907", version)  # the old graph flag ends it with 2
    assert info["cuda_graph_max_bs_decode"] == SLOT.max_running_requests


def test_requests_that_give_one_tree_are_one_point_of_the_space():
    space = SweepSpec.parse(
        "name: s\nspace: {budget: [4, 8, 14], topk: [2, 3, 4, 6], window: [2048]}\n"
        "load: {contexts: [60], concurrency: [1]}",
        "s",
    ).space
    points = Space.of(space, dialect("sglang-pr29907", block_size=8)).points.values()
    assert sorted((point.budget, point.topk) for point in points) == [(4, 1), (8, 2), (14, 2), (14, 3)]
    assert len(Space.of(space, dialect("ddtree_tune", block_size=8)).points) == 11  # topk 6 is topk 4 at budget 4


def test_the_pull_request_needs_to_know_the_block():
    with pytest.raises(SpecError, match=r"engine.block_size must be given with dialect sglang-pr29907"):
        dialect("sglang-pr29907", block_size=None)


def test_stock_sglang_has_chains_alone():
    spoken = dialect("sglang-dflash")
    assert spoken.canonical(EngineConfig(Algorithm.TREE, 9, 1, 64)) == EngineConfig(Algorithm.CHAIN, window=64)
    with pytest.raises(SpecError, match=r"topk must be 1 with dialect sglang-dflash.*8/4/2048"):
        spoken.canonical(TREE)


def test_a_private_fork_needs_no_code():
    spoken = dialect("custom", custom=yaml.safe_load(FORK))
    canonical = spoken.canonical(EngineConfig(Algorithm.TREE, 8, 4, 512))
    assert canonical.window == 2048
    plan = spoken.plan(canonical, SLOT)
    words = " ".join(plan.argv)
    assert "--speculative-algorithm DFLASH" in words
    assert "--enable-tree --nodes 9" in words
    assert dict(plan.env)["FORK_TOPK"] == "4"
    info = {
        "speculative_algorithm": "DFLASH",
        "enable_tree": True,
        "tree": {"nodes": 9},
        "max_running_requests": 64,
        "served_model_name": "n",
        "version": "fork",
    }
    effective = spoken.read_back(info, canonical)
    assert differences(canonical, effective) == ()
    assert effective.inferred == ("topk",)
    assert overridden(plan.argv, info | {"enable_tree": False}) != ()
    short = spoken.read_back(info | {"tree": {"nodes": 5}}, canonical)
    assert [str(one) for one in differences(canonical, short)] == ["budget asked 8, server resolved 4"]
    for broken in ({"tree": {}}, {"tree": {"nodes": "nine"}}):
        with pytest.raises(EngineError, match=r"/server_info must have .*tree.nodes for budget") as raised:
            spoken.read_back(info | broken, canonical)
        assert raised.value.failure is FailureClass.INVALID_CONFIG
    # A build that has no such field is found out in the first trial, and not after the baselines are paid for.
    with pytest.raises(EngineError, match=r"tree.nodes for budget, but got none; correct engine.dialect"):
        spoken.read_back({**info, "speculative_algorithm": None, "tree": {}}, EngineConfig(Algorithm.NONE))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "dialect or custom must be given with kind: sglang"),
        ({"dialect": "custom"}, "custom must hold the table"),
        ({"dialect": "ddtree_tune", "custom": yaml.safe_load(FORK)}, "custom must hold the table"),
        ({"model": None}, "model must be given with kind: sglang"),
        ({"env": {"SGLANG_SIMULATE_ACC_LEN": "3"}}, "must not set SGLANG_SIMULATE_ACC_LEN"),
        (
            {"kind": "builtin", "model": None, "draft_model": None, "block_size": 8},
            "block_size must be given with kind: sglang",
        ),
        (
            {"custom": {"topk": {"env": "K"}, "window": {"flag": "--w"}}},
            "budget must be given for a build that has trees",
        ),
        (
            {"custom": yaml.safe_load(FORK) | {"topk": {"env": "K", "flag": "--k"}}},
            "exactly one of flag, env and fixed",
        ),
        ({"custom": yaml.safe_load(FORK) | {"topk": {"flag": "topk"}}}, "engine.custom.topk.flag: string should match"),
        ({"command": []}, "engine.command: tuple should have at least 1 item"),
    ],
)
def test_what_is_wrong_with_an_engine_gets_one_sentence(fields, sentence):
    text = {
        "name": "s",
        "engine": {key: value for key, value in (MODEL | fields).items() if value is not None},
        "space": {"budget": [8], "topk": [4], "window": [64]},
        "load": {"contexts": [60], "concurrency": [1]},
    }
    with pytest.raises(SpecError) as raised:
        SweepSpec.parse(yaml.safe_dump(text), "s.yaml")
    assert sentence in str(raised.value)
    assert str(raised.value).startswith("s.yaml: engine")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("asked", "resolved", "said"),
    [
        ("--page-size 1", {"page_size": 64}, "page_size asked 1, server resolved 64"),
        ("--speculative-num-steps 3", {"speculative_num_steps": 1}, "speculative_num_steps asked 3, server resolved 1"),
        ("--disable-overlap-schedule", {"disable_overlap_schedule": False}, "disable_overlap_schedule asked True"),
        ("--attention-backend triton", {"attention_backend": "trtllm_mla"}, "attention_backend asked triton"),
        ("--mem-fraction-static 0.80", {"mem_fraction_static": 0.8}, None),
        ("--dtype auto", {"dtype": "bfloat16"}, None),
        ("--page-size 64 --page-size 1", {"page_size": 1}, None),
        ("--page-size=1", {"page_size": 64}, "page_size asked 1"),
        ("--cuda-graph-bs 1 2 4", {"cuda_graph_bs": [1, 2, 4]}, None),
        ("--unknown 3", {}, None),
        ("--tool-call-parser qwen25", {"tool_call_parser": "qwen"}, None),
        ("--enable-flashinfer-allreduce-fusion", {"enable_flashinfer_allreduce_fusion": False}, None),
        ("--quantization unquant", {"quantization": None}, None),
        ("--quantization unquant", {"quantization": "fp8"}, "quantization asked unquant, server resolved fp8"),
        ("--tp-size 2 --tensor-parallel-size 4", {"tp_size": 4}, None),
        ("--tensor-parallel-size 4 --tp 2", {"tp_size": 4}, "tp_size asked 2, server resolved 4"),
        ("--random-seed 7", {"random_seed": None}, "random_seed asked 7, server resolved None"),
    ],
)
def test_a_flag_that_the_server_overrides_is_named(asked, resolved, said):
    found = overridden(["python", "-m", "sglang", *asked.split()], resolved)
    assert len(found) == (said is not None)
    if said:
        assert str(found[0]).startswith(said)


@pytest.mark.parametrize(
    ("fields", "model_bytes", "deadline_s"),
    [
        ({}, None, 1800.0),
        ({}, 40_000_000, 300.1),
        ({"model_gib": 554.3}, None, 300 + 554.3 * 2**30 / 0.4e9),
        ({"start_deadline_s": 77.0, "model_gib": 554.3}, 1, 77.0),
    ],
)
def test_the_deadline_of_a_start_follows_from_the_size_of_the_model(fields, model_bytes, deadline_s):
    spec = EngineSpec.model_validate(STOCK | fields)
    assert spec.deadline_s(model_bytes) == pytest.approx(deadline_s)
    assert EngineSpec().deadline_s(None) == 60.0
