"""A command line that cannot be served ends with code 2 and one sentence."""

import subprocess
import sys

import pytest

from ddtree_tune.builtin import options
from tests.builtin.harness import PAIR, ROOT

REQUIRED = ["--port", "30000", "--served-model-name", "nonce"]


def test_defaults_are_the_shipped_pair_and_a_tree():
    asked = options.parse(REQUIRED)
    assert asked.model == options.PAIR / "target"
    assert (asked.algorithm, asked.budget, asked.topk, asked.window) == ("tree", 8, 4, None)
    assert options.parse([*REQUIRED, "--window", "none"]) == asked


def test_numpy_is_not_loaded_before_the_threads_are_set():
    program = "import sys; from ddtree_tune.builtin import __main__; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, cwd=ROOT).returncode == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--budget", "0"], "argument --budget: must be at least 1, but got 0"),
        (["--topk", "x"], "argument --topk: must be a whole number, but got 'x'"),
        (["--window", "0"], "argument --window: must be at least 1, but got 0"),
        (["--port", "70000"], "argument --port: must be at most 65535, but got 70000"),
        (["--algorithm", "eagle"], "argument --algorithm: must be one of none, chain, tree, but got 'eagle'"),
        (["--steps", "3"], "unrecognized arguments: --steps 3"),
    ],
)
def test_a_wrong_option_is_named(wrong, said, capsys):
    with pytest.raises(SystemExit) as ended:
        options.parse([*REQUIRED, *wrong])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"{options.PROGRAM}: error: {said}"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--window", "15"], "--window must be none or at least the block size 16, but got 15"),
        (["--block-size", "32"], "--block-size must be at most the drafter's 16, but got 32"),
        (["--max-model-len", "1000000"], "--max-model-len must be at most the model's"),
        (["--model", "/nowhere"], "/nowhere/config.json must be readable, but got No such file or directory"),
    ],
)
def test_options_that_do_not_fit_the_pair_end_with_code_2(wrong, said):
    command = [sys.executable, "-m", "ddtree_tune.builtin", "--model", PAIR / "target", "--draft-model", PAIR / "draft"]
    ended = subprocess.run(
        [*command, *REQUIRED, *wrong], check=False, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"{options.PROGRAM}: error: {said}")
