"""An engine of known truth for tests of models: what it takes for a prompt and a step, as cells of a trial."""

from dataclasses import replace

from ddtree_tune.core.metrics import Summary
from ddtree_tune.core.record import CellResult
from tests.builders import cell, proposal, record, spec

PREFILL_S = {60: 0.01, 512: 0.08}
OUTPUT_TOKENS = 64
SHAPES = ((60, 1), (60, 8), (512, 1), (512, 8))


def step_of(width, users):
    """Seconds of a verify step: a jump behind eight tokens of one sequence, and more with more users."""
    return (0.005 if width <= 8 else 0.009) * (1 + 0.1 * users) + 0.0001 * width


def measured_cell(context, users, width, accept_len, step_s=None):
    """A cell as it would be measured: a request lives for the prompts of all users and its own steps."""
    step_s = step_of(width, users) if step_s is None else step_s
    alive_s = users * PREFILL_S[context] + OUTPUT_TOKENS / accept_len * step_s
    summary = Summary(9, alive_s, alive_s, None, None)
    ttft_s = PREFILL_S[context] * (1 if users == 1 else 2)
    return replace(
        cell(context, users, users * OUTPUT_TOKENS / alive_s, accept_len=accept_len if width > 1 else None),
        e2e_s=summary,
        ttft_s=replace(summary, mean=ttft_s),
        in_flight_mean=float(users),
    )


def trial(number, config, width, accept_len, *, factor=1.0, **changes):
    """A trial over all shapes, of an engine with blocks of 16.

    Args:
        number: of the trial.
        config: what was asked.
        width: of its verify steps.
        accept_len: by context.
        factor: of its step times, for noise.
        changes: of the record.
    """
    cells = tuple(
        CellResult(measured_cell(*shape, width, accept_len(shape[0]), factor * step_of(width, shape[1])), ())
        for shape in SHAPES
    )
    return record(spec(), proposal(number, config, coding=False), cells=cells, **changes)
