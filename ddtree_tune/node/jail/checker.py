"""The trusted side: runs the tests against a program that lives in another process.

Only plain data comes from there, so no object of the program is ever compared, printed or called
here. The verdict goes to our own standard output, which the program cannot reach. A program that
dies, hangs or breaks the protocol ends this process at once: the tests cannot catch that.
"""

from __future__ import annotations

import json
import os
import reprlib
import resource
import sys
import types
import typing
from typing import TYPE_CHECKING, Any, NoReturn

from ddtree_tune.node.jail import confine
from ddtree_tune.node.jail.candidate import TYPING_NAMES
from ddtree_tune.node.jail.channel import Channel, GarbledError, GoneError
from ddtree_tune.node.jail.peer import CAME_OVER, TRUSTED_OPERATIONS, Peer, Remote
from ddtree_tune.node.jail.values import Classes

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY_BYTES = 2 << 30
"""Address space of the tests: room for the largest answer that may come."""
MODULE = "tests"
"""Name of the module that the tests live in."""


class _Verdicts:
    """Writes the one verdict of this process and ends it."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1):
            os.dup2(null, descriptor)

    def give(self, outcome: str, reason: str) -> NoReturn:
        os.write(self._out, json.dumps({"outcome": outcome, "reason": reason[:2000]}).encode() + b"\n")
        os._exit(0)

    def end(self, error: Exception) -> NoReturn:
        """What a channel that is gone or spoilt means for the program."""
        if isinstance(error, GoneError):
            self.give("gone", "")
        self.give("exception", f"the program's answer is no value: {error}")


class _Program:
    """The program as the tests see it; counts calls and remembers the last one."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.calls = 0
        self.last = ""

    def ask(self, *args: object, **kwargs: object) -> Any:
        self.calls += 1
        self.last = ""
        value = self._peer.request("call", 0, *args, **kwargs)
        self.last = f"; the last call gave {_brief(value)}"
        return value


def main() -> None:
    """Read the job, let the program load, run the tests, say what came of it."""
    job = json.loads(sys.stdin.buffer.read())
    verdicts = _Verdicts()
    if sys.platform == "linux":
        confine.hide_memory()
        confine.die_with_parent(job["parent"])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    channel = Channel(job["channel"], job["nonce"])
    scope = _scope(job, verdicts)
    loaded = _load(channel, job, scope, verdicts)
    classes = Classes(MODULE)
    classes.update(_classes(scope))
    program = _Program(Peer(channel, classes, verdicts.end, operations=TRUSTED_OPERATIONS))
    candidate = _candidate(program, job["entry_point"], awaitable=bool(loaded.get("awaitable")))
    scope[job["entry_point"]] = candidate
    try:
        returned = scope["check"](candidate)
    except BaseException as error:  # noqa: BLE001 - whatever the tests raise is the verdict
        _judge(error, program, verdicts)
    if program.calls == 0:
        verdicts.give("harness_error", "the tests never call the program")
    if returned is False:
        verdicts.give("wrong_answer", "check returned False" + program.last)
    verdicts.give("pass", "")


def _scope(job: dict[str, Any], verdicts: _Verdicts) -> dict[str, Any]:
    """The tests' namespace: typing names, the prompt's helpers, the tests."""
    module = sys.modules[MODULE] = types.ModuleType(MODULE)
    scope = module.__dict__
    scope.update({name: getattr(typing, name) for name in TYPING_NAMES})
    try:
        exec(compile(job["scope"], "<prompt>", "exec"), scope)  # noqa: S102 - the problem's own code
        exec(compile(job["tests"], "<tests>", "exec"), scope)  # noqa: S102 - the problem's own code
    except Exception as error:  # noqa: BLE001 - a broken problem is a verdict too
        verdicts.give("harness_error", f"the tests do not load: {type(error).__name__}: {error}")
    if not callable(scope.get("check")):
        verdicts.give("harness_error", "the tests do not define check(candidate)")
    return scope


def _classes(scope: dict[str, Any]) -> dict[str, type]:
    """The classes that the prompt and the tests define."""
    return {name: cls for name, cls in scope.items() if isinstance(cls, type) and cls.__module__ == MODULE}


def _load(channel: Channel, job: dict[str, Any], scope: dict[str, Any], verdicts: _Verdicts) -> dict[str, Any]:
    """Hand the program over; give the verdict if it does not even load."""
    try:
        channel.receive()  # up
    except (GoneError, GarbledError):
        verdicts.give("harness_error", "the sandbox did not start")
    try:
        channel.send({name: job[name] for name in ("code", "scope", "entry_point")} | {"classes": [*_classes(scope)]})
        loaded = channel.receive()
    except (GoneError, GarbledError) as error:
        verdicts.end(error)
    if loaded.get("ready") is not True:
        outcome = "syntax_error" if loaded.get("failed") == "syntax_error" else "exception"
        verdicts.give(outcome, str(loaded.get("reason")))
    return loaded


def _candidate(program: _Program, name: str, *, awaitable: bool) -> Callable[..., Any]:
    """What the tests call."""

    async def later(*args: object, **kwargs: object) -> Any:
        return program.ask(*args, **kwargs)

    def candidate(*args: object, **kwargs: object) -> Any:
        return program.ask(*args, **kwargs)

    found = later if awaitable else candidate
    found.__name__ = found.__qualname__ = name
    return found


def _judge(error: BaseException, program: _Program, verdicts: _Verdicts) -> NoReturn:
    """The verdict on what came out of the tests."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if getattr(error, CAME_OVER, False):
        verdicts.give("exception", said)
    where = f" in the test's line {_line(error)}" + program.last
    if isinstance(error, AssertionError):
        verdicts.give("wrong_answer", said + where)
    if program.calls == 0 or isinstance(error, NameError | ImportError):
        verdicts.give("harness_error", f"the tests are broken: {said}{where}")
    verdicts.give("wrong_answer", f"the tests cannot use what the program returned: {said}{where}")


def _brief(value: object) -> str:
    return "an object" if type(value) is Remote else reprlib.repr(value)


def _line(error: BaseException) -> int | None:
    """Line of the tests where an exception came from."""
    found, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == "<tests>":
            found = step.tb_lineno
        step = step.tb_next
    return found
