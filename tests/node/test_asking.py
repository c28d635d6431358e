"""How problems are asked: at the concurrency that is served, with everything that decides a reply sent."""

import asyncio
import json
import time

import pytest

from ddtree_tune.core.coding import Attempt, Outcome, pass_rate, served
from ddtree_tune.core.coding_spec import CodingSpec
from ddtree_tune.core.engine import Endpoint, Route
from ddtree_tune.core.judge import submit
from ddtree_tune.node.asking import Asking, Question, ask_all, sample_seed
from ddtree_tune.node.grader import NodeGrader, evaluate
from tests.node.chat_server import ChatServer
from tests.node.door_server import DoorServer
from tests.node.test_grader import GOOD, TESTS, answering, graded, problem


@pytest.mark.parametrize(("users", "problems"), [(3, 12), (8, 3), (1, 4)])
def test_the_served_concurrency_is_kept_to_the_last_reply_and_never_exceeded(users, problems):
    full = []

    def script(*_):
        """Answer once the batch is full, or too late."""
        deadline = time.monotonic() + 10
        while server.in_flight < users and time.monotonic() < deadline:
            time.sleep(0.005)
        full.append(time.monotonic() < deadline)
        return {"content": "Sorry."}, "stop"

    server = ChatServer(script)
    with server.running():
        attempts = graded(server, [f"p{number}" for number in range(problems)], users=(users,))
    assert all(full[:problems])
    assert server.most_in_flight == users
    assert len(attempts) == problems
    assert {one.concurrency for one in attempts} == {users}
    # What keeps the slots busy is asked beyond the problems, and not graded.
    assert len({body["messages"][0]["content"] for body in server.asked}) == problems


def test_problems_are_asked_at_every_concurrency_in_turn():
    server = ChatServer(lambda *_: ({"content": GOOD}, "stop"), delay_s=0.02)
    with server.running():
        attempts = graded(server, ["a", "b"], users=(2, 1))
    assert [(one.problem_id, one.concurrency) for one in attempts] == [("a", 2), ("b", 2), ("a", 1), ("b", 1)]
    assert [one.concurrency for one in served(attempts)] == [2, 2]
    assert pass_rate(attempts).attempted == 2


def test_everything_that_decides_a_greedy_reply_is_sent_and_no_seed():
    with answering({"p": ({"content": GOOD}, "stop")}).running() as server:
        (attempt,) = graded(server, ["p"], users=(1,), extra=[("chat_template_kwargs", {"thinking": False})])
        (body,) = server.asked
    assert (body["temperature"], body["top_p"], body["chat_template_kwargs"]) == (0.0, 1.0, {"thinking": False})
    assert "seed" not in body
    assert attempt.greedy


def test_samples_differ_by_a_seed_that_is_the_same_for_every_setting():
    runs = []
    for _ in range(2):
        with answering({"p": ({"content": GOOD}, "stop"), "q": ({"content": GOOD}, "stop")}).running() as server:
            attempts = graded(server, ["p", "q"], users=(1,), temperature=0.7, top_p=0.95, samples=3)
        runs.append([(body["messages"][0]["content"], body["seed"]) for body in server.asked])
        assert {(body["temperature"], body["top_p"]) for body in server.asked} == {(0.7, 0.95)}
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == len(attempts) == 6
    assert runs[0][0] == ("p", sample_seed(3, "p", 0))
    assert [(one.problem_id, one.sample) for one in attempts] == [(name, n) for name in "pq" for n in range(3)]
    assert not any(one.greedy or one.chunks for one in attempts)


def test_a_server_that_is_gone_gives_request_errors_and_no_rate():
    ask = Asking(Endpoint("http://127.0.0.1:9", "m"), CodingSpec(), seed=0, stall_s=5.0)
    attempts = asyncio.run(evaluate(ask, [problem("p")], (8,)))
    assert [attempt.outcome for attempt in attempts] == [Outcome.REQUEST_ERROR]
    assert pass_rate(attempts).over_all is None


def test_nothing_is_asked_where_there_is_no_question():
    ask = Asking(Endpoint("http://127.0.0.1:9", "m"), CodingSpec(), seed=0, stall_s=5.0)
    assert asyncio.run(ask_all(ask, [], 4)) == []


CHUNKS = [("reasoning_content", "hm ", 2), ("content", "```python\ndef f", 6), ("content", "(x): return x + 1\n```", 9)]


@pytest.mark.parametrize(
    ("chunks", "chars"),
    [
        (CHUNKS, (3, 18, 39)),
        ([*CHUNKS, ("reasoning_content", "more", 10)], None),  # a character's place would not be known
        ([(name, text, None) for name, text, _ in CHUNKS], None),
    ],
)
def test_a_greedy_reply_keeps_where_its_chunks_end(chunks, chars):
    server = ChatServer(lambda *_: (chunks, "stop"))
    with server.running():
        ask = Asking(Endpoint(server.base_url, "m"), CodingSpec(), seed=0, stall_s=5.0)
        (answer,) = asyncio.run(ask_all(ask, [Question(problem("p"), 0, 100)], 1))
    assert len(answer.reply.said) >= 39
    if chars is None:
        assert answer.chunks is None
    else:
        assert (answer.chunks.chars, answer.chunks.tokens) == (chars, (2, 6, 9))


DRAFT = f"I could say\n{GOOD}\nbut wait"


@pytest.mark.parametrize(
    ("opens", "says", "ends", "outcome"),
    [
        ("<think>\n", DRAFT, "length", Outcome.TRUNCATED),
        ("<think>\n", f"{DRAFT}</think>{GOOD}", "length", None),
        ("<think>\n", f"{DRAFT}{GOOD}", "stop", None),  # the closing tag was a special token, which is not sent
        ("<think></think>", GOOD, "length", None),
        ("", GOOD, "length", None),
    ],
)
def test_a_draft_in_thinking_that_the_prompt_opened_and_the_limit_cut_is_no_program(
    tmp_path, opens, says, ends, outcome
):
    template = "{{ messages[0].content }}<|im_assistant|>" + opens
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with DoorServer(template=template, says=says, ends=ends).running() as server:
        endpoint = Endpoint(server.base_url, "m", route=Route.GENERATE, template=str(tmp_path))
        ask = Asking(endpoint, CodingSpec(retry_max_tokens=32, max_tokens=16), seed=0, stall_s=5.0)
        (answer,) = asyncio.run(ask_all(ask, [Question(problem("p"), 0, 16)], 1))
    assert server.asked[0][0] == "/generate"
    assert submit(answer.problem, answer.reply).outcome is outcome
    assert answer.max_tokens == (32 if outcome else 16)  # what was cut before its program was asked for again


def test_the_node_grader_asks_the_problems_of_its_spec_as_it_is_served_and_alone(tmp_path):
    path = tmp_path / "mine.jsonl"
    lines = [{"id": str(n), "entry_point": "f", "prompt": f"p{n}", "tests": TESTS} for n in range(9)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    server = ChatServer(lambda *_: ({"content": GOOD}, "stop"), delay_s=0.05)
    with server.running():
        endpoint = Endpoint(server.base_url, "name")
        grader = NodeGrader(CodingSpec(problems=str(path), limit=7), served=5, seed=1, stall_s=30)
        attempts = grader.run(endpoint)
    assert [type(attempt) for attempt in attempts] == [Attempt] * 14
    assert {attempt.outcome for attempt in attempts} == {Outcome.PASS}
    assert [attempt.concurrency for attempt in attempts] == [5] * 7 + [1] * 7
    assert server.most_in_flight == 5
    assert {body["model"] for body in server.asked} == {"name"}
