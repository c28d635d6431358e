"""Prompts are cut once for servers that count alike, and again for one that does not."""

from ddtree_tune.node.prompts import load_prompts
from ddtree_tune.node.remembered import RememberedPrompts
from tests.builtin.harness import serving
from tests.node.cutting import cut, grid
from tests.truth.harness import TruthServer

NUMBERS = grid(2, 3)


def test_a_second_server_that_counts_alike_gets_what_was_cut(truth):
    prompts = RememberedPrompts(load_prompts(None, seed=0, streams=2))
    first, second = (cut(truth, prompts, 300, NUMBERS) for _ in range(2))
    assert len(first) == 6
    assert all(one is other for one, other in zip(first, second, strict=True))
    other_length = cut(truth, prompts, 200, NUMBERS)
    assert all(one.text != other.text for one, other in zip(first, other_length, strict=True))


def test_a_server_with_another_tokenizer_gets_its_own(truth, tmp_path):
    prompts = RememberedPrompts(load_prompts(None, seed=0, streams=2))
    words = cut(truth, prompts, 300, NUMBERS)
    with serving(tmp_path) as engine:
        tokens = cut(TruthServer(engine.port), prompts, 300, NUMBERS, model="nonce")
    assert all(one.text != other.text for one, other in zip(words, tokens, strict=True))
    assert all(abs(prompt.tokens - 300) <= 8 for prompt in (*words, *tokens))
