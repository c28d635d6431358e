"""The fake SGLang lives and dies as its scenario says."""

import concurrent.futures
import http.client
import json
import os
import signal
import time
from contextlib import contextmanager

import psutil
import pytest

from tests.sglang.harness import free_port, running
from tests.sglang.text import Words, answer

DRAFTER = ("--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", "drafter")


def asked(tokens=8, text="open the door"):
    """A native request of a fixed length."""
    return {"text": text, "sampling_params": {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}}


def children(server):
    """The scheduler processes."""
    return psutil.Process(server.process.pid).children()


def gone(processes, *, within_s=5.0):
    """Whether all have ended: children that nobody reaps are dead, too."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        alive = [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
        if not alive:
            return True
        time.sleep(0.01)
    return False


@contextmanager
def streaming(server, body):
    """A stream that is read on a thread; gives the future of its text, or of what broke it."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(server.fetch, "/generate", body | {"stream": True})


@pytest.mark.parametrize(
    ("startup", "sentence"),
    [
        ("oom", "torch.OutOfMemoryError: CUDA out of memory."),
        ("capture_crash", "Exception: Capture cuda graph failed: CUDA error"),
        ("crash", "RuntimeError: The size of tensor a"),
    ],
)
def test_a_scheduler_that_fails_to_start_takes_the_server_with_it(tmp_path, startup, sentence):
    with running(tmp_path, wait=False, startup=startup) as server:
        # The real one kills its tree, itself last: no exit code that it chose.
        assert server.wait_end() == -signal.SIGKILL
        text = "\n".join(server.lines())
    assert sentence in text
    failed, told, killed = (
        text.index(line) for line in ("Scheduler hit an exception: Traceback", "Received sigquit", "kill_process_tree")
    )
    assert failed < told < killed
    assert ("Capture target decode CUDA graph begin" in text) == (startup == "capture_crash")
    assert "fired up" not in text


def test_a_server_that_never_comes_up_takes_no_connection(tmp_path):
    with running(tmp_path, wait=False, startup="hang") as server:
        while not any("Load weight begin" in line for line in server.lines()):
            assert server.process.poll() is None
            time.sleep(0.02)
        with pytest.raises(OSError, match="refused"):
            server.fetch("/health")
        assert server.process.poll() is None


def test_health_is_503_until_it_is_ready_and_models_are_listed_before(tmp_path):
    with running(tmp_path, "--served-model-name", "nonce", wait=False, prefill_s=0.3) as server:
        seen = set()
        while (200, 200) not in seen:
            try:
                seen.add((server.fetch("/health")[0], server.fetch("/v1/models")[0]))
            except OSError:
                assert server.process.poll() is None
        assert (503, 200) in seen


def test_a_mute_server_is_healthy_and_generates_later(tmp_path):
    with running(tmp_path, mute_s=0.4) as server:
        began = time.monotonic()
        assert server.fetch("/v1/models")[0] == 200
        with streaming(server, asked()) as stream:
            assert server.fetch("/health")[0] == 200
            assert not stream.done()
            assert stream.result()[0] == 200
        assert time.monotonic() - began > 0.3


def test_what_is_overridden_is_said_in_every_place(tmp_path):
    override = {"speculative_draft_window_size": None, "effective_max_running_requests_per_dp": 48}
    override |= {"cuda_graph_config.decode.max_bs": 32}
    argv = (*DRAFTER, "--speculative-draft-window-size", "2048", "--max-running-requests", "64")
    with running(tmp_path, *argv, override=override) as server:
        info = server.get("/server_info")
    state = info["internal_states"][0]
    assert info["speculative_draft_window_size"] is state["speculative_draft_window_size"] is None
    assert (info["max_running_requests"], state["effective_max_running_requests_per_dp"]) == (64, 48)
    assert info["cuda_graph_config"]["decode"]["max_bs"] == 32


def test_no_more_requests_run_at_once_than_may(tmp_path):
    with (
        running(tmp_path, "--max-running-requests", "2", step_s=0.005) as server,
        concurrent.futures.ThreadPoolExecutor(5) as pool,
    ):
        replies = list(pool.map(lambda at: server.post("/generate", asked(10, f"question {at}")), range(5)))
        assert [reply["meta_info"]["completion_tokens"] for reply in replies] == [10] * 5
        truth = server.truth()
    edges = sorted(edge for record in truth for edge in ((record["sent_ns"][0], 1), (record["sent_ns"][-1], -1)))
    at_once = [sum(step for _, step in edges[: at + 1]) for at in range(len(edges))]
    assert len(truth) == 5
    assert max(at_once) == 2


@pytest.mark.parametrize("death", ["exit", "oom", "scheduler"])
def test_a_server_dies_in_the_middle_of_the_request_after_the_last_good_one(tmp_path, death):
    with running(tmp_path, die_after_requests=1, death=death, step_s=0.02) as server:
        schedulers = children(server)
        assert server.post("/generate", asked())["meta_info"]["completion_tokens"] == 8
        with (
            streaming(server, asked(200)) as stream,
            pytest.raises((OSError, http.client.HTTPException), match=r"Incomplete|reset|closed"),
        ):
            stream.result()
        assert server.wait_end() == (1 if death == "exit" else -signal.SIGKILL)
        assert gone(schedulers)
        text = "\n".join(server.lines())
    assert ("Scheduler hit an exception: Traceback" in text) == (death != "exit")
    assert ("CUDA out of memory" in text) == (death == "oom")
    assert ("SIGQUIT received. signum=None, frame=None." in text) == (death != "exit")


def test_a_server_that_hangs_stays_healthy_and_sends_nothing(tmp_path):
    with running(tmp_path, hang_after_requests=1) as server:
        server.post("/generate", asked())
        with pytest.raises(TimeoutError):
            server.fetch("/generate", asked(), timeout_s=0.2)
        assert server.fetch("/health")[0] == 200
        assert server.get("/truth")[1]["tokens"] == []
        server.process.send_signal(signal.SIGTERM)  # it drains for ever, and goes on answering on its port
        while server.fetch("/health")[0] == 200:
            time.sleep(0.01)
        assert server.fetch("/v1/models")[0] == 200
        assert server.process.poll() is None


def test_memory_is_held_by_each_scheduler_from_loading_on(tmp_path):
    gpu = tmp_path / "gpu"
    environment = {"FAKE_GPU_DIR": str(gpu)}
    with running(tmp_path, environment=environment, scheduler_children=2, memory_lingers_s=1.5) as server:
        held = {int(path.stem): json.loads(path.read_text()) for path in gpu.glob("*.json")}
        assert held.keys() == {one.pid for one in children(server)}
        assert len(held) == 2
        assert all(one == {"gpu": 0, "mib": 1000, "linger_s": 1.5} for one in held.values())


def test_a_server_that_is_told_to_end_drains_and_takes_its_children_along(tmp_path):
    with running(tmp_path, step_s=0.01) as server:
        schedulers = children(server)
        with streaming(server, asked(30)) as stream:
            while not server.truth():
                time.sleep(0.01)
            server.process.send_signal(signal.SIGTERM)
            status, text = stream.result()
        assert status == 200
        assert text.endswith("data: [DONE]\n\n")
        assert server.wait_end() == -signal.SIGKILL
        assert gone(schedulers)


def test_a_signal_to_the_group_ends_it_by_the_watchdog(tmp_path):
    with running(tmp_path) as server:
        os.killpg(server.process.pid, signal.SIGTERM)
        assert server.wait_end() == -signal.SIGKILL
        text = "\n".join(server.lines())
    assert "SIGTERM received. signum=None frame=None. Draining requests and shutting down..." in text


def test_stubborn_children_survive_their_parent_in_its_group_and_keep_their_memory(tmp_path):
    gpu = tmp_path / "gpu"
    told = {"stubborn_children": True, "scheduler_children": 2, "environment": {"FAKE_GPU_DIR": str(gpu)}}
    with running(tmp_path, **told) as server:
        schedulers = children(server)
        os.killpg(server.process.pid, signal.SIGTERM)
        server.wait_end()
        assert not gone(schedulers, within_s=0.2)
        assert {os.getpgid(one.pid) for one in schedulers} == {server.process.pid}
        assert {int(path.stem) for path in gpu.glob("*.json")} == {one.pid for one in schedulers}
        os.killpg(server.process.pid, signal.SIGKILL)
        assert gone(schedulers)


def test_the_derived_port_is_taken_while_it_lives(tmp_path):
    port = free_port()
    with running(tmp_path, "--nccl-port", str(port)) as server:
        listening = {(one.laddr.port, one.pid) for one in psutil.net_connections("tcp") if one.status == "LISTEN"}
        assert {(server.port, server.process.pid), (port, children(server)[0].pid)} <= listening


def test_decoding_without_graphs_is_in_the_log(tmp_path):
    with running(tmp_path, "--decode-log-interval", "4", eager=True) as server:
        server.post("/generate", asked(20))
        decoded = [line for line in server.lines() if "Decode batch" in line]
    assert decoded
    assert all("cuda graph: False" in line for line in decoded)


@pytest.mark.parametrize("kind", ["nan", "lossy"])
def test_wrong_text_is_served_everywhere(tmp_path, kind):
    body = {"messages": [{"role": "user", "content": "Sort a list"}], "max_tokens": 60, "temperature": 0}
    with running(tmp_path, text=kind) as server:
        wrong = server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
    good = answer(Words().render(body["messages"], {}), "good", salt="", thinks=True)
    assert wrong == "!" * 60 if kind == "nan" else (wrong[:30] == good[:30] and not good.startswith(wrong))
