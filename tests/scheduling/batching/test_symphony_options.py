"""Symphony's options: the order of candidates, and caps and profiles that change while requests wait."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.scheduling.scenarios import (
    MS,
    at,
    one,
)
from tuner.errors import InvalidInput
from tuner.scheduling.batching.symphony import Order, SymphonyOptions, build, reconfigure
from tuner.scheduling.catalogue import set_beliefs
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.policy import arrive, finish, wake
from tuner.testing.driver import drive, noted

SMALL = (1 * MS, 5 * MS, 25 * MS)  # l(b) = b + 5 ms, SLO 25 ms


# -- dispatch order


@pytest.mark.parametrize(("order", "first"), [("sched_at", 1), ("deadline", 2), ("latest", 0)])
def test_dispatch_order_among_schedulable_candidates(order: Order, first: int) -> None:
    """While the accelerator is busy until 20 ms, three sessions become schedulable; one goes first.

    Of a request at 0: session 0 has deadline 60, l(1) = 30 and l(2) = 31: latest start 30, sched_at 29.
    Session 1 has 58, 24 and 32: 34 and 26. Session 2 has 50, 10 and 20: 40 and 30.
    """

    def session(slo: float, *latency: float) -> SessionSpec:
        return SessionSpec(name="x", slo=slo * MS, latency=np.array([[0.0, *latency]]) * MS)

    spec = ClusterSpec(
        sessions=[session(60, 30, 31), session(58, 24, 32), session(50, 10, 20), session(40, 20)], kinds=[0]
    )
    policy = build(spec, SymphonyOptions(deferral=0, order=order))

    trace = drive(policy, at(0, session=3) + at(0) + at(0, session=1) + at(0, session=2))

    assert [batch.session for _, batch in trace.batches][:2] == [3, first]


# -- options


def test_options_can_change_between_events() -> None:
    """A waiting candidate is sent at once, by a wake, when deferral is turned off."""
    policy = build(one(*SMALL))
    arrive(policy, 0, 0, 7, 1 * MS)

    reconfigure(policy, SymphonyOptions(deferral=0))
    assert policy.cluster.board[0].wake_at == 1 * MS
    wake(policy, 2 * MS)

    assert [command.numbers for command in noted(policy.cluster)] == [(7,)]


def test_a_new_cap_holds_for_what_waits() -> None:
    """After the cap is set to 2, of three waiting requests two are sent at once."""
    policy = build(one(*SMALL))
    for number in range(3):
        arrive(policy, 0, 0, number, number * MS)

    reconfigure(policy, SymphonyOptions(cap=2))
    wake(policy, 2 * MS)

    assert [command.numbers for command in noted(policy.cluster)] == [(0, 1)]


def test_a_new_cap_holds_though_an_accelerator_is_free_first() -> None:
    """Three requests wait for the accelerator when the cap is set to 2: its end sends no batch of three."""
    policy = build(one(*SMALL), SymphonyOptions(deferral=0))
    for number in range(4):
        arrive(policy, 0, 0, number, number * MS)

    reconfigure(policy, SymphonyOptions(deferral=0, cap=2))
    finish(policy, 0, 6 * MS)
    commands = [*noted(policy.cluster)]
    wake(policy, 6 * MS)
    commands += noted(policy.cluster)

    assert [command.numbers for command in commands] == [(1, 2)]


def test_a_new_cap_holds_though_the_clock_steps_back() -> None:
    """The cap is set to 2 while three wait; the fourth request has a time before that of the third."""
    policy = build(one(*SMALL))
    for number in range(3):
        arrive(policy, 0, 0, number, number * MS)

    reconfigure(policy, SymphonyOptions(cap=2))
    arrive(policy, 0, 0, 3, 1.9 * MS)
    commands = [*noted(policy.cluster)]
    while not commands:
        wake(policy, float(policy.cluster.board[0].wake_at))
        commands += noted(policy.cluster)

    assert [command.numbers for command in commands] == [(0, 1)]


def test_a_faster_profile_holds_for_what_waits() -> None:
    """Requests 1 to 12 are treated as if the profile, 4 b + 5 ms before, had always been b + 5 ms.

    Before, the last eight could be one batch. Now all twelve can, and are a smaller one than the target: from
    41 - l(12) = 24 ms on they are given up for it, one after the other, as the accelerator is busy until 30.
    """
    busy = replace(one(1 * MS, 5 * MS, 40 * MS), busy={0: 30 * MS})
    slow, fast = (4 * np.arange(36) + 5.0) * MS, (np.arange(36) + 5.0) * MS
    slow[0] = fast[0] = 0.0
    specs = [
        replace(busy, sessions=[SessionSpec(name="a", slo=40 * MS, latency=table[None])])
        for table in (slow, fast)
    ]
    taught, always = (build(spec) for spec in specs)
    for policy in (taught, always):
        for number in range(1, 13):
            arrive(policy, 0, 0, number, number * MS)

    set_beliefs("symphony", taught, [fast[None]], Delays())

    given: list[list[tuple[float, tuple[int, ...]]]] = []
    for policy in (taught, always):
        given.append([])
        while policy.cluster.board[0].wake_at < 30 * MS:
            wake(policy, max(float(policy.cluster.board[0].wake_at), 12 * MS))
            given[-1] += [
                (float(policy.cluster.board[0].now), command.numbers) for command in noted(policy.cluster)
            ]
    assert given[0] == given[1]
    assert given[0]


@pytest.mark.parametrize(
    "wrong",
    [{"deferral": 1.5}, {"deferral": float("nan")}, {"cap": -1}, {"drop": "none"}, {"order": "random"}],
)
def test_options_are_checked(wrong: dict[str, object]) -> None:
    """A value that is not allowed is refused, by name."""

    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        SymphonyOptions(**wrong)  # type: ignore[arg-type]
