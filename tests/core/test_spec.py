"""The YAML contract: what is wrong gets one sentence that names the place."""

from pathlib import Path

import pytest
import yaml

from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.spec import SweepSpec

ROOT = Path(__file__).parents[2]

GOOD = """
name: small
space: {budget: [4, 8], topk: [2, 4], window: [64, none]}
seeds: [{budget: 8, topk: 4, window: none}]
load: {contexts: [512, 60], concurrency: [4, 1]}
search: {trials: 6}
"""


def parse(**changes):
    data = yaml.safe_load(GOOD)
    for path, value in changes.items():
        *sections, key = path.split("__")
        at = data
        for section in sections:
            at = at[section]
        if value is None:
            del at[key]
        else:
            at[key] = value
    return SweepSpec.parse(yaml.safe_dump(data), "s.yaml")


def test_a_good_spec_gives_cells_and_configurations():
    spec = parse()
    assert [cell.cell_id for cell in spec.load.cells()] == [
        "chat_i60_o128_c1",
        "chat_i60_o128_c4",
        "chat_i512_o128_c1",
        "chat_i512_o128_c4",
    ]
    assert [config.algorithm for config in spec.baseline_configs()] == [Algorithm.NONE, Algorithm.CHAIN]
    assert spec.seeds[0].config().label == "8/4/none"
    assert spec.max_concurrency == 4


def test_problems_are_asked_as_they_are_served_and_alone_unless_the_spec_says_otherwise():
    assert parse().coding.concurrencies(4) == (4, 1)
    assert parse(load__concurrency=[1]).coding.concurrencies(1) == (1,)
    assert parse(coding={"concurrency": 8}).coding.concurrencies(4) == (8,)
    assert parse(coding={"concurrency": 8}).max_concurrency == 8
    assert parse(coding={"concurrency": [2, 1, 2]}).coding.concurrencies(4) == (2, 1)
    assert parse(coding={"samples": 4, "temperature": 0.7}).coding.samples == 4


@pytest.mark.parametrize("path", sorted((ROOT / "search_spaces").glob("*.yaml")), ids=lambda path: path.name)
def test_every_search_space_of_the_repository_loads(path):
    spec = SweepSpec.parse(path.read_text(), path.name)
    assert spec.name == path.stem
    assert len(spec.load.cells()) >= 4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"load__concurrency": [0]},
            "s.yaml: load.concurrency[0]: input should be greater than or equal to 1, but got 0",
        ),
        ({"load": None}, "s.yaml: load must be given, but it is missing"),
        ({"load__contexts": []}, "load.contexts: "),
        ({"load__window_s": -1}, "load.window_s: input should be greater than 0, but got -1"),
        ({"load__window_s": float("nan")}, "load.window_s: "),
        ({"load__windows": 3}, "load must not have the unknown key 'windows', but got 3"),
        ({"nmae": "x"}, "the spec must not have the unknown key 'nmae'"),
        ({"name": "../x"}, "name: "),
        ({"space__budget": {"low": 9, "high": 3}}, "low must be at most high, but got 9 above 3"),
        ({"space__budget": ["eight"]}, "space.budget"),
        ({"space__window": ["all"]}, "space.window"),
        ({"baselines": ["chain"]}, "baselines must contain none"),
        ({"search__trials": 2}, "search.trials must be at least the 3 baselines and seeds"),
        ({"search__sampler": "magic"}, "search.sampler"),
        ({"search": {"trials": 6, "seed": -1}}, "search.seed: input should be greater than or equal to 0, but got -1"),
        ({"gate": {"expect": "def f("}}, "gate.expect: must be a regular expression, but got 'def f('"),
        ({"engine": {"kind": "vllm"}}, "engine.kind"),
        ({"coding": {"samples": 4}}, "coding: temperature must be above 0 for samples to differ, but got 0 with 4"),
        ({"coding": {"concurrency": []}}, "coding.concurrency"),
        ({"coding": {"concurrency": True}}, "coding.concurrency"),
        ({"coding": {"top_p": 0.0}}, "coding.top_p"),
        ({"seeds": [{"budget": 8, "topk": 4}]}, "seeds[0].window must be given"),
    ],
)
def test_what_is_wrong_gets_one_sentence_that_names_the_place(changes, sentence):
    with pytest.raises(SpecError) as raised:
        parse(**changes)
    text = str(raised.value)
    assert sentence in text
    assert text.startswith("s.yaml")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must be one YAML mapping, but got NoneType"),
        ("- a", "must be one YAML mapping, but got list"),
        ("name: [", "s.yaml:"),
        ("name: a\nname: b", "the key 'name' twice"),
        ("load: {contexts: [1], contexts: [2]}", "the key 'contexts' twice"),
        ("{[1]: 2}", "must be one YAML mapping"),
    ],
)
def test_text_that_is_no_mapping_gets_one_sentence(text, sentence):
    with pytest.raises(SpecError, match=r"^s\.yaml") as raised:
        SweepSpec.parse(text, "s.yaml")
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)
