"""The fake SGLang refuses and completes its command line and its scenario as it should."""

import os
import re
import subprocess
import sys

import pytest

from tests.sglang.arguments import graph_sizes, resolve
from tests.sglang.harness import ROOT, running, scenario
from tests.sglang.scenario import Scenario

DRAFTER = ("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "drafter")


@pytest.mark.parametrize(
    ("told", "argv", "sentence"),
    [
        ({}, ["--speculative-algorithm", "DDTREE"], "Unknown speculative algorithm name: DDTREE"),
        ({}, ["--speculative-algorithm", "DFLASH"], "requires setting --speculative-draft-model-path"),
        ({}, [*DRAFTER, "--speculative-draft-window-size", "8"], "must be >= --speculative-num-draft-tokens"),
        (
            {},
            [*DRAFTER, "--speculative-num-draft-tokens", "4", "--speculative-dflash-block-size", "8"],
            "they must match",
        ),
        (
            {"build": "pr29907"},
            ["--speculative-algorithm", "DDTREE", *DRAFTER[2:], "--page-size", "64"],
            "supports only page_size == 1",
        ),
    ],
)
def test_a_configuration_is_refused_in_the_real_words(told, argv, sentence):
    with pytest.raises(ValueError, match=sentence):
        resolve(["--model-path", "m", *argv], Scenario(**told))


@pytest.mark.parametrize(
    ("told", "argv"),
    [
        ({}, ["--speculative-ddtree-budget", "8"]),
        ({"version": "0.5.23"}, ["--speculative-dflash-draft-window-size", "64"]),
        ({"version": "0.5.23"}, ["--cuda-graph-max-bs", "64"]),
    ],
)
def test_a_flag_that_a_version_or_build_lacks_ends_the_process_with_2(told, argv, capsys):
    with pytest.raises(SystemExit) as end:
        resolve(["--model-path", "m", *argv], Scenario(**told))
    assert end.value.code == 2
    assert re.search("unrecognized arguments|ambiguous option", capsys.readouterr().err)


def test_a_process_that_refuses_its_arguments_ends_with_the_real_exit_codes(tmp_path):
    def end(*argv):
        command = [sys.executable, "-m", "tests.sglang.fake", "--model-path", "m", *argv]
        environment = os.environ | scenario(tmp_path)
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30
        )

    unknown, untrue = end("--no-such-flag"), end("--speculative-algorithm", "DDTREE")
    assert (unknown.returncode, untrue.returncode) == (2, 1)
    assert "sglang serve: error: unrecognized arguments: --no-such-flag" in unknown.stderr
    assert untrue.stderr.endswith("ValueError: Unknown speculative algorithm name: DDTREE\n")


def test_what_was_left_open_is_decided_as_the_real_one_decides():
    chain = resolve(["--model-path", "m", *DRAFTER, "--speculative-eagle-topk", "4"], Scenario())
    assert (chain.max_running_requests, chain.speculative_eagle_topk, chain.speculative_num_draft_tokens) == (48, 1, 16)
    plain = resolve(["--model-path", "m", "--max-running-requests", "64", "--cuda-graph-max-bs", "64"], Scenario())
    assert graph_sizes(plain) == [1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64]
    argv = ["--model-path", "m", "--speculative-algorithm", "DDTREE", *DRAFTER[2:], "--attention-backend", "triton"]
    tree = resolve([*argv, "--speculative-ddtree-budget", "32"], Scenario(build="pr29907"))
    assert (tree.disable_overlap_schedule, tree.verify_width, tree.speculative_num_draft_tokens) == (True, 33, 16)


def test_a_scenario_with_a_mistake_is_refused():
    with pytest.raises(KeyError, match="acept_len"):
        Scenario.parse('{"acept_len": 2.0}')
    for wrong in ('{"startup": "ooom"}', '{"mute_s": "1"}', '{"eager": 1}', '{"scheduler_children": 1.5}'):
        with pytest.raises(TypeError):
            Scenario.parse(wrong)
    assert Scenario.parse('{"mute_s": 1, "startup": null}').mute_s == 1


def test_it_starts_by_path_from_anywhere(tmp_path):
    command = [sys.executable, str(ROOT / "tests" / "sglang" / "fake.py"), "--help"]
    reply = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30)
    assert "--speculative-draft-window-size" in reply.stdout


def test_a_port_that_is_taken_ends_the_second_server_and_not_the_first(tmp_path):
    with running(tmp_path) as first:
        command = [sys.executable, "-m", "tests.sglang.fake", "--model-path", "m", "--port", str(first.port)]
        environment = os.environ | scenario(tmp_path, load_s=0.0, capture_s=0.0)
        second = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=30
        )
        assert second.returncode not in {0, 2}
        assert "address already in use" in second.stderr
        assert first.fetch("/health")[0] == 200
