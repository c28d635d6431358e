"""The engine's thread: decoding runs here, the event loop only carries messages.

Messages go in through a queue and come back as one callback per tick. A defect in the engine ends
the process: a server that cannot decode must not answer.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ddtree_tune.builtin.scheduler import Delivery, Job, Scheduler

log = logging.getLogger(__name__)

Message: TypeAlias = "Callable[[Scheduler], None]"


class Worker:
    """Runs a scheduler and gives each request its own stream of deliveries."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self._inbox: SimpleQueue[Message | None] = SimpleQueue()
        self._streams: dict[str, asyncio.Queue[Delivery]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def pending(self) -> int:
        """Requests whose reply is not complete."""
        return len(self._streams)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin; deliveries arrive on ``loop``."""
        self._loop = loop
        self._thread.start()

    def stop(self) -> None:
        """End the thread after its current tick."""
        self._inbox.put(None)
        self._thread.join()

    async def stream(self, job: Job) -> AsyncGenerator[Delivery]:
        """Run one request; leaving the iteration early aborts it."""
        queue: asyncio.Queue[Delivery] = asyncio.Queue()
        self._streams[job.request_id] = queue
        self._inbox.put(lambda scheduler: scheduler.submit(job))
        ended = False
        try:
            while not ended:
                delivery = await queue.get()
                ended = delivery.finish is not None
                yield delivery
        finally:
            del self._streams[job.request_id]
            if not ended:
                self._inbox.put(lambda scheduler: scheduler.abort(job.request_id))

    def post(self, message: Message) -> None:
        """Have the engine's thread do something between two ticks."""
        self._inbox.put(message)

    def _run(self) -> None:
        try:
            # A gate far below zero overflows its exponential, whose reciprocal is rightly 0.
            with np.errstate(over="ignore"):
                while self._listen():
                    deliveries = self.scheduler.tick()
                    if self._loop is None or self._loop.is_closed():
                        return  # nobody is left to hear of it
                    if deliveries:
                        self._loop.call_soon_threadsafe(self._dispatch, deliveries)
        except BaseException:
            log.exception("The engine must not fail, but its thread did; the process ends")
            logging.shutdown()
            os._exit(1)

    def _listen(self) -> bool:
        """Handle messages until there is work; False when told to stop."""
        while True:
            try:
                message = self._inbox.get(block=self.scheduler.idle)
            except Empty:
                return True
            if message is None:
                return False
            message(self.scheduler)

    def _dispatch(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            queue = self._streams.get(delivery.request_id)
            if queue is not None:
                queue.put_nowait(delivery)
