"""``ddtree-tune bench`` as a user starts it, against servers of known truth and the built-in engine."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddtree_tune.cli import main
from ddtree_tune.core.record import TrialStatus
from ddtree_tune.node.live import ChatRequest, user
from ddtree_tune.node.store import Store
from tests.builtin.harness import serving
from tests.truth.harness import running

ROOT = Path(__file__).parents[1]
KEYS = {
    *("context", "concurrency", "output_tps", "user_tps", "ttft_s", "itl_s", "tpot_s", "e2e_s", "accept_len"),
    *("cached_share", "in_flight_mean", "requests_sent", "requests_ok", "requests_failed", "output_tokens"),
    *("prompt_tokens_mean", "client_lag_p99_s", "flags", "repeats", "output_tps_ci95"),
}


def argv(base_url, folder, *more, contexts="60", concurrencies="2"):
    return [
        *(sys.executable, "-m", "ddtree_tune.cli", "bench", "--base-url", base_url, "--contexts", contexts),
        *("--concurrencies", concurrencies, "--output-tokens", "32", "--window-s", "0.6"),
        *("--out", str(folder / "out"), "--json", str(folder / "cells.json"), *more),
    ]


def bench(base_url, folder, *more, **cells):
    return subprocess.run(
        argv(base_url, folder, *more, **cells), capture_output=True, text=True, timeout=110, cwd=ROOT, check=False
    )


def gone(group, limit_s=5):
    """Whether every process of a group ends."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def cells_of(folder):
    return json.loads((folder / "cells.json").read_text())


def record_of(folder):
    (record,) = Store(str(folder / "out")).read_records(raw=True)
    return record


def test_a_server_that_was_never_seen_is_measured_to_its_truth(tmp_path):
    with running() as server:
        # 32 tokens in 8 chunks of 4, 20 ms apart after 20 ms: 160 ms a reply, 200 tok/s a user.
        server.script(ttft_s=0.02, gap_s=0.02, steps=[4])
        done = bench(server.base_url, tmp_path, "--no-ray", "--repeats", "3", contexts="60,300")
        truth = server.truth()
    assert done.returncode == 0, done.stderr
    assert "through /v1/chat/completions" in done.stdout
    cells = cells_of(tmp_path)
    assert [(cell["context"], cell["concurrency"], cell["repeats"]) for cell in cells] == [(60, 2, 3), (300, 2, 3)]
    for cell in cells:
        assert set(cell) >= KEYS
        assert cell["user_tps"] == pytest.approx(200, rel=0.15)
        assert cell["itl_s"]["mean"] == pytest.approx(0.005, rel=0.15)
        assert cell["accept_len"] == 4.0
        assert cell["in_flight_mean"] == pytest.approx(2, rel=0.05)
        assert cell["prompt_tokens_mean"] == pytest.approx(cell["context"], abs=8)
        assert cell["requests_failed"] == 0
        assert cell["requests_ok"] >= 6
        assert cell["ttft_s"]["p99"] is None
        low, high = cell["output_tps_ci95"]
        assert low <= cell["output_tps"] <= high
    record = record_of(tmp_path)
    assert record.status is TrialStatus.COMPLETE
    kept = [trace for cell in record.cells for run in cell.runs for trace in run.traces]
    sent = {ChatRequest(user(one["prompt"])).sha: one for one in truth if one["prompt_tokens"] > 30}
    assert len(kept) > 40
    assert len({trace.prompt_sha for trace in kept}) == len(kept)
    for trace in kept:
        assert trace.completion_tokens == sent[trace.prompt_sha]["completion_tokens"]
        assert trace.prompt_tokens == sent[trace.prompt_sha]["prompt_tokens"]
    # Whatever was sent is kept, but for the repeats that a busy moment of this machine spoiled.
    assert len(sent) == len(kept) or sum(cell.metrics.set_aside for cell in record.cells)
    for name in ("i60 c2", "i300 c2"):
        assert name in done.stdout


@pytest.mark.ray
def test_the_built_in_engine_is_measured_by_the_load_actor_of_a_sweep(tmp_path):
    with serving(tmp_path, "--algorithm", "tree", "--budget", "8", "--topk", "4") as engine:
        done = bench(f"http://127.0.0.1:{engine.port}", tmp_path, "--repeats", "1")
    assert done.returncode == 0, done.stderr
    assert "through /generate with the chat template" in done.stdout
    (cell,) = cells_of(tmp_path)
    assert cell["accept_len"] > 2
    assert cell["output_tps"] > 0
    assert record_of(tmp_path).effective.budget == 8


def test_a_server_that_dies_leaves_what_was_measured_and_nulls_with_a_reason(tmp_path):
    with running() as server:
        server.script(ttft_s=0.02, gap_s=0.01, die_after=150)
        done = bench(
            server.base_url,
            tmp_path,
            *("--no-ray", "--repeats", "1", "--stall-s", "2"),
            contexts="60,100,150,200,250,300,350,400,450,500",
        )
    assert done.returncode == 1, done.stdout
    assert "the server stopped answering" in done.stdout
    first, *_, last = cells_of(tmp_path)
    assert first["output_tps"] > 0
    assert set(last) >= KEYS
    assert last["output_tps"] is None
    assert "stopped answering" in last["reasons"]["output_tps"]
    record = record_of(tmp_path)
    assert record.status is TrialStatus.FAILED
    assert record.failure.failure == "crash_request"
    assert record.cells[0].metrics.output_tps == first["output_tps"]


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_process(tmp_path):
    with running() as server:
        server.script(ttft_s=0.02, gap_s=0.01)
        process = subprocess.Popen(
            argv(server.base_url, tmp_path, "--no-ray", "--repeats", "50"),
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        lines = iter(process.stdout.readline, "")
        assert any("] i60 c2:" in line for line in lines)
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(20) == 130
    assert "what was measured is kept" in rest
    assert gone(process.pid)
    (cell,) = cells_of(tmp_path)
    assert 1 <= cell["repeats"] < 50
    assert record_of(tmp_path).failure.failure == "interrupted"


@pytest.mark.timeout(60)
def test_ctrl_c_while_the_server_is_looked_at_is_no_traceback(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(30)
        process = subprocess.Popen(
            argv(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path, "--no-ray"),
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )
        with silent.accept()[0]:
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=20)
    assert (process.returncode, said) == (130, "Interrupted.\n")
    assert gone(process.pid)
    assert not list(tmp_path.iterdir())


def test_an_older_result_is_neither_mixed_in_nor_left_standing(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.parquet").write_text("old")
    done = bench("http://127.0.0.1:9", tmp_path, "--no-ray")
    assert done.returncode == 2
    assert "--out must be a new or empty folder" in done.stderr
    (tmp_path / "out" / "old.parquet").unlink()
    (tmp_path / "cells.json").write_text('[{"output_tps": 1}]')
    with running() as server:
        server.script(die_after=3)
        done = bench(server.base_url, tmp_path, "--no-ray", "--repeats", "1", "--stall-s", "1")
    assert done.returncode == 1
    assert [cell["output_tps"] for cell in cells_of(tmp_path)] == [None]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--contexts", "60,x"], "--contexts must be whole numbers parted by commas, as in 60,1024, but got '60,x'"),
        (["--contexts", "0"], "bench: contexts[0]: input should be greater than or equal to 1, but got 0"),
        (["--concurrencies", ""], "--concurrencies or --rates must say how much is asked at once, but got neither"),
        (["--concurrencies", "-1"], "bench: concurrency[0]: input should be greater than or equal to 1, but got -1"),
        (["--window-s", "0"], "bench: window_s: input should be greater than 0, but got 0.0"),
        (["--prompts", "/nowhere/prompts.jsonl"], "--prompts: cannot read the prompts /nowhere/prompts.jsonl"),
        (
            ["--families", "code,poems"],
            "bench: families[1]: input should be 'code', 'maths' or 'chat', but got 'poems'",
        ),
        (["--window-s", "nan"], "bench: window_s: input should be"),
        ([], "--base-url must be a server that answers, but got"),
        (["--base-url", "not a url"], "--base-url must be a server that answers, but got"),
        (["--base-url", "http://127.0.0.1:70000"], "a server's address must be as in http://127.0.0.1:30000, but got"),
        (["--base-url", "http://127.0.0.1:x"], "a server's address must be as in http://127.0.0.1:30000, but got"),
        (["--base-url", "http://[::1"], "a server's address must be as in http://127.0.0.1:30000, but got"),
        (["--base-url", "https://127.0.0.1:9/v1"], "--base-url must be a server that answers, but got"),
        (["--stall-s", "0"], "--stall-s must be a number of seconds above 0, but got 0"),
        (["--stall-s", "nan"], "--stall-s must be a number of seconds above 0, but got nan"),
        (["--seed", "-1"], "--seed must be 0 or more, but got -1"),
        (["--out", "/dev/null/out"], "--out must be where a folder can be made, but got /dev/null/out"),
        (["--out", f"/tmp/{'a' * 300}"], "--out and --json must be places that can be written, but got"),
        (["--json", "/nowhere/cells.json"], "--json must be a file in a folder that takes one, but got /nowhere"),
        (["--json", "/dev/null"], "--json must be a file in a folder that takes one, but got /dev/null"),
        (["--json", "/dev"], "--json must be a file in a folder that takes one, but got /dev"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_writes_nothing(tmp_path, capsys, more, sentence):
    assert main([*argv("http://127.0.0.1:9", tmp_path, "--no-ray")[3:], *more]) == 2
    said = capsys.readouterr().err
    assert said.startswith(sentence)
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())
