"""From options to a serving process."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import socket
import sys
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING

import uvicorn

from ddtree_tune.builtin.decoder import Decoder
from ddtree_tune.builtin.options import PROGRAM
from ddtree_tune.builtin.scheduler import Scheduler
from ddtree_tune.builtin.server import application
from ddtree_tune.builtin.service import Facts, Service
from ddtree_tune.builtin.speculation import Speculation
from ddtree_tune.builtin.text import TextCodec
from ddtree_tune.builtin.weights import load_drafter, load_target
from ddtree_tune.builtin.worker import Worker
from ddtree_tune.core.engine import Algorithm
from ddtree_tune.core.errors import EngineError, FailureClass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.builtin.options import Options

SHUTDOWN_S = 2
"""How long running requests may go on after SIGTERM."""

log = logging.getLogger(__name__)


def launch(options: Options, argv: Sequence[str]) -> int:
    """Load, listen and serve until a signal.

    Returns:
        The exit code: 0 after a signal, 1 if the port is taken, 2 if the options cannot be served.
    """
    logging.basicConfig(
        level=logging.INFO, format="[%(asctime)s] %(message)s", datefmt="%Y-%m-%d %H:%M:%S", stream=sys.stderr
    )
    start_s = perf_counter()
    # uvicorn drains, restores this handler and raises the signal again: a stop that was asked for is no failure.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    try:
        service = assemble(options, argv, start_s)
    except EngineError as error:
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2 if error.failure is FailureClass.INVALID_CONFIG else 1
    listener = socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((options.host, options.port))
    except OSError as error:
        print(f"{PROGRAM}: {options.host}:{options.port} must be free to listen on, but got {error}", file=sys.stderr)
        return 1
    server = uvicorn.Server(
        uvicorn.Config(
            application(service), log_config=None, access_log=False, timeout_graceful_shutdown=SHUTDOWN_S, ws="none"
        )
    )
    server.run(sockets=[listener])
    return 0


def assemble(options: Options, argv: Sequence[str], start_s: float) -> Service:
    """Load the models and wire the parts.

    Raises:
        EngineError: a model folder or a setting cannot be served.
    """
    target = load_target(options.model)
    drafter = None
    speculation = Speculation(Algorithm.NONE)
    if options.algorithm is not Algorithm.NONE:
        drafter = load_drafter(options.draft_model, target)
        block_size = options.block_size or drafter.config.block_size
        _require(
            block_size <= drafter.config.block_size,
            f"--block-size must be at most the drafter's {drafter.config.block_size}, but got {block_size}",
        )
        _require(
            options.window is None or options.window >= block_size,
            f"--window must be none or at least the block size {block_size}, but got {options.window}",
        )
        speculation = Speculation.resolve(options.algorithm, options.budget, options.topk, options.window, block_size)
        _require(
            speculation.topk <= target.config.vocab_size,
            f"--topk must be at most the vocabulary's {target.config.vocab_size}, but got {options.topk}",
        )
    longest = target.config.max_position_embeddings
    length = options.max_model_len or longest
    _require(length <= longest, f"--max-model-len must be at most the model's {longest}, but got {length}")
    codec = TextCodec(options.model)
    slots, chunk = options.max_running_requests, options.chunked_prefill_size
    decoder = Decoder(target, drafter, speculation, slots=slots, length=length, chunk=chunk)
    worker = Worker(Scheduler(decoder, target.stop_ids, slots=slots, chunk=chunk))
    facts = Facts(
        served_model_name=options.served_model_name,
        model_path=str(options.model),
        draft_model_path=None if drafter is None else str(options.draft_model),
        architectures=target.config.architectures,
        max_model_len=length,
        max_running_requests=slots,
        chunked_prefill_size=chunk,
        stream_interval=options.stream_interval,
        threads=options.threads,
        launch_command=shlex.join(["python", "-m", "ddtree_tune.builtin", *argv[1:]]),
        startup_s=perf_counter() - start_s,
        created=int(datetime.now(UTC).timestamp()),
        pid=os.getpid(),
    )
    log.info("Loaded %s with %s, threads=%d", options.model, speculation, options.threads)
    return Service(facts, speculation, codec, worker)


def _require(holds: bool, sentence: str) -> None:
    if not holds:
        raise EngineError(sentence, FailureClass.INVALID_CONFIG)
