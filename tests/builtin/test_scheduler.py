"""Who runs when, and how replies end; on the real pair, for a pretend one could not decode."""

import pytest

from ddtree_tune.builtin.sampling import Sampling
from ddtree_tune.builtin.scheduler import Finish, Job
from tests.builtin.harness import NONE, finish_all, scheduler_of, tree


def job(name, prompt, max_tokens=20, **options):
    return Job(name, tuple(prompt), Sampling(max_tokens, temperature=0.0, ignore_eos=True, **options))


def test_first_come_first_served(pair, prompts):
    scheduler = scheduler_of(pair, tree(4, 2), slots=2)
    for index in range(5):
        scheduler.submit(job(str(index), prompts[0]))
    assert (scheduler.running, scheduler.waiting) == (0, 5)
    begun = []
    while not scheduler.idle:
        for delivery in scheduler.tick():
            if delivery.request_id not in begun:
                begun.append(delivery.request_id)
        assert scheduler.running <= 2
    assert begun == ["0", "1", "2", "3", "4"]


def test_a_request_that_comes_later_joins_the_batch(pair, prompts):
    scheduler = scheduler_of(pair, tree(4, 2), slots=2)
    scheduler.submit(job("early", prompts[0], 60))
    scheduler.tick()
    scheduler.submit(job("late", prompts[1], 40))
    assert {delivery.request_id for delivery in scheduler.tick()} == {"early", "late"}
    replies = finish_all(scheduler)
    assert replies["early"].finish == replies["late"].finish == Finish.LENGTH


def test_a_long_prompt_stalls_nobody(pair, prompts):
    scheduler = scheduler_of(pair, tree(4, 2), slots=2, chunk=16)
    scheduler.submit(job("short", prompts[0][:8], 200))
    scheduler.tick()
    scheduler.submit(job("long", prompts[0] * 10))
    ticks = 0
    while True:
        ids = [delivery.request_id for delivery in scheduler.tick()]
        if "long" in ids:
            break
        assert ids == ["short"]
        ticks += 1
    assert ticks + 1 == -(-len(prompts[0] * 10) // 16)
    assert scheduler.counters.prompt_tokens == 8 + len(prompts[0] * 10)


def test_several_prompts_share_a_chunk(pair, prompts):
    scheduler = scheduler_of(pair, NONE, slots=3, chunk=64)
    for index in range(3):
        scheduler.submit(job(str(index), prompts[index][:20]))
    assert len({delivery.request_id for delivery in scheduler.tick()}) == 3


def test_an_abort_frees_the_slot_for_the_next(pair, prompts):
    scheduler = scheduler_of(pair, tree(4, 2), slots=1)
    scheduler.submit(job("gone", prompts[0], 500))
    scheduler.submit(job("never", prompts[1]))
    scheduler.submit(job("next", prompts[2]))
    scheduler.tick()
    scheduler.abort("never")
    scheduler.abort("gone")
    scheduler.abort("unknown")
    replies = finish_all(scheduler)
    assert set(replies) == {"next"}
    alone = scheduler_of(pair, tree(4, 2))
    alone.submit(job("next", prompts[2]))
    assert replies["next"].tokens == finish_all(alone)["next"].tokens


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_a_reply_has_exactly_as_many_tokens_as_its_limit(pair, prompts, limit):
    scheduler = scheduler_of(pair, tree(16, 4))
    scheduler.submit(job("r", prompts[0], limit))
    reply = finish_all(scheduler)["r"]
    assert (len(reply.tokens), reply.finish) == (limit, Finish.LENGTH)
    # The first token comes from the prompt; the last step may have accepted more than was wanted.
    committed = sum(accepted + 1 for accepted in reply.accepted)
    assert limit - 1 <= committed
    assert committed - max(reply.accepted, default=0) - 1 < limit


def test_a_stop_token_ends_the_reply_and_is_its_last(pair, prompts, plain):
    stop = plain[0][10]
    scheduler = scheduler_of(pair, tree(16, 4))
    options = {"temperature": 0.0, "stop_ids": frozenset({stop})}
    scheduler.submit(Job("r", tuple(prompts[0]), Sampling(60, **options)))
    reply = finish_all(scheduler)["r"]
    assert reply.finish is Finish.STOP
    assert reply.tokens == plain[0][: plain[0].index(stop) + 1]


def test_a_prompt_and_reply_may_fill_the_whole_length(pair, prompts):
    scheduler = scheduler_of(pair, tree(16, 4), length=100, chunk=16)
    prompt = (prompts[0] * 3)[:70]
    scheduler.submit(job("r", prompt, 30))
    assert len(finish_all(scheduler)["r"].tokens) == 30


def test_counters_agree_with_what_was_delivered(pair, prompts):
    scheduler = scheduler_of(pair, tree(8, 4), slots=2)
    for index in range(4):
        scheduler.submit(job(str(index), prompts[index], 120))
    replies = finish_all(scheduler).values()
    counters = scheduler.counters
    steps = [accepted for reply in replies for accepted in reply.accepted]
    assert counters.generation_tokens == sum(len(reply.tokens) for reply in replies) == 480
    assert counters.verify_steps == len(steps)
    assert counters.accept_len == pytest.approx(sum(steps) / len(steps) + 1)
    assert counters.throughput_tps > 0
    scheduler.forget_acceptance()
    assert counters.accept_len is None
    assert counters.verify_steps == len(steps)
