"""Allowable throughput: what no policy exceeds, what the search finds, and the threshold of drs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cluster.mixed.builders import PLAIN, mixed
from tuner.cluster.mixed import MixedCluster, allowable_throughput, climb_threshold, simulate_mixed
from tuner.planning.pools.bound import bounds, make_terms
from tuner.planning.pools.ceiling import ceilings
from tuner.scheduling.catalogue import QUERY_POLICIES

compiled = pytest.mark.skipif(PLAIN, reason="takes many thousand queries")
POLICIES = [*QUERY_POLICIES, "clkwrk, refusing"]


def random_cluster(policy: str, seed: int) -> MixedCluster:
    """Two or three types, of which the first keeps QoS at every size; a pool with at least one of it."""
    rng = np.random.default_rng(seed)
    catalogue = []
    for name, slowness in (("a", 1.0), ("b", rng.uniform(1.5, 4)), ("c", rng.uniform(2, 6)))[
        : rng.integers(2, 4)
    ]:
        alpha, beta = slowness * rng.uniform(0.05, 0.12), rng.uniform(0.5, 10)
        line = {"alpha_ms": float(alpha), "beta_ms": float(beta)}
        catalogue.append({"name": name, "price": 1.0, "max_count": 9, "profile": {"m": line}})
    pool = [{"type": kind["name"], "count": int(rng.integers(kind["name"] == "a", 4))} for kind in catalogue]
    sizes = str(rng.choice(["paper", "gaussian:300,120", "lognormal:5,0.5"]))
    name, _, refuses = policy.partition(", ")
    return MixedCluster.model_validate(
        {
            "policy": name,
            "options": {"refuse": True} if refuses else {"threshold": 200} if name == "drs" else {},
            "instances": pool,
            "catalogue": catalogue,
            "sessions": [
                {
                    "name": "s",
                    "model": "m",
                    "qos_ms": 150.0,
                    "sizes": sizes,
                    "quantile": float(rng.choice([0.9, 0.99])),
                }
            ],
            "queries": 100 if PLAIN else 4000,
            "seed": seed,
        }
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(2 if PLAIN else 12))
def test_no_policy_exceeds_the_ceiling(policy: str, seed: int) -> None:
    """Whatever the pool, no policy serves more within QoS than the ceiling of the queries that came."""
    cluster = random_cluster(policy, seed)
    rate = allowable_throughput(cluster).rate

    time = cluster.scaled(rate).seconds + cluster.sessions[0].qos  # the last may end so long after they come
    assert rate > 0
    assert cluster.queries <= observed_ceiling(cluster) * time * 1.001


@compiled
@pytest.mark.parametrize("policy", ["kairos", "ribbon", "drs", "clkwrk"])
def test_policies_that_cannot_choose_their_queries_stay_below_equation_15(policy: str) -> None:
    """Eq. 15 is no limit for an oracle, nor where a policy may refuse; those of the paper keep below it."""
    for seed in range(6):
        cluster = random_cluster(policy, seed)
        cluster = cluster.changed(
            sessions=tuple(one.model_copy(update={"quantile": 0.99}) for one in cluster.sessions)
        )
        rate = allowable_throughput(cluster).rate

        session, latency = cluster.sessions[0], cluster.offers[0].latency
        terms = make_terms(latency, session.qos, observed_sizes(cluster))
        bound = float(bounds(np.array([list(cluster.pool.values())]), terms)[0])
        time = cluster.scaled(rate).seconds + session.qos
        assert 0 < session.quantile * cluster.queries < bound * time


def observed_ceiling(cluster: MixedCluster) -> float:
    """The ceiling for the very sizes of a run, which differ from their distribution by chance."""
    pool = np.array([list(cluster.pool.values())])
    session, latency = cluster.sessions[0], cluster.offers[0].latency
    # Queries that are late may be served all the same: only those in time count.
    return float(ceilings(pool, latency, session.qos, observed_sizes(cluster), session.quantile)[0])


def observed_sizes(cluster: MixedCluster) -> np.ndarray:
    """How often each size comes in a run.   # (1001,)."""
    chunk = cluster.make_workload().next_chunk()
    assert chunk.time.size == cluster.queries
    return np.asarray(np.bincount(chunk.items, minlength=1001) / cluster.queries)


@pytest.mark.parametrize("policy", ["kairos", "ribbon"])
def test_the_search_finds_the_edge(policy: str) -> None:
    """At the rate that was found QoS is kept; a little above it is not."""
    cluster = mixed(policy)

    found = allowable_throughput(cluster, tolerance=0.01)

    assert simulate_mixed(cluster.scaled(found.rate)).kept
    assert not simulate_mixed(cluster.scaled(found.rate * 1.02)).kept
    assert found.outcome.kept
    assert found.rate == pytest.approx(max(trial.rate for trial in found.trials if trial.excess <= 1))


@compiled
def test_rates_of_the_file_do_not_matter() -> None:
    """Only the proportion of rates counts."""
    assert allowable_throughput(mixed(rate=1.0)).rate == pytest.approx(
        allowable_throughput(mixed(rate=700.0)).rate, rel=0.01
    )


def test_a_pool_that_keeps_qos_at_no_rate() -> None:
    """Where too many queries are too large for every instance, the throughput is 0."""
    found = allowable_throughput(mixed(fast=0, sizes="gaussian:600,50", queries=200))

    assert found.rate == 0
    assert found.to_json()["allowable_throughput"] == 0


def test_sessions_share_a_pool() -> None:
    """Of two sessions each gets its part of the total, and each keeps its own quantile."""
    sessions = [
        {"name": "small", "model": "m", "qos_ms": 60.0, "sizes": "gaussian:50,10", "rate": 30.0},
        {
            "name": "large",
            "model": "m",
            "qos_ms": 200.0,
            "sizes": "gaussian:400,50",
            "rate": 10.0,
            "quantile": 0.9,
        },
    ]
    found = allowable_throughput(mixed(sessions=sessions))

    content = found.to_json()
    parts = [session["allowable_throughput"] for session in content["sessions"]]
    assert sum(parts) == pytest.approx(content["allowable_throughput"])
    assert parts[0] == pytest.approx(3 * parts[1])
    assert all(session["kept"] for session in content["sessions"])


@pytest.mark.compiled
def test_the_climb_finds_a_top() -> None:
    """No threshold a step away is better, and it is as good as the best of a coarse sweep, nearly."""
    cluster = mixed("drs", queries=30 if PLAIN else 2000)

    climb = climb_threshold(cluster)

    near = [climb.trials.get(climb.threshold + step, 0.0) for step in (-10, 10)]
    assert max(near) <= climb.best.rate == max(climb.trials.values())
    sweep = [
        allowable_throughput(cluster.changed(options={"threshold": threshold})).rate
        for threshold in range(0, 800, 400 if PLAIN else 100)
    ]
    assert climb.best.rate >= 0.95 * max(sweep)


@compiled
def test_learning_costs_little() -> None:
    """Without prior knowledge kairos serves nearly what it does when it is told the profile."""
    learning = allowable_throughput(mixed(queries=8000)).rate
    told = allowable_throughput(mixed(queries=8000, options={"learn": False})).rate

    assert learning > 0.93 * told


@compiled
def test_kairos_serves_more_than_its_rivals() -> None:
    """On a pool that has slow instances for small queries, matching beats all rivals but the oracle."""
    rates = {
        policy: allowable_throughput(mixed(policy, slow=4, queries=8000)).rate for policy in QUERY_POLICIES
    }

    assert rates["oracle"] > rates["kairos"]
    assert rates["kairos"] > 1.05 * max(rates[name] for name in ("ribbon", "clkwrk", "drs"))
