"""Tests of Clockwork: traces made by hand, the rotation of batches, learned times, and the plain twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.scheduling.batching.naive_clockwork import NaiveClockwork
from tests.scheduling.batching.test_nexus import arrivals, batches, cluster, session
from tests.scheduling.twin import assert_twin
from tuner.errors import InvalidInput
from tuner.scheduling.batching.clockwork import ClockworkOptions, build
from tuner.scheduling.catalogue import set_beliefs
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.scheduler import Dispatch, Drop, Scheduler
from tuner.testing.driver import drive

AT_ONCE = ClockworkOptions(schedule_ahead=0.0, margin=0.0)
"""An accelerator takes work only when it is free, and deadlines are the SLO."""


def told(*times: float, owner: int = 0) -> list[tuple[float, int, int]]:
    return [(time, owner, 0) for time in times]


def test_takes_the_largest_batch() -> None:
    """Of three requests with one deadline order the batch of three has to start first."""
    spec = ClusterSpec(sessions=[session(10.0)], kinds=[0])

    trace = drive(build(spec, AT_ONCE), told(0.0, 0.5, 1.0, 1.5))

    assert batches(trace) == [(0.0, 3.0, 0, (0,)), (3.0, 8.0, 0, (1, 2, 3))]


def test_powers_of_two() -> None:
    """Three waiting requests are a batch of two and one of one."""
    spec = ClusterSpec(sessions=[session(20.0)], kinds=[0])
    options = ClockworkOptions(schedule_ahead=0.0, margin=0.0, sizes="powers")

    trace = drive(build(spec, options), told(0.0, 0.5, 1.0, 1.5))

    assert batches(trace)[1:] == [(3.0, 7.0, 0, (1, 2)), (7.0, 10.0, 0, (3,))]


def test_batch_from_the_middle() -> None:
    """At 3 request 1 can only be served alone and comes first, but a batch of 2 and 3 is larger and goes.

    Request 1 then stands behind them in the ring, still waiting; at 7 it is too late.
    """
    spec = ClusterSpec(sessions=[session(6.0)], kinds=[0])
    policy = build(spec, AT_ONCE)

    trace = drive(policy, told(0.0, 0.25, 2.0, 2.25))

    assert batches(trace) == [(0.0, 3.0, 0, (0,)), (3.0, 7.0, 0, (2, 3))]
    assert trace.dropped == {1: 7.0}
    assert [command.first for _, command in trace.commands] == [0, 1, 3]


def test_requests_passed_over_are_served_later() -> None:
    """A second accelerator takes at once what the batch of the first left behind."""
    spec = ClusterSpec(sessions=[session(6.0)], kinds=[0, 0])
    arrivals = told(0.0, 0.125, 0.25, 2.0, 2.25)

    trace = drive(build(spec, AT_ONCE), arrivals)

    assert batches(trace)[2:] == [(3.0, 7.0, 0, (3, 4)), (3.125, 6.125, 1, (2,))]
    assert not trace.dropped


def test_urgent_session_first() -> None:
    """The session whose batch has to start first goes first, though it came last."""
    spec = ClusterSpec(sessions=[session(20.0), session(10.0)], kinds=[0])

    trace = drive(build(spec, AT_ONCE), [(0.0, 0, 0), (1.0, 0, 0), (2.0, 1, 0)])

    assert [command.session for _, command in trace.batches] == [0, 1, 0]


def test_works_ahead() -> None:
    """Two seconds before it is free the accelerator takes what there is, so that later requests are left."""
    spec = ClusterSpec(sessions=[session(20.0)], kinds=[0])

    trace = drive(build(spec, ClockworkOptions(schedule_ahead=2.0, margin=0.0)), told(0.0, 0.5, 1.25, 1.5))

    assert [now for now, _ in trace.batches] == [0.0, 1.0, 4.0]
    assert batches(trace) == [(0.0, 3.0, 0, (0,)), (3.0, 6.0, 0, (1,)), (6.0, 10.0, 0, (2, 3))]


def test_margin_and_delays() -> None:
    """Request 1 can end by 6; a margin of 1 s allows 6.5, one of 1.75 s 5.75, a response of 2 s 5.5."""
    sessions = [session(7.0)]
    delays = Delays(response=2.0)
    arrivals = told(0.0, 0.5)

    served, late, early = (
        drive(
            build(ClusterSpec(sessions=sessions, kinds=[0], delays=each), ClockworkOptions(margin=margin)),
            arrivals,
        )
        for each, margin in ((Delays(), 1.0), (Delays(), 1.75), (delays, 1.0))
    )

    assert [list(trace.dropped) for trace in (served, late, early)] == [[], [1], [1]]


def test_a_batch_that_ends_exactly_in_time_is_served() -> None:
    """However its sums are rounded: session 1 waits 70 ms for session 0, and has 100 ms for its own 30."""
    first, second = (np.array([[0.0, seconds]]) for seconds in (0.07, 0.03))
    sessions = [
        SessionSpec(name="a", slo=1.0, latency=first),
        SessionSpec(name="b", slo=0.1, latency=second),
    ]
    policy = build(ClusterSpec(sessions=sessions, kinds=[0]), AT_ONCE)

    trace = drive(policy, [(0.12 * number, own, 0) for number in range(300) for own in (0, 1)])

    assert trace.dropped == {}


def test_data_is_waited_for() -> None:
    """A batch starts when its order and its data are there."""
    delays = Delays(control=0.5, data=0.25)
    spec = ClusterSpec(sessions=[session(20.0)], kinds=[0], delays=delays)

    trace = drive(build(spec, AT_ONCE), told(0.0, 0.5, 1.0))

    assert batches(trace) == [(0.75, 3.75, 0, (0,)), (4.75, 8.75, 0, (1, 2))]


def test_unlike_accelerators() -> None:
    """What is too late for the slow accelerator is left to the fast one."""
    spec = ClusterSpec(sessions=[session(5.75)], kinds=[1, 0])

    trace = drive(build(spec, AT_ONCE), told(0.0, 0.5))

    assert batches(trace) == [(0.0, 3.0, 1, (0,)), (3.0, 6.0, 1, (1,))]


def test_finish_corrects_beliefs() -> None:
    """The second batch starts when the first has really ended, and the third is planned for that time."""
    spec = ClusterSpec(sessions=[session(100.0)], kinds=[0])
    options = ClockworkOptions(schedule_ahead=1.0, margin=0.0)

    trace = drive(build(spec, options), told(0.0, 0.5, 6.5), stretch=(2.0, 1.0))

    assert [(now, c.start) for now, c in trace.batches] == [(0.0, 0.0), (2.0, 3.0), (8.0, 9.0)]


def test_learns_how_long_batches_take() -> None:
    """The longest of the last ten runs is expected; a run longer than the budget is not learned."""
    spec = ClusterSpec(sessions=[session(8.0)], kinds=[0])
    policy = build(spec, ClockworkOptions(schedule_ahead=0.0, margin=0.0, estimate="measured"))
    stretch = (1.5, *[1.25] * 10, 4.0)

    trace = drive(policy, told(*[100.0 * i for i in range(13)]), stretch)

    expected = [3.0] + [4.5] * 10 + [3.75, 3.75]
    assert [c.finish - c.start for _, c in trace.batches] == pytest.approx(expected)


def test_what_has_left_a_size_does_not_come_back() -> None:
    """At 3 none can be one of three, due until 8, and 1 not even one of two; 2 and 3 are sent, 4 and 5 wait.

    At 3.25 three would take 4 s, as is believed by then; but 4 and 5 go alone, and 6 goes after them.
    """
    policy = build(ClusterSpec(sessions=[session(6.5, largest=3)], kinds=[0]), AT_ONCE)
    scheduler = Scheduler(policy)
    for time in (0.0, 0.25, 1.0, 1.125, 1.25, 1.375):
        scheduler.arrive(0, time)
    (early,) = scheduler.finish(0, 3.0)
    set_beliefs("clockwork", policy, [np.array([[0.0, 3.75, 4.0, 4.0]])], Delays(), AT_ONCE)
    scheduler.arrive(0, 3.125)

    dropped, late = scheduler.finish(0, 3.25)

    assert early == Dispatch(0, 0, (2, 3), 3.0, 7.0)
    assert dropped == Drop(0, (1,))
    assert late == Dispatch(0, 0, (4, 5), 3.25, 7.25)


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"sizes": "odd"}, "sizes"),
        ({"estimate": "guess"}, "estimate"),
        ({"margin": -1.0}, "margin"),
        ({"schedule_ahead": float("inf")}, "schedule_ahead"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], setting: str) -> None:
    """What cannot be used is refused with the name of the option."""
    with pytest.raises(InvalidInput) as caught:
        ClockworkOptions(**options)

    assert caught.value.setting == setting


@pytest.mark.parametrize("seed", range(40))
def test_equals_the_plain_twin(seed: int) -> None:
    """Every event is answered with the same commands, whether batches last as believed or not."""
    rng = np.random.default_rng(seed)
    spec, _ = cluster(rng)
    options = ClockworkOptions(
        sizes=str(rng.choice(["all", "powers"])),
        schedule_ahead=float(rng.choice([0.0, 0.005, 0.01, 0.03])),
        margin=float(rng.choice([0.0, 0.001, 0.005])),
        estimate=str(rng.choice(["table", "measured"])),
    )
    policy = build(spec, options)

    stretch = (1.0,) if seed % 2 else tuple(rng.uniform(0.5, 2.0, 7).tolist())
    trace = drive(policy, arrivals(rng, len(spec.sessions)), stretch)

    twin = NaiveClockwork(spec, options, depth=policy.outstanding.shape[1])
    assert_twin(trace.events, twin)


def test_batches_from_the_middle_happen() -> None:
    """The scenarios that the twin is compared on do move batches before older requests."""
    moved = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        spec, _ = cluster(rng)
        trace = drive(build(spec, AT_ONCE), arrivals(rng, len(spec.sessions)))
        last = [-1] * len(spec.sessions)
        for _, command in trace.batches:
            moved += command.numbers[0] < last[command.session]
            last[command.session] = max(last[command.session], command.numbers[-1])

    assert moved > 10
