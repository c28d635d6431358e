"""A fake SGLang: ``python -m tests.sglang.fake --model-path … --port …``.

A real process with scheduler children, a log, ports and SGLang's HTTP surface, which lives and dies
as its scenario says (``scenario.py``). What it answers, logs and refuses is what the real one did.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import uvicorn

from tests.sglang import log
from tests.sglang.arguments import Resolved, context_length, graph_sizes, resolve, start_lines
from tests.sglang.engine import TOKENS, Engine
from tests.sglang.scenario import Scenario
from tests.sglang.server import Server

CHILD = Path(__file__).with_name("child.py")
_WARM_UP = "The capital city of France is"


class Children:
    """The scheduler processes, and how they and their parent end."""

    def __init__(self, resolved: Resolved):
        self.scenario = resolved.scenario
        count = max(self.scenario.scheduler_children, resolved.tp_size)
        self.processes = [self._start(resolved, index, count) for index in range(count)]

    def _start(self, resolved: Resolved, index: int, count: int) -> subprocess.Popen[str]:
        scenario, width = self.scenario, resolved.verify_width
        captures = [("target decode", 1)]
        draft_line = ""
        if resolved.speculates:
            block = resolved.speculative_dflash_block_size or scenario.block_size
            captures = [("target verify", width), ("draft verify", block)]
            window = resolved.speculative_draft_window_size
            draft_line = (
                f"Initialized {resolved.speculative_algorithm} draft runner. "
                f"attention_backend={resolved.speculative_draft_attention_backend}, model=DFlashDraftModel, "
                f"block_size={block}, draft_window_size={window}, compact_cache={window is not None}"
            )
        told = {
            "index": index,
            "rank": f" TP{index}" if count > 1 else "",
            "startup": scenario.startup,
            "load_s": scenario.load_s,
            "capture_s": scenario.capture_s,
            "memory_lingers_s": scenario.memory_lingers_s,
            "stubborn": scenario.stubborn_children,
            "nccl_port": resolved.nccl_port if index == 0 else None,
            "captures": [] if resolved.disable_cuda_graph else captures,
            "sizes": graph_sizes(resolved),
            "draft_line": draft_line,
            "tokens": TOKENS,
            "ready_line": f"max_total_num_tokens={TOKENS}, chunked_prefill_size=8192, max_prefill_tokens=16384, "
            f"max_running_requests={resolved.running_cap}, context_len={context_length(resolved)}, "
            "available_gpu_mem=96.27 GB",
        }
        argv = [sys.executable, str(CHILD), json.dumps(told)]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        """Until each says so; one that ends has sent SIGQUIT, or is a reason of its own."""
        for rank, process in enumerate(self.processes):
            if process.stdout.readline() != "ready\n":
                code = process.wait()
                if code == 0:
                    time.sleep(3600)  # until the signal handler has ended us
                raise RuntimeError(f"Rank {rank} scheduler died during initialization (exit code: {code}).")

    def watch(self, loop: asyncio.AbstractEventLoop, died: signal.Signals) -> None:
        """Notice a child that ends other than well."""

        def check(index: int, process: subprocess.Popen[str]) -> None:
            loop.remove_reader(process.stdout)
            if (code := process.wait()) != 0:
                log.say(
                    f"Subprocess scheduler_{index} (pid={process.pid}) crashed with exit code {code}. "
                    "Triggering SIGQUIT for cleanup..."
                )
                os.kill(os.getpid(), died)

        for index, process in enumerate(self.processes):
            loop.add_reader(process.stdout, check, index, process)

    def order(self, word: str) -> None:
        """Tell the first scheduler how to die."""
        self.processes[0].stdin.write(f"{word}\n")
        self.processes[0].stdin.flush()

    def kill_tree(self) -> None:
        """End every child, and then this process: by SIGKILL, so that its exit code is -9."""
        log.say(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
        if not self.scenario.stubborn_children:
            for process in self.processes:
                process.kill()
                process.wait()
        os.kill(os.getpid(), signal.SIGKILL)


class Fake:
    """The parent process."""

    def __init__(self, resolved: Resolved):
        self.resolved, self.scenario = resolved, resolved.scenario
        signal.signal(signal.SIGQUIT, self._failed_to_start)
        self.children = Children(resolved)
        self.engine = Engine(resolved, self._die)
        self.server = Server(self.engine)

    def run(self) -> None:
        """Load, serve, and end by a signal."""
        self.children.wait_ready()
        log.say(
            "Engine startup timings (s): load_weight=0.10, kv_cache_allocation=0.86, scheduler_e2e=8.21, "
            "cuda_graph={prefill=2.07, decode=0.00, target_verify=2.30, draft_prefill=0.00, draft_decode=1.75, "
            "draft_extend=0.00}, tokenizer_e2e=25.03"
        )
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self.children.watch(loop, signal.SIGQUIT)
        loop.add_signal_handler(signal.SIGQUIT, self._scheduler_failed)
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self._terminate)
        arguments = self.resolved
        http = uvicorn.Config(
            self.server.application(), host=arguments.host, port=arguments.port, log_config=_LOGGING, access_log=True
        )
        server = self._http = _Uvicorn(http)
        async with asyncio.TaskGroup() as tasks:  # a fault of ours ends the process with a traceback
            tasks.create_task(self.engine.run())
            server.up = lambda: tasks.create_task(self._warm_up())
            await server.serve()

    async def _warm_up(self) -> None:
        """One generation before the server calls itself ready."""
        if not self.resolved.skip_server_warmup:
            one = self.engine.make(_WARM_UP, wanted=8, ignore_eos=True, salt="", thinks=False, is_probe=True)
            async for _ in self.engine.submit(one, {}):
                pass
        self.engine.ready_at = time.perf_counter()
        self.server.is_ready = True
        log.say(log.READY)

    def _die(self) -> None:
        if self.scenario.death == "exit":
            os._exit(1)
        if self.scenario.death == "killed":
            self._held = multiprocessing.get_context("spawn").Semaphore()  # its tracker warns in the log, after our end
            os.kill(os.getpid(), signal.SIGKILL)
        self.children.order(self.scenario.death)

    def _failed_to_start(self, *_: object) -> None:
        log.say(log.LAUNCH_SIGQUIT)
        time.sleep(self.scenario.death_s)
        self.children.kill_tree()

    def _scheduler_failed(self) -> None:
        """As the real one, which holds up its own loop: connections are taken and not answered."""
        log.say(log.SIGQUIT)
        log.say(log.DIAGNOSTICS)
        time.sleep(self.scenario.death_s)
        log.say(log.NO_SCHEDULER)
        self.children.kill_tree()

    def _terminate(self) -> None:
        if self.server.is_ending:
            return
        log.say(log.SIGTERM)
        self.server.is_ending = True
        self._drain = asyncio.create_task(self._end_when_idle())

    async def _end_when_idle(self) -> None:
        while self.engine.running or self.engine.waiting or self.engine.is_stuck:  # noqa: ASYNC110  # the real one polls, too
            await asyncio.sleep(0.02)
        while self._http.server_state.tasks:  # noqa: ASYNC110  # what was generated is still on its way
            await asyncio.sleep(0.01)
        log.say("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
        self.children.kill_tree()


class _Uvicorn(uvicorn.Server):
    """Leaves signals to us, and says when it listens."""

    def up(self) -> None:
        """Replaced by who waits for it."""

    async def startup(self, sockets=None):
        await super().startup(sockets)
        if self.started:
            self.up()

    def capture_signals(self):
        return contextlib.nullcontext()


_FORM = {"()": "uvicorn.logging.DefaultFormatter", "datefmt": "%Y-%m-%d %H:%M:%S", "use_colors": False}
_ACCESS = '[%(asctime)s] %(levelprefix)s %(client_addr)s - "%(request_line)s" %(status_code)s'
_LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "default": _FORM | {"fmt": "[%(asctime)s] %(levelprefix)s %(message)s"},
        "access": _FORM | {"()": "uvicorn.logging.AccessFormatter", "fmt": _ACCESS},
    },
    "handlers": {
        name: {"formatter": name, "class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
        for name in ("default", "access")
    },
    "loggers": {
        "uvicorn": {"handlers": ["default"], "level": "INFO", "propagate": False},
        "uvicorn.error": {"level": "INFO"},
        "uvicorn.access": {"handlers": ["access"], "level": "INFO", "propagate": False},
    },
}


def main() -> None:
    """Read scenario and arguments, and live."""
    logging.captureWarnings(capture=False)
    scenario = Scenario.of_environment()
    resolved = resolve(sys.argv[1:], scenario)
    start_lines(resolved)
    Fake(resolved).run()


if __name__ == "__main__":
    main()
