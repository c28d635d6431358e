"""Streamed chat requests to the built-in engine's server that are left open, and what it says of them."""

import http.client
import json
import re
import time

from tests.builtin.harness import QUESTIONS

CHAT = {"model": "nonce", "messages": [{"role": "user", "content": QUESTIONS[0]}], "temperature": 0}
GAUGES = ("num_running_reqs", "num_queue_reqs")


class open_stream:  # noqa: N801  # reads as a verb
    """A streamed chat request whose client reads one chunk and then waits, or leaves."""

    def __init__(self, server, body):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        self.connection.request("POST", "/v1/chat/completions", json.dumps(body | {"stream": True}))
        self.reply = self.connection.getresponse()

    def __enter__(self):
        assert self.reply.readline().startswith(b"data: ")
        return self.reply

    def __exit__(self, *_):
        self.reply.close()
        self.connection.close()


def running(server):
    """How many requests run, and how many wait."""
    text = server.request("/metrics")[1]
    return [float(re.search(rf"^sglang:{name}\S* (\S+)$", text, re.MULTILINE).group(1)) for name in GAUGES]


def wait_idle(server, seconds=5):
    """Wait until there are none."""
    deadline = time.monotonic() + seconds
    while running(server) != [0, 0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
