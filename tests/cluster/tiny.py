"""The sweep of the cluster tests, and how its command is run."""

import subprocess
import sys

TINY_SWEEP = """
name: tiny
space: {budget: [4, 8], topk: [4], window: [none]}
seeds: [{budget: 8, topk: 4, window: none}]
load: {contexts: [60], concurrency: [1, 2], output_tokens: 32, window_s: 0.5}
coding: {problems: five_kinds, limit: 1, max_tokens: 400}
search: {trials: 3, final: {settings: 1, rounds: 1}}
"""


def command(*argv):
    """Run a module of ours as a user does."""
    return subprocess.run(
        [sys.executable, "-m", *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
        stdin=subprocess.DEVNULL,
    )
