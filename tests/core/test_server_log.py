"""What a server's log says, from lines of a real one and of those that failed in public."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.engine import GraphUse
from ddtree_tune.core.server_log import TAIL_LINES, ServerLog

RECORD = Path(__file__).parents[1] / "sglang" / "records"
STARTS = [
    "[2026-11-30 11:24:56] Load weight begin. avail mem=139.13 GB",
    "Multi-thread loading shards:   0% Completed | 0/1 [00:00<?, ?it/s]\rMulti-thread loading shards: 100% Completed",
    "[2026-11-30 11:24:57] Load weight end. elapsed=0.08 s, type=Qwen3ForCausalLM, avail mem=139.10 GB",
    "[2026-11-30 11:25:00] Capture target verify CUDA graph begin. backend=full, num_tokens_per_req=16, bs=[1, 2, 4]",
    "[2026-11-30 11:25:04] INFO:     Uvicorn running on http://127.0.0.1:37777 (Press CTRL+C to quit)",
    '[2026-11-30 11:25:04] INFO:     127.0.0.1:46796 - "GET /health HTTP/1.1" 503 Service Unavailable',
    "[2026-11-30 11:25:07] The server is fired up and ready to roll!",
]
PHASES = [
    "loading weights",
    "loading weights",
    "allocating memory",
    "capturing CUDA graphs",
    "warming up",
    "warming up",
    "ready",
]


def fed(*lines):
    log = ServerLog()
    log.feed("".join(f"{line}\n" for line in lines))
    return log


def test_a_start_goes_through_its_phases_as_the_real_one_writes_them():
    log = ServerLog()
    seen = []
    for line in STARTS:
        log.feed(f"{line}\n")
        seen.append(log.phase)
    assert seen == PHASES
    assert log.fatal is None
    assert "GET /health" not in log.tail
    assert "Multi-thread loading shards: 100% Completed" in log.tail
    assert "0% Completed | 0/1" not in log.tail


def test_the_kept_excerpt_of_a_real_log_gets_ready_and_is_lost_only_when_it_is_stopped():
    lines = (RECORD / "server.log").read_text().split("\n")
    ends = next(at for at, line in enumerate(lines) if "crashed with exit code -15" in line)
    assert fed(*lines[:ends]).fatal is None
    one_run = next(at for at, line in enumerate(lines) if "400 Bad Request" in line)
    log = fed(*lines[:one_run])
    assert log.phase == "ready"
    assert (log.graphs.graphed > 0, log.graphs.eager) == (True, 0)
    assert fed(*lines).fatal == lines[ends]


@given(st.lists(st.integers(0, 400), max_size=12))
def test_where_the_log_is_cut_into_reads_does_not_matter(cuts):
    text = "".join(f"{line}\n" for line in STARTS)
    whole, parts = ServerLog(), ServerLog()
    whole.feed(text)
    at = 0
    for cut in sorted(cuts):
        parts.feed(text[at:cut] if cut > at else "")
        at = max(at, cut)
    parts.feed(text[at:])
    assert (parts.phase, parts.tail, parts.graphs, parts.fatal) == (whole.phase, whole.tail, whole.graphs, whole.fatal)


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-30 04:29:44 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        "[2026-11-30 04:29:44] Received sigquit from a child process. It usually means the child failed.",
        "[2026-11-30 04:29:44] SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        "Subprocess scheduler_0 (pid=31) crashed with exit code -9. Triggering SIGQUIT for cleanup...",
        "[2026-11-30 04:29:44] Initialization failed. warmup error: Traceback",
    ],
)
def test_a_line_after_which_nothing_more_comes_is_fatal(line):
    log = fed(*STARTS, line, "more")
    assert log.fatal == line
    assert log.phase == "ready"


@pytest.mark.parametrize(
    "line",
    [
        "[2026-11-30 04:29:33] Ignore import error when loading sglang.srt.models.inkling: No module named 'helion'",
        "[2026-11-30 04:29:44] [http_server] Error: DFLASH speculative decoding does not support return_logprob yet.",
        "RuntimeWarning: something was never awaited",
        "a prompt that says Scheduler_hit an exception",
    ],
)
def test_what_only_sounds_bad_is_no_fault(line):
    assert fed(*STARTS, line).fatal is None


def test_only_decode_steps_count_as_eager():
    log = fed(
        "[t] Prefill batch, #new-seq: 1, #new-token: 1, cuda graph: False, input throughput (token/s): 1.58",
        "[t] Decode batch, #running-req: 1, #token: 148, accept len: 2.23, accept rate: 0.08, cuda graph: True, gen",
        "[t] Decode batch, #running-req: 99, #token: 148, cuda graph: False, gen throughput (token/s): 20.50",
    )
    assert log.graphs == GraphUse(graphed=1, eager=1)


def test_the_last_lines_are_kept_and_no_line_is_endless():
    log = fed("x" * 100_000, *(f"line {n}" for n in range(1000)))
    log.feed("an unfinished one")
    lines = log.tail.splitlines()
    assert len(lines) == TAIL_LINES
    assert lines[-2:] == ["line 999", "an unfinished one"]
    assert max(map(len, fed("x" * 100_000).tail.splitlines())) < 5_000
