"""Step times: what decoding alone takes, jumps that stay jumps, and doubt that grows with distance."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.step_time import NOISE, StepTimeModel, leave_one_out
from ddtree_tune.core.steps import StepPoint, step_points
from ddtree_tune.node.store import Store

KEPT = Path(__file__).parents[1] / "golden/results"


def points(*pairs, cell_id="c"):
    return [StepPoint(cell_id, width, step_s) for width, step_s in pairs]


def test_a_jump_stays_where_it_was_measured():
    model = StepTimeModel.fit(points((4, 0.005), (8, 0.005), (9, 0.012), (16, 0.012), (32, 0.013)))
    assert math.exp(model("c", 8).log) == pytest.approx(0.005, rel=0.02)
    assert math.exp(model("c", 9).log) == pytest.approx(0.012, rel=0.02)
    assert math.exp(model("c", 6).log) == pytest.approx(0.005, rel=0.02)


def test_doubt_is_the_difference_of_the_neighbours_and_none_where_it_was_measured():
    model = StepTimeModel.fit(points((4, 0.005), (8, 0.010), (9, 0.0101)))
    at, near, middle = (model("c", width).deviation for width in (4, 5, 6))
    assert at == NOISE < near < middle
    assert middle == pytest.approx(math.hypot(math.log(2) / 2, NOISE))
    low, high = (math.log(0.005), math.log(0.010))
    assert model("c", 5).log == pytest.approx(low + (high - low) / 4)


def test_beyond_what_was_measured_anything_from_no_growth_to_full_growth_is_believed():
    model = StepTimeModel.fit(points((8, 0.010), (16, 0.012)))
    near, far = model("c", 32), model("c", 64)
    for estimate, width in ((near, 32), (far, 64)):
        assert math.log(0.012) < estimate.log < math.log(0.012 * width / 16)
    assert near.deviation < far.deviation
    below = model("c", 4)
    assert math.log(0.005) < below.log < math.log(0.010)


def test_few_widths_grow_as_steeply_as_from_the_step_without_speculation():
    few = points((8, 0.010), (16, 0.012))
    flat = StepTimeModel.fit([*few, StepPoint("c", 1, 0.011)])("c", 32)
    steep = StepTimeModel.fit([*few, StepPoint("c", 1, 0.002)])("c", 32)
    unknown = StepTimeModel.fit(few)("c", 32)
    assert math.log(0.012) < flat.log < unknown.log < steep.log
    assert StepTimeModel.fit([*few, StepPoint("c", 1, 0.011)])("c", 8) == StepTimeModel.fit(few)("c", 8)


def test_a_line_is_followed_beyond_the_measured_widths():
    model = StepTimeModel.fit(points(*((width, 0.004 + 0.0002 * width) for width in (5, 9, 13, 17))))
    assert math.exp(model("c", 33).log) == pytest.approx(0.004 + 0.0002 * 33, rel=0.01)
    assert math.exp(model("c", 3).log) == pytest.approx(0.004 + 0.0002 * 3, rel=0.01)


def test_noisy_widths_are_drawn_to_a_line_and_quiet_ones_are_not():
    rng = np.random.default_rng(5)
    widths = (5, 7, 9, 11, 13, 17, 25, 33)
    truth = {width: math.log(0.004 + 0.0002 * width) for width in widths}
    noisy = [StepPoint("c", width, math.exp(truth[width] + rng.normal(0, 0.15))) for width in widths for _ in range(2)]
    model = StepTimeModel.fit(noisy)
    assert 0.08 < model.noise < 0.25
    raw = [np.mean([math.log(p.step_s) for p in noisy if p.width == width]) - truth[width] for width in widths]
    drawn = [model("c", width).log - truth[width] for width in widths]
    assert np.sqrt(np.mean(np.square(drawn))) < 0.7 * np.sqrt(np.mean(np.square(raw)))
    quiet = StepTimeModel.fit(points((5, 0.01), (7, 0.01), (9, 0.02), (11, 0.02), (13, 0.02), (17, 0.03)))
    assert math.exp(quiet("c", 9).log) == pytest.approx(0.02, rel=0.03)


@given(
    st.lists(st.tuples(st.integers(2, 70), st.floats(1e-4, 1.0)), min_size=1, max_size=12),
    st.integers(2, 100),
    st.integers(0, 30),
)
def test_time_never_falls_with_the_width(pairs, width, more):
    model = StepTimeModel.fit(points(*pairs))
    one, other = model("c", width), model("c", width + more)
    assert one.log <= other.log + 1e-9
    assert one.deviation > 0
    assert math.isfinite(one.log)


def test_a_cell_that_was_not_measured_has_no_step_time():
    assert StepTimeModel.fit(points((8, 0.01)))("another", 8) is None
    assert StepTimeModel.fit([])("c", 8) is None


def test_the_kept_sweep_is_foretold_from_its_other_widths_within_what_the_model_claims():
    found = step_points(Store(str(KEPT)).read_records())
    left = leave_one_out(found)
    assert len(left) > 30
    errors = np.asarray([one.measured - one.foretold.log for one in left])
    claimed = np.asarray([one.foretold.deviation for one in left])
    noise = StepTimeModel.fit(found).noise
    assert np.mean(np.abs(errors) < 2 * np.hypot(claimed, noise)) > 0.85
    means = {
        (one.cell_id, one.width): np.mean(
            [math.log(p.step_s) for p in found if p.cell_id == one.cell_id and p.width != one.width]
        )
        for one in left
    }
    from_the_mean = np.asarray([one.measured - means[one.cell_id, one.width] for one in left])
    assert np.square(errors).mean() < 0.7 * np.square(from_the_mean).mean()
