"""The pair that ships: its files, and its scores against the stored references and transformers."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from ddtree_tune.builtin.train import chat
from ddtree_tune.builtin.train.tasks import draw_task

ROOT = Path(__file__).parents[3]
PAIR = ROOT / "ddtree_tune" / "builtin" / "pair"
GOLDEN = ROOT / "tests" / "builtin" / "golden" / "logits.npz"


def config(part):
    return json.loads((PAIR / part / "config.json").read_text())


def test_the_pair_is_small_and_the_drafter_has_one_file_of_weights():
    files = [path for path in PAIR.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 7_900_000
    assert {path.name for path in (PAIR / "draft").iterdir()} == {"config.json", "model.safetensors"}


def test_the_configurations_name_what_servers_look_for():
    target, draft = config("target"), config("draft")
    assert target["architectures"] == ["Qwen3ForCausalLM"]
    assert draft["architectures"] == ["DFlashDraftModel"]
    assert draft["num_target_layers"] == target["num_hidden_layers"]
    assert draft["dflash_config"]["mask_token_id"] == chat.MASK_ID
    assert max(draft["dflash_config"]["target_layer_ids"]) < target["num_hidden_layers"]
    assert not target["tie_word_embeddings"]
    settings = json.loads((PAIR / "target" / "tokenizer_config.json").read_text())
    assert settings["chat_template"] == chat.CHAT_TEMPLATE
    generation = json.loads((PAIR / "target" / "generation_config.json").read_text())
    assert generation["eos_token_id"] == chat.END_ID


def test_the_tokenizer_reads_back_what_it_writes():
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    tokenizer = tokenizers.Tokenizer.from_file(str(PAIR / "target" / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == config("target")["vocab_size"]
    rng = random.Random(1)
    for _ in range(20):
        task = draw_task(rng, "held_out")
        text = chat.render([("user", task.prompt)]) + task.reply + chat.END
        assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_the_record_says_what_the_pair_must_reach():
    facts = json.loads((PAIR / "eval.json").read_text())
    rates = {row["context_tokens"]: row["passed"] / row["asked"] for row in facts["pass_rates"]}
    assert rates[0] >= 0.95
    assert rates[1024] >= 0.85
    bare = next(
        row for row in facts["acceptance"] if (row["context_tokens"], row["block"], row["window"]) == (0, 16, None)
    )
    assert bare["chain"] >= 3
    assert bare["topk_4"]["16"] >= 4
    assert bare["topk_4"]["16"] > 1.1 * bare["chain"]


def test_the_stored_references_are_those_of_the_shipped_weights():
    torch = pytest.importorskip("torch", reason="needs torch")
    from ddtree_tune.builtin.train.export import load_pair
    from ddtree_tune.builtin.train.golden import references

    target, drafter = load_pair(PAIR)
    stored = np.load(GOLDEN)
    assert GOLDEN.stat().st_size < 1_500_000
    with torch.no_grad():
        for at in range(3):
            prompt = stored[f"{at}_ids"].tolist()
            for name, found in references(target, drafter, prompt).items():
                np.testing.assert_allclose(found, stored[f"{at}_{name}"], atol=1e-3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_transformers_gives_the_stored_logits_and_the_same_prompt():
    torch = pytest.importorskip("torch", reason="needs torch")
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    folder = PAIR / "target"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    stored = np.load(GOLDEN)
    for at in range(3):
        with torch.no_grad():
            scores = model(torch.tensor(stored[f"{at}_ids"])[None]).logits[0, -8:].numpy()
        np.testing.assert_allclose(scores, stored[f"{at}_logits"], atol=1e-3)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    talk = [{"role": "user", "content": "Write `f`."}]
    for thinking in (True, False):
        text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True, enable_thinking=thinking)
        assert text == chat.render([("user", "Write `f`.")], enable_thinking=thinking)
