"""Model replies with their right outcomes, each with the public report that it stands for."""

import json
from pathlib import Path

import pytest

from ddtree_tune.core.coding import Problem
from ddtree_tune.core.judge import read_reply

PATH = Path(__file__).parent / "golden" / "coding_cases.jsonl"
CASES = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]
REPLIES = [case for case in CASES if case["expect"]["outcome"] != "metrics"]
METRICS = [case for case in CASES if case["expect"]["outcome"] == "metrics"]


def as_parameters(cases):
    """One pytest parameter per case, named by its id and title."""
    assert cases
    return [pytest.param(case, id=f"{case['id']} {case['title']}") for case in cases]


def problem_of(case):
    asked = case["problem"]
    return Problem(case["id"], asked["entry_point"], asked["prompt"], asked["tests"])


def reply_of(case):
    return read_reply(case["reply"])


def accepted(case):
    """The outcomes that are right for a case."""
    return {case["expect"]["outcome"], *case["expect"].get("accept", ())}
