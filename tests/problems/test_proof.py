"""Each problem is proven: its right program passes in the sandbox, every wrong one fails there."""

import ast
from concurrent.futures import ThreadPoolExecutor

import pytest

from ddtree_tune.core.coding import Outcome
from ddtree_tune.node.cage import Limits
from ddtree_tune.node.problems import load_problems
from ddtree_tune.node.sandbox import job_for, open_sandbox
from tests.problems import (
    classes,
    dates,
    dictionaries,
    dynamic_programming,
    five_kinds,
    generators,
    graphs,
    intervals,
    lists,
    matrices,
    numbers,
    parsing,
    recursion,
    short,
    simulation,
    strings,
)

TOPICS = (
    *(classes, dates, dictionaries, dynamic_programming, generators, graphs, intervals),
    *(lists, matrices, numbers, parsing, recursion, simulation, strings),
)
GENERAL = {name: solution for topic in TOPICS for name, solution in topic.SOLUTIONS.items()}
PROVEN = {"general": GENERAL, "short": short.SOLUTIONS, "five_kinds": five_kinds.SOLUTIONS}
"""By set, then by problem or, where the problems of one kind differ only in their words, by kind."""
LEVELS = ("easy", "medium", "hard")
RIGHT = Limits(cpu_s=2.0, wall_s=30.0)
"""Less than the grader allows, so that a right program has time to spare."""
WRONG = Limits(cpu_s=1.0, wall_s=30.0)
PROBLEMS = [
    pytest.param(problem, PROVEN[name].get(problem.id) or PROVEN[name][problem.kind], id=f"{name}-{problem.id}")
    for name in PROVEN
    for problem in load_problems(name).problems
]


@pytest.fixture(scope="module")
def sandbox():
    return open_sandbox()


@pytest.mark.parametrize(("problem", "solution"), PROBLEMS)
def test_the_right_program_passes_and_no_wrong_one_does(problem, solution, sandbox):
    wrong = solution.programs()
    assert len(set(wrong.values())) == len(wrong) >= 3

    def verdict(code, limits):
        named = code if problem.entry_point in code else f"{code}\n\n{problem.entry_point} = f\n"
        return sandbox.run(job_for(problem, named), limits)

    with ThreadPoolExecutor(2) as pool:
        right = pool.submit(verdict, solution.reference(), RIGHT)
        others = list(pool.map(verdict, wrong.values(), [WRONG] * len(wrong)))
    assert right.result().outcome is Outcome.PASS, right.result().reason
    for mistake, found in zip(wrong, others, strict=True):
        assert found.outcome in {Outcome.WRONG_ANSWER, Outcome.EXCEPTION, Outcome.TIMEOUT}, mistake


def test_every_program_belongs_to_a_problem():
    for name, solutions in PROVEN.items():
        problems = load_problems(name).problems
        assert solutions.keys() == {problem.id if name != "five_kinds" else problem.kind for problem in problems}


def test_the_general_set_has_three_levels_of_about_the_same_size_and_begins_with_each():
    kinds = [problem.kind.split("/") for problem in load_problems("general").problems]
    counts = [sum(level == one for level, _ in kinds) for one in LEVELS]
    assert min(counts) >= 16
    assert max(counts) - min(counts) <= 2
    assert tuple(level for level, _ in kinds[:3]) == LEVELS
    assert {topic for _, topic in kinds} == {topic.__name__.rpartition(".")[2] for topic in TOPICS}


def test_a_prompt_names_what_it_asks_for_and_the_tests_need_nothing_but_it():
    for name in PROVEN:
        for problem in load_problems(name).problems:
            assert f"{problem.entry_point}(" in problem.prompt or f"class `{problem.entry_point}`" in problem.prompt
            tree = ast.parse(problem.tests)
            assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
