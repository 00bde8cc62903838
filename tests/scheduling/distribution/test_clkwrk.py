"""CLKWRK by hand: when a request that joins a queue is expected to end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.scheduling.scenarios import MS
from tuner.scheduling.catalogue import build_policy, options_of, set_beliefs
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.scheduler import Dispatch, Drop, Scheduler
from tuner.scheduling.vocabulary import TOLERANCE


def cluster(
    slo: float, kinds: tuple[int, ...] = (0,), per_item: tuple[float, ...] = (3 * MS,)
) -> ClusterSpec:
    """One session of up to 40 items, and a network that takes 1 ms to an instance."""
    latency = np.outer(per_item, np.arange(41))
    session = SessionSpec(name="a", slo=slo, latency=latency)
    return ClusterSpec(sessions=[session], kinds=kinds, delays=Delays(control=0.6 * MS, data=0.4 * MS))


def refusing(spec: ClusterSpec, **options: Any) -> Scheduler:
    """A scheduler that refuses at once what it expects to be late."""
    return Scheduler(build_policy("clkwrk", spec, options_of("clkwrk")(refuse=True, **options)))


@pytest.mark.parametrize(
    ("slo", "takes", "taken"),
    [
        (11.5 * MS, 3 * MS, 2),
        (12.1 * MS, 3 * MS, 3),
        (15.9 * MS, 3 * MS, 3),
        (16.1 * MS, 3 * MS, 4),
        (12.0 * MS, 2 * MS, 4),
        (10.0 * MS, 1 * MS, 5),
    ],
)
def test_every_request_ahead_travels(slo: float, takes: float, taken: int) -> None:
    """Each is sent when the one before has ended: of 3 ms and 1 ms on the way they end at 4, 8, 12 and 16.

    Of 2 ms the fourth ends at 12, of 1 ms the fifth at 10, exactly in time: rounding refuses none, when it
    comes or at its turn.
    """
    scheduler = refusing(cluster(slo, per_item=(takes,)))

    commands = [command for _ in range(5) for command in scheduler.arrive(0, 0.0)]
    ends = [command.finish for command in commands if isinstance(command, Dispatch)]
    for _ in range(taken - 1):
        (command,) = scheduler.finish(0, ends[-1])
        assert isinstance(command, Dispatch)
        ends.append(command.finish)

    assert sum(isinstance(command, Drop) for command in commands) == 5 - taken
    assert ends == pytest.approx([(takes + MS) * (number + 1) for number in range(taken)])
    assert max(ends) <= slo + TOLERANCE


@pytest.mark.parametrize(("took", "refused"), [(9 * MS, False), (10 * MS, True)])
def test_what_waits_takes_what_was_learned_meanwhile(took: float, refused: bool) -> None:
    """Nothing is known of three requests that come first; two of them are still there when one comes later.

    It ends after three times what the first one took, of which each is 1 ms on the way: 30 or 33 ms.
    """
    scheduler = refusing(cluster(31 * MS), learn=True)
    for _ in range(3):
        scheduler.arrive(0, 0.0)
    scheduler.finish(0, 1 * MS + took)

    commands = scheduler.arrive(0, 1 * MS + took)

    assert commands == ([Drop(0, (3,))] if refused else [])


@pytest.mark.parametrize(("slower", "refused"), [(1.4, False), (1.6, True)])
def test_what_waits_takes_what_the_profile_says_now(slower: float, refused: bool) -> None:
    """One executes until 4 ms, and two wait. With 4.2 ms for each the next ends at 19.6 ms, with 4.8 at 21.4.

    They travel for 1 ms each, and 20 ms are allowed.
    """
    spec = cluster(20 * MS)
    scheduler = refusing(spec)
    for _ in range(3):
        scheduler.arrive(0, 0.0)

    set_beliefs("clkwrk", scheduler.policy, [slower * spec.sessions[0].latency], spec.delays)

    assert scheduler.arrive(0, 0.0) == ([Drop(0, (3,))] if refused else [])


def test_a_long_queue_is_counted_after_several_that_were_learned_from() -> None:
    """Of about 250 that wait, each of 10 ms: after the third end, and after every end once there are 100."""
    policy = build_policy("clkwrk", cluster(1e3), options_of("clkwrk")(learn=True))
    scheduler = Scheduler(policy)
    for _ in range(251):
        scheduler.arrive(0, 0.0)
    counted = []
    for end in range(251):
        scheduler.finish(0, (end + 1) * 11 * MS)
        waiting, queued = policy.loads[0].waiting, policy.loads[0].queued
        counted.append(queued == pytest.approx(waiting * 10 * MS))
    unknown = [end for end, right in enumerate(counted) if not right]

    assert unknown == [0, 1]


def test_what_was_not_executed_is_not_counted_as_learned_from() -> None:
    """Of about 250 that wait, as above."""
    policy = build_policy("clkwrk", cluster(1e3), options_of("clkwrk")(learn=True))
    scheduler = Scheduler(policy)
    for _ in range(251):
        scheduler.arrive(0, 0.0)

    scheduler.finish(0, 11 * MS, void=True)
    assert policy.loads[0].learned == 0
    scheduler.finish(0, 22 * MS)
    assert policy.loads[0].learned == 1


def test_what_will_be_late_after_all_is_refused_at_its_turn() -> None:
    """At 9 ms, as the first has ended 5 ms late, the second of 15 ms could end at 25, the third at 13 ms."""
    scheduler = refusing(cluster(24.5 * MS))
    for items in (1, 5, 1):
        assert not any(isinstance(command, Drop) for command in scheduler.arrive(0, 0.0, items=items))

    drop, sent = scheduler.finish(0, 9 * MS)

    assert drop == Drop(0, (1,))
    assert isinstance(sent, Dispatch)
    assert sent.numbers == (2,)
    assert sent.finish == pytest.approx(13 * MS)
    assert scheduler.finish(0, 13 * MS) == []
