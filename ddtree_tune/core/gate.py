"""The gate: what a server must prove before load is paid for.

The checks run in order and the first failure ends the trial with its class. This module only
judges; ``node.probe`` gathers what it judges.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddtree_tune.core.degenerate import degeneration
from ddtree_tune.core.engine import Algorithm, Difference, EffectiveConfig, Endpoint, EngineConfig
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.timing import accept_length

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ddtree_tune.core.spec import GateSpec
    from ddtree_tune.core.trace import RequestTrace, SpecCounters

ACCEPT_ALIVE = 1.05
"""Acceptance length at or below which a drafter does nothing (public report: exactly 1.00, server healthy)."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What was seen of a fresh server, before any load."""

    alive: bool
    port_owned: bool | None
    """Whether the process we launched, or a descendant, listens on the port; None if the system does not say."""
    served_models: tuple[str, ...]
    server_info: dict[str, object]
    answers: tuple[RequestTrace, ...]
    """The question asked twice, one after the other."""
    crowd: tuple[RequestTrace, ...]
    """Different questions at the largest concurrency, at once."""
    unreached: str | None = None
    """Why the probe could not be finished, if it could not."""
    counted: SpecCounters | None = None
    """Speculation of one more reply, asked whole, where the stream does not count it."""
    door: Endpoint | None = None
    """Through which the load is to go; None for the one that was probed."""


@dataclass(frozen=True, slots=True)
class Check:
    """One yes or no."""

    name: str
    detail: str
    failure: FailureClass | None = None
    """What the trial is ended with; None if the check passed."""

    @property
    def passed(self) -> bool:
        """Whether the trial goes on."""
        return self.failure is None


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """All checks up to the first that failed."""

    checks: tuple[Check, ...]
    lossless: bool | None = None
    """Whether the greedy answer equals the baseline's; None without a baseline to compare with."""
    first_divergence: int | None = None
    """Characters of equal text before the first difference; None if there is none."""
    accept_len: float | None = None
    """Acceptance length over the probe's requests."""

    @property
    def failed(self) -> Check | None:
        """The check that ended the trial."""
        return next((check for check in self.checks if not check.passed), None)

    @property
    def answered(self) -> bool:
        """Whether the server passed every check."""
        return bool(self.checks) and self.failed is None


def judge(
    gate: GateSpec,
    asked: EngineConfig,
    effective: EffectiveConfig,
    different: Sequence[Difference],
    probe: Probe,
    *,
    nonce: str,
    max_concurrency: int,
    reference: str | None,
) -> GateVerdict:
    """Judge a server, in the order of the gate.

    Args:
        gate: the spec's gate.
        asked: the canonical configuration of the trial.
        effective: what the server resolved.
        different: the knobs on which the two differ.
        probe: what was seen.
        nonce: the name that only this trial's server may answer to.
        max_concurrency: requests in flight that the matrix needs.
        reference: the baseline's greedy answer to the same question, if it is known.

    Returns:
        The checks up to the first failure.
    """
    text = _full_text(probe.answers[0]) if probe.answers else ""
    divergence = _divergence(text, reference) if reference is not None and probe.answers else None
    lossless = None if reference is None else divergence is None
    accept_len = accept_length((*probe.answers, *probe.crowd))
    if accept_len is None and probe.counted is not None and probe.answers:
        accept_len = accept_length((replace(probe.answers[0], spec=probe.counted),))
    checks: list[Check] = []
    for check in (
        _identity(probe, nonce),
        _effective(different, gate),
        _capacity(effective, max_concurrency, gate),
        _completion(gate, probe),
        _crowd(probe, max_concurrency),
        _speculation(asked, probe, accept_len),
        _lossless(gate, lossless, divergence),
    ):
        checks.append(check)
        if not check.passed:
            break
    return GateVerdict(tuple(checks), lossless, divergence, accept_len)


def _identity(probe: Probe, nonce: str) -> Check:
    name = "identity"
    if not probe.alive:
        return Check(name, "the launched process has ended", FailureClass.CRASH_REQUEST)
    if probe.port_owned is False:
        return Check(name, "another process listens on the trial's port", FailureClass.PORT_CONFLICT)
    if nonce not in probe.served_models:
        return Check(name, f"the server must serve {nonce}, but got {list(probe.served_models)}", FailureClass.IDENTITY)
    return Check(name, nonce)


def _effective(different: Sequence[Difference], gate: GateSpec) -> Check:
    refused = [str(one) for one in different if one.knob not in gate.allow]
    if refused:
        return Check("effective", "; ".join(refused), FailureClass.SILENT_OVERRIDE)
    return Check("effective", "; ".join(map(str, different)) or "as asked")


def _capacity(effective: EffectiveConfig, needed: int, gate: GateSpec) -> Check:
    cap, graphed = effective.max_running_requests, effective.graph_batch
    if cap is None or cap < needed:
        detail = f"the server must run {needed} requests at once, but got max_running_requests {cap}"
        return Check("capacity", detail, FailureClass.SILENT_OVERRIDE)
    if graphed is not None and graphed < needed and "graph_batch" not in gate.allow:
        detail = (
            f"the server must decode {needed} requests in a CUDA graph, but got graphs up to a batch of {graphed}; "
            "gate.allow: [graph_batch] takes it as it is"
        )
        return Check("capacity", detail, FailureClass.SILENT_OVERRIDE)
    return Check("capacity", f"{cap} running requests")


def _completion(gate: GateSpec, probe: Probe) -> Check:
    name = "completion"
    if len(probe.answers) < 2:
        return Check(name, probe.unreached or "no answer came", FailureClass.NO_GENERATION)
    for answer in probe.answers:
        if not answer.ok:
            detail = f"a completion must succeed, but got {answer.error}: {answer.error_detail}"
            return Check(name, detail, FailureClass.NO_GENERATION)
        if (kind := degeneration(_full_text(answer))) is not None:
            return Check(
                name, f"the answer must be text, but got {kind}: {_excerpt(answer)}", FailureClass.DEGENERATE_OUTPUT
            )
        if not re.search(gate.expect, answer.text):
            detail = f"the answer must match {gate.expect!r}, but got {_excerpt(answer)}"
            return Check(name, detail, FailureClass.NO_GENERATION)
    cached, prompt = probe.answers[-1].cached_tokens, probe.answers[-1].prompt_tokens
    again = "" if cached is None or prompt is None else f", {cached} of {prompt} prompt tokens from the cache at last"
    return Check(name, f"{len(probe.answers)} right answers{again}")


def _crowd(probe: Probe, needed: int) -> Check:
    failed = [trace for trace in probe.crowd if not trace.ok]
    if failed or len(probe.crowd) < needed:
        seen = f"{failed[0].error}: {failed[0].error_detail}" if failed else probe.unreached or "no reply"
        detail = f"{needed} requests at once must all succeed, but got {len(failed)} failures, the first {seen}"
        return Check("crowd", detail, FailureClass.NO_GENERATION)
    return Check("crowd", f"{len(probe.crowd)} at once")


def _speculation(asked: EngineConfig, probe: Probe, accept_len: float | None) -> Check:
    name = "speculation"
    counters = [*(trace.spec for trace in (*probe.answers, *probe.crowd)), probe.counted]
    steps = sum(one.verify_steps for one in counters if one)
    if asked.algorithm is Algorithm.NONE:
        if steps:
            return Check(name, f"speculation must be off, but got {steps} verify steps", FailureClass.SPEC_INERT)
        return Check(name, "off")
    if not steps or accept_len is None or accept_len <= ACCEPT_ALIVE:
        detail = f"acceptance length must be above {ACCEPT_ALIVE}, but got {accept_len} over {steps} verify steps"
        return Check(name, detail, FailureClass.SPEC_INERT)
    return Check(name, f"acceptance length {accept_len:.2f} over {steps} steps")


def _lossless(gate: GateSpec, lossless: bool | None, divergence: int | None) -> Check:
    if lossless is False:
        detail = f"greedy text leaves the baseline's after {divergence} characters"
        return Check("lossless", detail, FailureClass.LOSSY if gate.lossless == "fatal" else None)
    return Check("lossless", "equal to the baseline" if lossless else "no baseline to compare with")


def _full_text(trace: RequestTrace) -> str:
    return trace.reasoning + trace.text


def _divergence(text: str, reference: str) -> int | None:
    if text == reference:
        return None
    pairs = enumerate(zip(text, reference, strict=False))
    return next((at for at, (ours, theirs) in pairs if ours != theirs), min(len(text), len(reference)))


def _excerpt(trace: RequestTrace, limit: int = 160) -> str:
    text = trace.text or trace.reasoning
    return repr(text if len(text) <= limit else f"…{text[-limit:]}")
