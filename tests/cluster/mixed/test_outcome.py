"""Simulated mixed clusters against what can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cluster.mixed.builders import PLAIN, mixed
from tuner.cluster import EventLog, replay
from tuner.cluster.mixed import allowable_throughput, simulate_mixed
from tuner.cluster.mixed.outcome import simulate_while_kept
from tuner.scheduling.catalogue import QUERY_POLICIES
from tuner.scheduling.log import ARRIVE, SEND, WAKE
from tuner.scheduling.scheduler import Scheduler


@pytest.mark.parametrize("policy", QUERY_POLICIES)
def test_every_query_is_counted(policy):
    """All queries are served, by the types of the pool, and the shares add up."""
    cluster = mixed(policy, rate=10.0)

    content = simulate_mixed(cluster).to_json()

    (session,) = content["sessions"]
    assert content["queries"] == session["requests"] == cluster.queries
    assert session["good"] + session["late"] == cluster.queries
    assert session["dropped"] == 0
    assert session["within_qos"] == pytest.approx(session["good"] / cluster.queries)
    assert sum(session["served"].values()) == cluster.queries
    assert list(session["served"]) == ["fast", "slow"]
    assert content["cost"] == pytest.approx(1.5)


def test_one_seed_one_outcome():
    """The same file gives the same numbers; another seed others."""
    one, two, other = (simulate_mixed(mixed(rate=20.0, seed=seed)).to_json() for seed in (1, 1, 2))

    assert one == two != other


def test_a_recorded_simulation_replays():
    """The log of a run, with the sizes of its queries, makes a fresh policy give the same commands."""
    cluster = mixed(rate=30.0, queries=200, noise=0.1)
    log = EventLog()
    simulate_mixed(cluster, log=log)

    assert replay(log, cluster.make_policy()) is None


def test_the_oracle_of_one_instance():
    """Alone, an instance serves all queries in the sum of their times, without a pause."""
    cluster = mixed("oracle", slow=0)

    outcome = simulate_mixed(cluster)

    times = 0.010 + 0.0001 * cluster.make_workload().next_chunk().items  # s
    assert outcome.outcome.rate == pytest.approx(cluster.queries / times.sum())
    assert outcome.kept
    assert outcome.busy()["fast"] == pytest.approx(1.0, abs=1e-6)


def test_the_oracle_keeps_small_queries_for_slow_instances():
    """Slow instances serve only what they can in time."""
    outcome = simulate_mixed(mixed("oracle", fast=2, slow=3, sizes="gaussian:350,60"))

    assert outcome.kept
    assert outcome.served(outcome.outcome.sessions[0])["slow"] > 0


def test_fcfs_on_one_instance_is_md1():
    """One size on one instance is the queue M/D/1: the allowable rate is where its formula says."""
    if PLAIN:
        pytest.skip("takes 100,000 queries")
    cluster = mixed("ribbon", slow=0, sizes="gaussian:400,0.01", queries=100_000, qos_ms=200.0)

    found = allowable_throughput(cluster).rate

    service = 0.05
    rates = np.linspace(0.2, 0.9, 1000) / service
    kept = [within(rate, service, 0.2 - service) >= 0.99 for rate in rates]
    assert found == pytest.approx(max(rates[kept]), rel=0.02)


def within(rate: float, service: float, wait: float) -> float:
    """Erlang's distribution of the wait in M/D/1."""
    steps = range(int(wait / service + 1e-9) + 1)
    terms = [
        (rate * (k * service - wait)) ** k / math.factorial(k) * math.exp(-rate * (k * service - wait))
        for k in steps
    ]
    return (1 - rate * service) * sum(terms)


@pytest.mark.parametrize("rate", [5.0, 30.0])
def test_what_keeps_qos_is_simulated_to_its_end(rate):
    """A run that keeps QoS is the same whether or not it could have been cut short."""
    cluster = mixed(rate=rate, quantile=0.9)

    whole, watched = simulate_mixed(cluster), simulate_while_kept(cluster)

    assert whole.kept
    assert watched.to_json() == whole.to_json()


def test_an_overload_is_cut_short():
    """It is known not to keep QoS before all queries have come."""
    cluster = mixed(rate=200.0)

    watched = simulate_while_kept(cluster)

    assert not watched.kept
    assert watched.outcome.requests < 0.9 * cluster.queries


@pytest.mark.parametrize("policy", ["kairos", "ribbon", "drs", "clkwrk"])
def test_live_decisions_are_the_simulated_ones(policy):
    """A live scheduler told what happened in a simulation sends the same queries to the same instances."""
    cluster = mixed(policy, rate=25.0, queries=150, noise=0.05)
    log = EventLog()
    simulate_mixed(cluster, log=log)

    live, sent = Scheduler(cluster.make_policy()), []
    for entry in log.entries[log.entries["kind"] < SEND]:
        now = float(entry["time"])
        if entry["kind"] == ARRIVE:
            commands = live.arrive(0, now, int(entry["number"]), items=int(entry["items"]))
        else:
            commands = (
                live.wake(now) if entry["kind"] == WAKE else live.finish(int(entry["accelerator"]), now)
            )
        sent += [(command.numbers[0], command.accelerator, now) for command in commands]

    simulated = log.entries[log.entries["kind"] == SEND]
    assert len(sent) == 150
    assert sent == [(row["number"], row["accelerator"], row["time"]) for row in simulated]
