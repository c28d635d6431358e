"""What the truth server sends for one request: planned, paced, broken off as the script says."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Script:
    """How requests behave."""

    ttft_s: float = 0.01
    gap_s: float = 0.004
    jitter: float = 0.0
    """Each request's gaps are scaled by 1 +- this."""
    steps: list[int] = field(default_factory=lambda: [4])
    """Tokens of each verify step, over and over; one chunk each."""
    steps_for: dict[str, list[int]] = field(default_factory=dict)
    """Requests whose prompt holds the text have these steps instead; the first that matches."""
    continuous: bool = True
    usage: bool = True
    spec: bool = True
    histogram: bool = True
    stop_after: int | None = None
    """End early by itself, after so many tokens."""
    reasoning_tokens: int = 0
    held_back: int = 0
    """So many first steps carry no text: their words come with the next."""
    tail_tokens: int = 0
    """Last tokens that bring no text."""
    alphabet: str = "w"
    cut: int | None = None
    """Send every event in pieces of so many bytes."""
    line_end: str = "\n"
    ends: list[int] | None = None
    """Where a reply may end by itself, it does after so many tokens, its seed decides: least and most."""
    drift_per_s: float = 0.0
    """Gaps grow by this share with every second since the script was told."""
    wakes_after_s: float = 0.0
    """Nothing is generated until so long after the script was told, though the server says that it is well."""
    fault: str | None = None
    """A status code, or a name that ``break_off`` knows."""
    error: dict | None = None
    """What the fault ``error_event`` sends in place of SGLang's error object."""
    fault_every: int = 1
    """Every so many-th request has the fault."""
    fault_after: int = 5
    """Chunks before the fault."""
    running_cap: int | None = None
    cold: int = 0
    """The first so many requests take `cold_s` longer."""
    cold_s: float = 0.0
    remember: bool = False
    """Keep a prefix cache: a prompt seen before comes at once."""
    report_cached: bool = True
    prompt_scale: float = 1.0
    tokenize: str | None = "messages"
    info_s: float = 0.0
    die_after: int | None = None
    """Exit when so many requests have come."""
    flood: bool = False
    """Send the whole reply at once, encoded only once for all requests: faster than any client reads."""
    slow_word: str = "crawl"
    """Requests whose prompt holds it have threefold gaps."""


def natural_length(script, body):
    """After how many tokens a reply ends by itself; None if it does not."""
    sampling = body.get("sampling_params", body)
    if script.ends is None or sampling.get("ignore_eos"):
        return script.stop_after
    return random.Random(sampling.get("seed", sampling.get("sampling_seed"))).randint(*script.ends)


def plan(script, wanted, prompt, stop_after):
    """(tokens, text, reasoning) of each chunk."""
    total = wanted if stop_after is None else min(wanted, stop_after)
    steps = next((steps for text, steps in script.steps_for.items() if text in prompt), script.steps)
    chunks, done, at, pending = [], 0, 0, ""
    while done < total:
        step = min(steps[at % len(steps)], total - done)
        words = "".join(f"{script.alphabet}{done + i} " for i in range(step) if done + i < total - script.tail_tokens)
        thinks = done < script.reasoning_tokens
        pending += words
        done += step
        text = "" if at < script.held_back and done < total else pending
        pending = pending[len(text) :]
        chunks.append((step, "" if thinks else text, text if thinks else ""))
        at += 1
    return chunks, "stop" if total < wanted else "length"


@dataclass
class Reply:
    """One completion."""

    state: Any
    script: Script
    number: int
    record: dict
    chunks: list
    finish: str
    cached: int | None
    seen: bool
    fault: str | None
    native: bool
    broken: bool = False

    def usage(self, done):
        details = None if self.cached is None else {"cached_tokens": self.cached}
        usage = {"prompt_tokens": self.record["prompt_tokens"], "completion_tokens": done}
        return usage | {"total_tokens": usage["prompt_tokens"] + done, "prompt_tokens_details": details}

    def spec(self):
        # The first chunk comes from the prefill in SGLang; here every step counts, so truth is exact.
        steps = [tokens for tokens, _, _ in self.chunks]
        histogram = [0] * max(steps)
        for tokens in steps:
            histogram[tokens - 1] += 1
        found = {"spec_verify_ct": len(steps), "spec_accept_length": sum(steps) / len(steps)}
        return found | ({"spec_correct_drafts_histogram": histogram} if self.script.histogram else {})

    def meta(self, done, *, last):
        meta = {"prompt_tokens": self.record["prompt_tokens"], "completion_tokens": done, "cached_tokens": self.cached}
        meta["finish_reason"] = {"type": self.finish, "length": done} if last else None
        return meta | (self.spec() if last and self.script.spec else {})

    def whole(self):
        done = self.record["completion_tokens"]
        text = "".join(text for _, text, _ in self.chunks)
        if self.native:
            return {"text": text, "meta_info": self.meta(done, last=True)}
        message = {"role": "assistant", "content": text, "reasoning_content": None}
        choice = {"index": 0, "message": message, "finish_reason": self.finish}
        choice["meta_info"] = self.meta(done, last=True)
        return {"object": "chat.completion", "choices": [choice]} | (
            {"usage": self.usage(done)} if self.script.usage else {}
        )

    async def stream(self, body):
        if self.script.flood:
            self.state.flood = self.state.flood or "".join([event async for event in self.events(body)]).encode()
            await asyncio.sleep(self.script.ttft_s)
            yield self.state.flood
            return
        pieces = self.events(body)
        async for event in pieces:
            data = event.replace("\n", self.script.line_end).encode()
            size = self.script.cut or len(data)
            for at in range(0, len(data), size or 1):
                yield data[at : at + size]
                if self.script.cut:
                    await asyncio.sleep(0)

    async def events(self, body):
        """Everything that is sent, in SGLang's order."""
        if self.fault == "empty_stream":
            return
        async with self.state.running:
            await self.wait()
            if not self.native:
                yield sse({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
            async for event in self.paced(body):
                yield event
                if self.broken:
                    return
        for event in [] if self.native else self.closing(body):
            yield event
        self.record["end_ns"] = time.perf_counter_ns()
        yield "data: [DONE]\n\n"

    async def wait(self):
        """What comes before the first token."""
        await asyncio.sleep(max(0.0, self.script.wakes_after_s - self.state.age_s()))
        await asyncio.sleep(0.001 if self.seen else self.script.ttft_s)
        if self.number < self.script.cold:
            await asyncio.sleep(self.script.cold_s)

    async def paced(self, body):
        """The chunks with text, each on its time."""
        slow = 3 if self.script.slow_word in self.record["prompt"] else 1
        slow *= 1 + self.script.drift_per_s * self.state.age_s()
        gap = self.script.gap_s * slow * (1 + self.script.jitter * random.Random(self.number).uniform(-1, 1))
        begin, done, text = time.perf_counter(), 0, ""
        for at, (tokens, content, reasoning) in enumerate(self.chunks):
            if at and gap:
                await asyncio.sleep(max(0.0, begin + at * gap - time.perf_counter()))
            if self.fault and at == self.script.fault_after:
                async for event in self.break_off():
                    yield event
                self.broken = True
                yield ""
            done, text = done + tokens, text + content
            if self.native:
                chunk = {"text": text, "meta_info": self.meta(done, last=at == len(self.chunks) - 1)}
            else:
                chunk = self.delta(body, content, reasoning, done)
            self.record["sent_ns"].append(time.perf_counter_ns())
            self.record["tokens"].append(tokens)
            yield sse(chunk)

    def delta(self, body, content, reasoning, done):
        """A chunk of the chat endpoint."""
        delta = {"content": content, "reasoning_content": reasoning or None}
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        options = body.get("stream_options") or {}
        if options.get("continuous_usage_stats") and self.script.continuous and self.script.usage:
            chunk["usage"] = self.usage(done)
        return chunk

    def closing(self, body):
        """What the chat endpoint sends after the text."""
        yield sse({"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish}]})
        if self.script.spec and body.get("return_spec_tokens_details"):
            yield sse({"choices": [], "sglext": {"spec_tokens_details": self.spec()}})
        if self.script.usage and (body.get("stream_options") or {}).get("include_usage"):
            yield sse({"choices": [], "usage": self.usage(self.record["completion_tokens"])})

    async def break_off(self):
        if self.fault == "error_event":
            error = {"error": {"message": "CUDA error", "type": "InternalServerError", "code": 500}}
            yield sse(self.script.error or error) + "data: [DONE]\n\n"
        elif self.fault == "abort":
            yield sse({"choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}]}) + "data: [DONE]\n\n"
        elif self.fault == "bad_json":
            yield "data: {oops\n\n"
        elif self.fault == "bad_type":
            yield sse({"choices": [], "usage": {"completion_tokens": "many"}})
        elif self.fault == "increments":
            yield sse({"text": "something else", "meta_info": {}})
        elif self.fault == "stall":
            await asyncio.sleep(3600)
        elif self.fault == "slow":
            for _ in range(400):
                await asyncio.sleep(0.02)
                yield ": still here\n\n"
        elif self.fault == "close":
            raise ConnectionAbortedError


def sse(data):
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"
