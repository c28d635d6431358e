"""The corpus and the examples drawn over it."""

import random

import numpy as np
import pytest

from ddtree_tune.builtin.train import chat
from ddtree_tune.builtin.train.corpus import Corpus, clean, load_corpus
from ddtree_tune.builtin.train.data import LONGEST_EXAMPLE, Sampler, batches, held_out_prompts, pack
from ddtree_tune.builtin.train.vocabulary import train_tokenizer


@pytest.fixture(scope="module")
def corpus():
    return load_corpus("train")


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return train_tokenizer(corpus, 1024, samples=200, seed=1)


@pytest.fixture
def sampler(corpus, tokenizer):
    return Sampler(tokenizer, corpus, "train", 1)


def test_the_splits_of_the_corpus_share_no_file(corpus):
    held_out = load_corpus("held_out")
    for split, other in ((corpus, held_out), (held_out, corpus)):
        assert len(split.code) > 300_000
        assert len(split.prose) > 50_000
        lines = [line for line in split.code.split("\n") if line.startswith(("def ", "class "))]
        shared = sum(f"\n{line}\n" in other.code for line in random.Random(0).sample(lines, 100))
        assert shared < 25  # `def main():` and its like


def test_cleaning_drops_long_and_foreign_lines():
    assert clean("a\n" + "x" * 100 + "\nf\u00fcr\n\n\n\n\n\nb \f") == "a\n\n\nb"


def test_a_window_is_what_the_text_holds():
    corpus = Corpus("one\ntwo\nthree\n", "")
    rng = random.Random(1)
    for _ in range(50):
        window = corpus.window(rng, "code", 6)
        assert window in corpus.code
        assert len(window) <= 6


def test_special_tokens_have_their_ids_and_thinking_is_visible(tokenizer):
    assert [tokenizer.token_to_id(token) for token in chat.SPECIAL_TOKENS] == list(range(6))
    ids = tokenizer.encode("<|im_start|>assistant\n<think>\n12 x</think><|im_end|>").ids
    assert tokenizer.decode(ids) == "assistant\n<think>\n12 x</think>"
    assert len(tokenizer.encode("1234").ids) == 4


def test_an_example_weighs_replies_fully_and_prompts_little(sampler, tokenizer):
    for _ in range(30):
        example = sampler.example()
        reply = tokenizer.decode(example.ids[example.weights == 1].tolist(), skip_special_tokens=False)
        prompt = tokenizer.decode(example.ids[: example.prompt_tokens].tolist(), skip_special_tokens=False)
        assert reply.endswith("<|im_end|>")
        assert "```python\ndef " in reply
        assert "<|im_start|>" not in reply
        assert prompt.startswith(("<|im_start|>user\n", "<|im_start|>system\n"))
        assert (example.weights[: example.prompt_tokens] <= 0.1 + 1e-6).all()


def test_contexts_have_about_the_length_asked_for_and_never_push_the_task_out(sampler, tokenizer):
    for wanted in (100, 1000, 7500):
        example = sampler.example(wanted)
        assert len(example.ids) <= LONGEST_EXAMPLE
        assert 0.5 * wanted < example.prompt_tokens < 2 * wanted + 300
        end = tokenizer.decode(example.ids[: example.prompt_tokens].tolist()[-10:], skip_special_tokens=False)
        assert "<|im_start|>assistant\n" in end


def test_batches_stay_within_their_size_and_pad_with_weightless_zeros(sampler):
    endless = batches(sampler, 3000, longest_context=300)
    for _ in range(3):
        for batch in next(endless):
            assert batch.ids.shape == batch.weights.shape
            assert batch.ids.size <= 3000 + 8 * len(batch.ids) or len(batch.ids) == 1 or batch.ids.size < 6000
            ends = [int(np.flatnonzero(row)[-1]) for row in batch.weights]
            for row, end in zip(batch.ids, ends, strict=True):
                assert not row[end + 1 :].any()


def test_packing_keeps_every_example(sampler):
    examples = [sampler.example() for _ in range(3)]
    batch = pack(examples)
    for row, example in zip(batch.ids, examples, strict=True):
        assert row[: len(example.ids)].tolist() == example.ids.tolist()
    assert batch.ids.shape[1] % 8 == 0


def test_held_out_prompts_hold_the_asked_context_and_then_the_task(tokenizer):
    sampler = Sampler(tokenizer, load_corpus("held_out"), "held_out", 2)
    for at, (task, ids) in enumerate(held_out_prompts(sampler, 4, 200)):
        text = tokenizer.decode(ids, skip_special_tokens=False)
        head = ("Here is some code from the project:", "Here is a page of the manual:")[at % 2]
        assert text.startswith(f"<|im_start|>user\n{head}\n")
        assert text.endswith(f"{task.prompt}<|im_end|>\n<|im_start|>assistant\n")
        bare = len(tokenizer.encode(chat.render([("user", task.prompt)])).ids)
        assert abs(len(ids) - bare - 200) < 40
