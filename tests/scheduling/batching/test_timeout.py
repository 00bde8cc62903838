"""Tests of the batchers of Triton and TF Serving: hand-made traces, plain twin, single-server model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.scheduling.batching.naive_timeout import NaiveTimeout, answers
from tuner.envs.simulator.batcher import (
    BatcherArrivals,
    BatcherState,
    Batching,
    Machine,
    advance,
)
from tuner.envs.simulator.world import empty_totals
from tuner.errors import InvalidInput
from tuner.scheduling.batching.timeout import TimeoutOptions, build
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.testing.driver import drive


def session(
    name: str = "m", *, alpha: float = 0.0, beta: float = 1.0, largest: int = 8, slo: float = 10.0
) -> SessionSpec:
    latency = alpha * np.arange(largest + 1) + beta
    latency[0] = 0.0
    return SessionSpec(name=name, slo=slo, latency=np.array([latency]))


def cluster(*sessions: SessionSpec, accelerators: int = 1, delays: Delays | None = None) -> ClusterSpec:
    return ClusterSpec(sessions=sessions or [session()], kinds=[0] * accelerators, delays=delays or Delays())


def trace(
    options: TimeoutOptions, spec: ClusterSpec, times: list[float], owners: list[int] | None = None
) -> tuple[list[tuple[float, int, list[int]]], dict[int, float]]:
    """Batches as (sent, accelerator, requests), and drops as (time, requests)."""
    arrivals = [(time, owner, 0) for time, owner in zip(times, owners or [0] * len(times), strict=True)]
    run = drive(build(spec, options), arrivals)
    batches = [(round(now, 9), c.accelerator, list(c.numbers)) for now, c in run.batches]
    return batches, {number: round(now, 9) for number, now in run.dropped.items()}


def test_takes_what_waits() -> None:
    """Without options an idle accelerator takes at once all that waits, up to the largest batch."""
    batches, _ = trace(TimeoutOptions(), cluster(session(largest=3)), [0.0, 0.1, 0.2, 0.3, 0.4])

    assert batches == [(0.0, 0, [0]), (1.0, 0, [1, 2, 3]), (2.0, 0, [4])]


def test_waits_for_the_delay() -> None:
    """The oldest request waits for the delay, or until the batch is full."""
    options = TimeoutOptions(max_batch=3, delay=0.5)

    batches, _ = trace(options, cluster(session(beta=0.1)), [0.0, 0.3, 5.0, 5.1, 5.2])

    assert batches == [(0.5, 0, [0, 1]), (5.2, 0, [2, 3, 4])]


def test_preferred_sizes_go_at_once() -> None:
    """Two make a preferred size and go; of three that waited two go, and the third at its delay."""
    options = TimeoutOptions(delay=2.0, preferred=(2, 4))
    spec = cluster(session(beta=1.0))

    batches, _ = trace(options, spec, [0.0, 0.1, 0.2, 0.3, 0.4, 9.0])

    assert batches == [(0.1, 0, [0, 1]), (1.1, 0, [2, 3]), (2.4, 0, [4]), (11.0, 0, [5])]


@pytest.mark.parametrize("largest", [4, 8])
def test_largest_preferred_size_first(largest: int) -> None:
    """Of seven that waited four go first, of the three left two, and the last waits for its delay."""
    options = TimeoutOptions(delay=3.0, preferred=(2, 4))
    spec = cluster(session(beta=1.0, largest=largest))

    batches, _ = trace(options, spec, [0.0, 0.0, *[0.5] * 7])

    assert batches == [(0.0, 0, [0, 1]), (1.0, 0, [2, 3, 4, 5]), (2.0, 0, [6, 7]), (3.5, 0, [8])]


def test_passed_delay_does_not_mind_preferred_sizes() -> None:
    """What has waited for the delay when the accelerator comes free goes with all there is."""
    options = TimeoutOptions(delay=0.2, preferred=(2,))

    batches, _ = trace(options, cluster(session(beta=1.0)), [0.0, 0.0, 0.1, 0.2, 0.3])

    assert batches == [(0.0, 0, [0, 1]), (1.0, 0, [2, 3, 4])]


@pytest.mark.parametrize("preferred", [(8,), (3, 8), ((8, 9),)])
def test_a_preferred_size_that_no_batch_can_have_counts_as_none(preferred: Any) -> None:
    """The profile ends at four, or three are preferred: a full batch goes at once, as without the option."""
    options = TimeoutOptions(delay=1.0, preferred=preferred)
    full = 3 if 3 in preferred else 4

    batches, _ = trace(options, cluster(session(largest=4)), [0.0, 0.1, 0.2, 0.3])

    assert batches[0] == (round(0.1 * (full - 1), 9), 0, list(range(full)))


def test_preferred_sizes_without_delay() -> None:
    """Without a delay a preferred size goes first, and what is left right after it."""
    options = TimeoutOptions(preferred=(2,))

    batches, _ = trace(options, cluster(session(beta=1.0)), [0.0, 0.1, 0.2, 0.3])

    assert batches == [(0.0, 0, [0]), (1.0, 0, [1, 2]), (2.0, 0, [3])]


def test_padding_takes_the_time_of_the_allowed_size() -> None:
    """A batch of two is padded to four and takes the time of four."""
    options = TimeoutOptions(delay=1.0, allowed=(1, 4))
    policy = build(cluster(session(alpha=1.0, beta=0.0)), options)

    run = drive(policy, [(0.0, 0, 0), (0.5, 0, 0), (20.0, 0, 0)])

    assert run.ended == pytest.approx({0: 5.0, 1: 5.0, 2: 22.0})
    assert run.policy.cluster.sessions["largest"].tolist() == [4]


def test_instances() -> None:
    """One instance leaves the second accelerator to the other session."""
    spec = cluster(session("a"), session("b"), accelerators=2)

    batches, _ = trace(TimeoutOptions(instances=1, max_batch=1), spec, [0.0, 0.1, 0.2], [0, 0, 1])

    assert batches == [(0.0, 0, [0]), (0.2, 1, [2]), (1.0, 0, [1])]


def test_oldest_eligible_session_first() -> None:
    """Of two sessions with batches to send the one with the older request goes first."""
    spec = cluster(session("a"), session("b"))

    batches, _ = trace(TimeoutOptions(), spec, [0.0, 0.2, 0.3, 0.4], [0, 1, 0, 1])

    assert batches == [(0.0, 0, [0]), (1.0, 0, [1, 3]), (2.0, 0, [2])]


def test_one_value_per_session() -> None:
    """The second session alone waits for its delay."""
    spec = cluster(session("a", beta=0.1), session("b", beta=0.1))
    options = TimeoutOptions(delay=(0.0, 0.5), preferred=((), (3,)))

    batches, _ = trace(options, spec, [0.0, 1.0], [0, 1])

    assert batches == [(0.0, 0, [0]), (1.5, 0, [1])]


@pytest.mark.parametrize(
    "options", [TimeoutOptions(max_enqueued=2), TimeoutOptions(max_enqueued_batches=1, max_batch=2)]
)
def test_full_queue_refuses(options: TimeoutOptions) -> None:
    """With two waiting, in requests or as one batch, the third and fourth are refused as they arrive."""
    batches, dropped = trace(options, cluster(session()), [0.0, 0.1, 0.2, 0.3, 0.4, 1.5])

    assert batches == [(0.0, 0, [0]), (1.0, 0, [1, 2]), (2.0, 0, [5])]
    assert dropped == {3: 0.3, 4: 0.4}


@pytest.mark.parametrize(("drops", "expected"), [(True, {1: 0.6, 2: 0.7}), (False, {})])
def test_expired_requests(drops: bool, expected: dict[int, float]) -> None:
    """Late requests execute by default, and are dropped at their deadline on request."""
    spec = cluster(session(slo=0.5))

    batches, dropped = trace(TimeoutOptions(drop_expired=drops), spec, [0.0, 0.1, 0.2, 0.8])

    assert dropped == expected
    assert batches == [(0.0, 0, [0]), (1.0, 0, [3] if drops else [1, 2, 3])]


def test_network_delays_start() -> None:
    """A batch starts when the scheduler's word and the data of all its requests can be there."""
    spec = cluster(session(), delays=Delays(control=0.1, data=0.02, response=1.0))

    run = drive(build(spec, TimeoutOptions(delay=0.5)), [(0.0, 0, 0), (0.4, 0, 0)])

    ((now, command),) = run.batches
    assert (now, command.start) == pytest.approx((0.5, 0.64))
    assert run.ended == pytest.approx({0: 1.64, 1: 1.64})


CHOICES: dict[str, list[Any]] = {
    "max_batch": [0, 1, 4],
    "delay": [0.0, 0.004, 0.03],
    "preferred": [(), (2,), (2, 3), (12,)],
    "instances": [0, 1, 2],
    "max_enqueued": [0, 0, 5],
    "max_enqueued_batches": [0, 0, 2],
    "drop_expired": [False, True],
}


def random_options(rng: np.random.Generator) -> TimeoutOptions:
    values = {name: choices[rng.integers(len(choices))] for name, choices in CHOICES.items()}
    if values["max_batch"] and values["preferred"][-1:] > (values["max_batch"],):
        values["preferred"] = ()
    if values["max_batch"] == 4:
        values["allowed"] = [(), (1, 4), (2, 3, 4)][rng.integers(3)]
    return TimeoutOptions(**values)


@pytest.mark.parametrize("seed", range(20))
def test_equals_naive(seed: int) -> None:
    """The kernels equal their plain twin on random clusters, options and requests."""
    rng = np.random.default_rng(seed)
    delays = Delays(control=1e-4, data=5e-5, response=2e-3) if seed % 2 else Delays()
    sessions = []
    for index in range(int(rng.integers(1, 5))):
        fast = np.cumsum(rng.uniform(0.0, 0.004, int(rng.integers(5, 12)))) + 0.002
        fast[0] = 0.0
        slo = float(rng.uniform(0.01, 0.1))
        sessions.append(SessionSpec(name=f"s{index}", slo=slo, latency=np.array([fast, 1.6 * fast])))
    spec = ClusterSpec(
        sessions=sessions, kinds=rng.integers(0, 2, rng.integers(1, 5)).tolist(), delays=delays
    )
    times = np.cumsum(rng.exponential(0.002, 150) * rng.choice([0.1, 1.0, 4.0])).tolist()
    arrivals = [(time, int(rng.integers(len(sessions))), 0) for time in times]
    options = random_options(rng)

    run = drive(build(spec, options), arrivals)

    assert answers(run) == NaiveTimeout(spec, options).run(arrivals)


def single_server(batching: Batching, profile: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Latencies by the compiled model of one server with cores to spare."""
    slots, largest = batching.instances, profile.size - 1
    state = BatcherState(
        clock=np.zeros(1),
        position=np.zeros(4, np.int64),
        queue=np.zeros((1 << 10, 4)),
        queue_number=np.zeros(1 << 10, np.int64),
        running=np.zeros((slots, largest, 2)),
        running_number=np.zeros((slots, largest), np.int64),
        size=np.zeros(slots, np.int64),
        epoch=np.zeros(slots, np.int64),
        started=np.zeros(slots),
        remaining=np.zeros(slots),
        gap_share=np.zeros(slots),
        latency=np.full(1 << 10, np.nan),
    )
    totals = empty_totals(largest)
    machine = Machine(profile, 0.0, 0.0, 64.0, 1.0, 0.0)
    arrivals = BatcherArrivals(times, np.ones(times.size), np.zeros(times.size), np.ones(times.size))
    advance(state, totals, batching, machine, arrivals, float(times[-1]) + 100.0)
    return state.latency[: times.size]


@pytest.mark.parametrize(
    "batching", [Batching(1, 0.01, 2), Batching(8, 0.0, 1), Batching(4, 0.005, 1), Batching(8, 0.02, 3)]
)
@pytest.mark.parametrize("rate", [100.0, 400.0, 1200.0])
def test_agrees_with_the_model_of_one_server(batching: Batching, rate: float) -> None:
    """With as many accelerators as instances, both models of Triton's batcher give the same latencies."""
    times = np.cumsum(np.random.default_rng(int(rate)).exponential(1.0 / rate, 300))
    profile = 0.001 * np.arange(9) + 0.004
    options = TimeoutOptions(max_batch=batching.max_batch, delay=batching.delay)
    spec = cluster(session(alpha=0.001, beta=0.004), accelerators=batching.instances)

    run = drive(build(spec, options), [(time, 0, 0) for time in times.tolist()])

    latency = [run.ended[number] - time for number, time in enumerate(times)]
    assert latency == pytest.approx(single_server(batching, profile, times).tolist(), abs=1e-9)


@pytest.mark.parametrize(
    ("options", "setting"),
    [
        ({"max_batch": -1}, "max_batch"),
        ({"max_batch": 2.5}, "max_batch"),
        ({"instances": (1, -2)}, "instances"),
        ({"delay": -0.1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"preferred": (4, 2)}, "preferred"),
        ({"preferred": ((1, 2), (0,))}, "preferred"),
        ({"allowed": (0, 2)}, "allowed"),
        ({"max_enqueued": 1.5}, "max_enqueued"),
    ],
)
def test_unusable_options(options: dict[str, Any], setting: str) -> None:
    """Values that make no sense name their option."""
    with pytest.raises(InvalidInput, match=setting):
        TimeoutOptions(**options)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (TimeoutOptions(delay=(0.0, 1.0)), "delay: 2 values for 1 sessions"),
        (TimeoutOptions(preferred=((2,), (4,))), "preferred: 2 values"),
        (TimeoutOptions(preferred=(2, 8), max_batch=4), "preferred: 8 is more than max_batch 4"),
        (TimeoutOptions(allowed=(2, 8), max_batch=4), "allowed: the last"),
        (TimeoutOptions(allowed=(2, 16)), "the profile of m ends at batches of 8"),
    ],
)
def test_options_that_do_not_fit(options: TimeoutOptions, problem: str) -> None:
    """TimeoutOptions that do not fit the sessions say how."""
    with pytest.raises(InvalidInput, match=problem):
        build(cluster(), options)
