"""What one fake SGLang is told to do: a JSON file that ``FAKE_SGLANG_SCENARIO`` names."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args, get_type_hints

VARIABLE = "FAKE_SGLANG_SCENARIO"


@dataclass(frozen=True)
class Scenario:
    """One server's life. Every field has the value of a healthy, quick server."""

    version: Literal["0.5.17", "0.5.23"] = "0.5.17"
    build: Literal["stock", "ddtree_tune", "pr29907"] = "stock"
    """Which fork: ``ddtree_tune`` is the plugin, ``pr29907`` has ``--speculative-ddtree-budget``."""
    block_size: int = 16
    """What the draft model's configuration would say."""
    load_s: float = 0.05
    capture_s: float = 0.05
    startup: Literal["oom", "capture_crash", "crash", "hang"] | None = None
    """How it fails to come up."""
    death_s: float = 0.2
    """From a scheduler's death to its parent's; the real one takes 5 s, and answers nothing."""
    health_s: float = 0.0
    """How long ``/health`` takes once it is up; the real one takes at least 1 s."""
    mute_s: float = 0.0
    """So long after it is up, health is good and nothing is generated."""
    override: dict[str, Any] = field(default_factory=dict)
    """Fields of ``/server_info`` that differ from what was asked."""
    accept_len: float = 3.0
    """Mean tokens of a verify step; 1 is a drafter that is never right."""
    step_s: float = 0.01
    prefill_s: float = 0.01
    die_after_requests: int | None = None
    """So many generations live; the next one dies after its first chunk."""
    die_beyond_tokens: int | None = None
    """The first prompt that is longer kills it, after its first chunk."""
    death: Literal["exit", "oom", "scheduler", "killed"] = "exit"
    hang_after_requests: int | None = None
    """So many generations live; with the next one the scheduler stands still, and health is good."""
    stubborn_children: bool = False
    """Scheduler children ignore SIGTERM and survive their parent, in its process group."""
    memory_lingers_s: float = 0.0
    """GPU memory of a dead child is held so much longer."""
    text: Literal["good", "nan", "lossy"] = "good"
    eager: bool = False
    """No CUDA graph is replayed while decoding."""
    scheduler_children: int = 1

    @classmethod
    def parse(cls, text: str) -> Scenario:
        """Read JSON; a name or a value that is none is a KeyError or a TypeError."""
        raw = json.loads(text)
        if unknown := set(raw) - {one.name for one in fields(cls)}:
            raise KeyError(f"a scenario must hold known fields, but got {sorted(unknown)}")
        hints = get_type_hints(cls)
        for name, value in raw.items():
            if not _fits(hints[name], value):
                raise TypeError(f"a scenario's {name} must be {hints[name]}, but got {value!r}")
        return cls(**raw)

    @classmethod
    def of_environment(cls) -> Scenario:
        """The scenario that the environment names, or the healthy one."""
        path = os.environ.get(VARIABLE)
        if path is None:
            return cls()
        with open(path, encoding="utf-8") as file:
            return cls.parse(file.read())


def _fits(kind: Any, value: Any) -> bool:
    if kind in {int, float}:
        return isinstance(value, int | kind) and not isinstance(value, bool)
    if isinstance(kind, type):
        return isinstance(value, kind)
    if getattr(kind, "__origin__", None) is Literal:
        return value in get_args(kind)
    if getattr(kind, "__origin__", None) is dict:
        return isinstance(value, dict)
    return any(value is None if one is type(None) else _fits(one, value) for one in get_args(kind))
