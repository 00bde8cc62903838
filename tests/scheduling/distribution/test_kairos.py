"""What Kairos's distribution takes a request on an instance to cost, when predictions are known to be off."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from tuner.errors import InvalidInput
from tuner.scheduling.catalogue import build_policy, options_of
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec
from tuner.scheduling.distribution.predictor import learn, predict, spread
from tuner.scheduling.policy import arrive, finish, wake
from tuner.testing.driver import drive

QOS = 0.3
KINDS = (0, 1, 1)
"""Of the instances; the second kind takes three times as long."""
PER_ITEM = (0.001, 0.003)


def taught(noise: float, **options: Any) -> Any:
    """A policy that has seen times which scatter by so much around 1 or 3 ms per item."""
    latency = np.outer(PER_ITEM, np.arange(101))
    spec = ClusterSpec(sessions=[SessionSpec(name="a", slo=QOS, latency=latency)], kinds=KINDS)
    policy = build_policy("kairos", spec, options_of("kairos")(**options))
    for round_ in range(6):
        for kind, slope in enumerate(PER_ITEM):
            for items in range(1, 101):
                believed = slope * items
                seconds = believed / (1 + (noise if round_ % 2 else -noise))
                learn(policy.predictor, kind, 0, items, seconds, believed)
    come(policy, 0, 100, 0.0)  # the largest there is, so that coefficients are settled
    wake(policy, 0.0)
    assert finish(policy, sent_to(policy), 0.1) == 0
    return policy


def come(policy: Any, number: int, items: int, now: float) -> None:
    """A request arrives."""
    policy.cluster.board[0].items = items
    assert arrive(policy, 0, 0, number, now) == 0


def sent_to(policy: Any) -> int:
    """The instance that the latest command names."""
    return int(policy.cluster.commands[policy.cluster.board[0].commands - 1].accelerator)


@pytest.mark.parametrize(
    ("running", "sizes"), [((60,), (85, 92, 99)), ((60, 40), (40, 60, 62))], ids=["one", "two"]
)
@pytest.mark.parametrize(("noise", "factor"), [(0.0, 1.0), (0.05, 1.0), (0.2, 1.0), (0.05, 2.0)])
def test_a_pair_costs_what_is_to_be_expected(
    noise: float, factor: float, running: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    """Eq. 8 weighted by the risk, from the error of the request and of the one that runs before it.

    Where two run, the one on a slow instance ends so late that a request behind it may just be in time.
    """
    policy = taught(noise, spread=factor)
    now = 1.0
    for number, items in enumerate(running):
        come(policy, number, items, now)
    wake(policy, now)
    before = {
        int(command.accelerator): int(command.items)
        for command in policy.cluster.commands[: policy.cluster.board[0].commands]
    }
    for number, items in enumerate(sizes):
        come(policy, len(running) + number, items, now + 0.01)

    wake(policy, now + 0.01)

    risks = {}
    for row, items in enumerate(sizes):
        for instance, kind in enumerate(KINDS):
            error = factor * spread(policy.predictor, kind, 0)
            ran = predict(policy.predictor, kind, 0, before[instance]) if instance in before else 0.0
            time = predict(policy.predictor, kind, 0, items)
            length = max(ran - 0.01, 0.0) + time
            deviation = np.hypot(time * error, ran * error)
            risk = 1 - NormalDist(length, deviation).cdf(QOS) if deviation > 1e-9 else float(length > QOS)
            risk = 1.0 if length > 0.98 * QOS else risk
            assert policy.matching.cost[row, instance] == pytest.approx(
                policy.weight[kind, 0] * ((1 - risk) * length + risk * 10 * QOS), rel=1e-6
            )
            risks[row, instance] = risk
    doubtful = [instance for (_, instance), risk in risks.items() if 0.01 < risk < 0.99]
    assert bool(doubtful) == (noise > 0)
    assert len(running) == 1 or noise == 0 or set(doubtful) & set(before)
    assert 1.0 in risks.values()


def test_what_is_not_known_yet_is_worth_as_much_as_the_fastest() -> None:
    """C_j is 1 for every kind until a request has ended there; a third where it took three times as long."""
    latency = np.outer(PER_ITEM, np.arange(101))
    spec = ClusterSpec(sessions=[SessionSpec(name="a", slo=QOS, latency=latency)], kinds=[0, 1])
    policy = build_policy("kairos", spec)
    weights = [policy.weight[:, 0].tolist()]
    now = 0.0
    for number in range(2):
        come(policy, number, 50, now)
    wake(policy, now)
    for instance, slope in enumerate(PER_ITEM):
        finish(policy, instance, 50 * slope)
        weights.append(policy.weight[:, 0].tolist())

    assert weights[:2] == [[1.0, 1.0]] * 2
    assert weights[2] == pytest.approx([1.0, 1 / 3])


@pytest.mark.parametrize("burst", [6, 200])
def test_however_many_requests_are_lost_none_of_them_is_sent(burst: int) -> None:
    """While the first executes for 9 of 10 ms all others are lost; what comes next finds the instance idle.

    200 are more than one event has room to refuse.
    """
    sessions = [SessionSpec(name="a", slo=0.01, latency=np.array([[0.0, 0.009]]))]
    spec = ClusterSpec(sessions=sessions, kinds=[0])
    policy = build_policy("kairos", spec, options_of("kairos")(learn=False, refuse=True))

    trace = drive(policy, [(0.0, 0, 0)] * burst + [(0.0095, 0, 0)])

    assert trace.dropped == dict.fromkeys(range(1, burst), 0.009)
    assert trace.ended == {0: 0.009, burst: pytest.approx(0.0185)}


def test_a_request_that_can_end_exactly_in_time_is_not_refused() -> None:
    """However its sums are rounded: session 1 waits 50 ms for session 0, and has 80 ms for its own 30."""
    sessions = [
        SessionSpec(name=name, slo=slo, latency=np.array([[0.0, seconds]]))
        for name, slo, seconds in (("a", 1.0, 0.07), ("b", 0.08, 0.03))
    ]
    options = options_of("kairos")(learn=False, refuse=True)
    policy = build_policy("kairos", ClusterSpec(sessions=sessions, kinds=[0]), options)

    trace = drive(policy, [(0.12 * n + 0.02 * own, own, 0) for n in range(300) for own in (0, 1)])

    assert trace.dropped == {}


@pytest.mark.parametrize(("now", "left"), [(0.03, 0.03), (0.1, 0.0)])
def test_a_pair_takes_what_is_left_and_the_way_there(now: float, left: float) -> None:
    """Eq. 2: the request that was sent at 0 ends at 60 ms, 10 on the way; what is overdue ends now."""
    latency = np.outer(PER_ITEM[:1], np.arange(101))
    sessions = [SessionSpec(name="a", slo=QOS, latency=latency)]
    spec = ClusterSpec(sessions=sessions, kinds=[0, 0], delays=Delays(control=0.004, data=0.006))
    policy = build_policy("kairos", spec, options_of("kairos")(learn=False))
    come(policy, 0, 50, 0.0)
    wake(policy, 0.0)
    busy = sent_to(policy)

    come(policy, 1, 40, now)
    wake(policy, now)

    cost = policy.matching.cost[0, :2]
    assert cost[1 - busy] == pytest.approx(0.01 + 0.04)
    assert cost[busy] == pytest.approx(left + 0.01 + 0.04)


def test_what_was_believed_is_judged() -> None:
    """Errors that are added to predictions show in their spread: the policy knows what it does not know."""
    policy = taught(0.0, prediction_noise=0.1, seed=3)
    assert spread(policy.predictor, 0, 0) < 0.05  # one request so far

    now = 1.0
    for number in range(400):
        come(policy, 1 + number, 50, now)
        wake(policy, now)
        instance = sent_to(policy)
        now += PER_ITEM[KINDS[instance]] * 50
        finish(policy, instance, now)

    assert 0.07 < max(spread(policy.predictor, kind, 0) for kind in (0, 1)) < 0.14


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("guard", 1e-3, 1.0), ("penalty", 1.0, 1e6), ("spread", 0.0, 10.0), ("prediction_noise", 0.0, 1.0)],
)
def test_constants_have_a_range(name: str, low: float, high: float) -> None:
    """Both ends are accepted; what is beyond is refused by the option's name."""
    for value in (low, high):
        assert getattr(options_of("kairos")(**{name: value}), name) == value
    for value in (low - 2e-3, 1.001 * high):
        with pytest.raises(InvalidInput, match=f"^{name}: .* is out of range"):
            options_of("kairos")(**{name: value})


def test_a_seed_below_0_is_refused() -> None:
    """By the option's name: numpy draws from none."""
    with pytest.raises(InvalidInput, match=r"^seed: -1 is negative"):
        options_of("kairos")(seed=-1)
