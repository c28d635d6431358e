"""One launched server: its process, what it has written, and whether it is well."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddtree_tune.core.faults import Fault, classify
from ddtree_tune.core.server_log import ServerLog
from ddtree_tune.node.sockets import POLL_S, listening

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from ddtree_tune.core.engine import LaunchPlan

EXIT_FILE = "exit"
GONE_S = 2.0
"""A server that no longer listens is given so long to end by itself, for the sake of its exit code."""


@dataclass
class Launched:
    """One launched server."""

    plan: LaunchPlan
    process: subprocess.Popen[bytes]
    folder: Path
    launched: float
    deadline_s: float
    seen: ServerLog = field(default_factory=ServerLog)
    read_to: int = 0
    """Bytes of the log that were seen."""
    ready: bool = False

    @property
    def log(self) -> Path:
        """What it writes."""
        return self.folder / "server.log"

    @property
    def seconds(self) -> float:
        """Since the launch."""
        return time.monotonic() - self.launched

    def look(self) -> ServerLog:
        """Read what the server has written since."""
        with self.log.open("rb") as log:
            log.seek(self.read_to)
            text = log.read()
        self.read_to += len(text)
        self.seen.feed(text.decode(errors="replace"))
        return self.seen

    @property
    def exit_file(self) -> Path:
        """Where its supervisor leaves its exit code."""
        return self.folder / EXIT_FILE

    def exit_code(self) -> int | None:
        """Of the server itself, whose supervisor may still wait for its descendants; None while it runs."""
        ended = self.process.poll()
        if self.exit_file.exists():
            return int(self.exit_file.read_text())
        return 128 - ended if ended is not None and ended > 128 else ended

    def fault(self) -> Fault | None:
        """Why the server is gone, or will be; None while it is well."""
        code = self.exit_code()
        if code is None and self.ready and not listening(self.plan.port, self.plan.host):
            deadline = time.monotonic() + GONE_S  # its exit is about to be known
            while (code := self.exit_code()) is None and time.monotonic() < deadline:
                time.sleep(POLL_S)
            return self._classified(code)
        return None if code is None and self.look().fatal is None else self._classified(code)

    def _classified(self, code: int | None) -> Fault:
        seen = self.look()
        return classify(seen.tail, code, ready=self.ready, phase=seen.phase, lost=code is None)
