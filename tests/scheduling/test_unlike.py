"""Accelerators that are too slow for a session, beside others that are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.scheduling.scenarios import MS, at, dropped, sent
from tuner.scheduling.batching import eager, symphony
from tuner.scheduling.batching.candidate import target_batch
from tuner.scheduling.catalogue import build_policy, options_of, set_beliefs
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.scheduler import Dispatch, Scheduler
from tuner.testing.driver import PolicyRun, drive

POLICIES: list[tuple[str, dict[str, Any]]] = [
    ("symphony", {}),
    ("symphony", {"deferral": 0.0, "drop": "lazy", "order": "deadline"}),
    ("symphony", {"deferral": 0.5, "drop": "early", "schedulable": "beta_lambda"}),
    ("eager", {}),
    ("clockwork", {}),
    ("nexus", {}),
]
AT_ONCE: list[tuple[str, dict[str, Any]]] = [("symphony", {"deferral": 0.0}), ("eager", {})]


def cluster(kinds: list[int], *sessions: tuple[float, list[list[float]]]) -> ClusterSpec:
    """Sessions with an SLO and a profile for each kind, both in ms."""
    made = [
        SessionSpec(name=f"s{number}", slo=slo * MS, latency=np.array(tables) * MS)
        for number, (slo, tables) in enumerate(sessions)
    ]
    return ClusterSpec(sessions=made, kinds=kinds)


def run(
    policy: tuple[str, dict[str, Any]], spec: ClusterSpec, arrivals: list[tuple[float, int, int]]
) -> PolicyRun:
    name, options = policy
    return drive(build_policy(name, spec, options_of(name)(**options)), arrivals)


LINE = [0.0, *(4.0 + size for size in range(1, 41))]
USELESS = [0.0, *(60.0 + 2 * size for size in range(1, 41))]
"""l(1) = 62 ms: no request of a session with an SLO of 50 ms can end in time."""


def good(trace: PolicyRun, arrivals: list[tuple[float, int, int]], slo: float) -> int:
    """How many requests ended within an SLO (ms)."""
    return sum(
        trace.ended.get(number, np.inf) <= arrival[0] + slo * MS + 1e-9
        for number, arrival in enumerate(arrivals)
    )


@pytest.mark.compiled
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("kinds", [[1, 0], [0, 1], [1, 1, 1, 0]], ids=str)
def test_a_useless_accelerator_does_no_harm(policy: tuple[str, dict[str, Any]], kinds: list[int]) -> None:
    """As many requests are answered in time as without it, under little load and under much."""
    for rate in (50.0, 700.0, 2000.0):
        times = np.cumsum(np.random.default_rng(3).exponential(1 / rate, 400))
        arrivals = [(float(time), 0, 0) for time in times]

        alone = run(policy, cluster([0], (50, [LINE, USELESS])), arrivals)
        both = run(policy, cluster(kinds, (50, [LINE, USELESS])), arrivals)

        assert 0 < good(alone, arrivals, 50) <= good(both, arrivals, 50)


def test_a_fast_accelerator_that_hangs_keeps_no_request_from_slow_ones() -> None:
    """Its first batch never ends: three slow ones serve as many as beside one as slow as they."""
    times = np.cumsum(np.random.default_rng(1).exponential(1 / 1200, 600)).tolist()
    arrivals = [(time, 0, 0) for time in times]
    line = [0.0, *(10.0 + 2 * size for size in range(1, 25))]

    def served(factor: float) -> int:
        spec = cluster([0, 1, 1, 1], (50, [[factor * each for each in line], line]))
        policy = build_policy("symphony", spec, options_of("symphony")())
        trace = drive(policy, arrivals, stretch=[1e6, *[1.0] * len(arrivals)], until=times[-1])
        assert trace.batches[0][1].accelerator == 0
        return good(trace, arrivals, 50)

    assert served(0.7) > 0.95 * served(1.0) > 400


@pytest.mark.parametrize("policy", AT_ONCE, ids=str)
def test_the_accelerator_that_is_free_first_must_be_of_use(policy: tuple[str, dict[str, Any]]) -> None:
    """Accelerator 1 is idle all the time, and too slow: nothing is dropped, nothing is sent there."""
    spec = cluster([0, 1], (50, [[0, 5, 6, 7, 8], [0, 60, 62, 64, 66]]))

    trace = run(policy, spec, at(0, 1, 10))

    assert dropped(trace) == []
    assert sent(trace) == [(0.0, (0,)), (5.0, (1,)), (10.0, (2,))]
    assert {batch.accelerator for _, batch in trace.batches} == {0}


def test_a_deferred_batch_is_planned_for_an_accelerator_of_use() -> None:
    """The three requests are one batch, sent at 50 - l(4) = 42 ms, though the slow one comes first."""
    spec = cluster([1, 0], (50, [[0, 5, 6, 7, 8], [0, 60, 62, 64, 66]]))

    trace = run(("symphony", {}), spec, at(0, 1, 10))

    assert sent(trace) == [(42.0, (0, 1, 2))]
    assert dropped(trace) == []


@pytest.mark.parametrize("policy", AT_ONCE, ids=str)
def test_a_session_that_fits_one_kind_keeps_no_other_from_the_rest(
    policy: tuple[str, dict[str, Any]],
) -> None:
    """Session 0 waits for accelerator 0, until 10 ms; session 1 takes the other one meanwhile."""
    spec = cluster([0, 1], (30, [[0, 10], [0, 100]]), (40, [[0, 10], [0, 12]]))

    trace = run(policy, spec, [*at(0, 1), *at(2, session=1)])

    assert sent(trace) == [(0.0, (0,)), (2.0, (2,)), (10.0, (1,))]
    assert dropped(trace) == []


@pytest.mark.parametrize("policy", AT_ONCE, ids=str)
def test_what_is_too_late_for_one_kind_is_left_to_another(policy: tuple[str, dict[str, Any]]) -> None:
    """At 15 ms the slow accelerator would end request 3, due at 29, at 30; the fast one at 27."""
    spec = cluster([0, 1], (21, [[0, 9], [0, 15]]))

    trace = run(policy, spec, at(0, 0, 1, 8))

    assert sent(trace) == [(0.0, (0,)), (0.0, (1,)), (9.0, (2,)), (18.0, (3,))]
    assert dropped(trace) == []


@pytest.mark.parametrize("policy", AT_ONCE, ids=str)
def test_what_no_kind_ends_in_time_is_dropped(policy: tuple[str, dict[str, Any]]) -> None:
    """Of four requests at 1 ms, due at 31, the fast one ends two at 18 and 27, the slow one one at 30."""
    spec = cluster([0, 1], (30, [[0, 9], [0, 15]]))

    trace = run(policy, spec, at(0, 0, 1, 1, 1, 1))

    assert sent(trace) == [(0.0, (0,)), (0.0, (1,)), (9.0, (2,)), (15.0, (3,)), (18.0, (4,))]
    assert [numbers for _, numbers in dropped(trace)] == [(5,)]


def test_a_target_batch_heeds_only_kinds_of_use() -> None:
    """The slowest kind counts, unless it can serve no request of the session; then the others do."""
    without = symphony.build(cluster([0], (50, [LINE])))
    useless = symphony.build(cluster([0, 1], (50, [LINE, USELESS])))
    slow = symphony.build(cluster([0, 1], (50, [LINE, [2 * each for each in LINE]])))

    batches = [target_batch(policy.cluster, 0, 700.0) for policy in (without, useless, slow)]

    assert batches[0] == batches[1] > batches[2] > 1


def test_the_latency_of_an_empty_batch_heeds_only_kinds_of_use() -> None:
    """It is the mean over the accelerators that can serve the session; 4 ms without the useless ones."""
    useless = symphony.build(cluster([0, 1, 1], (50, [LINE, USELESS]), (1, [LINE, USELESS])))

    assert useless.candidates["beta"] == pytest.approx([4 * MS, (4 + 60 + 60) / 3 * MS])


@pytest.mark.compiled
def test_accelerators_of_another_number_are_like() -> None:
    """If all are of kind 1, all is as if they were of the only kind."""
    spec = cluster([1, 1], (50, [LINE, LINE]))
    arrivals = at(*np.random.default_rng(1).uniform(0, 50, 200).tolist())
    arrivals.sort()

    for policy in POLICIES[:4]:
        given = run(policy, replace(spec, kinds=[0, 0]), arrivals)
        trace = run(policy, spec, arrivals)
        assert trace.commands == given.commands
        assert given.commands


def test_a_kind_that_has_become_of_use_is_used() -> None:
    """What waits for the busy accelerator goes to the other one once that is known to be fast."""
    spec = cluster([0, 1], (50, [[0, 10], [0, 60]]))
    policy = eager.build(spec)
    scheduler = Scheduler(policy)
    scheduler.arrive(0, 0.0)
    assert scheduler.arrive(0, 1 * MS) == []

    believed = [np.array([[0, 10.0], [0, 20.0]]) * MS]
    set_beliefs("eager", policy, believed, Delays())

    (command,) = scheduler.wake(2 * MS)
    assert isinstance(command, Dispatch)
    assert command.accelerator == 1
