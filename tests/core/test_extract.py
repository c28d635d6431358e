"""The program comes from the answer, by what a block defines; never from the thinking."""

import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.core.coding import Outcome, Problem
from ddtree_tune.core.extract import extract
from ddtree_tune.core.judge import read_reply, submit
from ddtree_tune.core.prompt import prompt_code, scope_of
from ddtree_tune.core.thinking import split_thinking
from tests.coding_cases import REPLIES, accepted, as_parameters, problem_of, reply_of

GOOD = "def f(x):\n    return x + 1"
BAD = "def f(x):\n    return 0"
PROMPT = 'def f(x: int) -> int:\n    """Add one."""\n'


def code_of(text, prompt=PROMPT):
    return extract(split_thinking(text).answer, "f", prompt).code


def fenced(code, language="python", fence="```"):
    return f"{fence}{language}\n{code}\n{fence}"


@pytest.mark.parametrize("case", as_parameters([case for case in REPLIES if "code" in case["expect"]]))
def test_the_program_of_each_case_is_found(case):
    submission = submit(problem_of(case), reply_of(case))
    assert submission.outcome is None
    assert submission.code == case["expect"]["code"]


@pytest.mark.parametrize("case", as_parameters([case for case in REPLIES if "code" not in case["expect"]]))
def test_a_reply_without_a_whole_program_is_none(case):
    submission = submit(problem_of(case), reply_of(case))
    if submission.outcome is None:
        # The limit cut it where the part that came still parses: only running it can tell.
        assert case["reply"]["finish_reason"] == "length"
        assert not submission.is_complete
    else:
        assert submission.outcome.value in accepted(case)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(fenced(GOOD, fence="~~~"), id="tildes"),
        pytest.param("```python def f(x): return x + 1```", id="one line"),
        pytest.param("```python def f(x):\n    return x + 1\n```", id="code on the line of the tag"),
        pytest.param("```def f(x):\n    return x + 1\n```", id="code in place of the tag"),
        pytest.param("> ```python\n> def f(x):\n>     return x + 1\n> ```", id="quoted"),
        pytest.param("- ```python\n  def f(x):\n      return x + 1\n  ```", id="in a bullet"),
        pytest.param(f"Here it is: ```python\n{GOOD}\n```", id="fence behind prose"),
        pytest.param(f"```python\n{GOOD}```\nDone.", id="closing fence glued to the code"),
        pytest.param(f"```python\n{GOOD}\n```Explanation: adds.", id="prose glued to the closing fence"),
        pytest.param(f"```python\n{GOOD}\n\nThis adds one to x.", id="unclosed, prose behind"),
        pytest.param(f"```python\n{GOOD}\n\nRun it:\n```bash\npython x.py\n```", id="unclosed, another block behind"),
        pytest.param(f"Text.\n```\nOutput\n```python\n{GOOD}\n```", id="a stray fence before"),
        pytest.param(f"{GOOD}\n```\nUse:\n```python\nprint(f(1))\n```", id="a stray fence behind"),
        pytest.param(fenced(GOOD, "{.python .numberLines}"), id="pandoc attributes"),
        pytest.param(fenced(GOOD, "text"), id="tagged as text"),
        pytest.param(f"~~~~\n{fenced(GOOD)}\n~~~~", id="a fence around the fence"),
        pytest.param("<pre><code>def f(x):\n    return x + 1\n</code></pre>", id="HTML"),
        pytest.param(f"[PYTHON]\n{GOOD}\n[/PYTHON]", id="bracket tags"),
        pytest.param(f"python\n{GOOD}", id="a tag without its fence"),
        pytest.param("Code:\n\n    def f(x):\n        return x + 1\n\nDone.", id="indented code block"),
        pytest.param(f"{fenced('function f(x) {}', 'javascript')}\n{fenced(GOOD)}", id="another language first"),
        pytest.param(f"{fenced(GOOD)}\nThe interface:\n{fenced('def f(x):' + chr(10) + '    ...')}", id="a stub last"),
        pytest.param(f"{fenced(GOOD)}\nor\n{fenced('def f(x)' + chr(10) + '    return')}", id="a broken variant last"),
        pytest.param("```python\ndef f(x):\n\u200b    return x\u00a0+ 1\n```", id="invisible characters"),
    ],
)
def test_every_way_to_show_code_is_understood(text):
    assert ast.dump(ast.parse(code_of(text))) == ast.dump(ast.parse(GOOD))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"<think><think>{fenced(BAD)}</think>\n{fenced(GOOD)}", id="repeated opening tag"),
        pytest.param(f"<think>a</think>\n{fenced(BAD)}\n</think>\n{fenced(GOOD)}", id="repeated closing tag"),
        pytest.param(f"<think>a</think>\n{fenced(GOOD)}\n</think>", id="closing tag leaked to the end"),
        pytest.param(f"<think>a</think>\n{fenced(GOOD)}\n<think>{fenced(BAD)}</think>\nYes.", id="thinking twice"),
        pytest.param(f"<think>a</think>\n{fenced(GOOD)}\n<think>again {fenced(BAD)}", id="thinking again, cut"),
        pytest.param(f"<THINKING>{fenced(BAD)}</Thinking>{fenced(GOOD)}", id="upper case"),
        pytest.param(f"<reasoning>{fenced(BAD)}</reasoning>{fenced(GOOD)}", id="reasoning"),
        pytest.param(f"[THINK]{fenced(BAD)}[/THINK]{fenced(GOOD)}</s>", id="brackets"),
        pytest.param(f"<|START_THINKING|>{fenced(BAD)}<|END_THINKING|>{fenced(GOOD)}", id="tokens"),
        pytest.param(f"<seed:think>{fenced(BAD)}</seed:think>{GOOD}", id="prefixed"),
        pytest.param(
            f"<|channel|>analysis<|message|>{fenced(BAD)}<|end|><|start|>assistant"
            f"<|channel|>final<|message|>{fenced(GOOD)}<|return|>",
            id="channels",
        ),
        pytest.param(f"The tag <think> is removed.\n{fenced(GOOD)}", id="a tag in prose"),
        pytest.param(f"{fenced(GOOD)}\nIt handles `</think>` too.", id="a tag in inline code"),
        pytest.param(f"{fenced(GOOD)}<|im_end|>\n<|im_start|>user\nMore\n{fenced(BAD)}", id="a turn of its own making"),
        pytest.param(f"<|im_start|>assistant\n{fenced(GOOD)}", id="a leading token"),
        pytest.param(f"{fenced(GOOD)}\n<|tool_calls_section_begin|>{fenced(BAD)}", id="a tool call behind"),
    ],
)
def test_thinking_and_control_tokens_stay_out(text):
    assert code_of(text) == GOOD + "\n"


@pytest.mark.parametrize(
    "text", ["<think>\n" + GOOD, fenced(GOOD) + "\n</think>", "<think>" + fenced(GOOD) + "</think>"]
)
def test_code_that_was_only_thought_is_no_answer(text):
    assert code_of(text) is None


def test_tags_and_tokens_in_a_programs_text_are_data():
    code = 'def f(x):\n    """Cut at\n    <|im_end|> and </think> here.\n    """\n    return x.split("<|im_end|>")'
    assert code_of(f"<think>a</think>\n{fenced(code)}<|im_end|>") == code + "\n"
    assert code_of(code) == code + "\n"


def test_helpers_and_imports_of_other_blocks_come_along_and_examples_do_not():
    helper = "import math\ndef up(x):\n    return math.floor(x) + 1\n\nLIMIT = 3\nunused = 1"
    use = "xs = [1, 2]\nassert f(1) == 2\nprint(f(3))"
    main = "def f(x):\n    return min(up(x), LIMIT)"
    text = f"First:\n{fenced(helper)}\nThen:\n{fenced(main)}\nUse:\n{fenced(use)}"
    scope = {}
    exec(code_of(text), scope)
    assert scope["f"](1) == 2
    assert {"up", "math", "LIMIT"} <= scope.keys()
    assert not {"xs", "unused"} & scope.keys()


def test_nothing_comes_before_a_future_import():
    main = "from __future__ import annotations\ndef f(x: Nope):\n    return math.floor(x)"
    code = code_of(f"{fenced('import math')}\n{fenced(main)}")
    assert code.startswith("from __future__")
    compile(code, "answer", "exec")


def test_a_star_import_of_another_block_comes_along_for_names_that_nothing_else_gives():
    code = code_of(f"{fenced('from math import *')}\n{fenced('def f(x):' + chr(10) + '    return floor(x)')}")
    assert code.startswith("from math import *\n")


def test_a_class_under_the_asked_name_and_a_named_lambda_count():
    assert code_of(fenced("f = lambda x: x + 1")) == "f = lambda x: x + 1\n"
    assert code_of(fenced("class f:\n    pass")) == "class f:\n    pass\n"


def test_the_body_of_the_prompts_function_completes_it():
    expected = PROMPT + "    return x + 1\n"
    for text in ("    return x + 1\n", fenced("return x + 1"), fenced("    return x + 1")):
        assert code_of(text) == expected
    prose = f"Finish this:\n{fenced(PROMPT)}\nPlease."
    assert code_of("    return x + 1\n", prose) == expected
    assert code_of("Sorry", PROMPT) is None
    assert code_of("    return x + 1\n", "no code here, sorry") is None


def test_a_body_may_have_helpers_of_its_own_and_an_answer_stripped_of_its_first_spaces():
    body = "    def one():\n        return 1\n\n    return x + one()\n"
    expected = PROMPT + body
    for text in (body, body.strip(), fenced(body), fenced(body.strip())):
        assert code_of(text) == expected
    head = 'def f(x):\n    import math\n    """Round up."""\n'
    assert code_of("return math.ceil(x)", head) == head + "    return math.ceil(x)\n"
    assert code_of(fenced("def other(x):\n    return x")) == "def other(x):\n    return x\n"


def test_only_a_program_behind_which_the_text_goes_on_is_complete():
    assert extract(fenced(GOOD), "f").is_complete
    assert not extract(f"```python\n{GOOD}", "f").is_complete
    assert not extract(GOOD, "f").is_complete
    assert extract(f"{GOOD}\n\nThat is it, as asked.", "f").is_complete


def test_a_prompt_offers_its_helpers_and_not_the_entry_point():
    prompt = "import math\nfrom typing import List\n\nLIMIT = 3\n\ndef helper(x):\n    return x\n\ndef f(x):\n"
    scope = scope_of(prompt, "f")
    assert "import math" in scope
    assert "LIMIT = 3" in scope
    assert "def helper" in scope
    assert "def f(" not in scope
    assert scope_of("Write a function, please.", "f") == ""
    assert prompt_code(f"Write this:\n{fenced('def f(x):')}\nThanks.").startswith("def f(x):")


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"content": fenced(GOOD), "finish_reason": None}, Outcome.REQUEST_ERROR),
        ({"content": fenced(GOOD), "finish_reason": "abort"}, Outcome.REQUEST_ERROR),
        ({"content": fenced(GOOD), "finish_reason": {"type": "abort"}}, Outcome.REQUEST_ERROR),
        ({"content": 17, "finish_reason": "stop"}, Outcome.NO_CODE),
        ({"content": [None, 3, {"type": "image"}, {"text": None}], "finish_reason": "stop"}, Outcome.NO_CODE),
        ({"content": "", "finish_reason": {"type": "length", "length": 9}}, Outcome.TRUNCATED),
        ({}, Outcome.REQUEST_ERROR),
    ],
)
def test_odd_replies_have_an_outcome_of_their_own(fields, outcome):
    assert submit(Problem("p", "f", PROMPT, ""), read_reply(fields)).outcome is outcome


def test_thinking_parts_are_not_the_answer():
    parts = [{"type": "thinking", "thinking": fenced(BAD)}, "Here:\n", {"type": "text", "text": fenced(GOOD)}]
    reply = read_reply({"content": parts, "finish_reason": "stop"})
    assert submit(Problem("p", "f", PROMPT, ""), reply).code == GOOD + "\n"
    assert BAD in reply.reasoning_content


def test_a_reply_that_repeats_itself_is_pointed_out():
    reply = read_reply({"content": None, "reasoning": "!" * 500, "finish_reason": "length"})
    submission = submit(Problem("p", "f", PROMPT, ""), reply)
    assert submission.outcome is Outcome.TRUNCATED
    assert "degenerate (loop), look at the server" in submission.reason


PARTS = st.one_of(
    st.sampled_from(
        [
            *("```", "```python", "~~~", "````", "``` js", "> ", "1. ", "<code>", "[PYTHON]"),
            *("<think>", "</think>", "\u25c1think\u25b7", "<|im_end|>", "Some prose here.", "&lt;"),
            *("def f(x):", "    return x", "    return g(x)", "def g(x):", "f = lambda x: x", "print(f(1))", "# c"),
            *(
                "import math",
                "from os import *",
                "from __future__ import annotations",
                "@cache",
                "class A:",
                "    pass",
            ),
            *("'''", '"""', "x = (", ")", "if x:", "else:", ">>> f(1)", "... x"),
            *("\ufeff", "\xa0", "\r\n", "\t", "\x00", "\ud800"),
        ]
    ),
    st.text(max_size=12),
)
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.tuples(PARTS, st.sampled_from(["\n", "\n", "\n", "", " "])), max_size=20).map(
        lambda parts: "".join(part + end for part, end in parts)
    ),
)


@settings(max_examples=400, deadline=None)
@given(TEXTS, st.sampled_from(["", PROMPT]))
def test_extraction_never_raises_and_is_idempotent(text, prompt):
    split = split_thinking(text)
    code = extract(split.answer, "f", prompt).code
    if code is not None:
        assert code.endswith("\n")
        assert extract(code, "f", prompt).code == code
    submit(Problem("p", "f", prompt, ""), read_reply({"content": text, "finish_reason": "stop"}))


@settings(max_examples=100, deadline=None)
@given(TEXTS)
def test_what_stands_before_a_closing_tag_is_never_the_answer(before):
    text = f"<think>{before.replace('</think', '')}\n</think>\n{fenced(GOOD)}\n"
    assert code_of(text) == GOOD + "\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("```python\n" * 3000, id="fences"),
        pytest.param("<think>" * 20000, id="tags"),
        pytest.param("</think> '" * 20000, id="quoted tags"),
        pytest.param("def f(x):\n" * 3000, id="heads"),
        pytest.param("x = (\n" * 3000, id="brackets"),
        pytest.param("(" * 100000, id="nesting"),
        pytest.param("a = " + "-" * 100000 + "1", id="signs"),
        pytest.param("```\n'''\n" * 2000, id="open strings"),
    ],
)
@pytest.mark.timeout(20)
def test_hostile_text_takes_no_time(text):
    submit(Problem("p", "f", PROMPT, ""), read_reply({"content": text, "finish_reason": "stop"}))
