"""The program's side: confine this process, load the program, do what the tests ask.

Nothing here needs to be trusted once the program is loaded. It may change any of this, and gains
no more than the right to choose what it returns.
"""

from __future__ import annotations

import json
import os
import sys
import types
import typing
from typing import Any

from ddtree_tune.node.jail import confine
from ddtree_tune.node.jail.channel import Channel
from ddtree_tune.node.jail.peer import Peer
from ddtree_tune.node.jail.values import Classes

TYPING_NAMES = [
    *("Any", "Callable", "Dict", "FrozenSet", "Generator", "Generic", "Iterable", "Iterator", "List", "Literal"),
    *("Mapping", "Optional", "Sequence", "Set", "Tuple", "Type", "TypeVar", "Union"),
]
"""What people leave out the import of in annotations; names that are more than hints stay out."""
FLAGS = ("-s", "-S", "-P", "-B", "-X", "utf8", "-X", "int_max_str_digits=0")
"""The interpreter without site packages, user folders or bytecode: the same on every machine."""


def main() -> None:
    """Confine, load, serve."""
    orders = json.loads(sys.argv[1])
    _confine(orders)
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    channel = Channel(orders["channel"], orders["nonce"])
    sys.path[:] = [folder for folder in sys.path if folder != orders["package"]]
    sys.argv[:] = [""]
    channel.send({"up": True})
    classes = Classes("")
    peer = Peer(channel, classes, lambda _: os._exit(0))
    channel.send(_load(peer, classes, channel.receive()))
    peer.serve()


def _confine(orders: dict[str, Any]) -> None:
    """Do what the level asks for; whatever fails ends the process before it has said it is up."""
    if sys.platform == "linux":
        confine.no_new_privileges()
    if orders["landlock"]:
        confine.restrict_files(orders["readable"], [os.getcwd(), "/dev/null"])  # noqa: PTH109 - pathlib costs 4 ms
    if orders["uid"]:
        confine.become(orders["uid"])
    elif os.getuid() == 0:
        confine.drop_capabilities()
    if orders["parent"] and sys.platform == "linux":
        confine.die_with_parent(orders["parent"])  # after the change of user, which resets it
    confine.limit(cpu_s=orders["cpu_s"], memory_bytes=orders["memory_bytes"], processes=orders["processes"])
    if orders["seccomp"]:
        confine.filter_calls()


def _load(peer: Peer, classes: Classes, job: dict[str, Any]) -> dict[str, Any]:
    """Run the program once, as an imported module, and say how that went."""
    module = types.ModuleType("answer")
    sys.modules["answer"] = module
    scope = module.__dict__
    scope.update({name: getattr(typing, name) for name in TYPING_NAMES})
    try:
        exec(compile(job["scope"], "<prompt>", "exec"), scope)  # noqa: S102 - this is what the sandbox is for
        program = compile(job["code"], "<answer>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return {"failed": "syntax_error", "reason": f"{type(error).__name__}: {error}"}
    try:
        exec(program, scope)  # noqa: S102 - see above
        entry = scope.get(job["entry_point"])
    except BaseException as error:  # noqa: BLE001 - SystemExit at import is a failure as well
        return {"failed": "exception", "reason": f"on import: {_described(error)}"}
    if not callable(entry):
        return {"failed": "exception", "reason": f"the program does not define {job['entry_point']}"}
    classes.update({name: cls for name in job["classes"] if isinstance(cls := scope.get(name), type)})
    code = getattr(entry, "__code__", None)
    peer.export(entry)
    return {"ready": True, "awaitable": bool(code and code.co_flags & 0x80)}


def _described(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:500]
    except Exception:  # noqa: BLE001 - a program's own __str__ may do anything
        return type(error).__name__
