"""Garbage is recognised by clear rules, and nothing that a good reply holds is taken for it."""

import argparse
import base64
import calendar
import email.message
import inspect
import random
import string
from pydoc_data.topics import topics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddtree_tune.core.degenerate import Degeneration, degeneration, is_loop, mixes_scripts
from tests.coding_cases import REPLIES, reply_of

GARBAGE = random.Random(7)
MIXED = "".join(GARBAGE.choice("бвгдאבגדהกขคงจकखगघङabcde漢字仮名交") for _ in range(200))  # noqa: RUF001


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Sure. " + "and " * 60, Degeneration.LOOP),
        ("and " * 16, Degeneration.LOOP),
        ("!" * 64, Degeneration.LOOP),
        ("Sure.\n" + "    \n" * 50, Degeneration.LOOP),
        ("def f():\n" + "    return 1\n" * 20, Degeneration.LOOP),
        ("Let me think.\n" + "Wait, that is not right, so let me look at the problem again.\n" * 6, Degeneration.LOOP),
        ("x" + "".join(f"Step {n}: look at the next element of the list.\n" for n in range(60)), Degeneration.LOOP),
        ("好的" * 120, Degeneration.LOOP),
        ("def f():<|endoftext|><|endoftext|>" + "<|im_end|> " * 8, Degeneration.SPECIAL_TOKENS),
        ("The answer " + "<pad>" * 9 + " is", Degeneration.SPECIAL_TOKENS),
        ("[PAD]\n" * 8, Degeneration.SPECIAL_TOKENS),
        ("ok \ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd", Degeneration.SPECIAL_TOKENS),
        ("\x00" * 40, Degeneration.SPECIAL_TOKENS),
        (MIXED, Degeneration.MIXED_SCRIPTS),
        ("the привет 世界 สวัสดี नमस्ते שלום " * 3 + "مرحبا мир", Degeneration.MIXED_SCRIPTS),
    ],
)
def test_garbage_has_its_kind(text, kind):
    assert degeneration(text) is kind


@given(st.text(alphabet="ab cd\n,.0", min_size=1, max_size=30).filter(str.strip), st.integers(260, 900), st.text())
def test_any_unit_over_and_over_is_a_loop_whatever_stands_before_it(unit, length, before):
    assert is_loop(before + unit * (length // len(unit) + 7))


FAIR = {
    "nothing": "",
    "a rule": "# Results of the run, in the order of the tasks\n# " + "=" * 118 + "\n",
    "code": "\n".join(f"x{i} = {i}" for i in range(90)),
    "tests": "".join(f"    assert is_palindrome_number({n}{n}) is True\n" for n in range(10, 40)),
    "a table": "| name | value | note |\n|---|---|---|\n" + "".join(f"| x{n} | {n * n} |  |\n" for n in range(60)),
    "a wide table": "+" + ("-" * 24 + "+") * 5 + "\n| empty |" + " " * 60 + "|\n+" + ("-" * 24 + "+") * 5,
    "a board": "```python\nBOARD = [\n" + "    [0, 0, 0, 0, 0, 0, 0, 0, 0],\n" * 9 + "]\n```",
    "zeros": "grid = [" + ", ".join("0" for _ in range(300)) + "]\nprint(grid)\n",
    "art": "\n".join(" " * (20 - n) + "*" * (2 * n + 1) for n in range(20)),
    "a progress bar": "[" + "#" * 100 + "] 100 %\nDone.",
    "padded data": base64.b64encode(bytes(600)).decode() + "==\n",
    "data": base64.b64encode(random.Random(1).randbytes(3000)).decode(),
    "digits": "".join(random.Random(2).choices(string.digits, k=4000)),
    "laughter": "哈哈哈哈哈哈哈哈哈哈哈哈，太好了",  # noqa: RUF001
    "Chinese with code": "使用Python编写的函数word_count可以统计单词数量。例如调用count(text)即可，返回dict。" * 3,  # noqa: RUF001
    "Japanese": "この関数はリストlstの要素を逆順にして返します。Pythonのスライスを使うと簡単です。",
    "Korean": "이 함수는 list를 받아서 Python의 sorted로 정렬한 결과를 반환합니다.",
    "Russian": "Функция word_count считает слова; используйте API-интерфейс и JSON-объекты, см. str.split.",
    "greetings": '{"ru": "Привет", "el": "Γειά", "he": "שלום", "ar": "مرحبا", "hi": "नमस्ते", "th": "สวัสดี"}',
    "a list of greetings": '["Привет", "Γειά", "שלום", "مرحبا", "नमस्ते", "สวัสดี", "やあ", "안녕"]',
    "mathematics": "Let Δx and Δy be small, then μm = πr² + Σxᵢ and αβγ hold for λx.x; θ ≈ sinθ.",
    "a chat template": "It is <|im_start|>user\n…<|im_end|>\n<|im_start|>assistant\n and ends with <|endoftext|>.",
    "an undecodable byte": "caf\ufffd and na\ufffdve",
}


@pytest.mark.parametrize("name", FAIR)
@pytest.mark.parametrize("frame", ["{}", "Here it is:\n\n{}\n\nThis runs in linear time.", "```python\n{}\n```"])
def test_nothing_that_a_good_reply_holds_is_garbage(name, frame):
    assert degeneration(frame.format(FAIR[name].replace("{", "{{").replace("}", "}}"))) is None


REAL = "\n".join([*map(inspect.getsource, (argparse, calendar, email.message)), *topics.values()])


@given(st.integers(0, 10**9), st.integers(1, 4000))
@settings(max_examples=150)
def test_no_stretch_of_real_code_and_prose_is_garbage(start, length):
    start %= len(REAL) - length
    assert degeneration(REAL[start : start + length]) is None


@given(st.lists(st.sampled_from([*FAIR.values()]), max_size=6), st.text(max_size=30))
def test_no_mixture_of_fair_pieces_is_garbage(pieces, end):
    assert degeneration("\n\n".join(pieces) + f"\n\nThat is all there is to it.{end[:10]}") is None


@given(st.text(max_size=400))
def test_no_text_raises(text):
    degeneration(text)
    mixes_scripts(text)


def test_the_replies_that_were_collected_are_sound_but_those_that_loop():
    found = {}
    for case in REPLIES:
        reply = reply_of(case)
        kind = degeneration((reply.reasoning_content or "") + (reply.content or ""))
        if kind is not None:
            found[case["id"]] = kind
    assert len(found) <= 3, found
