"""The deferred scheduler: traces computed by hand, and its plain twin on random scenarios."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from tests.scheduling.batching.naive_symphony import NaiveSymphony
from tests.scheduling.scenarios import (
    MS,
    RESNET50,
    at,
    dropped,
    linear,
    one,
    random_scenario,
    sent,
    unlike_scenario,
)
from tests.scheduling.twin import assert_twin
from tuner.scheduling.batching import eager
from tuner.scheduling.batching.candidate import target_batch
from tuner.scheduling.batching.symphony import DropRule, Order, SymphonyOptions, build
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.policy import arrive, finish, wake
from tuner.scheduling.vocabulary import DROP
from tuner.testing.driver import drive, noted

SMALL = (1 * MS, 5 * MS, 25 * MS)  # l(b) = b + 5 ms, SLO 25 ms


# -- when a candidate is schedulable


def test_waits_until_no_further_request_could_be_included() -> None:
    """One request at 0 is sent at 25 - l(2) = 18 ms, though the accelerator is idle all the time."""

    trace = drive(build(one(*SMALL)), at(0))

    assert sent(trace) == [(18.0, (0,))]


def test_each_request_brings_the_time_forward() -> None:
    """Two requests are sent together at 25 - l(3) = 17 ms; one at 17.5 ms would have been too late."""

    trace = drive(build(one(*SMALL)), at(0, 1, 17.5))

    assert sent(trace)[0] == (17.0, (0, 1))


def test_the_network_is_allowed_for() -> None:
    """sched_at = 25 - 2 - l(2) - (0.1 + 2 * 0.05) = 15.8 ms; the batch of one is there 0.15 ms later."""
    spec = one(*SMALL, control=0.1 * MS, data=0.05 * MS, response=2 * MS)

    trace = drive(build(spec), at(0))

    assert sent(trace) == [(15.8, (0,))]
    ((_, batch),) = trace.batches
    assert batch.start == pytest.approx(15.95 * MS)
    assert batch.finish == pytest.approx(21.95 * MS)


@pytest.mark.parametrize(("deferral", "time"), [(0.0, 0.0), (0.5, 9.0), (1.0, 18.0)])
def test_deferral_is_the_part_of_the_wait(deferral: float, time: float) -> None:
    """Between 0, at once, and 1, at sched_at = 18 ms, a candidate waits in proportion."""

    trace = drive(build(one(*SMALL), SymphonyOptions(deferral=deferral)), at(0))

    assert sent(trace) == [(time, (0,))]


def test_more_than_beta_lambda_requests_are_schedulable() -> None:
    """With beta = 5.5 ms and a request each ms, a batch is sent as soon as it holds 6 > 5.5 of them."""
    spec = one(1 * MS, 5.5 * MS, 40 * MS, accelerators=4)
    arrivals = at(*range(200))

    trace = drive(build(spec, SymphonyOptions(schedulable="beta_lambda")), arrivals, until=199.5 * MS)

    settled = [(time, numbers) for time, numbers in sent(trace) if time > 100]
    assert len(settled) > 10
    assert all(len(numbers) == 6 and time == numbers[-1] for time, numbers in settled)


def test_without_the_test_the_same_load_makes_larger_batches() -> None:
    """Pure sched_at waits for 17: the last of them comes at 16 ms, and 40 - l(18) is 16.5."""
    spec = one(1 * MS, 5.5 * MS, 40 * MS, accelerators=4)
    arrivals = at(*range(200))

    trace = drive(build(spec), arrivals, until=199.5 * MS)

    assert {len(numbers) for _, numbers in sent(trace)} == {17}


def test_a_full_batch_waits_for_nothing() -> None:
    """With a cap of 4, a burst of 10 is sent as 4 and 4 at once; 2 are left until 25 - l(3) = 17 ms."""

    trace = drive(build(one(*SMALL, accelerators=3), SymphonyOptions(cap=4)), at(0) * 10)

    assert sent(trace) == [(0.0, (0, 1, 2, 3)), (0.0, (4, 5, 6, 7)), (17.0, (8, 9))]


# -- which requests are given up

BUSY = ClusterSpec(
    sessions=[
        linear("a", 1 * MS, 5 * MS, 20 * MS),
        SessionSpec(name="long", slo=25 * MS, latency=np.array([[0.0, 18 * MS]])),
    ],
    kinds=[0],
)
BURSTS = at(0, session=1) + at(0, 1, 2, 8, 9, 10)
"""The accelerator is busy until 18 ms; the deadlines of requests 1..6 are at 20, 21, 22, 28, 29, 30."""


def test_window_drop_by_hand() -> None:
    """Heads go when a batch of min(target, the rest that could be one batch) would fail them.

    The target is 5, as l(5) = 20 / 2. At 10 ms all six together would end at 21 > 20, the last five at 20:
    so five are planned, until 20 - l(5) = 10 ms. Then 1 goes. Five from 2 on hold until 21 - l(5) = 11, four
    until 21 - l(4) = 12: 2 goes. 3 holds in a batch of four until 22 - l(4) = 13, of three until
    22 - l(3) = 14, and goes. The last three wait for 28 - l(4) = 19 ms.
    """

    trace = drive(build(BUSY), BURSTS)

    assert dropped(trace) == [(10.001, (1,)), (12.001, (2,)), (14.001, (3,))]
    assert sent(trace) == [(0.0, (0,)), (19.0, (4, 5, 6))]


@pytest.mark.parametrize(("target", "times"), [(True, [10.001, 11.001]), (False, [10.0, 10.0])])
def test_the_target_keeps_requests_from_being_given_up(target: bool, times: list[float]) -> None:
    """Two old requests are followed by eight at 10 ms, which would make a batch of l(8) = 13 ms.

    With the target of 5 a batch of l(5) = 10 ms is large enough: the old ones, due at 20 and 21, hold as long
    as that is in time. Without, they go when they keep a batch of the new ones from being larger.
    """

    trace = drive(
        build(BUSY, SymphonyOptions(target_batch=target)), [(0, 1, 0), (0, 0, 0), (1 * MS, 0, 0), *at(10) * 8]
    )

    assert dropped(trace)[:2] == [(times[0], (1,)), (times[1], (2,))]


def test_early_drop_by_hand() -> None:
    """Heads go when a batch of the target size 5 would fail them: at 20 - l(5) = 10 ms, 11; of four, 13."""

    trace = drive(build(BUSY, SymphonyOptions(drop="early")), BURSTS)

    assert dropped(trace) == [(10.001, (1,)), (11.001, (2,)), (13.001, (3,))]
    assert sent(trace)[1:] == [(19.0, (4, 5, 6))]


def test_lazy_drop_by_hand() -> None:
    """Heads go when they would fail alone: at deadline - l(1), 14, 15 and 16 ms."""

    trace = drive(build(BUSY, SymphonyOptions(drop="lazy")), BURSTS)

    assert dropped(trace) == [(14.001, (1,)), (15.001, (2,)), (16.001, (3,))]
    assert sent(trace)[1:] == [(19.0, (4, 5, 6))]


def test_a_burst_is_not_thinned_out() -> None:
    """Of 30 requests that came at 1 ms, 16 can end at 26 if sent at 5; the others can wait, so none goes."""
    five = SessionSpec(name="five", slo=25 * MS, latency=np.array([[0.0, 5 * MS]]))
    spec = ClusterSpec(sessions=[linear("a", *SMALL), five], kinds=[0, 0])

    trace = drive(build(spec), at(0, 0, session=1) + at(1) * 30)

    assert sent(trace)[2:] == [(5.0, tuple(range(2, 18))), (6.0, tuple(range(18, 32)))]
    assert dropped(trace) == []


@pytest.mark.parametrize(
    ("model", "rate", "expected"),
    [
        (RESNET50, 5839, 16),  # 8 staggered accelerators (Symphony, section 4.2)
        ((5.090 * MS, 18.368 * MS, 70 * MS), 1083, 8),
        (RESNET50, 0, 7),  # not known: l(b) <= SLO / 2, as without coordination
        ((5.090 * MS, 18.368 * MS, 70 * MS), 0, 3),
        (RESNET50, 10, 1),  # waiting for a second one takes longer than the SLO
    ],
)
def test_target_batch_is_the_closed_form(
    model: tuple[float, float, float], rate: float, expected: int
) -> None:
    """The largest b with l(b) (1 + 1/n) <= SLO, n = rate * l(b) / b accelerators."""

    assert target_batch(build(one(*model)).cluster, 0, rate) == expected


def test_the_target_follows_the_rate() -> None:
    """After a while at 5,839 requests/s the target is 16; the network's allowances make it smaller."""
    arrivals = [(number / 5839, 0, 0) for number in range(800)]
    free = build(one(*RESNET50, accelerators=8))
    slow = build(one(*RESNET50, accelerators=8, control=0.1 * MS, data=0.05 * MS, response=2 * MS))

    for policy in (free, slow):
        drive(policy, arrivals)

    assert free.candidates[0].target == 16
    assert (
        slow.candidates[0].target == 13
    )  # 5.072 + 13 (1.053 + 0.05 + 0.17126) = 21.64 <= 22.9 < 22.91 for 14
    assert free.candidates[0].rate == pytest.approx(5839, rel=0.02)


# -- accelerators


def test_sends_ahead_so_that_the_batch_arrives_when_the_accelerator_is_free() -> None:
    """With a control delay of 3 ms, the second batch is sent 3 ms before the first ends, to start then."""
    spec = one(5 * MS, 5 * MS, 30 * MS, control=3 * MS)

    trace = drive(build(spec, SymphonyOptions(deferral=0, cap=1)), at(0, 1))

    assert sent(trace) == [(0.0, (0,)), (10.0, (1,))]
    assert [round(batch.start / MS, 6) for _, batch in trace.batches] == [3.0, 13.0]


def test_an_overdue_accelerator_gets_nothing_until_it_has_finished() -> None:
    """The first batch takes twice the believed 6 ms; the second is sent when it really ends."""

    trace = drive(build(one(*SMALL), SymphonyOptions(deferral=0)), at(0, 1), stretch=[2.0])

    assert sent(trace) == [(0.0, (0,)), (12.0, (1,))]


def test_a_late_batch_moves_those_behind_it() -> None:
    """Of two batches, believed to end at 13 and 23 ms, the first ends at 15: the second is expected at 25."""
    policy = build(one(5 * MS, 5 * MS, 60 * MS, control=3 * MS), SymphonyOptions(deferral=0, cap=1))
    arrive(policy, 0, 0, 0, 0.0)
    arrive(policy, 0, 0, 1, 1 * MS)
    wake(policy, float(policy.cluster.board[0].wake_at))

    finish(policy, 0, 15 * MS)

    assert policy.cluster.accelerators[0].free_at == pytest.approx(25 * MS)
    assert policy.cluster.accelerators[0].outstanding == 1


def test_an_early_batch_leaves_those_behind_it_as_they_were() -> None:
    """What is on the way is not there earlier; alone, an early end frees the accelerator at once."""
    policy = build(one(5 * MS, 5 * MS, 60 * MS, control=3 * MS), SymphonyOptions(deferral=0, cap=1))
    arrive(policy, 0, 0, 0, 0.0)
    arrive(policy, 0, 0, 1, 1 * MS)
    wake(policy, float(policy.cluster.board[0].wake_at))

    finish(policy, 0, 12 * MS)
    assert policy.cluster.accelerators[0].free_at == pytest.approx(23 * MS)

    finish(policy, 0, 20 * MS)
    assert policy.cluster.accelerators[0].free_at == pytest.approx(20 * MS)


def test_requests_are_dropped_though_no_accelerator_ever_finishes() -> None:
    """Without a word from the accelerator, what waits is given up in time; then there is no timer left."""
    policy = build(one(*SMALL), SymphonyOptions(deferral=0))
    for number in range(5):
        arrive(policy, 0, 0, number, number * MS)
    gone: list[int] = []
    for _ in range(100):
        now = float(policy.cluster.board[0].wake_at)
        if now == np.inf:
            break
        wake(policy, now)
        commands = noted(policy.cluster)
        assert all(command.kind == DROP for command in commands)
        assert all(now <= (number + 25) * MS for command in commands for number in command.numbers)
        gone += [number for command in commands for number in command.numbers]

    assert gone == [1, 2, 3, 4]
    assert policy.cluster.board[0].wake_at == np.inf


def test_a_batch_is_formed_for_the_accelerator_that_it_gets() -> None:
    """Of a burst the fast accelerator takes 19, as 25 - l(20) = 0; the slow one 7, as 25 - l(8) < 0."""
    fast = np.arange(31) + 5.0
    slow = 2.0 * np.arange(31) + 10.0
    fast[0] = slow[0] = 0
    session = SessionSpec(name="a", slo=25 * MS, latency=np.array([slow, fast]) * MS)
    spec = ClusterSpec(sessions=[session], kinds=[1, 0])

    trace = drive(build(spec), at(0) * 26)

    assert sent(trace) == [(0.0, tuple(range(19))), (0.0, tuple(range(19, 26)))]
    assert [batch.accelerator for _, batch in trace.batches] == [0, 1]


def test_a_driver_that_is_late_sends_nothing_late() -> None:
    """Request 1, due at 26 ms, had to be sent by 20; the first batch ends at 21, before any other event."""
    policy = build(one(*SMALL), SymphonyOptions(deferral=0))
    arrive(policy, 0, 0, 0, 0.0)
    arrive(policy, 0, 0, 1, 1 * MS)

    finish(policy, 0, 21 * MS)

    assert [(command.kind, command.numbers) for command in noted(policy.cluster)] == [(DROP, (1,))]


@pytest.mark.parametrize(("slo", "early"), [(25.0, 20.0), (5.0, 0.0)])
def test_what_cannot_be_in_time_is_refused_when_it_comes(slo: float, early: float) -> None:
    """Though the accelerator is busy: alone it would take 6 ms, and is due in 5."""
    policy = build(replace(one(1 * MS, 5 * MS, slo * MS), busy={0: 10 * MS}))
    policy.cluster.board[0].early = early * MS

    arrive(policy, 0, 0, 0, 1 * MS)

    assert [(command.kind, command.numbers) for command in noted(policy.cluster)] == [(DROP, (0,))]


def test_what_was_sent_says_nothing_of_what_waits() -> None:
    """Request 0, due at 25 ms, was sent; behind it request 1 comes, due at 6, which would end at 7 alone."""
    policy = build(one(*SMALL, accelerators=2), SymphonyOptions(deferral=0))
    arrive(policy, 0, 0, 0, 0.0)
    policy.cluster.board[0].early = 20 * MS

    arrive(policy, 0, 0, 1, 1 * MS)

    assert [(command.kind, command.numbers) for command in noted(policy.cluster)] == [(DROP, (1,))]


def test_a_nearer_deadline_that_a_batch_would_miss_is_refused_when_it_comes() -> None:
    """Six requests due at 25 ms wait; a seventh, due at 9, would with them be sent at 1 and end at 13."""
    policy = build(replace(one(*SMALL), busy={0: 10 * MS}))
    for number in range(6):
        arrive(policy, 0, 0, number, 0.0)
    policy.cluster.board[0].early = 17 * MS

    arrive(policy, 0, 0, 6, 1 * MS)

    assert [(command.kind, command.numbers) for command in noted(policy.cluster)] == [(DROP, (6,))]


# -- the plain twin


def random_options(seed: int) -> SymphonyOptions:
    rng = np.random.default_rng([seed, 1])
    return SymphonyOptions(
        deferral=float(rng.choice([0.0, 0.3, 1.0], p=[0.2, 0.2, 0.6])),
        schedulable="beta_lambda" if rng.random() < 0.4 else "sched_at",
        target_batch=bool(rng.random() < 0.7),
        cap=int(rng.choice([0, 0, 1, 3, 8])),
        drop=get_args(DropRule)[rng.integers(3)],
        order=get_args(Order)[rng.integers(3)],
    )


@pytest.mark.parametrize("seed", range(40))
def test_equals_the_plain_twin(seed: int) -> None:
    """On random clusters, loads and options, the twin gives the same commands at the same times."""
    scenario, options = random_scenario(seed), random_options(seed)

    trace = drive(build(scenario.spec, options), scenario.arrivals, scenario.stretch)

    assert trace.commands
    assert_twin(trace.events, NaiveSymphony(scenario.spec, options), within=1e-9)


@pytest.mark.parametrize("seed", range(80))
def test_equals_the_plain_twin_on_unlike_accelerators(seed: int) -> None:
    """So it does where some accelerators are too slow for some sessions."""
    scenario, options = unlike_scenario(seed), random_options(seed)

    trace = drive(build(scenario.spec, options), scenario.arrivals, scenario.stretch)

    assert trace.commands
    assert_twin(trace.events, NaiveSymphony(scenario.spec, options), within=1e-9)


@pytest.mark.parametrize("seed", range(8))
def test_without_deferral_it_sends_what_eager_sends(seed: int) -> None:
    """By deadline, with lazy drop, no network and one kind of accelerator, both give the same batches."""
    scenario = random_scenario(seed)
    spec = replace(scenario.spec, delays=Delays(), kinds=[0] * len(scenario.spec.kinds))
    options = SymphonyOptions(deferral=0, drop="lazy", order="deadline")

    deferred = drive(build(spec, options), scenario.arrivals, stretch=scenario.stretch)
    at_once = drive(eager.build(spec), scenario.arrivals, stretch=scenario.stretch)

    assert deferred.batches == at_once.batches


def test_the_rate_is_that_of_the_last_seconds() -> None:
    """The twin counts a list of arrivals; both agree over three windows with a pause in the second."""
    spec = ClusterSpec(sessions=[linear("a", *SMALL)], kinds=[0] * 2, delays=Delays())
    times = np.concatenate([np.arange(0, 6, 0.02), np.arange(6, 9, 0.2), np.arange(20.3, 31, 0.05)])
    options = SymphonyOptions(schedulable="beta_lambda")
    policy, twin = build(spec, options), NaiveSymphony(spec, options)
    rates = []
    for number, time in enumerate(times.tolist()):
        arrive(policy, 0, 0, number, time)
        twin.arrive(0, 0, number, time)
        rates.append(float(policy.candidates[0].rate))
        assert rates[-1] == pytest.approx(twin.lines[0].rate)

    assert rates[290] == pytest.approx(50, rel=0.02)
    assert rates[-1] == pytest.approx(20, rel=0.03)
