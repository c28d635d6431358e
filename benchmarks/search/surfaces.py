"""Surfaces with a known best, and what a trial on them leaves: a formula plus noise, nothing served.

``pair`` is a small target and drafter measured on a CPU: acceptance by budget, topk, window and
context, over a step that costs ``a + b * budget`` at batch 1, 4 and 8. ``machines`` change what is
particular to it: the price of a node, where the window is best, what a wider topk does. ``cliffs``
add what real engines have: a verify width beyond which every step costs more, large trees with many
candidates that do not start, and nodes that cost so much more in a full batch that the best budget
of one user is not the best of eight.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from ddtree_tune.core.engine import Algorithm, EffectiveConfig, EngineConfig
from ddtree_tune.core.errors import FailureClass
from ddtree_tune.core.foresight import Replayed
from ddtree_tune.core.metrics import CellMetrics, Summary
from ddtree_tune.core.prior import Acceptances
from ddtree_tune.core.record import CellResult, Failure, Proposal, Span, TrialRecord, TrialStatus
from ddtree_tune.core.rungs import behind
from ddtree_tune.core.stats import Interval
from ddtree_tune.core.step_time import Estimate
from ddtree_tune.core.workload import Cell, ClosedLoop

if TYPE_CHECKING:
    from ddtree_tune.core.spec import SweepSpec

CELL_NOISE = 0.04
"""Deviation of one cell's log speed."""
DRIFT = 0.018
"""Deviation of a whole trial's: together 0.025 of the score over six cells."""
CONTEXTS = (60, 512)
OCTAVES = (2.0, 3.0, 4.0, 5.0, 6.0)
"""Budgets 4 to 64, where acceptance was measured."""
BY_TOPK = {
    1: (2.83, 3.24, 3.33, 3.33, 3.33),
    2: (3.01, 3.66, 4.09, 4.40, 4.65),
    4: (3.02, 3.72, 4.22, 4.71, 5.10),
    8: (3.02, 3.76, 4.30, 4.80, 5.30),
}
"""Acceptance at short context with all of it in the window."""
BY_WINDOW = {
    60: {
        None: (3.02, 3.72, 4.22, 4.71, 5.10),
        64: (2.95, 3.61, 4.09, 4.54, 4.90),
        256: (3.02, 3.72, 4.22, 4.71, 5.10),
    },
    512: {
        None: (2.35, 2.75, 3.05, 3.28, 3.51),
        64: (2.36, 2.75, 3.15, 3.42, 3.66),
        256: (2.49, 3.03, 3.39, 3.74, 4.02),
    },
}
"""Acceptance at topk 4 by context and window."""
STEP_MS = {1: (4.95, 0.056, 2.31), 4: (8.5, 0.33, 4.22), 8: (17.0, 0.9, 6.36)}
"""Batch: milliseconds of a step without nodes, of each node, and of a step without speculation."""
SHAPES = tuple((context, users) for context in CONTEXTS for users in STEP_MS)
FIRST = ((60, 1), (60, 8))
"""Cells that come first where there are rungs."""
START_S = 360.0
"""From launch to the first cell."""
CELL_S = 60.0
WINDOW_S = 30.0
_CHAIN_DEPTH = 7


@dataclass(frozen=True)
class Machine:
    """One surface."""

    node_price: float = 1.0
    """Factor on what each node costs."""
    window_best: float | None = None
    """Octave of the best window; None is the pair's own table."""
    window_bend: float = 0.0
    """Log speed lost per squared octave away from it."""
    topk_best: float = 0.0
    topk_bend: float = 0.0
    crowded: float = 1.0
    """Further factor on a node's cost in the fullest batch."""
    cliff: int = 10**6
    """Verify width from which a step costs more."""
    cliff_factor: float = 1.0
    fails_from: int = 10**6
    """Budget times topk that does not start."""

    @classmethod
    def drawn(cls, family: str, seed: int) -> Machine:
        """A surface of a family; ``pair`` has only one."""
        if family == "pair":
            return cls()
        rng = np.random.default_rng([seed, 0])
        common = (
            float(np.exp(rng.uniform(math.log(0.15), math.log(4.0)))),
            float(rng.uniform(6, 9)),
            float(rng.uniform(0, 0.04)),
            float(rng.uniform(0, 4)),
            float(rng.uniform(0, 0.03)),
        )
        if family == "machines":
            return cls(*common)
        crowded, cliff, factor = rng.uniform(1, 4), rng.choice([9, 13, 17, 25]), rng.uniform(1.05, 1.4)
        return cls(*common, float(crowded), int(cliff), float(factor), int(rng.choice([64, 96, 128])))

    def fails(self, config: EngineConfig) -> bool:
        """Whether the engine does not start."""
        return (config.budget or 0) * (config.topk or 0) >= self.fails_from

    def accept_len(self, config: EngineConfig, context: int) -> float:
        """Tokens of a verify step."""
        return _accept_len(self, config, context)

    def step_s(self, config: EngineConfig, users: int) -> float:
        """Time of a verify step."""
        fixed, node, plain = STEP_MS[users]
        if config.algorithm is Algorithm.NONE:
            return plain / 1e3
        budget = config.budget or _CHAIN_DEPTH
        price = node * self.node_price * (self.crowded if users == max(STEP_MS) else 1.0)
        return (fixed + price * budget) * (self.cliff_factor if budget + 1 >= self.cliff else 1.0) / 1e3

    def log_score(self, config: EngineConfig) -> float:
        """Logarithm of the true speed-up over no speculation; nothing where the engine does not start."""
        if self.fails(config):
            return -math.inf
        none = EngineConfig(Algorithm.NONE)
        logs = [
            math.log(self.accept_len(config, context) * self.step_s(none, users) / self.step_s(config, users))
            for context, users in SHAPES
        ]
        return float(np.mean(logs))


@functools.cache
def _accept_len(machine: Machine, config: EngineConfig, context: int) -> float:
    if config.algorithm is Algorithm.NONE:
        return 1.0
    budget, topk = math.log2(config.budget or _CHAIN_DEPTH), math.log2(config.topk or 1)
    by_topk = [_curve(BY_TOPK[k], budget) for k in BY_TOPK]
    log = float(np.interp(topk, [math.log2(k) for k in BY_TOPK], by_topk))
    log -= machine.topk_bend * (topk - machine.topk_best) ** 2
    if machine.window_best is not None:
        log -= machine.window_bend * (math.log2(config.window or 512) - machine.window_best) ** 2
    window = None if machine.window_best is not None else config.window
    return math.exp(log + _windowed(BY_WINDOW[context], window, budget) - _curve(BY_TOPK[4], budget))


@functools.cache
def _replayed(machine: Machine, seed: int, config: EngineConfig, context: int) -> float:
    """Log acceptance with the error of a finite sample."""
    rng = np.random.default_rng([seed, 2, config.budget or 0, config.topk or 0, context])
    return math.log(machine.accept_len(config, context)) + 0.01 * float(rng.standard_normal())


def measure(machine: Machine, proposal: Proposal, first: int, rng: np.random.Generator) -> TrialRecord:
    """What a trial leaves; stopped where its first cells, as many as ``first``, are behind."""
    config = proposal.config
    budget = config.budget if config.algorithm is Algorithm.TREE else None
    effective = EffectiveConfig(config.algorithm, budget, config.topk, config.window, _CHAIN_DEPTH + 1, 8, "m", "1")
    record = TrialRecord("bench", proposal, TrialStatus.COMPLETE, "", "", (), effective=effective)
    if machine.fails(config):
        failure = Failure(FailureClass.STARTUP_OOM, "launch", "too large", "")
        return replace(record, status=TrialStatus.FAILED, failure=failure)
    drift = DRIFT * rng.standard_normal()
    noises = CELL_NOISE * rng.standard_normal(len(SHAPES))
    sampled = rng.spawn(1)[0].standard_normal(len(SHAPES))
    shapes = sorted(SHAPES, key=lambda shape: shape not in FIRST) if first else SHAPES
    cells = tuple(
        _cell(machine, config, shape, drift + noise, sample)
        for shape, noise, sample in zip(shapes, noises, sampled, strict=True)
    )
    record = replace(record, cells=cells)
    if first and proposal.pace and behind([one.metrics for one in cells[:first]], proposal.pace):
        return replace(record, status=TrialStatus.STOPPED, cells=cells[:first])
    return record


@dataclass(frozen=True)
class Formula:
    """A surface as a sweep meets it: the machine, and what trials on it cost."""

    spec: SweepSpec
    machine: Machine

    def log_score(self, config: EngineConfig) -> float:
        """See ``Machine.log_score``."""
        return self.machine.log_score(config)

    def measure(self, proposal: Proposal, rng: np.random.Generator) -> TrialRecord:
        """A trial with its node time, that of a model that takes minutes to start."""
        first = len(FIRST) if self.spec.load.first else 0
        record = measure(self.machine, proposal, first, rng)
        return replace(record, spans=(Span("launch", START_S), Span("load", CELL_S * len(record.cells))))


def _cell(machine: Machine, config: EngineConfig, shape: tuple[int, int], noise: float, sample: float) -> CellResult:
    """One cell; how many tokens its steps committed is that of a sample of them, geometric ones."""
    context, users = shape
    accept_len, step_s = machine.accept_len(config, context), machine.step_s(config, users)
    tps = users * accept_len / step_s * math.exp(noise)
    steps = WINDOW_S * users / step_s
    seen = accept_len * math.exp(sample * math.sqrt((accept_len - 1) / accept_len / steps))
    blank = Summary(0, None, None, None, None)
    known = {
        "cell_id": Cell(context, 128, ClosedLoop(users), 30.0).cell_id,
        "context": context,
        "concurrency": users,
        "output_tps": tps,
        "output_tps_ci95": Interval(tps * math.exp(-1.96 * CELL_NOISE), tps * math.exp(1.96 * CELL_NOISE)),
        "accept_len": seen if config.algorithm is not Algorithm.NONE else None,
        "output_tokens": round(steps * accept_len),
        "in_flight_mean": float(users),
        "ttft_s": Summary(40, 1e-6, 1e-6, 1e-6, None),
        "e2e_s": Summary(40, 128 * users / tps, None, None, None),
        "flags": (),
        "reasons": (),
        "families": (),
        **dict.fromkeys(("icl_s", "itl_s", "tpot_s"), blank),
    }
    return CellResult(CellMetrics(**{one.name: known.get(one.name) for one in fields(CellMetrics)}), ())


@dataclass
class Replay(Acceptances):
    """What traces tell: acceptance with the error of a finite sample.

    A wrong one says the opposite: where a tree accepts much, it foretells little.
    """

    machine: Machine
    seed: int
    wrong: bool = False

    def width(self, config: EngineConfig) -> int | None:
        """Tokens of one sequence in a verify pass."""
        return None if config.algorithm is Algorithm.NONE else (config.budget or _CHAIN_DEPTH) + 1

    def __call__(self, config: EngineConfig, context: int) -> Estimate | None:
        """Acceptance length at a context."""
        log = _replayed(self.machine, self.seed, config, context)
        return Estimate(2.5 - log if self.wrong else log, 0.01)

    def replayed(self, *windows: int | None) -> Replayed:
        """The traces of some windows as a study takes them."""
        return Replayed(self, dict.fromkeys(windows, 8))


def _curve(values: tuple[float, ...], octave: float) -> float:
    return float(np.interp(octave, OCTAVES, np.log(values)))


def _windowed(table: dict[int | None, tuple[float, ...]], window: int | None, octave: float) -> float:
    if window == 128:  # between the measured ones
        return (_curve(table[64], octave) + _curve(table[256], octave)) / 2
    return _curve(table[window], octave)
