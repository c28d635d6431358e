"""The training tasks: references pass their own tests, and what is held out is held out."""

import json
import random

import pytest

from ddtree_tune.builtin.train import chat
from ddtree_tune.builtin.train.families import FAMILIES
from ddtree_tune.builtin.train.problems import FIVE_KINDS, FOLDER, LOAD_PROMPTS, STRANGE, draw_problems, draw_prompts
from ddtree_tune.builtin.train.tasks import ASKS, draw_calls, draw_task, evaluate, is_held_out


def run_tests(code, entry_point, tests):
    scope = {}
    exec(code, scope)
    exec(tests, scope)
    scope["check"](scope[entry_point])


def code_of(reply):
    return reply.split("</think>")[1].split("```python\n")[1].split("```")[0]


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_reference_reply_of_every_family_passes_its_own_calls(family):
    rng = random.Random(1)
    for split in ("train", "held_out") * 5:
        task = draw_task(rng, split, family)
        answer = code_of(task.reply)
        calls = draw_calls(family, rng, 8)
        assert len(calls) >= 4
        for call in calls:
            assert evaluate(answer, task.function, call) == evaluate(task.code, task.function, call)


def test_held_out_names_and_wordings_never_occur_in_training():
    rng = random.Random(2)
    train = [draw_task(rng, "train") for _ in range(2000)]
    held = [draw_task(rng, "held_out") for _ in range(2000)]
    assert not {task.function for task in train} & {task.function for task in held}
    assert all(is_held_out(task.function) for task in held)
    assert not {task.prompt for task in train} & {task.prompt for task in held}
    assert not set(ASKS["train"]) & set(ASKS["held_out"])
    assert {task.family for task in held} == {task.family for task in train} == set(FAMILIES)


def test_a_wrong_solution_fails_the_tests_of_its_problem():
    (first,) = draw_problems(["roman"], 1, seed=3, last_is_strange=False)
    name = first.task.function
    with pytest.raises(AssertionError):
        run_tests(f"def {name}(number):\n    return 'I'", name, first.row["tests"])


@pytest.mark.parametrize("name", ["five_kinds", "families"])
def test_shipped_problems_are_what_the_script_writes_and_their_references_pass(name):
    rows = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]
    five = name == "five_kinds"
    kinds, count, seed = (FIVE_KINDS, 5, 5) if five else (sorted(FAMILIES), 2, 2)
    drawn = draw_problems(kinds, count, seed, last_is_strange=five)
    assert rows == [one.row for one in drawn]
    assert len({row["id"] for row in rows}) == len(rows) == count * len(kinds)
    for one, row in zip(drawn, rows, strict=True):
        stranger = five and row["id"].endswith("/4")
        assert row["entry_point"].startswith(STRANGE) if stranger else is_held_out(row["entry_point"])
        assert f"`{row['entry_point']}(" in row["prompt"] or f"def {row['entry_point']}(" in row["prompt"]
        assert 6 <= row["tests"].count("assert") <= 10
        run_tests(one.task.code, row["entry_point"], row["tests"])


def test_shipped_prompts_are_distinct_and_cover_every_family():
    rows = [json.loads(line) for line in (FOLDER / "tasks.jsonl").read_text().splitlines()]
    assert rows == draw_prompts(LOAD_PROMPTS, seed=4)
    assert len({row["prompt"] for row in rows}) == LOAD_PROMPTS
    assert {row["family"] for row in rows} == set(FAMILIES)


@pytest.mark.parametrize("frame", [*chat.CODE_FRAMES, *chat.PROSE_FRAMES])
def test_a_frame_holds_the_context_and_then_the_task_even_with_braces(frame):
    text = chat.framed(frame, "x = {context} {task} {}", "Write `f`.")
    assert "x = {context} {task} {}" in text
    assert text.endswith("Write `f`.")


def test_the_chat_template_says_what_render_says():
    jinja2 = pytest.importorskip("jinja2", reason="needs jinja2")
    template = jinja2.Environment(autoescape=False).from_string(chat.CHAT_TEMPLATE)
    talk = [("system", "Be brief."), ("user", "Hi\n{x}"), ("assistant", "Yes"), ("user", "Go")]
    messages = [{"role": role, "content": content} for role, content in talk]
    for thinking in (True, False):
        text = template.render(messages=messages, add_generation_prompt=True, enable_thinking=thinking)
        assert text == chat.render(talk, enable_thinking=thinking)
    assert template.render(messages=messages, add_generation_prompt=True) == chat.render(talk)
    assert template.render(messages=messages) == chat.render(talk).removesuffix("<|im_start|>assistant\n")
