"""Simulated pools under distribution policies against what can be computed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.cluster.pools import PLAIN, pool
from tuner.cluster import EventLog, Scenario, replay, simulate
from tuner.cluster.goodput import goodput
from tuner.scheduling.catalogue import DISTRIBUTION_POLICIES
from tuner.scheduling.log import ARRIVE, SEND, WAKE
from tuner.scheduling.scheduler import Dispatch, Scheduler


def content_of(scenario: Scenario) -> dict[str, Any]:
    """What `tuner simulate` stores."""
    assert scenario.rental is not None
    return scenario.rental.to_json(scenario.each_session, simulate(scenario))


@pytest.mark.parametrize("policy", DISTRIBUTION_POLICIES)
def test_every_request_is_counted(policy: str) -> None:
    """All requests are served, by the types of the pool, and the shares add up."""
    cluster = pool(policy, rate=10.0)

    content = content_of(cluster)

    (session,) = content["sessions"]
    assert content["requests"] == session["requests"] == cluster.requests
    assert session["good"] + session["late"] == cluster.requests
    assert session["dropped"] == 0
    assert session["within_slo"] == pytest.approx(session["good"] / cluster.requests)
    assert sum(session["served"].values()) == cluster.requests
    assert list(session["served"]) == ["fast", "slow"]
    assert content["cost"] == pytest.approx(1.5)


def test_one_seed_one_outcome() -> None:
    """The same file gives the same numbers; another seed others."""
    one, two, other = (content_of(pool(rate=20.0, seed=seed)) for seed in (1, 1, 2))

    assert one == two != other


def test_a_recorded_simulation_replays() -> None:
    """The log of a run, with the sizes of its requests, makes a fresh policy give the same commands."""
    cluster = pool(rate=30.0, requests=200, noise=0.1)
    log = EventLog()
    simulate(cluster, log=log)

    assert replay(log, cluster.make_policy()) is None


def test_the_oracle_of_one_instance() -> None:
    """Alone, an instance serves all requests in the sum of their times, without a pause."""
    cluster = pool("oracle", slow=0)

    outcome = simulate(cluster)

    times = 0.010 + 0.0001 * cluster.make_requests().next_chunk().items  # s
    assert outcome.rate == pytest.approx(times.size / times.sum())
    assert outcome.kept
    assert outcome.utilisation == (pytest.approx(1.0, abs=1e-6),)  # type: ignore[comparison-overlap]


def test_the_oracle_keeps_small_requests_for_slow_instances() -> None:
    """Slow instances serve only what they can in time."""
    content = content_of(pool("oracle", fast=2, slow=3, sizes="gaussian:350,60"))

    assert content["kept"]
    assert content["sessions"][0]["served"]["slow"] > 0


def test_the_oracle_has_the_mix_of_sessions_that_the_others_serve() -> None:
    """A session that begins after half a minute has as many of the requests as under other policies."""

    def share(policy: str) -> float:
        line = {"alpha_ms": 1.0, "beta_ms": 5.0, "slo_ms": 50.0}
        sessions = [line | {"name": "a", "rate": 100.0}, line | {"name": "b", "rate": [[0, 0], [30, 300]]}]
        given = {"policy": policy, "accelerators": 4, "sessions": sessions, "requests": 20_000}
        stream, counts, until = Scenario.model_validate(given).make_requests(), np.zeros(2), 0.0
        while until < math.inf:
            chunk = stream.next_chunk()
            counts += np.bincount(chunk.session, minlength=2)
            until = chunk.until
        assert counts.sum() == 20_000
        return float(counts[1] / counts.sum())

    assert share("oracle") == pytest.approx(share("ribbon"), abs=0.02)


def test_the_oracle_serves_what_comes_later_only() -> None:
    """The schedule's first step without requests is of no matter."""
    cluster = pool("oracle", rate=[[0, 0], [20, 100]])

    assert goodput(cluster).outcome.requests == cluster.requests


def test_fcfs_on_one_instance_is_md1() -> None:
    """One size on one instance is the queue M/D/1: the goodput is where its formula says."""
    if PLAIN:
        pytest.skip("takes 100,000 requests")
    cluster = pool("ribbon", slow=0, sizes="gaussian:400,0.01", requests=100_000, slo_ms=200.0)

    found = goodput(cluster).rate

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
def test_what_is_within_the_limit_is_simulated_to_its_end(rate: float) -> None:
    """A run with few late requests is the same whether or not it could have stopped early."""
    cluster = pool(rate=rate, quantile=0.9)
    assert cluster.requests is not None

    whole, watched = simulate(cluster), simulate(cluster, most_bad=np.array([0.1 * cluster.requests]))

    assert whole.kept
    assert watched == whole


def test_an_overload_stops_early() -> None:
    """The limit is exceeded before all requests have come."""
    cluster = pool(rate=200.0)
    assert cluster.requests is not None

    watched = simulate(cluster, most_bad=np.array([0.01 * cluster.requests]))

    assert not watched.kept
    assert watched.requests < 0.9 * cluster.requests


@pytest.mark.parametrize("policy", ["kairos", "ribbon", "drs", "clkwrk"])
def test_live_decisions_are_the_simulated_ones(policy: str) -> None:
    """A live scheduler that gets a simulation's events sends the same requests to the same instances."""
    cluster = pool(policy, rate=25.0, requests=150, noise=0.05)
    log = EventLog()
    simulate(cluster, log=log)

    live = Scheduler(cluster.make_policy())
    sent: list[tuple[int, int, float]] = []
    for entry in log.entries[log.entries["kind"] < SEND]:
        now = float(entry["time"])
        if entry["kind"] == ARRIVE:
            commands = live.arrive(0, now, int(entry["number"]), items=int(entry["items"]))
        else:
            commands = (
                live.wake(now) if entry["kind"] == WAKE else live.finish(int(entry["accelerator"]), now)
            )
        for command in commands:
            assert isinstance(command, Dispatch)
            sent.append((command.numbers[0], command.accelerator, now))

    simulated = log.entries[log.entries["kind"] == SEND]
    assert len(sent) == 150
    assert sent == [(row["number"], row["accelerator"], row["time"]) for row in simulated]
