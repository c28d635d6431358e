"""Real records with known numbers, made by hand: what a trial would leave, without running one."""

import math
from dataclasses import fields, replace

from ddtree_tune.core.coding import Attempt, Outcome, Reply, pass_rate
from ddtree_tune.core.dialects import BuiltinDialect
from ddtree_tune.core.engine import Algorithm, EffectiveConfig, EngineConfig, LaunchPlan
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.gate import Check, GateVerdict
from ddtree_tune.core.metrics import CellMetrics, FamilyMetrics, Summary
from ddtree_tune.core.record import (
    CellResult,
    Failure,
    Fingerprint,
    Origin,
    Proposal,
    Span,
    TrialRecord,
    TrialStatus,
)
from ddtree_tune.core.spec import SweepSpec
from ddtree_tune.core.stats import Interval
from ddtree_tune.core.trace import CellRun, Phase, RequestError, RequestTrace, SpecCounters, Window
from ddtree_tune.core.workload import Cell, ClosedLoop

NONE = EngineConfig(Algorithm.NONE)
CHAIN = EngineConfig(Algorithm.CHAIN)
DIALECT = BuiltinDialect()


def tree(budget, topk=4, window=None):
    return EngineConfig(Algorithm.TREE, budget, topk, window)


SPEC = """
name: small
space: {budget: [4, 8, 16, 32], topk: [1, 2, 4], window: [64, none]}
seeds:
  - {budget: 8, topk: 4, window: 64}
  - {budget: 16, topk: 6, window: none}
load: {contexts: [60, 512], concurrency: [1, 8]}
search: {trials: 8, final: {settings: 2, rounds: 2}}
"""


def spec(text=SPEC, **search):
    read = SweepSpec.parse(text, "test")
    return read.model_copy(update={"search": read.search.model_copy(update=search)})


def cell(context, concurrency, tps, *, flags=(), accept_len=None, ci95=None):
    """One cell's metrics; ``tps`` None is a cell without a measured window."""
    blank = Summary(0, None, None, None, None)
    known = {
        "cell_id": Cell(context, 128, ClosedLoop(concurrency), 30.0).cell_id,
        "context": context,
        "concurrency": concurrency,
        "repeats": 1,
        "window_s": 30.0,
        "output_tps": tps,
        "output_tps_ci95": ci95 or (Interval(tps * 0.98, tps * 1.02) if tps else None),
        "ci_basis": "sub_windows" if tps else None,
        "output_tps_repeats": (tps,) if tps else (),
        "user_tps": tps / concurrency if tps else None,
        "ttft_s": Summary(40, 0.11, 0.1, 0.2, None),
        "icl_s": Summary(400, 0.02, 0.019, 0.03, 0.04),
        "itl_s": Summary(1000, 0.005, 0.004, 0.01, 0.02),
        "tpot_s": Summary(40, 0.006, 0.006, 0.007, None),
        "e2e_s": blank,
        "accept_len": accept_len,
        "cached_share": 0.0,
        "in_flight_mean": float(concurrency),
        "requests_sent": 40,
        "requests_ok": 40,
        "requests_failed": 1,
        "errors": (("closed", 1),),
        "output_tokens": 5120,
        "prompt_tokens_mean": float(context),
        "client_lag_p99_s": 0.0004,
        "families": (FamilyMetrics("code", 40, 5120, tps / concurrency if tps else None, accept_len),),
        "flags": tuple(flags),
        "reasons": (),
    }
    return CellMetrics(**{one.name: known.get(one.name) for one in fields(CellMetrics)})


def matrix(sweep, tps, proposal=None, **changes):
    """The matrix as far as a proposal measures it; ``tps`` is one number, or one by (context, concurrency)."""
    shapes = [(one.context, one.concurrency) for one in sweep.load.cells() if not proposal or proposal.measures(one)]
    value = tps if callable(tps) else lambda *_: tps
    return tuple(CellResult(cell(*shape, value(*shape), **changes), ()) for shape in shapes)


def attempts(passed, total=20, *, truncated=0):
    """Problems p0, p1, …: the first ones passed, the last ones truncated."""
    outcomes = [Outcome.PASS] * passed + [Outcome.WRONG_ANSWER] * (total - passed - truncated)
    outcomes += [Outcome.TRUNCATED] * truncated
    reply = Reply("```python\npass\n```", "thought", "stop")
    return tuple(
        Attempt(f"p{i}", "sum", outcome, "because", "pass", reply, 40, 0.01, 1024, "strict")
        for i, outcome in enumerate(outcomes)
    )


FINGERPRINT = Fingerprint(
    hostname="node-a",
    machine="2 x cpu",
    memory_gib=24.0,
    gpus=("H200",),
    driver="570.1",
    os="Linux",
    python="3.11.7",
    packages=(("ddtree-tune", "0.1.0"), ("numpy", "2.4.6")),
    git_commit="0123abc",
    git_dirty=False,
    load_average=0.5,
)


def plan(trial_id, port=40123):
    name = f"trial-{trial_id}-nonce"
    argv = ("python", "-m", "ddtree_tune.builtin", "--budget", "8", "--host", "127.0.0.1", "--port", str(port))
    return LaunchPlan((*argv, "--served-model-name", name), (("A", "b c"),), "127.0.0.1", port, name)


def record(sweep, proposal, tps=100.0, **changes):
    """A complete trial; give ``failure`` for one that is not."""
    failure = changes.pop("failure", None)
    problems = changes.pop("attempts", attempts(18) if proposal.coding else ())
    known = TrialRecord(
        sweep=sweep.name,
        proposal=proposal,
        status=TrialStatus.COMPLETE,
        started_utc="2026-08-01T12:00:00+00:00",
        node="node-a",
        spans=(Span("launch", 2.5), Span("load", 20.0)),
        plan=plan(proposal.trial_id),
        effective=EffectiveConfig(
            proposal.config.algorithm,
            proposal.config.budget,
            proposal.config.topk,
            proposal.config.window,
            16,
            8,
            f"trial-{proposal.trial_id}-nonce",
            "0.1.0",
        ),
        gate=GateVerdict((Check("identity", "fine"),), lossless=True, accept_len=2.5),
        answer="thought```python\ndef clamp(): ...\n```",
        cells=matrix(sweep, tps, proposal),
        attempts=problems,
        pass_rate=pass_rate(problems) if problems else None,
        fingerprint=FINGERPRINT,
        log="ready\n",
    )
    if failure is not None:
        rejected = failure in {FailureClass.SILENT_OVERRIDE, FailureClass.SPEC_INERT}
        known = replace(
            known,
            status=TrialStatus.REJECTED if rejected else TrialStatus.FAILED,
            cells=(),
            attempts=(),
            pass_rate=None,
            answer=None,
            failure=Failure(failure, "launch", "it did not work", "Traceback\nCUDA out of memory"),
        )
    return replace(known, **changes)


def proposal(n, config, origin=Origin.SEARCH, turn=0, coding=True):
    final = origin is Origin.FINAL
    name = f"{n:04d}-{config.config_id}" + (f"-r{turn + 1}" if final else "")
    return Proposal(name, config, origin, coding and not final, turn)


def surface(config, context=60, concurrency=1):
    """Tokens per second of a setting: made up, smooth, with its optimum near budget 16, topk 4, window 64."""
    if config.algorithm is Algorithm.NONE:
        return 100.0
    if config.algorithm is Algorithm.CHAIN:
        return 130.0
    away = (math.log2(config.budget) - 4) ** 2 + 0.5 * (math.log2(config.topk) - 2) ** 2
    window = 0.0 if config.window == 64 else 0.3
    return 180.0 * math.exp(-0.08 * (away + window))


def trace(i, *, phase=Phase.WINDOW, error=None):
    """One request, sent at second i."""
    start = i * 1_000_000_000
    return RequestTrace(
        request_id=f"r{i}",
        phase=phase,
        prompt_sha=f"{i:016x}",
        prompt_family="code",
        sent_ns=start,
        first_byte_ns=start + 100 if error is None else None,
        chunk_ns=(start + 200, start + 700) if error is None else (),
        chunk_tokens=(3, 8) if error is None else None,
        end_ns=start + 900,
        prompt_tokens=60 if error is None else None,
        cached_tokens=None,
        completion_tokens=8 if error is None else None,
        finish_reason="length" if error is None else None,
        spec=SpecCounters(3, (1, 0, 2)) if error is None else None,
        text="määh",
        reasoning="",
        error=error,
        error_detail="refused" if error else None,
        error_at_chunk=None,
        status_code=200 if error is None else None,
    )


def run(context=60, concurrency=1, repeat=0):
    """One repeat of one cell with four requests, one of them refused."""
    shape = Cell(context, 128, ClosedLoop(concurrency), 30.0)
    traces = (trace(0, phase=Phase.WARMUP), trace(1), trace(2), trace(3, error=RequestError.CONNECT))
    return CellRun(shape, repeat, Window(1_000_000_000, 3_000_000_000), traces, (1000, 2000), "2026-08-01T12:00:00Z")
