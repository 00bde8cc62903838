"""The goodput of pools: what no policy exceeds, what the search finds, and the threshold of drs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.cluster.pools import pool
from tuner.cluster import Scenario, simulate
from tuner.cluster.goodput import Good, goodput
from tuner.cluster.threshold import climb_threshold
from tuner.planning.pools.bound import bounds, make_terms
from tuner.planning.pools.ceiling import ceilings
from tuner.scheduling.catalogue import DISTRIBUTION_POLICIES

pytestmark = pytest.mark.compiled

POLICIES = [*DISTRIBUTION_POLICIES, "clkwrk, refusing"]


def random_pool(policy: str, seed: int) -> Scenario:
    """Two or three types, of which the first meets the SLO at every size; the pool has one of it."""
    rng = np.random.default_rng(seed)
    catalogue = []
    for name, slowness in (("a", 1.0), ("b", rng.uniform(1.5, 4)), ("c", rng.uniform(2, 6)))[
        : rng.integers(2, 4)
    ]:
        alpha, beta = slowness * rng.uniform(0.05, 0.12), rng.uniform(0.5, 10)
        line = {"alpha_ms": float(alpha), "beta_ms": float(beta)}
        catalogue.append({"name": name, "price": 1.0, "max_count": 9, "profile": {"m": line}})
    instances = [
        {"type": kind["name"], "count": int(rng.integers(kind["name"] == "a", 4))} for kind in catalogue
    ]
    sizes = str(rng.choice(["paper", "gaussian:300,120", "lognormal:5,0.5"]))
    name, _, refuses = policy.partition(", ")
    return Scenario.model_validate(
        {
            "policy": name,
            "options": {"refuse": True} if refuses else {"threshold": 200} if name == "drs" else {},
            "instances": instances,
            "catalogue": catalogue,
            "sessions": [
                {
                    "name": "s",
                    "model": "m",
                    "slo_ms": 150.0,
                    "sizes": sizes,
                    "quantile": float(rng.choice([0.9, 0.99])),
                }
            ],
            "requests": 4000,
            "seed": seed,
        }
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(12))
def test_no_policy_exceeds_the_ceiling(policy: str, seed: int) -> None:
    """Whatever the pool, no policy serves more within the SLO than the ceiling of the requests that came."""
    cluster = random_pool(policy, seed)
    found = goodput(cluster)

    # The oracle's requests come when it wants; those of others may end within the SLO after the last came.
    length = found.outcome.seconds if cluster.at_once else cluster.scaled(found.rate).interval.last
    time = length + cluster.sessions[0].slo
    assert found.rate > 0
    assert cluster.requests is not None
    assert cluster.requests <= observed_ceiling(cluster) * time * 1.001


@pytest.mark.parametrize("policy", ["kairos", "ribbon", "drs", "clkwrk"])
def test_policies_that_cannot_choose_their_requests_stay_below_equation_15(policy: str) -> None:
    """Eq. 15 is no limit for an oracle, nor where a policy may refuse; those of the paper keep below it."""
    for seed in range(6):
        cluster = random_pool(policy, seed)
        sessions = tuple(one.model_copy(update={"quantile": 0.99}) for one in cluster.sessions)
        cluster = cluster.model_copy(update={"sessions": sessions})
        rate = goodput(cluster).rate

        session = cluster.sessions[0]
        counts, latency, sizes = observed(cluster)
        bound = float(bounds(counts, make_terms(latency, session.slo, sizes))[0])
        time = cluster.scaled(rate).interval.last + session.slo
        assert cluster.requests is not None
        assert 0 < session.quantile * cluster.requests < bound * time


def observed_ceiling(cluster: Scenario) -> float:
    """The ceiling for the very sizes of a run, which differ from their distribution by chance."""
    session = cluster.sessions[0]
    counts, latency, sizes = observed(cluster)
    # Requests that are late may be served all the same: only those in time count.
    return float(ceilings(counts, latency, session.slo, sizes, session.quantile)[0])


def observed(cluster: Scenario) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pool, its execution times, and how often each size comes in a run.   # (1, T), (T, S+1), (S+1,)."""
    assert cluster.rental is not None
    chunk = cluster.make_requests().next_chunk()
    assert chunk.time.size == cluster.requests
    latency = cluster.cluster_spec().sessions[0].latency
    sizes = np.bincount(chunk.items, minlength=latency.shape[1]) / chunk.time.size
    return np.array([cluster.rental.counts]), latency, np.asarray(sizes)


@pytest.mark.parametrize("policy", ["kairos", "ribbon"])
def test_the_search_finds_the_edge(policy: str) -> None:
    """At the rate that was found the quantile is kept; a little above it is not."""
    cluster = pool(policy)

    found = goodput(cluster, tolerance=0.01)

    assert simulate(cluster.scaled(found.rate)).kept
    assert not simulate(cluster.scaled(found.rate * 1.02)).kept
    assert found.outcome.kept
    assert found.rate == pytest.approx(max(trial.rate for trial in found.evaluations if trial.kept))


def test_rates_of_the_file_do_not_matter() -> None:
    """Only the proportion of rates counts."""
    assert goodput(pool(rate=1.0)).rate == pytest.approx(goodput(pool(rate=700.0)).rate, rel=0.01)


def test_a_pool_that_is_good_at_no_rate() -> None:
    """Where too many requests are too large for every instance, the goodput is 0."""
    found = goodput(pool(fast=0, sizes="gaussian:600,50", requests=200))

    assert found.rate == 0
    assert found.to_json()["rate"] == 0


def test_sessions_share_a_pool() -> None:
    """Of two sessions each gets its part of the total, and each keeps its own quantile."""
    sessions = [
        {"name": "small", "model": "m", "slo_ms": 60.0, "sizes": "gaussian:50,10", "rate": 30.0},
        {
            "name": "large",
            "model": "m",
            "slo_ms": 200.0,
            "sizes": "gaussian:400,50",
            "rate": 10.0,
            "quantile": 0.9,
        },
    ]
    found = goodput(pool(sessions=sessions))

    parts = [session.rate for session in found.outcome.sessions]
    assert sum(parts) == pytest.approx(found.rate, rel=0.05)
    assert parts[0] == pytest.approx(3 * parts[1], rel=0.1)
    assert all(session.kept for session in found.outcome.sessions)
    assert [session.quantile for session in found.outcome.sessions] == [0.99, 0.9]


def test_the_climb_finds_a_top() -> None:
    """No threshold a step away is better, and it is as good as the best of a coarse sweep, nearly."""
    cluster = pool("drs", requests=2000)

    climb = climb_threshold(cluster)

    near = [climb.trials.get(climb.threshold + step, 0.0) for step in (-10, 10)]
    assert max(near) <= climb.best.rate == max(climb.trials.values())
    sweep = [
        goodput(cluster.model_copy(update={"options": {"threshold": threshold}})).rate
        for threshold in range(0, 800, 100)
    ]
    assert climb.best.rate >= 0.95 * max(sweep)


def test_the_climb_goes_down_where_nothing_is_served() -> None:
    """The slow instances serve up to 272 items in time: 500, 340 and 660 are all too high."""
    cluster = pool("drs", requests=1000, slo_ms=110.0, sizes="gaussian:500,120")

    climb = climb_threshold(cluster)

    assert [climb.trials[threshold] for threshold in (340, 500, 660)] == [0, 0, 0]
    assert 0 <= climb.threshold <= 280
    assert climb.best.rate >= goodput(cluster.model_copy(update={"options": {"threshold": 0}})).rate > 0


def test_the_climb_has_the_limits_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every threshold is judged by them, and to the same tolerance."""
    given: set[tuple[object, object]] = set()

    def search(tried: Scenario, *, good: Good, tolerance: float, at_least: float) -> SimpleNamespace:
        given.add((good, tolerance))
        return SimpleNamespace(rate=1.0)

    monkeypatch.setattr("tuner.cluster.threshold.goodput", search)
    climb_threshold(pool("drs"), good=Good(0.1, overall=True), tolerance=0.02)

    assert given == {(Good(0.1, overall=True), 0.02)}


def test_learning_costs_little() -> None:
    """Without prior knowledge kairos serves nearly what it does when it knows the profile."""
    learning = goodput(pool(requests=8000)).rate
    knowing = goodput(pool(requests=8000, options={"learn": False})).rate

    assert learning > 0.93 * knowing


def test_kairos_serves_more_than_its_rivals() -> None:
    """On a pool that has slow instances for small requests, matching beats all rivals but the oracle."""
    rates = {policy: goodput(pool(policy, slow=4, requests=8000)).rate for policy in DISTRIBUTION_POLICIES}

    assert rates["oracle"] > rates["kairos"]
    assert rates["kairos"] > 1.05 * max(rates[name] for name in ("ribbon", "clkwrk", "drs"))
