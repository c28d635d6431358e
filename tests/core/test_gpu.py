"""What GPUs did in a window, from samples with known truth."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddtree_tune.core.cell_table import cell_lines
from ddtree_tune.core.flags import CellFlag
from ddtree_tune.core.gpu import NOT_METERED, NOT_REPORTED, GpuSample, Throttle, use_of
from ddtree_tune.core.metrics import measure
from tests.core.test_metrics import run, trace

S = 1_000_000_000
PERIOD = S // 5


def sample(at_ns, watts=400.0, gpu=0, since_ns=0, **changes):
    """A GPU that has drawn the same power since ``since_ns``."""
    energy_mj = round(watts * (at_ns - since_ns) / 1e6)
    return replace(GpuSample(gpu, at_ns, energy_mj, watts, 2048.0, 1700, 60, (), ()), **changes)


def ticks(until_s=10.0, watts=400.0, gpus=1, **changes):
    """Five ticks a second from 0 on; each GPU is read a millisecond after the one before."""
    count = int(until_s * 5) + 1
    return [
        tuple(sample(n * PERIOD + gpu * S // 1000, watts, gpu, **changes) for gpu in range(gpus)) for n in range(count)
    ]


@pytest.mark.parametrize(("start", "end"), [(1.0, 9.0), (1.03, 8.91), (0.21, 0.77)])
@pytest.mark.parametrize("watts", [75.0, 700.0])
@pytest.mark.parametrize("basis", ["counter", "power"])
def test_constant_power_gives_power_times_time(start, end, watts, basis):
    kept = {} if basis == "counter" else {"energy_mj": None}
    use = use_of(ticks(watts=watts, gpus=2, **kept), int(start * S), int(end * S))
    assert use.energy_basis == basis
    assert use.energy_j == pytest.approx(2 * watts * (end - start))
    assert use.power_w == pytest.approx(2 * watts)
    assert (use.gpus, use.memory_used_gib) == (2, 4.0)
    assert (use.sm_clock_mhz, use.sm_clock_min_mhz, use.temperature_c) == (1700, 1700, 60)
    assert (use.throttled_share, use.power_capped_share, use.reasons) == (0, 0, ())
    assert use.samples == pytest.approx((end - start) * 5, abs=1)


def test_a_ramp_of_power_is_integrated_to_the_windows_ends():
    ramp = [(sample(n * PERIOD, energy_mj=None, power_w=100.0 * n / 5),) for n in range(51)]  # 100 W more a second
    use = use_of(ramp, int(1.1 * S), int(8.3 * S))
    assert use.energy_j == pytest.approx(50 * (8.3**2 - 1.1**2))


def test_the_counter_sees_what_power_samples_miss():
    spike = [(replace(tick[0], energy_mj=tick[0].energy_mj + 90_000 * (n > 25)),) for n, tick in enumerate(ticks())]
    assert use_of(spike, 2 * S, 8 * S).energy_j == pytest.approx(400 * 6 + 90)


def test_energy_before_and_after_the_window_is_not_counted():
    spent_j = [(100 * min(n, 25) + 600 * max(0, n - 25)) / 5 for n in range(51)]
    stepped = [(sample(n * PERIOD, energy_mj=round(1e3 * joules)),) for n, joules in enumerate(spent_j)]
    assert use_of(stepped, 1 * S, 4 * S).energy_j == pytest.approx(100 * 3)
    assert use_of(stepped, 6 * S, 9 * S).energy_j == pytest.approx(600 * 3)
    assert use_of(stepped, 4 * S, 6 * S).energy_j == pytest.approx(700)


def test_a_counter_that_was_set_back_is_not_believed():
    reset = [(replace(tick[0], energy_mj=tick[0].energy_mj % 1_500_000),) for tick in ticks()]
    use = use_of(reset, 1 * S, 9 * S)
    assert (use.energy_basis, use.energy_j) == ("power", pytest.approx(3200))


def test_a_window_of_under_two_ticks_has_no_energy():
    use = use_of(ticks(), 1 * S + PERIOD // 2, 1 * S + PERIOD * 3 // 2)
    assert use.samples == 1
    assert (use.energy_j, use.energy_basis, use.power_w) == (None, None, None)
    assert use.memory_used_gib == 2.0
    between = use_of(ticks(), S + 1, S + PERIOD // 2)
    assert (between.samples, between.memory_used_gib, between.throttled_share) == (0, None, None)


@pytest.mark.parametrize(
    ("start", "end"),
    [(-1, 2), (1, 11), (12, 13), (3, 3), (5, 4)],
    ids=["before", "after", "outside", "empty", "turned"],
)
def test_a_window_that_the_ticks_do_not_cover_has_nothing(start, end):
    assert use_of(ticks(), start * S, end * S) is None
    assert use_of([], start * S, end * S) is None


def test_a_silence_inside_the_window_leaves_nothing():
    silent = [tick for tick in ticks() if not 4 * S < tick[0].at_ns < int(6.3 * S)]
    assert use_of(silent, 1 * S, 9 * S) is None
    assert use_of(silent, 7 * S, 9 * S).energy_j == pytest.approx(800)
    lost = [tick if tick[0].at_ns < 5 * S else tick[:1] for tick in ticks(gpus=2)]
    assert use_of(lost, 1 * S, 9 * S) is None


def test_what_one_gpu_does_not_say_is_not_summed_over_the_others():
    mute = [(*tick[:1], replace(tick[1], energy_mj=None, power_w=None, reasons=None)) for tick in ticks(gpus=2)]
    use = use_of(mute, 1 * S, 9 * S)
    assert (use.energy_j, use.power_w, use.throttled_share, use.power_capped_share) == (None, None, None, None)
    assert use.memory_used_gib == 4.0


def test_any_gpu_that_is_held_back_counts_and_the_power_limit_counts_apart():
    hot = (Throttle.SW_THERMAL, Throttle.POWER_CAP)
    held = [
        (tick[0], replace(tick[1], reasons=hot, sm_clock_mhz=900, temperature_c=88)) if 10 <= n < 20 else tick
        for n, tick in enumerate(ticks(gpus=2))
    ]
    use = use_of(held, 1 * S, 9 * S)
    assert (use.throttled_share, use.power_capped_share) == (0.25, 0.25)
    assert use.reasons == (Throttle.POWER_CAP, Throttle.SW_THERMAL)
    assert (use.sm_clock_min_mhz, use.temperature_c) == (900, 88)
    assert use.sm_clock_mhz == pytest.approx(1700 - 800 / 8)
    capped = [(replace(tick[0], reasons=(Throttle.POWER_CAP,)),) for tick in ticks()]
    assert (use_of(capped, S, 9 * S).throttled_share, use_of(capped, S, 9 * S).power_capped_share) == (0, 1)


@given(st.lists(st.floats(0, 1000), min_size=12, max_size=40), st.integers(S // 2, S), st.integers(S // 2, S))
def test_parts_of_a_window_sum_to_the_whole(powers, first, second):
    line = [(sample(n * PERIOD, energy_mj=None, power_w=watts),) for n, watts in enumerate(powers)]
    start, middle, end = S // 10, S // 10 + first, S // 10 + first + second
    parts = use_of(line, start, middle).energy_j, use_of(line, middle, end).energy_j
    assert sum(parts) == pytest.approx(use_of(line, start, end).energy_j)


def metered(watts=400.0, **changes):
    """A repeat of 1.5 s with 256 tokens, and what its GPU did."""
    one = run(trace())
    return replace(one, gpu=use_of([*ticks(watts=watts)], 2 * S, int(3.5 * S)), **changes)


def test_joules_per_token_pools_the_repeats():
    metrics = measure([metered(300.0), metered(500.0)])
    assert metrics.output_tokens == 512
    assert metrics.joules_per_token == pytest.approx(1.5 * 800 / 512)
    assert metrics.power_w == pytest.approx(400)
    assert (metrics.gpu_memory_gib, metrics.sm_clock_mhz, metrics.temperature_c) == (2.0, 1700, 60)
    assert not {"joules_per_token", "power_w", "temperature_c"} & dict(metrics.reasons).keys()


def test_a_repeat_that_was_not_metered_counts_neither_as_energy_nor_as_tokens():
    metrics = measure([metered(300.0), run(trace())])
    assert metrics.joules_per_token == pytest.approx(1.5 * 300 / 256)
    assert metrics.power_w == pytest.approx(300)


def test_without_counted_tokens_there_is_power_and_no_energy_per_token():
    uncounted = measure([metered(traces=(trace(completion_tokens=None, chunk_tokens=None),))])
    assert uncounted.power_w == pytest.approx(400)
    assert uncounted.joules_per_token is None
    assert "count the tokens" in dict(uncounted.reasons)["joules_per_token"]


def test_missing_gpu_numbers_say_why():
    names = ("joules_per_token", "power_w", "gpu_memory_gib", "sm_clock_mhz", "temperature_c")
    for one, why in (
        (run(trace()), NOT_METERED),
        (run(trace(), gpu_missing="no driver"), "no driver"),
        (run(trace(), gpu=replace(metered().gpu, energy_j=None)), NOT_REPORTED),
        (run(window=None), "the slots were never all busy"),
    ):
        metrics = measure([one])
        absent = [name for name in names if getattr(metrics, name) is None]
        assert "joules_per_token" in absent
        assert {dict(metrics.reasons)[name] for name in absent} == {why}


def test_heat_takes_a_cell_out_of_the_score_and_the_power_limit_does_not():
    gpu = metered().gpu
    hot, warm = replace(gpu, throttled_share=0.11), replace(gpu, throttled_share=0.09, power_capped_share=1.0)
    sound = measure([run(trace(), gpu=warm), run(trace())])
    assert CellFlag.THROTTLED not in sound.flags
    throttled = measure([run(trace(), gpu=warm), run(trace(), gpu=hot)])
    assert CellFlag.THROTTLED in throttled.flags
    assert not throttled.scored
    assert CellFlag.THROTTLED not in measure([run(trace(), gpu=replace(gpu, throttled_share=None))]).flags


def test_the_table_speaks_of_gpus_only_where_there_are_any():
    bare = "\n".join(cell_lines([measure([run(trace())])]))
    assert "GPU" not in bare
    assert "joules" not in bare
    words = cell_lines([measure([metered()])])
    row = words[words.index("GPUs of the node, all together") + 2].split()
    assert row == ["i1000", "c1", "2.344", "400", "2.0", "1700", "60"]
