"""Simulations in pieces and from beginning to end."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tests.cluster.builders import StandIn, jitter, random_scenario, single
from tuner.cluster.simulation import Simulation, simulate

HALF = np.array([[0.0, 0.5]])


def poisson(**kwargs: object) -> StandIn:
    """ResNet50 on two accelerators under an overload, for a second after half a second."""
    scenario = StandIn(
        tables=[np.r_[0.0, 0.005072 + 0.001053 * np.arange(1, 19)][None]],
        slos=[0.025],
        kinds=[0, 0],
        rate=1500.0,
        warmup_seconds=0.1,
        seconds=0.4,
        seed=3,
        noise=0.1,
        network=jitter,
    )
    for name, value in kwargs.items():
        setattr(scenario, name, value)
    return scenario


def test_json() -> None:
    """The result is a JSON document with exactly these keys, and its counts add up."""
    outcome = simulate(poisson())
    document = json.loads(json.dumps(outcome.to_json(), allow_nan=False))
    session = document["sessions"][0]

    assert list(document) == ["sessions", "utilisation", "bad_rate"]
    assert list(session) == [
        *("name", "requests", "good", "dropped", "late", "p50_ms", "p95_ms", "p99_ms"),
        *("mean_batch", "median_batch", "max_queueing_ms"),
    ]
    assert session["requests"] == session["good"] + session["dropped"] + session["late"]
    assert min(session["good"], session["dropped"], session["late"]) > 0
    assert document["bad_rate"] == (session["dropped"] + session["late"]) / session["requests"]
    assert session["p50_ms"] < session["p95_ms"] < session["p99_ms"]
    assert len(document["utilisation"]) == 2


def test_every_request_counts_once() -> None:
    """Those that arrive in the measured part, and no others."""
    scenario = random_scenario(2, warmup_seconds=0.5, seconds=1.5)
    outcome = simulate(scenario)

    assert outcome.requests == ((scenario.times >= 0.5) & (scenario.times < 2.0)).sum()


def test_same_seed_same_result() -> None:
    """To the last digit; and another seed gives another."""
    first, again, other = (simulate(poisson(seed=seed)).to_json() for seed in (3, 3, 4))

    assert first == again
    assert first != other


def test_plain_attributes() -> None:
    """Rates, means and distributions beside the document."""
    outcome = simulate(poisson())
    session = outcome.sessions[0]

    assert outcome.rate == pytest.approx(1500, rel=0.2)
    assert outcome.rate == session.rate == session.requests / 0.4
    assert outcome.good_rate == session.good_rate < outcome.rate
    assert outcome.worst_bad_rate == outcome.bad_rate == session.bad_rate
    assert outcome.mean_utilisation == pytest.approx(np.mean(outcome.utilisation))
    assert session.batches @ np.arange(19) >= session.good + session.late
    assert session.mean_queueing < session.mean_latency < session.latency(1.0)
    limits, shares = session.distribution()
    assert shares[-1] == 1
    assert np.interp(0.95, shares, limits) == pytest.approx(session.latency(0.95), rel=0.01)


def test_a_session_without_requests() -> None:
    """Has no quantiles, which JSON calls null."""
    scenario = StandIn(tables=[HALF, HALF], slos=[1.0, 1.0], times=np.array([0.1]), sessions=np.array([0]))
    empty = simulate(scenario).sessions[1]

    assert empty.requests == empty.bad_rate == empty.max_queueing == 0
    assert math.isnan(empty.mean_latency)
    assert empty.to_json()["p99_ms"] is None
    assert empty.to_json()["median_batch"] is None


def test_progress() -> None:
    """It is reported in rising shares, up to the whole."""
    shares: list[float] = []
    simulate(poisson(chunk=256), progress=shares.append)

    assert len(shares) > 2
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_interrupt() -> None:
    """What the callback raises (Ctrl-C) ends the simulation."""

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(poisson(), progress=stop)


def test_windows() -> None:
    """Counts per window add up to those of the whole, and so does the executing."""
    whole = Simulation(poisson())
    whole.advance(0.5)
    cut = Simulation(poisson())
    requests, busy = 0, 0.0
    for _ in range(5):
        cut.reset_totals()
        cut.advance(0.1)
        requests += cut.outcome().requests
        busy += sum(cut.outcome().utilisation) * 0.1

    assert cut.now == pytest.approx(0.5)
    assert requests == whole.outcome().requests
    assert busy == pytest.approx(sum(whole.outcome().utilisation) * 0.5)


def test_utilisation_counts_what_is_executed_so_far() -> None:
    """A batch under way counts up to now; what it does afterwards, counts after."""
    simulation = Simulation(single(1.0, times=np.array([0.5]), sessions=np.zeros(1, int)))
    simulation.advance(0.75)
    assert simulation.outcome().utilisation == pytest.approx([0.25 / 0.75])

    simulation.reset_totals()
    simulation.advance(0.25)
    assert simulation.outcome().utilisation == pytest.approx([1.0])

    simulation.advance(1.0)
    assert simulation.outcome().utilisation == pytest.approx([0.75 / 1.25])


def test_occupy() -> None:
    """A model is loading: batches wait for its end, and the time is not executing."""
    simulation = Simulation(single(1.0, times=np.array([0.5]), sessions=np.zeros(1, int)))
    simulation.advance(0.25)
    simulation.occupy(0, 3.0)
    simulation.advance(9.75)

    assert simulation.totals.sessions[0]["longest"] == 2.75
    assert simulation.outcome().utilisation == pytest.approx([0.1])


def test_drain_answers_everything() -> None:
    """No more requests arrive, and those that wait are answered, however long that takes."""
    scenario = single(1.0, times=np.arange(100) * 0.01, sessions=np.zeros(100, int))
    simulation = Simulation(scenario)
    simulation.advance(0.5)
    simulation.drain()

    assert simulation.totals.sessions[0]["good"] == 50
    assert simulation.now == 50.0


def test_nothing_measured_yet() -> None:
    """At time 0 there is no outcome."""
    with pytest.raises(ValueError, match="nothing was measured yet"):
        Simulation(poisson()).outcome()
