"""What the fake NVML beside this file says, as a test sets it."""

import json
import os
from pathlib import Path

HERE = Path(__file__).parent


class FakeGpus:
    """A folder that the fake library reads; ``env`` is for the process that asks it."""

    def __init__(self, folder, **state):
        self.folder = folder
        path = os.pathsep.join(filter(None, (str(HERE), os.environ.get("PYTHONPATH"))))
        self.env = {"PYTHONPATH": path, "FAKE_GPU_DIR": str(folder)}
        self._state = {}
        self.set(**state)

    def set(self, **state):
        """Change what the GPUs are like."""
        self._state |= state
        self._write("state.json", self._state)

    def hold(self, pid, mib, *, gpu=0, linger_s=0, host=False):
        """Let a process hold memory."""
        self._write(f"{pid}.json", {"gpu": gpu, "mib": mib, "linger_s": linger_s, "host": host})

    def release(self, pid):
        """Take away what a process holds."""
        (self.folder / f"{pid}.json").unlink()

    def _write(self, name, value):
        beside = self.folder / f".{name}"
        beside.write_text(json.dumps(value))
        beside.rename(self.folder / name)
