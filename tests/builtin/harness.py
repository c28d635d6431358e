"""What the tests of the built-in engine share: the pair, prompts, runs to the end, a real server."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ddtree_tune.builtin.decoder import Decoder
from ddtree_tune.builtin.options import PAIR
from ddtree_tune.builtin.sampling import Sampling
from ddtree_tune.builtin.scheduler import Job, Scheduler
from ddtree_tune.builtin.speculation import Speculation
from ddtree_tune.core.engine import Algorithm

ROOT = Path(__file__).parents[2]
QUESTIONS = (
    "Write a Python function `count_vowels(text)` that returns how many vowels `text` has.",
    "Please code a helper `total_of(numbers)` which computes the sum of the numbers in a list.",
    "Finish this function:\n```python\ndef is_palindrome(word):\n```",
    "Write a function that reverses the order of the words of a sentence.",
)
NONE = Speculation(Algorithm.NONE)
LENGTH = 1024


def tree(budget, topk, window=None, block_size=16):
    return Speculation.resolve(Algorithm.TREE, budget, topk, window, block_size)


def chain(window=None, block_size=16):
    return Speculation.resolve(Algorithm.CHAIN, 1, 1, window, block_size)


@dataclass
class Finished:
    """One reply as the scheduler delivered it."""

    tokens: list = field(default_factory=list)
    accepted: list = field(default_factory=list)
    finish: str | None = None


def scheduler_of(pair, speculation, *, slots=1, chunk=64, length=LENGTH):
    target, drafter = pair
    drafter = None if speculation.algorithm is Algorithm.NONE else drafter
    decoder = Decoder(target, drafter, speculation, slots=slots, length=length, chunk=chunk)
    return Scheduler(decoder, target.stop_ids, slots=slots, chunk=chunk)


def finish_all(scheduler):
    """Tick until idle; replies by request."""
    replies = {}
    while not scheduler.idle:
        for delivery in scheduler.tick():
            reply = replies.setdefault(delivery.request_id, Finished())
            reply.tokens += delivery.tokens
            if delivery.accepted is not None:
                reply.accepted.append(delivery.accepted)
            reply.finish = delivery.finish
    return replies


def replies_to(pair, speculation, prompts, *, slots=1, chunk=64, max_tokens=64, **sampling):
    """Token ids of every prompt's reply, greedy unless told otherwise."""
    scheduler = scheduler_of(pair, speculation, slots=slots, chunk=chunk)
    for index, prompt in enumerate(prompts):
        options = {"temperature": 0.0} | sampling
        scheduler.submit(Job(str(index), tuple(prompt), Sampling(max_tokens, **options)))
    replies = finish_all(scheduler)
    assert len(replies) == len(prompts)
    return [replies[str(index)].tokens for index in range(len(prompts))]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@dataclass
class Server:
    """A real server process."""

    process: subprocess.Popen
    port: int
    log: Path

    def request(self, path, body=None, *, raw=None):
        """Status and body text; an HTTP error is an answer like any other."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        call = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        try:
            with urllib.request.urlopen(call, timeout=30) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def json(self, path, body=None):
        status, text = self.request(path, body)
        assert status == 200, text
        return json.loads(text)

    def events(self, path, body):
        """The events of a stream, which must end with the end marker."""
        status, text = self.request(path, body | {"stream": True})
        assert status == 200, text
        events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        assert events[-1] == "[DONE]"
        return [json.loads(event) for event in events[:-1]]


@contextmanager
def serving(folder, *args):
    """Run the server until the block ends; it must stop with code 0."""
    port = free_port()
    log = folder / f"{port}.log"
    command = [sys.executable, "-m", "ddtree_tune.builtin", "--model", PAIR / "target", "--draft-model", PAIR / "draft"]
    command += ["--port", str(port), "--served-model-name", "nonce", "--max-model-len", str(LENGTH), *args]
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=subprocess.STDOUT, cwd=ROOT)
    server = Server(process, port, log)
    try:
        deadline = time.monotonic() + 60
        while not _healthy(server):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield server
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _healthy(server):
    try:
        return server.request("/health")[0] == 200
    except (urllib.error.URLError, ConnectionError):
        return False
