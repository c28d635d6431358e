"""The grader: what a server says becomes attempts, and saved replies are graded the same way."""

import asyncio
import json
from pathlib import Path

import pytest

from ddtree_tune.cli import main
from ddtree_tune.core.coding import Outcome, Problem, Reply, pass_rate
from ddtree_tune.core.coding_spec import CodingSpec
from ddtree_tune.core.engine import Endpoint
from ddtree_tune.core.errors import SpecError, StoreError
from ddtree_tune.core.judge import Answered, Verdict
from ddtree_tune.node.asking import Asking
from ddtree_tune.node.cage import Limits
from ddtree_tune.node.grade_file import grade_command, grade_file
from ddtree_tune.node.grader import evaluate, grade_replies
from ddtree_tune.node.problems import load_problems, shipped_sets
from ddtree_tune.node.sandbox import CAGES, WEAK, open_sandbox
from tests.coding_cases import PATH, REPLIES
from tests.node.chat_server import ChatServer

TESTS = "def check(candidate):\n    assert candidate(1) == 2\n"
GOOD = "```python\ndef f(x):\n    return x + 1\n```"
BAD = "```python\ndef f(x):\n    return x\n```"
THOUGHT = f"<think>perhaps\n{BAD}\n</think>\n{GOOD}"
CUT = "```python\ndef f(x):\n    return x"


def problem(name):
    return Problem(name, "f", name, TESTS, "kind")


def graded(server, names, *, users=(4,), extra=(), **coding):
    spec = CodingSpec(**{"max_tokens": 100, "retry_max_tokens": 100} | coding)
    ask = Asking(Endpoint(server.base_url, "model"), spec, seed=3, stall_s=30.0, extra=tuple(extra))
    return asyncio.run(evaluate(ask, [problem(name) for name in names], users))


def answering(replies):
    """A server that gives each prompt its reply: (fields, finish reason), or by the token limit."""
    return ChatServer(
        lambda prompt, max_tokens: replies[prompt](max_tokens) if callable(replies[prompt]) else replies[prompt]
    )


def test_each_kind_of_reply_gets_its_own_outcome_in_the_order_of_the_problems():
    replies = {
        "good": ({"content": GOOD}, "stop"),
        "bad": ({"content": BAD}, "stop"),
        "thought": ({"content": THOUGHT}, "stop"),
        "apart": ({"reasoning_content": BAD, "content": GOOD}, "stop"),
        "prose": ({"content": "Sorry."}, "stop"),
        "cut": ({"content": CUT}, "length"),
        "thinking": ({"reasoning_content": BAD}, "length"),
        "down": ({}, "error"),
        "lost": ({"content": GOOD}, None),
        "raises": ({"content": "```python\ndef f(x):\n    raise KeyError(x)\n```"}, "stop"),
        "broken": ({"content": "```python\ndef f(x):\n    print x\n```"}, "stop"),
    }
    with answering(replies).running() as server:
        attempts = graded(server, replies)
    assert [attempt.problem_id for attempt in attempts] == list(replies)
    assert [attempt.outcome.value for attempt in attempts] == [
        *("pass", "wrong_answer", "pass", "pass", "no_code", "truncated", "truncated"),
        *("request_error", "request_error", "exception", "syntax_error"),
    ]
    good, down = attempts[0], attempts[7]
    assert (good.kind, good.completion_tokens, good.max_tokens) == ("kind", 7, 100)
    assert good.sandbox == open_sandbox().level
    assert good.code == "def f(x):\n    return x + 1\n"
    assert good.seconds > 0
    assert (down.code, down.seconds, down.sandbox, "503" in down.reason) == (None, None, None, True)
    rate = pass_rate(attempts)
    assert (rate.passed, rate.attempted, rate.completed, rate.is_complete) == (3, 9, 7, False)


def test_a_cut_reply_is_asked_for_with_twice_the_tokens_up_to_the_limit():
    replies = {
        "long": lambda limit: ({"content": GOOD}, "stop") if limit >= 300 else ({"content": CUT}, "length"),
        "endless": lambda _: ({"content": "<think>hm"}, "length"),
        "chatty": lambda _: ({"content": GOOD + "\nThis works because"}, "length"),
        "chatty and wrong": lambda limit: (
            ({"content": GOOD}, "stop") if limit > 100 else ({"content": BAD + "\nBut"}, "length")
        ),
    }
    with answering(replies).running() as server:
        attempts = graded(server, replies, users=(1,), retry_max_tokens=300)
        limits = {name: [] for name in replies}
        for body in server.asked:
            limits[body["messages"][0]["content"]].append(body["max_tokens"])
    assert [(attempt.outcome.value, attempt.max_tokens) for attempt in attempts] == [
        ("pass", 300),
        ("truncated", 300),
        ("pass", 100),
        ("pass", 200),
    ]
    assert limits == {
        "long": [100, 200, 300],
        "endless": [100, 200, 300],
        "chatty": [100],
        "chatty and wrong": [100, 200],
    }
    assert attempts[2].reply.finish_reason == "length"


class Flaky:
    """A sandbox whose first run of a program goes wrong, as on a busy machine."""

    level = "flaky"

    def __init__(self, first, then):
        self.ran = []
        self._first, self._then = first, then

    def run(self, job, limits):
        self.ran.append((job.code, limits))
        again = [code for code, _ in self.ran].count(job.code) > 1
        return Verdict(self._then if again else self._first, "why", 0.1)


@pytest.mark.parametrize("first", [Outcome.TIMEOUT, Outcome.HARNESS_ERROR])
def test_a_program_that_ran_out_of_time_is_run_once_more_alone(first):
    answers = [Answered(problem(str(n)), Reply(f"def f(x):\n    return {n}", None, "stop")) for n in range(3)]
    lifted, kept = Flaky(first, Outcome.PASS), Flaky(first, first)
    assert {one.outcome for one in grade_replies(answers, lifted, Limits(), workers=3)} == {Outcome.PASS}
    assert {one.outcome for one in grade_replies(answers, kept, Limits(), workers=3)} == {first}
    assert len(lifted.ran) == len(kept.ran) == 6
    assert [code for code, _ in lifted.ran[3:]] == [f"def f(x):\n    return {n}\n" for n in range(3)]


def test_a_failure_that_time_did_not_cause_is_final():
    sandbox = Flaky(Outcome.EXCEPTION, Outcome.PASS)
    answer = Answered(problem("p"), Reply(GOOD, None, "stop"), cpu_s=2.0)
    assert grade_replies([answer], sandbox, Limits())[0].outcome is Outcome.EXCEPTION
    assert [(limits.cpu_s, limits.wall_s) for _, limits in sandbox.ran] == [(2.0, 4.0)]


def test_every_shipped_set_loads_and_its_hash_is_of_the_file():
    assert "five_kinds" in shipped_sets()
    for name in shipped_sets():
        found = load_problems(name)
        assert found.problems
        assert len(found.sha256) == 64
    assert len(load_problems("five_kinds", limit=3).problems) == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"id": ""}, ":2: id: "),
        ({"id": "a"}, ":2: id must be unique, but got 'a' again"),
        ({"entry_point": "not a name"}, ":2: entry_point: "),
        ({"tests": "assert True"}, ":2: tests must be Python that defines check(candidate), but got 'assert True'"),
        ({"tests": None}, ":2: tests: "),
        ({"extra": 1}, ":2: a line must not have the unknown key 'extra'"),
        ("[]", ":2: a line must be a JSON object, but got list"),
        ("{", ":2: a line must be a JSON object, but got "),
    ],
)
def test_a_wrong_problem_is_one_sentence_with_file_and_line(change, sentence, tmp_path):
    good = {"id": "a", "entry_point": "f", "prompt": "p", "tests": TESTS}
    wrong = change if isinstance(change, str) else json.dumps(good | {"id": "b"} | change)
    path = tmp_path / "set.jsonl"
    path.write_text(f"{json.dumps(good)}\n{wrong}\n")
    with pytest.raises(SpecError) as caught:
        load_problems(str(path))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_set_that_is_not_there_or_empty_is_refused_with_what_there_is(tmp_path):
    with pytest.raises(SpecError, match="five_kinds"):
        load_problems("nope")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(SpecError, match="at least one problem"):
        load_problems(str(tmp_path / "empty.jsonl"))


def saved(tmp_path, lines):
    path = tmp_path / "replies.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def reply_line(content, finish="stop", **fields):
    asked = {"entry_point": "f", "prompt": "", "tests": TESTS}
    return {"reply": {"content": content, "finish_reason": finish}, "problem": asked} | fields


def test_saved_replies_are_graded_into_one_line_each_and_a_summary(tmp_path, capsys):
    path = saved(
        tmp_path,
        [
            reply_line(GOOD, id="a"),
            reply_line(BAD, id="b"),
            reply_line(CUT, "length"),
            reply_line(GOOD, None, id="d"),
            reply_line(BAD, id="e"),
            reply_line(GOOD, id="e", note="the last line of an id counts"),
        ],
    )
    out = tmp_path / "out.jsonl"
    assert grade_command(path, out, as_json=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["outcomes"] == {"pass": 2, "request_error": 1, "truncated": 1, "wrong_answer": 1}
    assert (said["replies"], said["attempted"], said["completed"], said["passed"]) == (5, 4, 3, 2)
    assert said["repeated"] == 1
    assert (said["pass_rate"], said["pass_rate_completed"]) == (0.5, 2 / 3)
    assert said["pass_rate_95"] == pytest.approx([0.1500, 0.8500], abs=1e-4)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [list(line) for line in lines] == [["id", "outcome", "reason", "code", "seconds"]] * 6
    assert [line["id"] for line in lines] == ["a", "b", "3", "d", "e", "e"]
    assert [path.name for path in tmp_path.iterdir()].count("out.jsonl") == 1
    assert grade_command(path, None, as_json=False) == 0
    said = capsys.readouterr().out
    assert "over all       2/4 = 0.500  (95 % 0.150 to 0.850)" in said
    assert "repeated            1, not counted: a later line has the same id and sample" in said


def test_several_samples_of_a_problem_give_pass_at_k(tmp_path, capsys):
    answers = {"a": [GOOD, BAD, GOOD, GOOD], "b": [BAD, BAD, BAD, GOOD]}
    lines = [reply_line(text, id=id_, sample=n) for id_, texts in answers.items() for n, text in enumerate(texts)]
    path = saved(tmp_path, lines)
    assert grade_command(path, None, as_json=True) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["replies"], said["passed"], said["pass_at_k"]) == (8, 4, {"1": 0.5, "4": 1.0})
    assert grade_command(path, None, as_json=False) == 0
    assert "pass@4         1.000" in capsys.readouterr().out
    assert grade_command(saved(tmp_path, lines[:1]), None, as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["pass_at_k"] == {}


def test_a_file_of_nothing_but_errors_has_no_rate_and_is_a_failure(tmp_path, capsys):
    path = saved(tmp_path, [{**reply_line(None, None), "reply": {"error": {"status": 503}}}])
    assert grade_command(path, None, as_json=True) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["pass_rate"], said["pass_rate_95"], said["outcomes"]) == (None, None, {"request_error": 1})


def test_a_weak_sandbox_is_taken_by_a_flag_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("ddtree_tune.node.sandbox.CAGES", [cage for cage in CAGES if cage.family in WEAK])
    path = str(saved(tmp_path, [reply_line(GOOD)]))
    assert main(["grade", path]) == 1
    assert "--allow-weak" in capsys.readouterr().err
    assert main(["grade", path, "--json", "--allow-weak"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["passed"], said["sandbox"].partition("+")[0] in WEAK) == (1, True)


def test_a_line_may_set_its_own_time_limit(tmp_path):
    loop = "```python\ndef f(x):\n    while True: pass\n```"
    summary = grade_file(saved(tmp_path, [reply_line(loop, time_limit_s=1)]))
    assert summary.rate.count(Outcome.TIMEOUT) == 1


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ({"reply": {}}, ":1: problem must be given, but it is missing"),
        (reply_line(GOOD) | {"reply": "text"}, ":1: reply: "),
        (reply_line(GOOD) | {"time_limit_s": 0}, ":1: time_limit_s: "),
        (reply_line(GOOD) | {"problem": {"entry_point": "f", "prompt": ""}}, ":1: problem.tests must be given"),
    ],
)
def test_a_wrong_line_of_saved_replies_is_one_sentence_with_file_and_line(line, sentence, tmp_path):
    with pytest.raises(SpecError) as caught:
        grade_file(saved(tmp_path, [line]))
    assert sentence in str(caught.value)


def test_files_that_cannot_be_read_or_written_are_named(tmp_path):
    with pytest.raises(SpecError, match=r"nothing\.jsonl: replies must be a file"):
        grade_file(tmp_path / "nothing.jsonl")
    with pytest.raises(SpecError, match="at least one"):
        grade_file(saved(tmp_path, []))
    path = saved(tmp_path, [reply_line("Sorry.")])
    with pytest.raises(SpecError, match="but these are the replies"):
        grade_file(path, path)
    for nowhere in (tmp_path / "no" / "out.jsonl", path / "out.jsonl", tmp_path, Path("/dev/null")):
        with pytest.raises(SpecError, match="must go into a file in a folder that exists"):
            grade_file(path, nowhere)
    with pytest.raises(StoreError, match="must be written here"):
        grade_file(path, tmp_path / ("a" * 255))
    path.write_text("[" * 100_000)
    with pytest.raises(SpecError, match=r":1: a line must be a JSON object"):
        grade_file(path)


def test_the_file_of_cases_is_a_file_of_saved_replies(tmp_path):
    quick = [line for line in PATH.read_text().splitlines() if "time_limit_s" not in json.loads(line)]
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(quick))
    out = tmp_path / "out.jsonl"
    summary = grade_file(path, out)
    outcomes = {line["id"]: line["outcome"] for line in map(json.loads, out.read_text().splitlines())}
    checked = [case for case in REPLIES if "requires" not in case and case["id"] in outcomes]
    assert len(checked) > 70
    for case in checked:
        assert outcomes[case["id"]] in {case["expect"]["outcome"], *case["expect"].get("accept", ())}, case["id"]
    assert summary.rate.done == len(quick)
    assert not Path("scratch_zz.txt").exists()
