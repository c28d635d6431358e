"""What the fake answers: the fields of the real replies, version by version."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sglang.arguments import graph_grid
from tests.sglang.engine import TOKENS
from tests.sglang.text import split_reasoning

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sglang.engine import Engine, Generation

RECORDS = Path(__file__).parent / "records"
_KNOWN_VARIABLES = ("SGLANG_EXPOSE_OWN_ENV_VARS", "SGLANG_PLUGINS", "SGLANG_SIMULATE_ACC_LEN")
"""Of those that 0.5.23 declares and therefore lists; a plugin's own are not among them."""
_PULL_REQUEST_VARIABLES = ("SGLANG_DDTREE_DEPTH_BONUS", "SGLANG_DDTREE_MAX_TOPK")


def now() -> int:
    """Whole seconds of the wall clock."""
    return int(datetime.now(UTC).timestamp())


def speculation(engine: Engine, one: Generation) -> dict[str, Any]:
    """The counters of a finished request; none without speculation or without a step."""
    if not one.verify_steps:
        return {}
    correct = sum(index * count for index, count in enumerate(one.histogram))
    proposed = one.verify_steps * (engine.resolved.speculative_num_draft_tokens - 1)
    counters = {
        "spec_accept_rate": correct / proposed,
        "spec_accept_length": one.sent / one.verify_steps,
        "spec_num_correct_drafts": correct,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": one.verify_steps,
    }
    if engine.scenario.version == "0.5.17":
        counters |= {"spec_accepted_drafts": correct, "spec_proposed_drafts": proposed}
    counters["spec_correct_drafts_histogram"] = list(one.histogram)
    if engine.scenario.version == "0.5.17":
        counters["spec_accept_histogram"] = list(one.histogram)
    return counters


def meta_info(engine: Engine, one: Generation, sent: int) -> dict[str, Any]:
    """What is said beside the text after so many tokens."""
    done = sent >= len(one.ids)
    meta = {
        "id": one.id,
        "finish_reason": one.finish if done else None,
        "prompt_tokens": len(one.prompt_ids),
        "weight_version": "default",
        "num_retractions": 0,
        "reasoning_tokens": min(one.reasoning_tokens, sent),
        "completion_tokens": sent,
        "cached_tokens": one.cached,
        "cached_tokens_details": {"device": one.cached, "host": 0} if one.cached else None,
        "dp_rank": None,
    }
    if not done:
        return meta
    return meta | {"e2e_latency": time.perf_counter() - one.started} | speculation(engine, one)


def native(engine: Engine, one: Generation, sent: int) -> dict[str, Any]:
    """One item of ``/generate``: the text so far."""
    return {"text": one.text(sent), "output_ids": one.ids[:sent], "meta_info": meta_info(engine, one, sent)}


def scored(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a prefill thinks of the tokens of ``input_ids``: every one is the likeliest, the next id far behind.

    As in 0.5.17, the first token asked for has no log-probability.
    """
    asked = body["input_ids"][body["logprob_start_len"] :]
    tokens = [[None, asked[0], None], *([-0.1, token, None] for token in asked[1:])]
    top = [None, *([[-0.1, token, None], [-2.5, token + 1, None]] for token in asked[1:])]
    meta = {"prompt_tokens": len(body["input_ids"]), "input_token_logprobs": tokens, "input_top_logprobs": top}
    return {"text": "", "output_ids": [0], "meta_info": meta}


def stamped(reply: dict[str, Any]) -> dict[str, Any]:
    """A whole reply of ``/generate``, which also says when it was sent."""
    reply["meta_info"]["response_sent_to_client_ts"] = datetime.now(UTC).timestamp()
    return reply


def usage(engine: Engine, one: Generation, sent: int) -> dict[str, Any]:
    """Token counts of a chat reply."""
    details = None
    if engine.resolved.enable_cache_report and (one.cached or engine.scenario.version == "0.5.23"):
        details = {"cached_tokens": one.cached}
    reasoning = min(one.reasoning_tokens, sent)
    counts = {
        "prompt_tokens": len(one.prompt_ids),
        "total_tokens": len(one.prompt_ids) + sent,
        "completion_tokens": sent,
        "prompt_tokens_details": details,
        "reasoning_tokens": reasoning,
    }
    if engine.scenario.version == "0.5.23":
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return counts


def parts(engine: Engine, one: Generation, sent: int, *, separate: bool) -> tuple[str | None, str]:
    """Reasoning and content after so many tokens."""
    text = one.text(sent)
    return split_reasoning(text) if separate and engine.resolved.reasoning_parser else (None, text)


def chat(engine: Engine, one: Generation, body: Mapping[str, Any]) -> dict[str, Any]:
    """A whole chat reply."""
    reasoning, content = parts(engine, one, one.sent, separate=body.get("separate_reasoning", True))
    message = {"role": "assistant", "content": content, "reasoning_content": reasoning, "tool_calls": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": one.finish["type"]}
    choice["matched_stop"] = one.finish.get("matched")
    if body.get("return_meta_info"):
        choice["meta_info"] = meta_info(engine, one, one.sent)
    reply = {"id": one.id, "object": "chat.completion", "created": now(), "model": body.get("model", "default")}
    reply |= {"choices": [choice], "usage": usage(engine, one, one.sent), "metadata": {"weight_version": "default"}}
    if engine.scenario.version == "0.5.23" and body.get("return_spec_tokens_details"):
        reply["sglext"] = spec_details(engine, one)
    return reply


def spec_details(engine: Engine, one: Generation) -> dict[str, Any] | None:
    """SGLang's extension object, as 0.5.23 adds it."""
    counters = speculation(engine, one)
    if not counters:
        return None
    counters |= {"spec_cap_length": 0.0, "spec_block_accept_length": 0.0, "spec_cap_lens_histogram": []}
    return {"spec_tokens_details": counters}


def error(message: str, status: int = 400) -> dict[str, Any]:
    """The body of a refusal by the OpenAI endpoints."""
    kind = {400: "BadRequestError", 404: "NotFoundError"}[status]
    return {"object": "error", "message": message, "type": kind, "param": None, "code": status}


def server_info(engine: Engine, environment: Mapping[str, str]) -> dict[str, Any]:
    """``/server_info``: a real one's fields, with what this server resolved, and the scenario's untruths."""
    resolved = engine.resolved
    info = json.loads((RECORDS / "server_info.json").read_text(encoding="utf-8"))["plain"]
    state = info.pop("internal_states")[0]
    graphs = {"backend": "full" if resolved.graphs else "disabled", "max_bs": resolved.graph_max_bs}
    graphs["bs"] = graph_grid(resolved)
    info["cuda_graph_config"]["decode"] |= graphs
    info |= resolved.args | {"max_total_num_tokens": TOKENS, "version": engine.scenario.version}
    state |= {name: resolved.args[name] for name in state if name in resolved.args}
    state |= {"cuda_graph_config": info["cuda_graph_config"], "last_gen_throughput": engine.throughput}
    state["max_speculative_num_draft_tokens"] = resolved.verify_width if resolved.speculates else None
    state["effective_max_running_requests_per_dp"] = resolved.running_cap
    state["memory_usage"]["token_capacity"] = TOKENS
    if engine.logged_calls:
        state["avg_spec_accept_length"] = engine.logged_tokens / engine.logged_calls
    if engine.scenario.version == "0.5.23":
        info |= {"launch_command": " ".join(resolved.argv), "frontend": "python"}
        if environment.get("SGLANG_EXPOSE_OWN_ENV_VARS", "").lower() in {"1", "true"}:
            forked = _PULL_REQUEST_VARIABLES if engine.scenario.build == "pr29907" else ()
            names = sorted((*_KNOWN_VARIABLES, *forked))
            state["env_vars"] = {name: environment[name] for name in names if name in environment}
    info["internal_states"] = [state]
    for name, value in engine.scenario.override.items():
        _override(info, name, value)
    return info


def _override(info: dict[str, Any], path: str, value: Any) -> None:
    """Say something else in every place that has such a field; a path has dots."""
    state = info["internal_states"][0]
    *above, name = path.split(".")
    places = []
    for place in (info, state):
        inside = place
        for key in above:
            inside = inside.get(key, {})
        places += [inside] if name in inside else []
    for place in places or [info]:
        place[name] = value


def metrics(engine: Engine) -> str:
    """``/metrics`` in Prometheus' text format."""
    name = engine.resolved.served_model_name
    labels = f'engine_type="unified",model_name="{name}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    lines = []
    for metric, kind, extra, value in (
        ("prompt_tokens_total", "counter", "", engine.prompted),
        ("generation_tokens_total", "counter", ',is_streaming="true"', engine.generated),
        ("spec_verify_calls_total", "counter", "", engine.verify_calls),
        ("num_running_reqs", "gauge", "", len(engine.running)),
        ("num_queue_reqs", "gauge", "", len(engine.waiting)),
    ):
        if metric.startswith("spec") and not engine.resolved.speculates:
            continue
        lines += [f"# HELP sglang:{metric} As the real server counts it.", f"# TYPE sglang:{metric} {kind}"]
        lines.append(f"sglang:{metric}{{{labels}{extra}}} {float(value)}")
    return "\n".join(lines) + "\n"
