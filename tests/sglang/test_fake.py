"""The fake SGLang answers, logs and refuses as the real one that was recorded on an H200."""

import json
import re
from pathlib import Path

import pytest

from ddtree_tune.core.degenerate import Degeneration, degeneration
from ddtree_tune.core.engine import Endpoint, Route
from ddtree_tune.core.spec import GateSpec
from ddtree_tune.core.template import ChatTemplate
from ddtree_tune.node.live import ChatRequest, user
from tests.sglang.harness import PAIR, running
from tests.sglang.text import Words, answer
from tests.truth.harness import ask as ask_endpoint

RECORDS = Path(__file__).parent / "records"
REPLIES = json.loads((RECORDS / "replies.json").read_text())
MODELS = {
    "plain-graph": {},
    "dflash-eager": {"accept_len": 1.0, "eager": True},
    "dflash-graph-win64": {"accept_len": 8.0},
    "ddtree-graph": {"accept_len": 47 / 28, "build": "ddtree_tune"},
}
"""What the recorded models did: how often they agreed."""
DRAFTER = ("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "drafter")
ASKED = {"text": "open the door", "sampling_params": {"max_new_tokens": 48, "temperature": 0, "ignore_eos": True}}


def argv_of(record):
    """The recorded command line without its address, which the harness gives."""
    return record["argv"][6:]


@pytest.fixture(scope="module", params=MODELS)
def pair(request, tmp_path_factory):
    """A record, and a fake that was started with its command line and asked what it was asked."""
    record = REPLIES[request.param]
    folder = tmp_path_factory.mktemp("fake")
    told = MODELS[request.param] | {"block_size": 8}
    with running(folder, *argv_of(record), "--decode-log-interval", "5", model=record["argv"][1], **told) as server:
        server.stream = server.events("/generate", ASKED)
        server.whole = server.post("/generate", ASKED)
        yield record, server


def shape(value):
    """Types without values; numbers are one type, for JSON writes 1.0 and 1 alike."""
    if isinstance(value, dict):
        return {name: shape(one) for name, one in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def missing(real, fake, path=""):
    """Where the fake lacks a field of the real reply, or has another type there; null goes with all."""
    if isinstance(real, dict) and isinstance(fake, dict):
        return [
            problem
            for name, one in real.items()
            for problem in (
                missing(one, fake[name], f"{path}.{name}") if name in fake else [f"{path}.{name} is not there"]
            )
        ]
    if isinstance(real, list) and isinstance(fake, list):
        return missing(real[0], fake[0], f"{path}[0]") if real and fake else []
    return [] if real == fake or "NoneType" in (real, fake) else [f"{path} is {fake}, not {real}"]


def test_every_field_of_the_real_replies_is_there(pair):
    record, server = pair
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 24})
    for name, fake in {
        "stream_last": server.stream[-1],
        "generate": server.whole,
        "chat": chat,
        "server_info": server.get("/server_info"),
    }.items():
        assert missing(shape(record[name]), shape(fake), name) == []


def test_the_server_resolves_its_arguments_as_the_real_one_did(pair):
    record, server = pair
    info = server.get("/server_info")
    real, state, apart = record["server_info"], info["internal_states"][0], {"internal_states", "cuda_graph_config"}
    assert {name: info[name] for name in real if name not in apart} == {
        name: value for name, value in real.items() if name not in apart
    }
    for name in ("effective_max_running_requests_per_dp", "max_speculative_num_draft_tokens"):
        assert state[name] == real["internal_states"][0][name]
    graphs, real_graphs = info["cuda_graph_config"]["decode"], real["cuda_graph_config"]["decode"]
    assert graphs | {"bs": graphs["bs"][:30]} == real_graphs
    assert server.get("/get_server_info").keys() == info.keys()


def test_the_same_agreement_gives_the_same_counters_and_chunks(pair):
    record, server = pair
    assert len(server.stream) == record["stream_chunks"]
    real, fake = record["stream_last"]["meta_info"], server.stream[-1]["meta_info"]
    speculated = {name: value for name, value in real.items() if name.startswith("spec")}
    assert {name: value for name, value in fake.items() if name.startswith("spec")} == speculated
    assert (fake["finish_reason"], fake["completion_tokens"]) == (real["finish_reason"], 48)
    assert not [item for item in server.stream[:-1] if any(name.startswith("spec") for name in item["meta_info"])]


def test_the_text_of_a_stream_is_cumulative_and_a_repeat_is_cached(pair):
    _, server = pair
    for before, after in zip(server.stream, server.stream[1:], strict=False):
        assert after["text"].startswith(before["text"])
        assert after["meta_info"]["completion_tokens"] > before["meta_info"]["completion_tokens"]
    assert server.stream[-1]["text"] == server.whole["text"]
    assert server.stream[-1]["meta_info"]["cached_tokens"] == 0
    assert server.whole["meta_info"]["cached_tokens"] == server.whole["meta_info"]["prompt_tokens"] - 1


def normal(line):
    """A line without its numbers, addresses, lists and names of settings."""
    line = re.sub(r"\[[\d, ]+\]", "[N]", re.sub(r"127\.0\.0\.1:\d+", "HOST", line))
    line = re.sub(r"draft_window_size=\w+, compact_cache=\w+", "WINDOW", line.replace("DDTREE", "DFLASH"))
    return re.sub(r"\d+(\.\d+)?", "N", line)


def test_every_line_of_the_log_is_one_that_the_real_server_wrote(pair):
    _, server = pair
    real = {normal(line) for line in (RECORDS / "server.log").read_bytes().decode().split("\n")}
    lines = [line for line in server.lines() if line and "\r" not in line and "server_args=" not in line]
    assert {normal(line) for line in lines} <= real
    assert sum("The server is fired up and ready to roll!" in line for line in lines) == 1
    assert (
        1
        <= sum("Load weight begin" in line for line in lines)
        == sum("Load weight end. elapsed=" in line for line in lines)
    )


def test_the_decode_line_says_what_the_real_one_says(pair):
    record, server = pair
    decoded = [line for line in server.lines() if "Decode batch" in line]
    assert decoded
    graphs = "False" if "--disable-cuda-graph" in record["argv"] else "True"
    speculated = r"accept len: \d+\.\d\d, accept rate: \d\.\d\d, " if DRAFTER[0] in record["argv"] else ""
    form = rf"#running-req: \d+, #token: \d+, token usage: 0\.\d\d, {speculated}cuda graph: {graphs}, gen throughput"
    assert all(re.search(form, line) for line in decoded)


@pytest.mark.parametrize("question", [GateSpec().question, "Tell me about rivers", "Sort a list"])
def test_good_text_is_good_and_nan_text_is_not(question):
    good, lossy = (answer(question, kind, salt="", thinks=True) for kind in ("good", "lossy"))
    assert degeneration(good) is degeneration(lossy) is None
    assert good != lossy
    assert good.split()[:5] == lossy.split()[:5]
    assert degeneration(answer(question, "nan", salt="", thinks=True)[:400]) is Degeneration.LOOP
    assert all((GateSpec().expect[:9] in text) == ("clamp" in question) for text in (good, lossy))


def test_a_token_of_words_is_the_text_it_stands_for():
    text = answer("Sort a list", "good", salt="", thinks=True)
    assert "".join(Words().pieces(text)[1]) == text


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """A newer version with a real tokenizer, metrics and a reasoning parser."""
    options = ("--reasoning-parser", "qwen3", "--enable-metrics", "--enable-cache-report", "--decode-log-interval", "5")
    names = ("--served-model-name", "nonce")
    environment = {"SGLANG_EXPOSE_OWN_ENV_VARS": "1", "SGLANG_DDTREE_MAX_TOPK": "4"}
    told = {"version": "0.5.23", "build": "pr29907"}
    folder = tmp_path_factory.mktemp("newer")
    with running(
        folder, *DRAFTER, *options, *names, model=str(PAIR / "target"), environment=environment, **told
    ) as server:
        yield server


@pytest.mark.parametrize("route", Route)
def test_the_product_reads_its_streams(newer, route):
    template = str(PAIR / "target") if route is Route.GENERATE else None
    request = ChatRequest(user("Tell me about rivers"), max_tokens=32, temperature=0, ignore_eos=True)
    trace = ask_endpoint(newer, request, route=route, template=template)
    assert (trace.error, trace.completion_tokens, trace.finish_reason) == (None, 32, "length")
    prompt = ChatTemplate((PAIR / "target" / "tokenizer_config.json").read_text()).render(user("Tell me about rivers"))
    assert trace.prompt_tokens == newer.post("/tokenize", {"prompt": prompt, "add_special_tokens": False})["count"]
    assert trace.spec.verify_steps == 11
    assert Endpoint(newer.base_url, "nonce").route is Route.CHAT


def test_the_newer_version_says_more_about_itself(newer):
    info = newer.get("/server_info")
    assert "--served-model-name nonce" in info["launch_command"]
    assert info["internal_states"][0]["env_vars"] == {
        "SGLANG_DDTREE_MAX_TOPK": "4",
        "SGLANG_EXPOSE_OWN_ENV_VARS": "1",
    }
    assert newer.get("/v1/models")["data"][0]["id"] == info["served_model_name"] == "nonce"


def test_reasoning_is_apart_and_the_answer_is_right(newer):
    body = {"messages": [{"role": "user", "content": GateSpec().question}], "max_tokens": 300, "temperature": 0}
    whole = newer.post("/v1/chat/completions", body | {"return_meta_info": True})
    message, usage = whole["choices"][0]["message"], whole["usage"]
    assert re.search(GateSpec().expect, message["content"])
    assert message["reasoning_content"].startswith("I need")
    assert "spec_accepted_drafts" not in whole["choices"][0]["meta_info"]
    items = newer.events("/v1/chat/completions", body | {"stream_options": {"include_usage": True}})
    deltas = [item["choices"][0]["delta"] for item in items if item["choices"]]
    assert "".join(delta["content"] or "" for delta in deltas) == message["content"]
    assert "".join(delta["reasoning_content"] or "" for delta in deltas) == message["reasoning_content"]
    assert items[-1]["usage"]["completion_tokens"] == usage["completion_tokens"]
    assert items[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_the_counters_of_the_metrics_move_with_the_requests(newer):
    def read():
        return dict(
            re.findall(r"^sglang:(generation_tokens_total|spec_verify_calls_total)\{.*\} (\S+)$", text(), re.MULTILINE)
        )

    def text():
        return newer.fetch("/metrics")[1]

    before = read()
    newer.post("/generate", ASKED)
    moved = {name: float(value) - float(before[name]) for name, value in read().items()}
    assert moved == {"generation_tokens_total": 48, "spec_verify_calls_total": 16}
    assert newer.get("/server_info")["internal_states"][0]["avg_spec_accept_length"] == 3
    assert newer.fetch("/flush_cache")[0] == 200
    assert "avg_spec_accept_length" not in newer.get("/server_info")["internal_states"][0]
    assert newer.post("/generate", ASKED)["meta_info"]["cached_tokens"] == 0
