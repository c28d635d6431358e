"""Prompts are real text of the right length, unlike each other, and the same for every trial."""

import asyncio
import itertools
import re
from types import SimpleNamespace

import pytest

from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.errors import LoadError
from ddtree_tune.core.trace import Phase
from ddtree_tune.core.workload import Cell, ClosedLoop
from ddtree_tune.node.client import EngineClient
from ddtree_tune.node.corpus import interpreter_corpus
from ddtree_tune.node.counting import Counter, Counts
from ddtree_tune.node.live import user
from ddtree_tune.node.loadgen import run_cell
from ddtree_tune.node.prompts import FRAMES, load_prompts
from ddtree_tune.node.questions import FAMILIES, shipped_tasks
from tests.builtin.harness import serving
from tests.node.cutting import cut, grid
from tests.truth.harness import MODEL, QUICK, assert_real
from tests.truth.server import TEMPLATE, count_words

STREAMS = 8


@pytest.fixture(scope="module")
def shipped():
    """The shipped tasks over the interpreter's own text."""
    return load_prompts(None, seed=3, streams=STREAMS)


@pytest.fixture(scope="module")
def mixed():
    """The questions of all families in turn."""
    return load_prompts(None, seed=3, streams=STREAMS, families=FAMILIES)


def same(one, other):
    """The character that both have, or nothing."""
    return one if one == other else ""


@pytest.mark.parametrize(("context", "indices"), [(60, 8), (160, 6), (1024, 4), (8192, 2)])
def test_every_prompt_is_of_the_cells_length_by_the_servers_count(truth, shipped, context, indices):
    truth.script(tokenize="messages")
    tolerance = max(8, 0.02 * context)
    for prompt in cut(truth, shipped, context, grid(STREAMS, indices)):
        assert prompt.tokens == count_words(prompt.text) + TEMPLATE
        assert abs(prompt.tokens - context) <= tolerance


@pytest.mark.parametrize(("context", "indices"), [(60, 12), (100, 6), (1024, 3)])
def test_maths_and_chat_are_of_that_length_too(truth, mixed, context, indices):
    tolerance = max(8, 0.02 * context)
    for prompt in cut(truth, mixed, context, grid(STREAMS, indices)):
        assert prompt.tokens == count_words(prompt.text) + TEMPLATE
        assert abs(prompt.tokens - context) <= tolerance


@pytest.mark.parametrize("context", [60, 160, 1024])
def test_no_two_prompts_share_more_than_their_first_words(truth, shipped, context):
    prompts = cut(truth, shipped, context, grid(STREAMS, 12))
    texts = sorted(prompt.text for prompt in prompts)
    shared = [count_words("".join(itertools.takewhile(bool, map(same, *pair)))) for pair in itertools.pairwise(texts)]
    assert len(set(texts)) == len(texts)
    assert max(shared) < 45
    assert sorted(shared)[len(shared) // 2] < 24


def test_families_take_turns_whatever_part_of_a_stream_a_window_sees(truth, mixed):
    for stream in (0, 3):
        prompts = cut(truth, mixed, 200, [(stream, index) for index in range(15)])
        tops = [prompt.family.split("/")[0] for prompt in prompts]
        assert all(set(tops[at : at + 3]) == set(FAMILIES) for at in range(13))
    assert {prompt.family.split("/")[2] for prompt in prompts if prompt.family.startswith("chat/")} == {"prose"}


def test_maths_and_chat_vary_and_begin_like_no_other_where_they_stand_alone(truth, mixed):
    prompts = cut(truth, mixed, 60, grid(STREAMS, 18))
    assert len({prompt.text for prompt in prompts}) == len(prompts) == 144
    for top in ("maths", "chat"):
        some = [prompt for prompt in prompts if prompt.family.startswith(f"{top}/")]
        assert len(some) == 48
        assert all(prompt.family.endswith("/bare") for prompt in some)
        assert len({prompt.text.split(". ", 1)[0] for prompt in some}) == 48
        assert len({prompt.text.split(". ", 1)[1] for prompt in some}) > 24


def test_the_built_in_engine_gets_prompts_of_its_own_length(tmp_path, mixed):
    with serving(tmp_path) as server:
        engine = SimpleNamespace(base_url=f"http://127.0.0.1:{server.port}")
        model = server.json("/v1/models")["data"][0]["id"]
        prompts = cut(engine, mixed, 60, grid(2, 6), model=model)
        usage = [
            server.json("/v1/chat/completions", {"model": model, "messages": user(prompt.text), "max_tokens": 1})
            for prompt in prompts
        ]
    assert [prompt.tokens for prompt in prompts] == [reply["usage"]["prompt_tokens"] for reply in usage]
    assert all(abs(prompt.tokens - 60) <= 8 for prompt in prompts)
    assert {prompt.family.split("/")[0] for prompt in prompts} == set(FAMILIES)


def test_the_hash_names_the_questions_too(shipped, mixed):
    assert shipped.sha256 != mixed.sha256


def test_a_family_that_is_not_shipped_is_refused():
    with pytest.raises(LoadError, match="must be among code, maths, chat, but got poems"):
        load_prompts(None, seed=0, streams=1, families=("poems",))
    with pytest.raises(LoadError, match="but got none"):
        load_prompts(None, seed=0, streams=1, families=())


def test_the_shipped_questions_are_many_and_each_its_own():
    questions = shipped_tasks(("maths", "chat"))
    for top, some in questions.items():
        assert len({task.prompt for task in some}) == len(some) >= 120
        assert len({task.family for task in some}) >= 8
        assert {task.family.split("/")[0] for task in some} == {top}
        assert all(20 <= len(task.prompt) <= 400 for task in some)


def test_every_trial_gets_the_same_prompts_whatever_it_asked_before(truth, shipped):
    again = load_prompts(None, seed=3, streams=STREAMS)
    one = cut(truth, shipped, 300, [(5, 7), (2, 1)])
    other = cut(truth, again, 300, [(0, 0), (2, 1), (5, 7)])
    assert one[0] == other[2]
    assert one[1] == other[1]
    assert shipped.sha256 == again.sha256
    assert len(shipped.sha256) == 64


def test_another_seed_gives_other_prompts(truth, shipped):
    other = load_prompts(None, seed=4, streams=STREAMS)
    assert cut(truth, shipped, 300, [(0, 0)]) != cut(truth, other, 300, [(0, 0)])


def test_prompts_are_code_and_prose_in_their_frames_with_a_task_behind(truth, shipped):
    prompts = cut(truth, shipped, 400, grid(STREAMS, 4))
    kinds = [prompt.family.split("/")[2] for prompt in prompts]
    assert {prompt.family.split("/")[0] for prompt in prompts} == {"code"}
    assert kinds.count("prose") == len(prompts) // 4
    assert kinds.count("code") == 3 * len(prompts) // 4
    corpus = interpreter_corpus()
    code, prose = set(corpus.code), set(corpus.prose)
    for prompt, kind in zip(prompts, kinds, strict=True):
        frame = FRAMES[kind]
        assert prompt.text.startswith(frame.before)
        lines = prompt.text[len(frame.before) :].split("\n")
        assert set(lines[:5]) <= (code if kind == "code" else prose)
        assert frame.after in prompt.text
    assert len({prompt.family for prompt in prompts}) > 8


def test_the_smallest_contexts_hold_a_task_alone_with_its_function_renamed(truth, shipped):
    prompts = cut(truth, shipped, 60, grid(STREAMS, 6))
    assert {prompt.family.split("/")[2] for prompt in prompts} == {"bare"}
    names = [re.search(r"(?:def |`)([a-z_]\w*)\(", prompt.text)[1] for prompt in prompts]
    assert len(set(names)) == len(names)
    for prompt, name in zip(prompts, names, strict=True):
        assert prompt.text.count(name) >= 1


def test_a_context_that_no_task_fits_is_refused(truth, shipped):
    with pytest.raises(LoadError, match="a prompt of 9 tokens must hold the chat template and a task"):
        cut(truth, shipped, 9, [(0, 0)])


def test_a_server_that_cannot_count_is_calibrated_by_its_usage(truth, shipped):
    truth.script(tokenize=None)
    counts = Counts()
    prompts = cut(truth, shipped, 1024, grid(4, 3), counts)
    assert counts.estimated
    true = [count_words(prompt.text) + TEMPLATE for prompt in prompts]
    assert sum(true) / len(true) == pytest.approx(1024, rel=0.25)  # an estimate; usage shows how good
    asked = truth.truth()
    assert 3 <= len(asked) <= 8
    assert {request["body"]["max_tokens"] for request in asked} == {1}
    assert not {request["prompt"] for request in asked} & {prompt.text for prompt in prompts}


def test_a_count_without_the_template_is_completed(truth, shipped):
    truth.script(tokenize="prompt")
    for prompt in cut(truth, shipped, 300, grid(2, 3)):
        assert prompt.tokens == count_words(prompt.text) + TEMPLATE


def test_what_a_server_taught_is_not_asked_again(truth, shipped):
    counts = Counts()
    cut(truth, shipped, 300, [(0, 0)], counts)
    known = dict(counts.short)
    assert known
    cut(truth, shipped, 300, [(0, 0)], counts)
    assert counts.short == known


def test_a_cell_of_shipped_prompts_finds_nothing_in_the_prefix_cache(truth, shipped):
    truth.script(gap_s=0.02, remember=True)
    cell = Cell(200, 32, ClosedLoop(4), 0.5)

    async def measured():
        async with EngineClient(Endpoint(truth.base_url, MODEL), timeout_s=5, stall_s=2) as client:
            counter = Counter(client, shipped.samples, Counts())

            def one(phase, index):
                return shipped.cut(cell, list(Phase).index(phase), index, counter)

            return await run_cell(
                Endpoint(truth.base_url, MODEL), cell, one, repeat=0, limits=QUICK, prompts_sha=shipped.sha256
            )

    run = asyncio.run(measured())
    assert_real(run)
    assert max(trace.cached_tokens for trace in run.traces) == 6
    assert {abs(trace.prompt_tokens - 200) <= 8 for trace in run.traces} == {True}
    assert run.prompts_sha == shipped.sha256
