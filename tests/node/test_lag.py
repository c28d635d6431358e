"""What holds up an event loop is seen in full, on every loop that a load process may run on."""

import asyncio
import itertools
import threading
import time

import pytest

from ddtree_tune.node import loops
from ddtree_tune.node.lag import PERIOD_NS, LagProbe

on_every_loop = pytest.mark.parametrize("run", [asyncio.run, loops.run])


def hold_the_loop():
    time.sleep(0.1)  # the interpreter is free meanwhile, the loop is not


def hold_the_interpreter():
    sum(range(5_000_000))  # one call, which lets no other thread in


@on_every_loop
@pytest.mark.parametrize("hold", [hold_the_loop, hold_the_interpreter])
def test_a_hold_makes_every_probe_in_it_late_until_its_end(run, hold):
    async def once():
        async with LagProbe() as probe:
            await asyncio.sleep(0.05)
            start = time.perf_counter_ns()
            hold()
            end = time.perf_counter_ns()
            await asyncio.sleep(0.05)
            return start, end, probe.samples(start, end)

    start, end, late_ns = run(once())
    assert len(late_ns) >= 2
    assert abs(len(late_ns) - (end - start) / PERIOD_NS) < 1
    to_the_end = [end - start - PERIOD_NS * (number + 1) for number in range(len(late_ns))]
    assert all(late >= least for late, least in zip(late_ns, to_the_end, strict=True))


@on_every_loop
def test_a_probe_without_an_answer_counts_with_its_age(run):
    async def once():
        async with LagProbe() as probe:
            await asyncio.sleep(0.03)
            start = time.perf_counter_ns()
            hold_the_loop()
            return probe.samples(start, time.perf_counter_ns())

    late_ns = run(once())
    assert len(late_ns) >= 9
    assert {early - late for early, late in itertools.pairwise(late_ns)} == {PERIOD_NS}
    assert 0 <= late_ns[-1] <= PERIOD_NS


@on_every_loop
def test_intervals_share_no_probe_and_lose_none(run):
    async def once():
        begin = time.perf_counter_ns()
        async with LagProbe() as probe:
            await asyncio.sleep(0.1)
            middle = time.perf_counter_ns()
            await asyncio.sleep(0.05)
            end = time.perf_counter_ns()
            await asyncio.sleep(0.03)
            parts = probe.samples(begin, middle), probe.samples(middle, end)
            return begin, end, parts, probe.samples(begin, end), probe.samples(begin - 10**9, begin)

    begin, end, parts, whole, before = run(once())
    assert parts[0] + parts[1] == whole
    assert parts[0]
    assert parts[1]
    assert len(whole) <= (end - begin) / PERIOD_NS
    assert before == ()


@on_every_loop
def test_a_closed_probe_keeps_its_samples_and_leaves_no_thread(run):
    async def once():
        async with LagProbe() as probe:
            await asyncio.sleep(0.05)
        closed = time.perf_counter_ns()
        first = probe.samples(0, closed)
        await asyncio.sleep(0.05)
        return first, probe.samples(0, time.perf_counter_ns())

    first, later = run(once())
    assert first
    assert later == first
    assert not [thread for thread in threading.enumerate() if thread.name == "lag-probe"]


def test_a_loop_is_the_fastest_that_is_installed():
    uvloop = pytest.importorskip("uvloop")

    async def kind():
        return type(asyncio.get_running_loop())

    assert loops.run(kind()) is uvloop.Loop


def test_a_run_gives_the_result_or_raises_the_error():
    async def fail():
        raise KeyError("why")

    assert loops.run(asyncio.sleep(0, "result")) == "result"
    with pytest.raises(KeyError, match="why"):
        loops.run(fail())


def test_a_result_is_not_written_out_as_text():
    class Result:
        def __repr__(self):
            raise AssertionError("costs a tenth of a second for a cell")

    assert isinstance(loops.run(asyncio.sleep(0, Result())), Result)
