"""Tests of Clipper's batching: hand-made traces, its plain twin, and the batch-oblivious placement."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.scheduling.batching.naive_clipper import NaiveClipper
from tests.scheduling.batching.naive_timeout import answers
from tuner.errors import InvalidInput
from tuner.scheduling.batching.clipper import ClipperOptions, Sizing, build
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.testing.driver import PolicyRun, drive


def session(
    name: str = "m", *, alpha: float = 1.0, beta: float = 0.0, largest: int = 8, slo: float = 100.0
) -> SessionSpec:
    latency = alpha * np.arange(largest + 1) + beta
    latency[0] = 0.0
    return SessionSpec(name=name, slo=slo, latency=np.array([latency]))


def cluster(*sessions: SessionSpec, accelerators: int = 1, delays: Delays | None = None) -> ClusterSpec:
    return ClusterSpec(sessions=sessions or [session()], kinds=[0] * accelerators, delays=delays or Delays())


def run(
    options: ClipperOptions, spec: ClusterSpec, times: list[float], owners: list[int] | None = None
) -> PolicyRun:
    arrivals = [(time, owner, 0) for time, owner in zip(times, owners or [0] * len(times), strict=True)]
    return drive(build(spec, options), arrivals)


def sizes(trace: PolicyRun) -> list[int]:
    return [len(command.numbers) for _, command in trace.batches]


def test_aimd() -> None:
    """From 1 on the limit grows by one; a batch of 4 misses the objective of 3.5 s: 3.6, 4.6, 4.14, 3.726."""
    trace = run(ClipperOptions(share=0.035), cluster(), [0.0] * 24)

    assert sizes(trace) == [1, 2, 3, 4, 3, 4, 4, 3]
    assert trace.policy.learned["limit"][0, 0] == pytest.approx(4.726)


def test_aimd_learns_nothing_from_batches_that_are_not_full() -> None:
    """One request at a time takes the limit to 2 and no further."""
    trace = run(ClipperOptions(), cluster(), [5.0 * number for number in range(6)])

    assert sizes(trace) == [1] * 6
    assert trace.policy.learned["limit"][0, 0] == 2.0


def test_aimd_times_the_network_too() -> None:
    """With 2 s to send every request, batches of 2 take 6 s and miss the objective of 5 s."""
    spec = cluster(session(slo=100.0), delays=Delays(data=2.0))

    trace = run(ClipperOptions(share=0.05), spec, [0.0] * 7)

    assert sizes(trace) == [1, 2, 1, 2, 1]


def test_aimd_learns_from_what_happens() -> None:
    """Batches that take four times the profile's time hold the limit at what they do, not at the table."""
    arrivals = [(0.0, 0, 0)] * 12

    trace = drive(build(cluster(), ClipperOptions(share=0.05)), arrivals, stretch=[4.0])

    assert sizes(trace) == [1, 2, 1, 2, 2, 2, 2]


def test_aimd_stays_within_the_profile() -> None:
    """However well it goes, no batch is larger than the profile's largest."""
    trace = run(ClipperOptions(increase=5.0), cluster(session(largest=3)), [0.0] * 12)

    assert sizes(trace) == [1, 3, 3, 3, 2]


def test_throughput() -> None:
    """One request per second was seen, 3 s are left: a batch of 3; the others are too late after it."""
    trace = run(ClipperOptions(sizing="throughput"), cluster(session(slo=4.0)), [0.0] * 10)

    assert sizes(trace) == [1, 3]
    assert trace.dropped == dict.fromkeys(range(4, 10), 4.0)


def test_throughput_forgets() -> None:
    """With a window of one only the last batch counts: 0.5, 1, 1.5 requests per second, 4, 3, 1 s left."""
    spec = cluster(session(alpha=0.0, beta=2.0, slo=5.0))

    trace = run(ClipperOptions(sizing="throughput", window=1), spec, [0.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0])

    assert sizes(trace) == [1, 2, 3, 1]
    assert trace.policy.learned["total"][0, 0] == pytest.approx(0.5)


def test_budget() -> None:
    """With 4 s left the profile allows 3 requests; what is left then is late."""
    trace = run(ClipperOptions(sizing="budget"), cluster(session(beta=1.0, slo=6.0)), [0.0] * 6)

    assert sizes(trace) == [1, 3]
    assert trace.dropped == {4: 6.0, 5: 6.0}


@pytest.mark.parametrize("delays", [Delays(control=1.0), Delays(data=0.5)])
def test_budget_allows_for_the_network(delays: Delays) -> None:
    """At 3 s, or 2.5, four requests would take 5 s of the 5 or 5.5 that are left, and 1 or 2 to get there."""
    spec = cluster(session(beta=1.0, slo=8.0), delays=delays)

    trace = run(ClipperOptions(sizing="budget"), spec, [0.0] * 6)

    assert sizes(trace) == [1, 3]


@pytest.mark.parametrize("sizing", ["aimd", "throughput", "budget"])
def test_sends_what_will_be_late(sizing: Sizing) -> None:
    """A request whose deadline has not passed is sent, although it cannot be met any more."""
    trace = run(ClipperOptions(sizing=sizing), cluster(session(beta=1.0, slo=3.0)), [0.0, 0.5])

    assert trace.ended == {0: 2.0, 1: 4.0}


def test_drops_lazily() -> None:
    """A late request is dropped when an accelerator comes to it, not at its deadline."""
    trace = run(ClipperOptions(), cluster(session(slo=0.5)), [0.0, 0.1, 0.8])

    assert trace.dropped == {1: 1.0}
    assert trace.ended == {0: 1.0, 2: 2.0}


def test_oldest_request_first() -> None:
    """Whatever the SLOs, the session with the oldest request is next."""
    spec = cluster(session("a", slo=3.0), session("b"))

    trace = run(ClipperOptions(), spec, [0.0, 0.1, 0.2], [0, 1, 0])

    assert [command.session for _, command in trace.batches] == [0, 1, 0]


def test_every_accelerator_serves_every_session() -> None:
    """Two idle accelerators take two requests of one session."""
    trace = run(ClipperOptions(), cluster(accelerators=2), [0.0, 0.0])

    assert [command.accelerator for _, command in trace.batches] == [0, 1]


def test_static_assignment() -> None:
    """The first session waits for its accelerator although another is idle; the third shares the second's."""
    spec = cluster(session("a"), session("b"), session("c"), accelerators=2)
    options = ClipperOptions(assignment=((0,), (1,), (1, 0)))

    trace = run(options, spec, [0.0, 0.1, 0.2, 0.3, 0.4], [0, 0, 2, 1, 2])

    assert [(now, c.accelerator, c.numbers) for now, c in trace.batches] == [
        (0.0, 0, (0,)),
        (0.2, 1, (2,)),
        (1.0, 0, (1,)),
        (1.2, 1, (3,)),
        (2.0, 0, (4,)),
    ]


@pytest.mark.parametrize("sizing", ["aimd", "throughput", "budget"])
@pytest.mark.parametrize("seed", range(8))
def test_equals_naive(sizing: Sizing, seed: int) -> None:
    """The kernels equal their plain twin on random clusters, options and requests."""
    rng = np.random.default_rng(seed)
    delays = Delays(control=1e-4, data=5e-5, response=2e-3) if seed % 2 else Delays()
    sessions = []
    for index in range(int(rng.integers(1, 5))):
        fast = np.cumsum(rng.uniform(0.0, 0.004, int(rng.integers(3, 12)))) + 0.002
        fast[0] = 0.0
        slo = float(rng.uniform(0.01, 0.06))
        sessions.append(SessionSpec(name=f"s{index}", slo=slo, latency=np.array([fast, 1.6 * fast])))
    kinds = rng.integers(0, 2, rng.integers(1, 5)).tolist()
    spec = ClusterSpec(sessions=sessions, kinds=kinds, delays=delays)
    times = np.cumsum(rng.exponential(0.002, 200) * rng.choice([0.1, 1.0, 4.0])).tolist()
    arrivals = [(time, int(rng.integers(len(sessions))), 0) for time in times]
    homes = [rng.permutation(len(kinds))[: rng.integers(1, len(kinds) + 1)].tolist() for _ in sessions]
    options = ClipperOptions(
        sizing=sizing,
        increase=float(rng.choice([0.5, 1.0, 3.0])),
        share=float(rng.choice([0.3, 1.0])),
        window=int(rng.choice([1, 3, 100])),
        assignment=tuple(map(tuple, homes)) if seed % 4 > 1 else (),
    )

    trace = drive(build(spec, options), arrivals)

    assert answers(trace) == NaiveClipper(spec, options).run(arrivals)


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"sizing": "guess"}, "sizing"),
        ({"increase": 0.0}, "increase"),
        ({"decrease": 1.0}, "decrease"),
        ({"share": float("nan")}, "share"),
        ({"window": 0}, "window"),
    ],
)
def test_unusable_options(options: dict[str, Any], setting: str) -> None:
    """Values that make no sense name their option."""
    with pytest.raises(InvalidInput, match=setting):
        ClipperOptions(**options)


@pytest.mark.parametrize("assignment", [((0,),), ((0,), ()), ((0,), (2,)), ((0,), (-1,))])
def test_assignments_that_do_not_fit(assignment: tuple[tuple[int, ...], ...]) -> None:
    """Each session needs at least one accelerator that exists."""
    with pytest.raises(InvalidInput, match="assignment"):
        build(cluster(session("a"), session("b"), accelerators=2), ClipperOptions(assignment=assignment))
