"""Profiles and delays that change while a policy runs, as they are learned."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.scheduling.scenarios import MS
from tuner.scheduling.catalogue import build_policy, options_of, set_beliefs
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.scheduler import Dispatch, Drop, Scheduler

OPTIONS: dict[str, dict[str, Any]] = {
    "symphony": {"schedulable": "beta_lambda"},
    "eager": {},
    "clockwork": {},
    "timeout": {"allowed": (2, 4)},
    "clipper": {},
    "kairos": {"learn": False},
    "ribbon": {},
    "drs": {"threshold": 2},
    "clkwrk": {},
}


def spec(*tables: tuple[float, float], response: float = 0.0, sessions: int = 2) -> ClusterSpec:
    """Return sessions with an SLO of 100 ms, and an accelerator for each alpha and beta, s."""
    latency = np.array([alpha * np.arange(5) + beta for alpha, beta in tables])
    latency[:, 0] = 0.0
    same = [SessionSpec(name=str(number), slo=100 * MS, latency=latency) for number in range(sessions)]
    return ClusterSpec(sessions=same, kinds=range(len(tables)), delays=Delays(response=response))


def tables(of: ClusterSpec) -> list[np.ndarray]:
    return [session.latency for session in of.sessions]


def arrays(state: Any) -> Iterator[np.ndarray]:
    """Yield all arrays of a policy's state."""
    if isinstance(state, np.ndarray):
        yield state
    else:
        for part in state:
            yield from arrays(part)


OLD = spec((1 * MS, 12 * MS), (2 * MS, 14 * MS))
NEW = spec((20 * MS, 30 * MS), (1 * MS, 12 * MS), response=2 * MS)


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_learned_reaches_the_policy(name: str) -> None:
    """It then is what it would be if it had begun with these profiles and delays."""
    options = options_of(name)(**OPTIONS[name])
    policy, other = build_policy(name, OLD, options), build_policy(name, NEW, options)

    set_beliefs(name, policy, tables(NEW), NEW.delays, options)

    for told, begun in zip(arrays(policy), arrays(other), strict=True):
        np.testing.assert_array_equal(told, begun)


def test_clockwork_keeps_what_it_has_measured() -> None:
    """The profile counts only for sizes of which nothing was measured; strategies are compared again."""
    options = options_of("clockwork")(estimate="measured")
    policy = build_policy("clockwork", OLD, options)
    scheduler = Scheduler(policy)
    scheduler.arrive(0, 0.0)
    scheduler.finish(0, 15 * MS)

    set_beliefs("clockwork", policy, tables(NEW), NEW.delays, options)

    assert policy.estimate[0, 0].tolist() == pytest.approx([15 * MS, 70 * MS, 90 * MS, 110 * MS])
    assert policy.estimate[0, 1, 0] == pytest.approx(50 * MS)


def test_clockwork_compares_what_waits() -> None:
    """Of two sessions the one goes first that has become the slower one."""
    before = spec((1 * MS, 20 * MS))
    policy = build_policy("clockwork", before)
    scheduler = Scheduler(policy)
    scheduler.arrive(0, 0.0)
    assert scheduler.arrive(0, 1 * MS) == scheduler.arrive(1, 2 * MS) == []

    after = [before.sessions[0].latency, 2 * before.sessions[1].latency]
    set_beliefs("clockwork", policy, after, before.delays)

    (command,) = scheduler.finish(0, 21 * MS)
    assert command.session == 1


def test_drs_forgets_nothing_that_waits() -> None:
    """A small request is served after the last auxiliary instance has become a base instance."""
    options = options_of("drs")(threshold=2)
    before = spec((1 * MS, 12 * MS), (100 * MS, 200 * MS), sessions=1)
    policy = build_policy("drs", before, options)
    scheduler = Scheduler(policy)
    (first,) = scheduler.arrive(0, 0.0) + scheduler.wake(0.0)
    assert isinstance(first, Dispatch)
    assert first.accelerator == 1
    assert scheduler.arrive(0, 1 * MS) + scheduler.wake(1 * MS) == []

    after = spec((1 * MS, 12 * MS), (1 * MS, 12 * MS), sessions=1)
    set_beliefs("drs", policy, tables(after), after.delays, options)

    second = scheduler.finish(1, 14 * MS)
    second += scheduler.wake(14 * MS)
    assert [command.numbers for command in second] == [(1,)]


@pytest.mark.parametrize("name", ["ribbon", "drs"])
def test_the_fastest_instance_is_that_of_all_sessions(name: str) -> None:
    """The first session may have no requests, so that nothing is learned of it."""
    before = spec((1 * MS, 12 * MS), (1 * MS, 12 * MS))
    policy = build_policy(name, before)
    assert policy.order.tolist() == [0, 1]

    learned = before.sessions[1].latency * np.array([[2.0], [1.0]])
    set_beliefs(name, policy, [before.sessions[0].latency, learned], before.delays)

    assert policy.order.tolist() == [1, 0]


DROPPING: dict[str, dict[str, Any]] = {"eager": {}, "timeout": {"drop_expired": True}}
"""Policies that drop a waiting request at its deadline."""


@pytest.mark.parametrize("name", DROPPING)
def test_what_waits_is_due_sooner_if_answers_take_longer(name: str) -> None:
    """A request of 1 ms that waits for a late accelerator is dropped at 91 ms, once answers take 10 ms."""
    before = spec((1 * MS, 12 * MS), sessions=1)
    options = options_of(name)(**DROPPING[name])
    policy = build_policy(name, before, options)
    scheduler = Scheduler(policy)
    scheduler.arrive(0, 0.0)
    assert scheduler.arrive(0, 1 * MS) == scheduler.wake(20 * MS) == []

    set_beliefs(name, policy, tables(before), Delays(response=10 * MS), options)

    assert scheduler.wake_at == pytest.approx(91 * MS)
    assert scheduler.wake(scheduler.wake_at) == [Drop(0, (1,))]


@pytest.mark.parametrize("name", DROPPING)
def test_what_waits_is_due_later_if_the_budget_grows(name: str) -> None:
    """At 91 ms, when the request was due by the budget of then, it is kept: now it is due at 101 ms."""
    before = spec((1 * MS, 12 * MS), response=10 * MS, sessions=1)
    policy = build_policy(name, before, options_of(name)(**DROPPING[name]))
    scheduler = Scheduler(policy)
    scheduler.arrive(0, 0.0)
    assert scheduler.arrive(0, 1 * MS) == scheduler.wake(20 * MS) == []

    policy.cluster.sessions["budget"] = 100 * MS  # as for the stages of queries, with every batch

    assert scheduler.wake_at == pytest.approx(91 * MS)
    assert scheduler.wake(scheduler.wake_at) == []
    assert scheduler.wake_at == pytest.approx(101 * MS)
    assert scheduler.wake(scheduler.wake_at) == [Drop(0, (1,))]
