"""A sweep that cannot start a trial says so, and ends in the end."""

from ddtree_tune.cluster.watchdog import Patience, Watchdog


def watched(*obstacles, step_s=10.0):
    """What is said, and what it ends with, when nothing runs for these reasons, one look after another."""
    clock, said, last = [0.0], [], None
    watchdog = Watchdog(said.append, Patience(say_s=30, repeat_s=60, limit_s=300), now_s=lambda: clock[0])
    for obstacle in obstacles:
        last = watchdog.look(obstacle)
        if last is not None:
            break
        clock[0] += step_s
    return said, last


def test_it_is_quiet_while_trials_run_or_are_about_to():
    assert watched(*[None, "no node is up", "no node is up", "no node is up"] * 5) == ([], None)


def test_it_speaks_within_a_minute_and_then_once_a_minute():
    said, last = watched(*["no node is up"] * 20)
    assert last is None
    assert [line.partition(":")[0] for line in said] == ["waiting for 30 s", "waiting for 90 s", "waiting for 150 s"]
    assert said[0] == "waiting for 30 s: no node is up; the sweep ends after 5 min of that"


def test_it_says_that_trials_run_again_and_counts_anew():
    said, last = watched(*["no node is up"] * 4, None, *["no node is up"] * 29)
    assert said[1] == "a trial runs again"
    assert said[2].startswith("waiting for 30 s")
    assert last is None


def test_it_gives_up_with_a_sentence():
    said, last = watched(*["no node is up"] * 40)
    assert len(said) == 5
    assert last == "a trial must get a node within 5 min, but got none: no node is up"
