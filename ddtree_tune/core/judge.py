"""What to make of a reply before its program runs, and of the run afterwards.

A reply that did not come whole is never the model's mistake: errors of the request, cuts at the
token limit and failures of the sandbox have outcomes of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddtree_tune.core.coding import Attempt, Chunks, Outcome, Problem, Reply
from ddtree_tune.core.degenerate import degeneration
from ddtree_tune.core.extract import extract
from ddtree_tune.core.thinking import TOOL_CALL, split_thinking

if TYPE_CHECKING:
    from collections.abc import Mapping

CUT = frozenset({"length", "max_tokens", "model_length"})
"""Finish reasons of a reply that hit the token limit."""
_BROKEN_OFF = frozenset({"abort", "error", "cancelled"})
"""Finish reasons of a reply that the server gave up."""
_THOUGHTS = frozenset({"thinking", "reasoning"})
"""Types of content parts that are not the answer."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A reply to grade, and how it was asked for."""

    problem: Problem
    reply: Reply
    completion_tokens: int | None = None
    """By the server's count."""
    max_tokens: int = 0
    """Token limit of the request."""
    sample: int = 0
    """Which of several replies to the problem."""
    concurrency: int | None = None
    """Requests that were kept in flight; None if that is not known."""
    temperature: float | None = None
    """Of the sampling; None if that is not known."""
    chunks: Chunks | None = None
    cpu_s: float | None = None
    """CPU time that the program may use, where the problem has a limit of its own."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What there is to run, or why there is nothing."""

    code: str | None
    outcome: Outcome | None
    """Decided already; None if the program must run."""
    reason: str
    is_complete: bool = False
    """Whether a cut cannot have hit the program."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one program in the sandbox."""

    outcome: Outcome
    reason: str
    seconds: float
    """Wall time from start to verdict."""


def read_reply(fields: Mapping[str, Any]) -> Reply:
    """Take a chat message as servers give it.

    Args:
        fields: ``content`` as text, null or a list of parts; ``reasoning_content`` or
            ``reasoning``; ``finish_reason`` as text or SGLang's object; ``error``, if any.
    """
    content = fields.get("content")
    thoughts = [fields.get(name) for name in ("reasoning_content", "reasoning")]
    if isinstance(content, list):
        parts = [{"text": part} if isinstance(part, str) else part for part in content]
        parts = [part for part in parts if isinstance(part, dict)]
        thoughts += [part.get("text") or part.get("thinking") for part in parts if part.get("type") in _THOUGHTS]
        said = [part.get("text") for part in parts if part.get("type") not in _THOUGHTS]
        content = "".join(text for text in said if isinstance(text, str))
    finish = fields.get("finish_reason")
    finish = finish.get("type") if isinstance(finish, dict) else finish
    error = fields.get("error")
    return Reply(
        content=content if isinstance(content, str) else None,
        reasoning_content=next((text for text in thoughts if isinstance(text, str) and text), None),
        finish_reason=finish if isinstance(finish, str) else None,
        error=None if error in (None, "", False) else str(error),
    )


def is_cut(reply: Reply) -> bool:
    """Whether the token limit ended a reply."""
    return reply.finish_reason in CUT


def submit(problem: Problem, reply: Reply) -> Submission:
    """Find what a reply submits."""
    if reply.error:
        return Submission(None, Outcome.REQUEST_ERROR, reply.error)
    if reply.finish_reason is None:
        return Submission(None, Outcome.REQUEST_ERROR, "the reply ended without a finish_reason")
    if reply.finish_reason in _BROKEN_OFF:
        return Submission(None, Outcome.REQUEST_ERROR, f"the server ended the reply with {reply.finish_reason}")
    answer, notes = _answer(reply)
    found = extract(answer, problem.entry_point, problem.prompt)
    notes += found.notes
    if is_cut(reply):
        notes.append("cut at the token limit")
    if (kind := degeneration(reply.said)) is not None:
        notes.append(f"degenerate ({kind}), look at the server")
    if found.code is None:
        if TOOL_CALL.search(reply.said):
            notes.append("the reply is a tool call")
        notes.append("no program in the answer" if answer.strip() else "no answer")
        return Submission(None, Outcome.TRUNCATED if is_cut(reply) else Outcome.NO_CODE, "; ".join(notes))
    return Submission(found.code, None, "; ".join(notes), found.is_complete)


def _answer(reply: Reply) -> tuple[str, list[str]]:
    """A reply's answer, and what was unusual about finding it."""
    content = reply.content or ""
    split = split_thinking(content, is_separated=bool(reply.reasoning_content))
    if not content.strip() and reply.reasoning_content:
        # Some servers put the whole turn into the reasoning field, closing tag and all.
        within = split_thinking(reply.reasoning_content)
        if within.thinking and not within.is_open and within.answer.strip():
            return within.answer, ["the answer was inside the reasoning field"]
    return split.answer, list(split.notes)


def settle(answer: Answered, submission: Submission, verdict: Verdict | None, sandbox: str | None) -> Attempt:
    """The record of one reply.

    Args:
        answer: what was asked and what came.
        submission: what was found in it.
        verdict: of the sandbox; None if nothing ran.
        sandbox: level of isolation that ran it.
    """
    outcome = submission.outcome or (verdict.outcome if verdict else Outcome.HARNESS_ERROR)
    reasons = [submission.reason]
    if verdict and verdict.outcome is not Outcome.PASS:
        cut = is_cut(answer.reply) and verdict.outcome is not Outcome.HARNESS_ERROR
        outcome = Outcome.TRUNCATED if cut else verdict.outcome
        reasons.insert(0, f"{verdict.outcome.value}: {verdict.reason}" if cut else verdict.reason)
    return Attempt(
        problem_id=answer.problem.id,
        kind=answer.problem.kind,
        outcome=outcome,
        reason="; ".join(filter(None, reasons)),
        code=submission.code,
        reply=answer.reply,
        completion_tokens=answer.completion_tokens,
        seconds=verdict.seconds if verdict else None,
        max_tokens=answer.max_tokens,
        sandbox=sandbox if verdict else None,
        sample=answer.sample,
        concurrency=answer.concurrency,
        temperature=answer.temperature,
        degenerate=degeneration(answer.reply.said),
        chunks=answer.chunks,
    )
