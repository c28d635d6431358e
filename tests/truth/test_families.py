"""A cell of mixed prompts tells its families apart, against a server that knows what it accepted."""

import pytest

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.metrics import measure
from ddtree_tune.core.trace import Phase
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.counting import Counter, Counts
from ddtree_tune.node.prompts import load_prompts
from ddtree_tune.node.questions import FAMILIES, shipped_tasks
from tests.truth.harness import MODEL, assert_real, cell, load


@pytest.fixture(scope="module")
def mixed():
    """The shipped questions of all families in turn."""
    return load_prompts(None, seed=2, streams=len(Phase), families=FAMILIES)


def shipped_cut(server, prompts, shape):
    """Cut the shipped prompts by the server's count."""
    counts = Counts()

    async def cut(phase, index):
        async with EngineClient(Endpoint(server.base_url, MODEL), timeout_s=5, stall_s=2) as client:
            counter = Counter(client, prompts.samples, counts)
            return await prompts.cut(shape, list(Phase).index(phase), index, counter)

    return cut


def test_families_of_different_acceptance_are_reported_apart(truth, mixed):
    # A chunk is a step and steps take the same time, so a family's speed is its acceptance over that.
    questions = shipped_tasks(FAMILIES)
    chat = {task.prompt: [2, 1, 1] for task in questions["chat"]}
    truth.script(gap_s=0.02, steps=[3], steps_for={"`": [6, 8, 2], **chat})
    shape = cell(3, output=48, window_s=2.5, min_requests=9)
    run = load(truth, shape, cut=shipped_cut(truth, mixed, shape))
    assert_real(run)
    metrics = measure([run])
    found = {one.family: one for one in metrics.families}
    assert set(found) == set(FAMILIES)
    assert found["code"].accept_len == pytest.approx(48 / 9)  # 6 + 8 + 2 three times
    assert found["maths"].accept_len == pytest.approx(3)
    assert found["chat"].accept_len == pytest.approx(48 / 36)
    assert found["chat"].accept_len < metrics.accept_len < found["code"].accept_len
    assert found["code"].user_tps > found["maths"].user_tps > found["chat"].user_tps
    assert sum(one.output_tokens for one in metrics.families) == metrics.output_tokens
    assert sum(one.requests_ok for one in metrics.families) == metrics.requests_ok
    asked = [record["prompt"] for record in truth.truth() if record["body"].get("stream")]
    assert sum("`" in prompt for prompt in asked) == sum(t.prompt_family.startswith("code/") for t in run.traces) > 2


def test_every_window_holds_about_equal_shares(truth, mixed):
    truth.script(ttft_s=0.01, gap_s=0.005)
    shape = cell(4, context=200, window_s=0.8, min_requests=24)
    run = load(truth, shape, cut=shipped_cut(truth, mixed, shape))
    assert_real(run)
    window = [trace.prompt_family for trace in run.traces if trace.phase is Phase.WINDOW]
    shares = [sum(family.startswith(f"{top}/") for family in window) / len(window) for top in FAMILIES]
    assert len(window) >= 24
    assert shares == pytest.approx([1 / 3] * 3, abs=0.06)
