"""The trainer itself: models, losses, export, and every step of the pipeline once."""

import json

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from ddtree_tune.builtin.train.__main__ import main  # noqa: E402
from ddtree_tune.builtin.train.chat import MASK_ID  # noqa: E402
from ddtree_tune.builtin.train.decode import Limits, greedy  # noqa: E402
from ddtree_tune.builtin.train.export import export_drafter, export_target, load_pair  # noqa: E402
from ddtree_tune.builtin.train.loops import Reply, _drafter_loss  # noqa: E402
from ddtree_tune.builtin.train.model import Drafter, Shape, Target  # noqa: E402
from ddtree_tune.builtin.train.optim import Optimizer, orthogonalise  # noqa: E402

torch.set_num_threads(1)  # threads that wait for each other stall on a busy machine
SMALL = Shape(vocabulary=64, hidden=32, layers=3, head=16, inner=48, taps=(0, 1), positions=256)


@pytest.fixture
def pair():
    """A random pair whose layers all have something to say."""
    torch.manual_seed(1)
    target, drafter = Target(SMALL), Drafter(SMALL)
    for model in (target, drafter):
        for name, weight in model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                torch.nn.init.normal_(weight, std=0.2)
            if "lm_head" in name:
                torch.nn.init.normal_(weight, std=0.3)
        model.load_state_dict({name: one.bfloat16().float() for name, one in model.state_dict().items()})
    return target.eval().requires_grad_(requires_grad=False), drafter.eval().requires_grad_(requires_grad=False)


def test_greedy_replies_equal_whole_passes_over_their_text(pair):
    target, _ = pair
    prompts = [[6, 7, 8], list(range(6, 40)), [9] * 12]
    replies = greedy(target, prompts, Limits(20, ignore_end=True))
    for prompt, reply in zip(prompts, replies, strict=True):
        assert len(reply) == 20
        scores = target.logits(target(torch.tensor([[*prompt, *reply]])).last)[0]
        assert scores[len(prompt) - 1 : -1].argmax(-1).tolist() == reply


def test_a_prompt_without_room_for_its_reply_gets_none(pair):
    target, _ = pair
    replies = greedy(target, [[6] * 240, [6] * 10], Limits(20, ignore_end=True))
    assert replies[0] is None
    assert len(replies[1]) == 20


def test_the_drafter_sees_its_window_and_nothing_at_or_after_the_anchor(pair):
    target, drafter = pair
    taps, at = torch.randn(1, 40, 64), torch.tensor([[30]])
    anchor = target.embed(torch.tensor([[7]]))

    def draft(changed, window):
        other = taps.clone()
        other[:, changed] += 1.0
        seen = None if window is None else torch.tensor([[window]])
        return drafter(other, anchor, at, 8, seen)

    nothing = torch.empty(0, dtype=torch.long)
    assert torch.equal(draft(slice(30, 40), None), draft(nothing, None))
    assert torch.equal(draft(slice(0, 14), 16), draft(nothing, 16))
    assert not torch.equal(draft(slice(14, 15), 16), draft(nothing, 16))
    assert not torch.equal(draft(slice(0, 14), None), draft(nothing, None))


def test_anchors_of_one_pass_do_not_see_each_other(pair):
    target, drafter = pair
    taps, at = torch.randn(1, 40, 64), torch.tensor([[5, 20, 33]])
    anchors = target.embed(torch.tensor([[7, 8, 9]]))
    together = drafter(taps, anchors, at, 8)
    for one in range(3):
        alone = drafter(taps, anchors[:, one : one + 1], at[:, one : one + 1], 8)
        assert torch.allclose(together[:, one], alone[:, 0], atol=1e-5)


def test_orthogonalising_brings_singular_values_near_one():
    torch.manual_seed(1)
    for shape in ((3, 24, 40), (2, 40, 24)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(shape)))
        assert values.min() > 0.4
        assert values.max() < 1.4


def test_the_drafter_learns_a_reply_by_heart(pair):
    target, _ = pair
    torch.manual_seed(2)
    group = [Reply([6, 7, 8, 9], torch.randint(6, 64, (40,)).tolist())]
    drafter = Drafter(SMALL)
    optimizer = Optimizer(drafter, 1e-2, 2e-2, warmup_steps=5)
    before, _ = _drafter_loss(target, drafter, group, 8, drafts=16, windowed=False)
    for step in range(60):
        loss, accepted = _drafter_loss(target, drafter, group, 8, drafts=16, windowed=step % 2 == 1)
        loss.backward()
        optimizer.step(step / 60)
    assert loss < before / 3
    assert accepted > 3


def test_an_exported_pair_comes_back_the_same_with_the_mask_in_the_embedding(pair, tmp_path):
    from tokenizers import Tokenizer, models

    target, drafter = pair
    export_target(tmp_path / "target", target, drafter.mask_row, Tokenizer(models.BPE()))
    export_drafter(tmp_path / "draft", SMALL, drafter.state_dict())
    assert {path.name for path in (tmp_path / "draft").iterdir()} == {"config.json", "model.safetensors"}
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert config["dflash_config"] == {"mask_token_id": MASK_ID, "target_layer_ids": [0, 1]}
    read_target, read_drafter = load_pair(tmp_path, SMALL)
    assert torch.equal(read_target.model.embed_tokens.weight[MASK_ID], drafter.mask_row)
    ids = torch.arange(6, 30)[None]
    assert torch.equal(read_target(ids).last, target(ids).last)
    anchor, at = target.embed(torch.tensor([[7]])), torch.tensor([[20]])
    taps = target(ids).taps
    assert torch.equal(read_drafter(taps, anchor, at, 8), drafter(taps, anchor, at, 8))
    with pytest.raises(ValueError, match="must have the shape"):
        load_pair(tmp_path)


@pytest.mark.timeout(300)
def test_every_step_of_the_training_runs_on_a_cpu(tmp_path):
    main(["--out", str(tmp_path), "--smoke"])
    facts = json.loads((tmp_path / "eval.json").read_text())
    assert facts["target"]["steps"] > 0
    assert facts["drafter"]["steps"] > 0
    assert [row["context_tokens"] for row in facts["pass_rates"]] == [0, 64]
    assert all(row["asked"] == 2 for row in facts["pass_rates"])
    assert facts["chosen"]["mark"] in {row["mark"] for row in facts["marks"]}
    load_pair(tmp_path / "pair")
