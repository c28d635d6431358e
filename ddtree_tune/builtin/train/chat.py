"""How a conversation becomes text: special tokens, the chat template, the context frames.

`render` and `CHAT_TEMPLATE` say the same thing twice, for training and for servers; a test holds
them together. The load generator builds its prompts from the frames, so the pair is trained on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

END_OF_TEXT, TURN, END, MASK = "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>"
THINK, END_THINK = "<think>", "</think>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN, END, MASK, THINK, END_THINK)
"""In the order of their ids, from 0."""
PAD_ID, TURN_ID, END_ID, MASK_ID, THINK_ID, END_THINK_ID = range(6)

NO_THOUGHT = f"{THINK}\n{END_THINK}\n"
"""What a prompt ends with when the client turns thinking off."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n</think>\n{% endif %}"
    "{% endif %}"
)

CODE_FRAME = "Here is some code from the project:\n```python\n{context}\n```\n{task}"
PROSE_FRAME = "Here is a page of the manual:\n{context}\n\n{task}"
CODE_FRAMES = (
    CODE_FRAME,
    "Context:\n```python\n{context}\n```\n{task}",
    "The file so far:\n```python\n{context}\n```\nNow the task:\n{task}",
)
PROSE_FRAMES = (PROSE_FRAME, "Some background first.\n\n{context}\n\nNow the task: {task}")


def framed(frame: str, context: str, task: str) -> str:
    """Put a context and a task into a frame.

    Args:
        frame: text with one `{context}` followed by one `{task}`.
        context: code or prose; may hold braces.
        task: what is asked.
    """
    head, rest = frame.split("{context}")
    middle, tail = rest.split("{task}")
    return head + context + middle + task + tail


def render(messages: Sequence[tuple[str, str]], *, enable_thinking: bool = True) -> str:
    """Write a conversation as the prompt of the assistant's next turn.

    Args:
        messages: (role, content) pairs, oldest first.
        enable_thinking: whether the assistant may think before it answers.
    """
    turns = "".join(f"{TURN}{role}\n{content}{END}\n" for role, content in messages)
    return f"{turns}{TURN}assistant\n" + ("" if enable_thinking else NO_THOUGHT)
