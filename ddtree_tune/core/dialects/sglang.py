"""SGLang, stock and patched: one launch command, and a spelling for each build."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddtree_tune.core.dialects.base import canonical_tree, flag_args
from ddtree_tune.core.dialects.server_info import ServerInfo
from ddtree_tune.core.engine import Algorithm, EffectiveConfig, EngineConfig, LaunchPlan, Slot
from ddtree_tune.core.errors import EngineError, FailureClass, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ddtree_tune.core.engine_spec import EngineSpec, Knob, Speculating, Spelling

_EXPOSE = "SGLANG_EXPOSE_OWN_ENV_VARS"
"""Makes builds from 0.5.23 on list the variables that they declare in ``/server_info``; older ones ignore it."""
_ADVICE = "correct engine.dialect, or engine.custom's read, or the build"
_CHAINS = frozenset({Algorithm.CHAIN, Algorithm.CHAIN_UNRESTRICTED})


@dataclass(frozen=True, slots=True)
class SglangDialect:
    """One build of SGLang, by its spelling."""

    name: str
    spec: EngineSpec
    spelling: Spelling
    block_size: int | None = None
    """Of the drafter, the anchor included; None where it is not known before a launch."""

    def canonical(self, config: EngineConfig) -> EngineConfig:
        """The server that a configuration really is.

        A knob that this build has fixed is at its value whatever is asked. A build without trees
        takes one of topk 1, which is the plain chain.

        Raises:
            SpecError: the build cannot do it.
        """
        config = self._fixed(config)
        if self.spelling.tree is None and config.algorithm is Algorithm.TREE:
            if config.topk != 1:
                raise SpecError(
                    f"space.topk and every seed's topk must be 1 with dialect {self.name}, which verifies chains "
                    f"alone, but got {config.label}; use dialect ddtree_tune, sglang-pr29907 or custom for trees"
                )
            config = replace(config, algorithm=Algorithm.CHAIN)
        return canonical_tree(config, self.block_size)

    def plan(self, config: EngineConfig, slot: Slot) -> LaunchPlan:
        """The command line; of a flag given twice SGLang takes the last."""
        most = str(slot.max_running_requests)
        argv = [*self.spec.command, "--model-path", str(slot.model), "--host", slot.host, "--port", str(slot.port)]
        argv += ["--served-model-name", slot.served_model_name]
        argv += ["--max-running-requests", most, self.spelling.graph_flag, most, "--enable-cache-report"]
        argv += [word for port in slot.further_ports[:1] for word in ("--nccl-port", str(port))]
        argv += slot.args
        env = dict(slot.env)
        if (how := self._how(config)) is not None:
            argv += ["--speculative-algorithm", how.algorithm, "--speculative-draft-model-path", str(slot.draft_model)]
            argv += how.args
            for knob, value in self._knobs(config):
                if knob.flag:
                    argv += [knob.flag, str(value + knob.plus)]
                elif knob.env:
                    env |= {knob.env: str(value + knob.plus), _EXPOSE: "1"}
        if config.algorithm in {Algorithm.TREE, Algorithm.CHAIN}:
            argv += self.spelling.tree_args if self.spec.tree_args is None else self.spec.tree_args
        argv += flag_args(config.flags)
        return LaunchPlan(
            tuple(argv), tuple(sorted(env.items())), slot.host, slot.port, slot.served_model_name, slot.further_ports
        )

    def read_back(self, server_info: dict[str, object], asked: EngineConfig) -> EffectiveConfig:
        """Read what the server resolved; a knob that it does not report is as asked, and said to be inferred.

        Raises:
            EngineError: the answer lacks what every SGLang answers, or a knob's path (`identity`).
        """
        info = ServerInfo.read(server_info)
        self._refuse_missing(server_info)
        exposed = _exposed(server_info)
        inferred = [
            name
            for name, knob in self._named(asked)
            if knob.read is None and knob.fixed is None and knob.env not in exposed
        ]
        block_size = self.block_size or info.speculative_dflash_block_size
        if asked.algorithm in _CHAINS:
            block_size = info.speculative_num_draft_tokens
        return info.effective(
            self._algorithm(info, asked),
            budget=self._read("budget", server_info, asked.budget),
            topk=self._read("topk", server_info, asked.topk),
            window=self._read("window", server_info, asked.window),
            block_size=block_size,
            inferred=tuple(inferred),
        )

    def _how(self, config: EngineConfig) -> Speculating | None:
        """How this build is told to do it; None for no speculation."""
        if config.algorithm is Algorithm.TREE:
            return self.spelling.tree
        return self.spelling.chain if config.algorithm in _CHAINS else None

    def _named(self, config: EngineConfig) -> Iterator[tuple[str, Knob]]:
        """The knobs that apply to a configuration."""
        if config.algorithm is Algorithm.TREE:
            yield from ((name, knob) for name in ("budget", "topk") if (knob := getattr(self.spelling, name)))
        if config.algorithm is not Algorithm.NONE:
            yield "window", self.spelling.window

    def _knobs(self, config: EngineConfig) -> Iterator[tuple[Knob, int]]:
        """The knobs that are spelled, with our value."""
        for name, knob in self._named(config):
            if (value := getattr(config, name)) is not None:
                yield knob, value

    def _fixed(self, config: EngineConfig) -> EngineConfig:
        """The configuration with the values that this build always has."""
        value = {name: getattr(config, name) for name in ("budget", "topk", "window")}
        for name, knob in self._named(config):
            if knob.fixed is not None:
                value[name] = None if knob.fixed == "none" else knob.fixed
        return replace(config, budget=value["budget"], topk=value["topk"], window=value["window"])

    def _read(self, name: str, server_info: dict[str, object], asked: int | None) -> int | None:
        """One knob by its path; as asked where the build does not report it."""
        knob: Knob | None = getattr(self.spelling, name)
        if knob is None:
            return asked
        if knob.read is None:
            exposed = _exposed(server_info)
            if knob.env not in exposed:
                return asked
            value = exposed[knob.env]
            return int(value) - knob.plus if isinstance(value, str) and value.isdigit() else None
        found = _at(server_info, name, knob.read)
        if found is None:
            return None
        if isinstance(found, int) and not isinstance(found, bool):
            return found - knob.plus
        raise EngineError(
            f"/server_info must have a number at {knob.read} for {name}, but got {found!r}; {_ADVICE}",
            FailureClass.INVALID_CONFIG,
        )

    def _refuse_missing(self, server_info: dict[str, object]) -> None:
        """Say in the first trial, which is no tree, what only a tree would meet: that this is another build.

        An internal state may hold a knob only while it speculates, so it is not looked at.
        """
        for name in ("budget", "topk", "window"):
            knob: Knob | None = getattr(self.spelling, name)
            if knob is not None and knob.read is not None and not knob.read.startswith("internal_states"):
                _at(server_info, name, knob.read)

    def _algorithm(self, info: ServerInfo, asked: EngineConfig) -> Algorithm | None:
        """What the server says it does; where two of ours have one word, the one that was asked."""
        word = info.speculative_algorithm
        how = self._how(asked)
        if word == (how.algorithm if how else None):
            return asked.algorithm
        if word is None:
            return Algorithm.NONE
        if self.spelling.tree is not None and word == self.spelling.tree.algorithm:
            return Algorithm.TREE
        return Algorithm.CHAIN if word == self.spelling.chain.algorithm else None


def _at(server_info: dict[str, object], name: str, path: str) -> object:
    """The value at a dotted path.

    Raises:
        EngineError: there is none (`invalid_config`).
    """
    found: object = server_info
    for part in path.split("."):
        if isinstance(found, list) and part.isdigit() and int(part) < len(found):
            found = found[int(part)]
        elif isinstance(found, dict) and part in found:
            found = found[part]
        else:
            raise EngineError(
                f"/server_info must have {path} for {name}, but got none; {_ADVICE}", FailureClass.INVALID_CONFIG
            )
    return found


def _exposed(server_info: dict[str, object]) -> dict[str | None, object]:
    """The variables that the scheduler lists: of those that are set, the ones that its build declares.

    A patch that reads one straight from the environment leaves it off the list, so absence says nothing.
    """
    states = server_info.get("internal_states")
    first = states[0] if isinstance(states, list) and states else None
    found = first.get("env_vars") if isinstance(first, dict) else None
    return dict(found) if isinstance(found, dict) else {}
