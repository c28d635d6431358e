"""``ddtree-tune trace``: the sweep's own prompts, and what a server measures on them."""

import hashlib
import json
from pathlib import Path

import pytest

from ddtree_tune.cli import main
from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.replay import replay
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.live import user
from ddtree_tune.node.loadgen import NodeLoader
from ddtree_tune.node.replay_file import load_trace
from ddtree_tune.node.spec_file import read_spec
from ddtree_tune.tracing import prompts_of_cells
from tests.builtin.harness import serving

SPEC = """
name: traced
space: {budget: [6], topk: [3], window: [48]}
load: {contexts: [60], concurrency: [2], output_tokens: 24, window_s: 0.2, min_requests: 2, prompts: PROMPTS}
search: {trials: 2}
"""


@pytest.fixture
def spec(tmp_path):
    """A sweep over prompts of its own: the shipped ones take seconds to prepare."""
    words = (Path(__file__).parents[1] / "README.md").read_text().split()
    lines = [json.dumps({"prompt": " ".join(words[at : at + 60])}) for at in range(0, 900, 60)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    path = tmp_path / "spec.yaml"
    path.write_text(SPEC.replace("PROMPTS", str(tmp_path / "prompts.jsonl")))
    return path


def sha(text):
    return hashlib.sha256(json.dumps([dict(message) for message in user(text)]).encode()).hexdigest()[:16]


def test_a_server_counts_on_the_load_what_the_replay_of_its_prompts_says(spec, tmp_path, monkeypatch, capsys):
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        monkeypatch.setenv(name, "1")  # the command sets them, and they are put back here
    out = tmp_path / "t.jsonl.gz"
    command = ["trace", str(spec), "--out", str(out), "--window", "48", "--topk", "3"]
    assert main([*command, "--requests", "2"]) == 0
    assert "2 requests, 46 positions" in capsys.readouterr().out
    trace = load_trace(out)
    histograms = replay(trace, (6,), (3,)).histograms[:, 0, 0]

    sweep = read_spec(spec)
    (cell,) = sweep.load.cells()
    asked = [one.prompt.text for one in prompts_of_cells(sweep, 2)]
    arguments = ("--algorithm", "tree", "--budget", "6", "--topk", "3", "--window", "48")
    with serving(tmp_path, *arguments) as server:
        loader = NodeLoader(sweep.load, seed=sweep.search.seed, stall_s=30)
        run = loader.run(Endpoint(f"http://127.0.0.1:{server.port}", "nonce"), cell, 0)
    measured = {one.prompt_sha: one for one in run.traces if one.phase is Phase.WINDOW and one.ok}
    compared = 0
    for text, request, expected in zip(asked, trace.requests, histograms.tolist(), strict=True):
        seen = measured[sha(text)]
        counted = list(seen.spec.histogram)
        assert counted == expected[: len(counted)]
        assert sum(counted) == sum(expected) == seen.spec.verify_steps > 1
        assert seen.completion_tokens == request.reply_tokens == 24
        assert abs(seen.prompt_tokens - 60) <= 8
        assert seen.prompt_tokens == request.prompt_tokens
        compared += 1
    assert compared == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--window", "4"], "--window must be from 16 to "),
        (["--topk", "100000"], "--topk must be from 1 to "),
        (["--out", "/nowhere/t.jsonl"], "/nowhere/t.jsonl: must be a file in a folder that exists"),
    ],
)
def test_what_the_pair_cannot_do_is_one_sentence(spec, monkeypatch, capsys, arguments, sentence):
    monkeypatch.setattr("ddtree_tune.builtin.options.os.environ", {})
    assert main(["trace", str(spec), "--out", str(spec.with_name("t.jsonl")), *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not spec.with_name("t.jsonl").exists()
