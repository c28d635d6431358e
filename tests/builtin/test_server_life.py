"""What the server's process does with requests that come, wait and leave, and how it ends."""

import http.client
import json
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.builtin.harness import PAIR, ROOT, free_port, serving
from tests.builtin.streams import CHAT, open_stream, running, wait_idle


def test_a_client_that_leaves_ends_its_request(server):
    with open_stream(server, CHAT | {"max_tokens": 900, "ignore_eos": True}):
        assert running(server)[0] == 1
    before = time.monotonic()
    wait_idle(server)
    assert time.monotonic() - before < 1
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps(CHAT | {"max_tokens": 900, "ignore_eos": True}))
    while running(server)[0] == 0:
        time.sleep(0.01)
    connection.close()
    wait_idle(server, 1)


def test_no_more_requests_run_than_allowed(undrafted):
    body = CHAT | {"max_tokens": 900, "ignore_eos": True}
    with open_stream(undrafted, body), open_stream(undrafted, body):
        waiting = http.client.HTTPConnection("127.0.0.1", undrafted.port, timeout=30)
        waiting.request("POST", "/v1/chat/completions", json.dumps(body | {"stream": True}))
        deadline = time.monotonic() + 5
        while running(undrafted) != [2, 1]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        waiting.close()
    wait_idle(undrafted)


def test_a_taken_port_is_named(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = r"must be free to listen on, but got .*Address already in use"
        with pytest.raises(AssertionError, match=said), serving(tmp_path, "--port", port):
            pass


def test_a_running_request_does_not_hold_up_the_end(tmp_path):
    with serving(tmp_path, "--algorithm", "none") as server:
        stream = open_stream(server, CHAT | {"max_tokens": 900, "ignore_eos": True})
        with stream:
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(10) == 0


def test_a_dead_engine_ends_the_process(tmp_path):
    """A poisoned scheduler is the one way to kill the thread from outside of the product."""
    program = (
        "import sys; from ddtree_tune.builtin import scheduler, __main__\n"
        "def die(*_): raise RuntimeError('poisoned')\n"
        "scheduler.Scheduler.tick = die\n"
        "sys.exit(__main__.main())"
    )
    command = [sys.executable, "-c", program, "--model", PAIR / "target", "--draft-model", PAIR / "draft"]
    command += ["--port", str(free_port()), "--served-model-name", "nonce"]
    ended = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "RuntimeError: poisoned" in ended.stderr
