"""A grown pair says what the shipped one says, in as many steps, and is noise where it may be."""

import json
import subprocess
import sys

import numpy as np
import pytest
import safetensors

from benchmarks.sglang.grow import Sizes, grow
from benchmarks.sglang.prompts import read
from benchmarks.sglang.shards import Fill, Tensor, bfloat16, float32, write_model
from ddtree_tune.builtin.decoder import Decoder, Part, Stream
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.builtin.sampling import Sampler, Sampling
from ddtree_tune.builtin.speculation import Speculation
from ddtree_tune.builtin.tracer import Tracer
from ddtree_tune.builtin.weights import load_drafter, load_target
from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.errors import SpecError
from tests.sglang.harness import ROOT

pytestmark = pytest.mark.timeout(300)  # matrix products on busy cores, where BLAS has several threads
SMALL = Sizes(hidden=768, layers=8, heads=8, kv_heads=4, intermediate=512, draft_layers=3)


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    out = tmp_path_factory.mktemp("grown") / "pair"
    grow(out, SMALL)
    return out


def traces(pair):
    """Replies, and what is drafted at each of their positions."""
    target = load_target(pair / "target")
    tracer = Tracer(target, load_drafter(pair / "draft", target), window=None, topk=8)
    return [tracer.trace(one.ids, 24, ignore_eos=False, name="", context=None, family="") for one in read(2)]


def steps(pair, algorithm, budget, topk):
    """The tokens of every verify step, by prompt."""
    target = load_target(pair / "target")
    drafter = load_drafter(pair / "draft", target)
    speculation = Speculation.resolve(algorithm, budget, topk, None, drafter.config.block_size)
    decoder = Decoder(target, drafter, speculation, slots=1, length=512, chunk=256)
    replies = []
    for prompt in read(2):
        stream = Stream(0, Sampler(Sampling(max_tokens=1, temperature=0.0)), target.stop_ids)
        decoder.read([Part(stream, prompt.ids, last=True)])
        replies.append([list(decoder.step([stream])[0].tokens) for _ in range(4)])
    return replies


def tensors(file):
    return {
        name: np.frombuffer(one["data"], "<u2").reshape(one["shape"])
        for name, one in safetensors.deserialize(file.read_bytes())
    }


def test_a_grown_pair_says_and_drafts_what_the_shipped_one_does(grown):
    """Candidates and their order equal; log-probabilities but for the order of float32 sums."""
    for small, large in zip(traces(PAIR), traces(grown), strict=True):
        assert small.tokens.tolist() == large.tokens.tolist()
        assert small.reply_tokens == 24
        np.testing.assert_array_equal(small.candidates, large.candidates)
        np.testing.assert_allclose(small.log_probs, large.log_probs, atol=2e-4)


@pytest.mark.parametrize(
    ("algorithm", "budget", "topk"), [(Algorithm.CHAIN, 15, 1), (Algorithm.TREE, 16, 4)], ids=["chain", "tree"]
)
def test_every_verify_step_of_a_grown_pair_takes_what_the_shipped_ones_takes(grown, algorithm, budget, topk):
    taken = steps(grown, algorithm, budget, topk)
    assert taken == steps(PAIR, algorithm, budget, topk)
    assert max(len(step) for reply in taken for step in reply) > 2  # drafts are accepted


def test_what_writes_into_the_stream_is_zero_outside_of_the_corner_and_all_else_is_noise(grown):
    for part, layers in (("target", SMALL.layers), ("draft", SMALL.draft_layers)):
        config = json.loads((grown / part / "config.json").read_text())
        known = tensors(PAIR / part / "model.safetensors")
        model = tensors(grown / part / "model.safetensors")
        assert (config["hidden_size"], config["num_hidden_layers"]) == (SMALL.hidden, layers)
        matrices = {name: values for name, values in model.items() if values.ndim == 2}
        assert len(matrices) > 7 * layers
        for name, values in matrices.items():
            dead = np.ones(values.shape, bool)
            if name in known and name != "fc.weight":
                dead[tuple(slice(size) for size in known[name].shape)] = False
                np.testing.assert_array_equal(values[~dead].reshape(known[name].shape), known[name])
            if "o_proj" in name or "down_proj" in name or "embed" in name:
                assert not values[dead].any()
            elif name == "fc.weight":
                assert not values[192:].any()
                assert (values[:192] != 0).mean() > 0.99
            else:
                assert (values[dead] != 0).mean() > 0.99


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        (Sizes(hidden=384), "hidden must be 192 times a power of 4, .* but got 384; give 768 or 3072"),
        (Sizes(layers=5), "^layers must be at least the 6 that were trained, but got 5"),
        (Sizes(draft_layers=1), "^draft-layers must be at least the 2 that were trained, but got 1"),
        (Sizes(heads=32, kv_heads=8), "heads must be 2 times kv-heads, .* but got 32 and 8"),
        (Sizes(intermediate=100), "intermediate must be at least the 384 that were trained, but got 100"),
    ],
)
def test_sizes_that_change_what_is_said_are_refused(tmp_path, sizes, says):
    with pytest.raises(SpecError, match=says):
        grow(tmp_path / "pair", sizes)
    assert not (tmp_path / "pair").exists()


def test_a_folder_that_is_there_is_kept(tmp_path):
    command = [sys.executable, "-m", "benchmarks.sglang", "grow", "--out", str(tmp_path), "--hidden", "768"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip() == f"{tmp_path} must not be there yet, but it is; give another folder or remove it"


def test_a_model_of_several_files_has_an_index_and_other_noise_in_each_tensor(tmp_path):
    some = [Tensor(name, (100, 50), Fill.NOISE) for name in ("a", "b", "c")]
    write_model(tmp_path, some, shard_bytes=20_000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert index["weight_map"] == {name: f"model-0000{1 + (name == 'c')}-of-00002.safetensors" for name in "abc"}
    assert index["metadata"]["total_size"] == 30_000
    values = {}
    for file in set(index["weight_map"].values()):
        values |= tensors(tmp_path / file)
    assert sorted(values) == ["a", "b", "c"]
    assert len({one.tobytes() for one in values.values()}) == 3
    assert float32(values["a"]).std() == pytest.approx(0.02, rel=0.1)


def test_bfloat16_is_the_upper_half():
    exact = np.array([1.0, -2.5, 0.0, 3.140625], np.float32)
    assert float32(bfloat16(exact)).tolist() == exact.tolist()
