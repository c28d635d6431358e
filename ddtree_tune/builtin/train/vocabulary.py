"""Trains and loads the byte-level BPE of the pair.

Digits are single tokens: a number can be copied without having been seen.
"""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from ddtree_tune.builtin.train.chat import END_THINK, SPECIAL_TOKENS, THINK, render
from ddtree_tune.builtin.train.tasks import draw_task

if TYPE_CHECKING:
    from pathlib import Path

    from ddtree_tune.builtin.train.corpus import Corpus


def train_tokenizer(corpus: Corpus, size: int, samples: int, seed: int) -> Tokenizer:
    """Train on drawn chats, and on windows of code and prose beside them.

    Args:
        corpus: the training split.
        size: entries of the vocabulary, special tokens included.
        samples: chats to draw; a tenth as many windows of 2,000 characters of each kind.
        seed: of what is drawn.
    """
    rng = random.Random(seed)
    texts = []
    for _ in range(samples):
        task = draw_task(rng, "train")
        texts.append(render([("user", task.prompt)]) + task.reply)
    for _ in range(samples // 10):
        texts += [corpus.window(rng, "code", 2000), corpus.window(rng, "prose", 2000)]
    special = re.compile("|".join(map(re.escape, SPECIAL_TOKENS)))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((special.sub("\n", text) for text in texts), trainer)
    return with_visible_thinking(tokenizer)


def with_visible_thinking(tokenizer: Tokenizer) -> Tokenizer:
    """Make the thinking marks ordinary added tokens: a decoder that drops special tokens keeps them."""
    state = json.loads(tokenizer.to_str())
    for token in state["added_tokens"]:
        token["special"] = token["content"] not in (THINK, END_THINK)
    return Tokenizer.from_str(json.dumps(state))


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write `tokenizer.json` without indents."""
    path.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False), encoding="utf-8")
