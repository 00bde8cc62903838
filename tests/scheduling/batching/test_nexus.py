"""Tests of Nexus: traces made by hand, shares of the frontends, plans of the paper, and the plain twin."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from tests.scheduling.batching.naive_nexus import NaiveNexus
from tests.scheduling.twin import assert_twin
from tuner.errors import InvalidInput
from tuner.scheduling.batching.nexus import NexusOptions, Placement, build
from tuner.scheduling.batching.nexus_frontend import make_frontends, move_on, receiver
from tuner.scheduling.batching.nexus_plan import make_placement
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec, linear_latency
from tuner.scheduling.scheduler import Dispatch, Scheduler
from tuner.testing.driver import PolicyRun, drive


def session(slo: float, *, alpha: float = 1.0, beta: float = 2.0, largest: int = 8) -> SessionSpec:
    """l(1) = 3, l(2) = 4, l(3) = 5 s, if nothing else is said."""
    latency = alpha * np.arange(largest + 1) + beta
    latency[0] = 0.0
    return SessionSpec(name="m", slo=slo, latency=np.array([latency, 2 * latency]))


def batches(trace: PolicyRun) -> list[tuple[float, float, int, tuple[int, ...]]]:
    """Start, end, accelerator and requests of every batch."""
    return [(c.start, c.finish, c.accelerator, c.numbers) for _, c in trace.batches]


BURST = [(0.0, 0, 0), (0.25, 0, 0), (0.5, 0, 0), (2.5, 0, 0), (2.75, 0, 0)]


def test_early_drop_slides_a_window() -> None:
    """At 3 neither 1 nor 2 can be the head of three (until 8); 3 and 4, all that is left, end by 7."""
    spec = ClusterSpec(sessions=[session(6.5)], kinds=[0])

    trace = drive(build(spec, NexusOptions(placement=[[(0, 3, 1.0)]])), BURST)

    assert batches(trace) == [(0.0, 3.0, 0, (0,)), (3.0, 7.0, 0, (3, 4))]
    assert trace.dropped == {1: 3.0, 2: 3.0}


def test_lazy_drop_serves_the_oldest() -> None:
    """At 3 the head can be served alone, until 6; then 2 is too late and 3 can be served alone, and so on."""
    spec = ClusterSpec(sessions=[session(6.5)], kinds=[0])

    trace = drive(build(spec, NexusOptions(placement=[[(0, 3, 1.0)]], drop="lazy")), BURST)

    assert batches(trace) == [(0.0, 3.0, 0, (0,)), (3.0, 6.0, 0, (1,)), (6.0, 9.0, 0, (3,))]
    assert trace.dropped == {2: 6.0, 4: 9.0}


def test_lazy_drop_takes_what_fits() -> None:
    """A batch is as large as the deadline of its head allows, up to the planned size if that is the cap."""
    spec = ClusterSpec(sessions=[session(7.0)], kinds=[0])
    arrivals = [(0.0, 0, 0), (0.5, 0, 0), (1.0, 0, 0), (1.5, 0, 0), (2.0, 0, 0)]

    roomy, small, uncapped = (
        drive(build(spec, NexusOptions(placement=[[(0, size, 1.0)]], drop="lazy", cap=cap)), arrivals)
        for size, cap in ((4, "planned"), (1, "planned"), (1, "profile"))
    )

    assert batches(roomy)[1] == (3.0, 7.0, 0, (1, 2))
    assert batches(small)[1] == (3.0, 6.0, 0, (1,))
    assert batches(uncapped) == batches(roomy)


@pytest.mark.parametrize("drop", ["early", "lazy"])
def test_a_batch_that_ends_exactly_in_time_is_served(drop: str) -> None:
    """However its sums are rounded: session 1 waits 70 ms for session 0, and has 100 ms for its own 30."""
    first, second = (np.array([[0.0, seconds]]) for seconds in (0.07, 0.03))
    sessions = [
        SessionSpec(name="a", slo=1.0, latency=first),
        SessionSpec(name="b", slo=0.1, latency=second),
    ]
    policy = build(
        ClusterSpec(sessions=sessions, kinds=[0]),
        NexusOptions(placement=[[(0, 1, 1.0), (1, 1, 1.0)]], drop=drop),
    )

    trace = drive(policy, [(0.12 * number, own, 0) for number in range(300) for own in (0, 1)])

    assert trace.dropped == {}


def test_most_time_left_first() -> None:
    """At 3 the newest go that end by the deadline of their first: 2 to 4; 1 waits, and is too late at 8."""
    spec = ClusterSpec(sessions=[session(7.6)], kinds=[0])
    options = NexusOptions(placement=[[(0, 3, 1.0)]], order="most_left")

    trace = drive(build(spec, options), BURST)

    assert batches(trace) == [(0.0, 3.0, 0, (0,)), (3.0, 8.0, 0, (2, 3, 4))]
    assert trace.dropped == {1: 8.0}


def test_most_time_left_first_under_overload_only() -> None:
    """At 3 the newest goes first if it has just come: a request asks for 3 s, which fade in a second."""
    spec = ClusterSpec(sessions=[session(20.0)], kinds=[0])
    options = NexusOptions(placement=[[(0, 1, 1.0)]], order="adaptive")
    early = [(0.0, 0, 0), (0.5, 0, 0), (0.6, 0, 0)]

    few, more = (drive(build(spec, options), [*early, *late]) for late in ([], [(2.9, 0, 0)]))

    assert [numbers for *_, numbers in batches(few)] == [(0,), (1,), (2,)]
    assert [numbers for *_, numbers in batches(more)] == [(0,), (3,), (1,), (2,)]


def test_sessions_take_turns() -> None:
    """Session 1 has its turn before the second batch of session 0, though it came last."""
    spec = ClusterSpec(sessions=[session(20.0), session(20.0)], kinds=[0])
    plan = [[(0, 2, 1.0), (1, 2, 1.0)]]
    arrivals = [(0.0, 0, 0), (0.5, 0, 0), (1.0, 0, 0), (1.5, 0, 0), (2.0, 1, 0)]

    trace = drive(build(spec, NexusOptions(placement=plan)), arrivals)

    assert batches(trace) == [
        (0.0, 3.0, 0, (0,)),
        (3.0, 6.0, 0, (4,)),
        (6.0, 10.0, 0, (1, 2)),
        (10.0, 13.0, 0, (3,)),
    ]


def test_requests_travel_while_the_backend_is_busy() -> None:
    """Only the newest request of a batch can be waited for; what came before 3 - 0.75 is there at 3."""
    delays = Delays(control=0.5, data=0.25, response=1.0)
    spec = ClusterSpec(sessions=[session(20.0)], kinds=[0], delays=delays)
    arrivals = [(0.0, 0, 0), (1.0, 0, 0), (1.25, 0, 0), (7.5, 0, 0)]

    trace = drive(build(spec, NexusOptions(placement=[[(0, 3, 1.0)]])), arrivals)

    assert batches(trace) == [(0.75, 3.75, 0, (0,)), (3.75, 7.75, 0, (1, 2)), (8.25, 11.25, 0, (3,))]


def test_a_request_with_a_nearer_deadline_is_there_no_sooner() -> None:
    """Request 2 came at 3.5: its data is there at 4.25, although it stands before 1, which came at 1."""
    delays = Delays(control=0.5, data=0.25)
    spec = ClusterSpec(sessions=[session(20.0)], kinds=[0], delays=delays)
    scheduler = Scheduler(build(spec, NexusOptions(placement=[[(0, 3, 1.0)]])))

    (first,) = scheduler.arrive(0, 0.0, early=5.0)
    assert scheduler.arrive(0, 1.0) == scheduler.arrive(0, 3.5, early=5.0) == []
    (second,) = scheduler.finish(0, 3.75)

    assert first == Dispatch(0, 0, (0,), 0.75, 3.75)
    assert second == Dispatch(0, 0, (2, 1), 4.25, 8.25)


def test_session_without_backend_is_refused() -> None:
    """Requests of a session that the plan leaves out are dropped at once."""
    spec = ClusterSpec(sessions=[session(20.0), session(20.0)], kinds=[0])

    trace = drive(
        build(spec, NexusOptions(placement=[[(0, 2, 1.0)]])), [(0.0, 0, 0), (1.0, 1, 0), (1.5, 1, 0)]
    )

    assert trace.dropped == {1: 1.0, 2: 1.5}


def sent(rates: list[float], sources: list[int], frontends: int = 1) -> list[int]:
    """Which backend of the one session gets each request."""
    made = make_frontends([list(enumerate(rates))], frontends)
    receivers = []
    for source in sources:
        receivers.append(int(receiver(made, source, 0)))
        move_on(made, source, 0)
    return receivers


def test_equal_shares_are_round_robin() -> None:
    """Three backends with equal rates are served in a circle."""
    assert sent([5.0, 5.0, 5.0], [0] * 7) == [0, 1, 2, 0, 1, 2, 0]


def test_unequal_shares_are_spread() -> None:
    """A backend with half the rate gets every third request, one with a tenth every eleventh."""
    assert sent([10.0, 5.0], [0] * 6) == [0, 0, 1, 0, 0, 1]
    assert Counter(sent([1.0, 0.1], [0] * 1100)) == {0: 1000, 1: 100}
    assert Counter(sent([0.3, 0.2, 0.7], [0] * 1200)) == {0: 300, 1: 200, 2: 700}


def test_frontends_know_nothing_of_each_other() -> None:
    """Each of two frontends goes round by itself, whatever the other does; a third source uses the first."""
    alone = sent([1.0, 1.0], [0] * 4, frontends=2)
    mixed = sent([1.0, 1.0], [0, 1, 1, 1, 0, 1, 2, 0], frontends=2)

    assert alone == [0, 1, 0, 1]
    assert [mixed[i] for i in (0, 4, 6, 7)] == [0, 1, 0, 1]
    assert [mixed[i] for i in (1, 2, 3, 5)] == [1, 0, 1, 0]


def test_full_ring_changes_nothing() -> None:
    """A request that found no room goes, after growing, where it would have gone."""
    spec = ClusterSpec(sessions=[session(1000.0)], kinds=[0, 0, 0])
    policy = build(spec, NexusOptions(placement=[[(0, 1, 2.0)], [(0, 1, 1.0)], [(0, 1, 1.0)]]))

    trace = drive(policy, [(0.001 * i, 0, 0) for i in range(400)])

    counts = Counter(command.accelerator for _, command in trace.batches)
    assert counts == {0: 200, 1: 100, 2: 100}


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"frontends": 0}, "frontends"),
        ({"drop": "never"}, "drop"),
        ({"cap": "none"}, "cap"),
        ({"rates": (1.0, 2.0)}, "rates"),
        ({"rates": (-1.0,)}, "rates"),
        ({"placement": []}, "placement"),
        ({"placement": [[(1, 1, 1.0)]]}, "placement"),
        ({"placement": [[(0, 9, 1.0)]]}, "placement"),
        ({"placement": [[(0, 1, 0.0)]]}, "placement"),
        ({"placement": [[(0, 1, 1.0), (0, 2, 1.0)]]}, "placement"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], setting: str) -> None:
    """What does not fit the cluster is refused with the name of the option."""
    with pytest.raises(InvalidInput) as caught:
        build(ClusterSpec(sessions=[session(20.0)], kinds=[0]), NexusOptions(**options))

    assert caught.value.setting == setting


def cluster(
    rng: np.random.Generator, scale: float = 1.0
) -> tuple[ClusterSpec, list[list[tuple[int, int, float]]]]:
    """A random cluster, whose times are scaled, and a random plan for it."""
    response = scale * float(rng.choice([0.0, 0.002]))
    sessions = []
    for index in range(int(rng.integers(1, 4))):
        fast = scale * np.append(0.0, 0.003 + np.cumsum(rng.choice([0.0, 0.001, 0.004], 8)))
        slo = response + float(rng.choice([1.2, 2.0, 4.0])) * fast[4]
        sessions.append(SessionSpec(name=f"{index}", slo=slo, latency=np.array([fast, 1.5 * fast])))
    kinds = rng.integers(0, 2, int(rng.integers(1, 5))).tolist()
    delays = Delays(control=scale * 1e-4, data=scale * 5e-5, response=response) if response else Delays()
    plan = []
    for _ in kinds:
        chosen = rng.permutation(len(sessions))[: int(rng.integers(0, len(sessions) + 1))].tolist()
        plan.append([(s, int(rng.integers(1, 9)), float(rng.choice([1.0, 1.0, 0.5, 0.3]))) for s in chosen])
    return ClusterSpec(sessions=sessions, kinds=kinds, delays=delays), plan


def arrivals(rng: np.random.Generator, sessions: int, count: int = 150) -> list[tuple[float, int, int]]:
    """Bursts and pauses, with requests at one instant, from three sources."""
    gaps = rng.exponential(rng.choice([0.0003, 0.002, 0.006]), count) * rng.choice(
        [0.0, 0.5, 1.0, 3.0], count
    )
    owners, sources = rng.integers(0, sessions, count).tolist(), rng.integers(0, 3, count).tolist()
    return list(zip(np.cumsum(gaps).tolist(), owners, sources, strict=True))


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize(
    ("drop", "order", "scale"),
    [
        ("early", "least_left", 1.0),
        ("lazy", "least_left", 1.0),
        ("early", "most_left", 1.0),
        ("early", "adaptive", 100.0),  # so long that a backend knows what it is asked for
    ],
)
def test_equals_the_plain_twin(seed: int, drop: str, order: str, scale: float) -> None:
    """Every event is answered with the same commands, whether batches last as believed or not."""
    rng = np.random.default_rng(seed)
    spec, plan = cluster(rng, scale)
    frontends = int(rng.integers(1, 4))
    policy = build(spec, NexusOptions(frontends=frontends, drop=drop, order=order, placement=plan))

    stretch = (1.0,) if seed % 2 else tuple(rng.uniform(0.5, 2.0, 7).tolist())
    requests = [(scale * time, owner, source) for time, owner, source in arrivals(rng, len(spec.sessions))]
    trace = drive(policy, requests, stretch)

    twin = NaiveNexus(spec, plan, frontends=frontends, early=drop == "early", order=order)
    assert_twin(trace.events, twin)


@pytest.mark.compiled
def test_early_drop_beats_lazy_drop() -> None:
    """Nexus, Figure 9 at alpha 1.0: at 90 % of the optimum lazy drop loses far more than early drop."""
    latency = linear_latency(0.001, 0.025, 0.1)[None]
    spec = ClusterSpec(sessions=[SessionSpec(name="m", slo=0.1, latency=latency)], kinds=[0])
    times = np.cumsum(np.random.default_rng(3).exponential(1 / 450, 4000)).tolist()

    early, lazy = (
        len(drive(build(spec, NexusOptions(drop=drop)), [(time, 0, 0) for time in times]).dropped)
        / len(times)
        for drop in ("early", "lazy")
    )

    assert Placement(make_placement(spec).backends).backends[0][0].batch == 25
    assert early < 0.1
    assert lazy > early + 0.1
