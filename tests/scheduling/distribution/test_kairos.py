"""What Kairos's distribution takes a request on an instance to cost, when predictions are known to be off."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from tuner.scheduling.catalogue import build_policy, options_of
from tuner.scheduling.cluster import ClusterSpec, SessionSpec
from tuner.scheduling.distribution.predictor import learn, predict, spread
from tuner.scheduling.policy import arrive, finish, wake

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


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.2])
def test_a_pair_costs_what_is_to_be_expected(noise: float) -> None:
    """Eq. 8 weighted by the risk, from the error of the request and of the one that runs before it."""
    policy = taught(noise, spread=1.0)
    now, sizes, ran = 1.0, (85, 92, 99), 60
    come(policy, 1, ran, now)
    wake(policy, now)
    busy, ends = sent_to(policy), now + predict(policy.predictor, KINDS[sent_to(policy)], 0, ran)
    for number, items in enumerate(sizes):
        come(policy, 2 + number, items, now + 0.01)

    wake(policy, now + 0.01)

    cost = policy.matching.cost[:3, :3]
    risks = []
    for row, items in enumerate(sizes):
        for instance, kind in enumerate(KINDS):
            time, error = predict(policy.predictor, kind, 0, items), spread(policy.predictor, kind, 0)
            left = ends - now - 0.01 if instance == busy else 0.0
            other = predict(policy.predictor, KINDS[busy], 0, ran) * spread(policy.predictor, KINDS[busy], 0)
            deviation = np.hypot(time * error, other if instance == busy else 0.0)
            length = left + time
            risk = 1 - NormalDist(length, deviation).cdf(QOS) if deviation > 1e-9 else float(length > QOS)
            risk = 1.0 if length > 0.98 * QOS else risk
            weight = policy.weight[kind, 0]
            assert cost[row, instance] == pytest.approx(
                weight * ((1 - risk) * length + risk * 10 * QOS), rel=1e-6
            )
            risks.append(risk)
    assert any(0.01 < risk < 0.99 for risk in risks) == (noise > 0)
    assert 1.0 in risks


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
