"""The engine against queueing theory: plain queues served in order, one request at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.cluster.builders import single
from tuner.cluster.draws import Draw
from tuner.cluster.outcome import Outcome
from tuner.cluster.simulation import Simulation

pytestmark = pytest.mark.compiled

REQUESTS = 400_000
TOLERANCE = 0.03
SERVICE = 0.01


def exponential(generator: np.random.Generator, count: int) -> np.ndarray:
    """Factors that make the execution time exponential."""
    return generator.exponential(1.0, count)


def measured(load: float, servers: int = 1, factor: Draw | None = None) -> Outcome:
    """A queue with Poisson arrivals at a load per server, after a warm-up."""
    rate = load * servers / SERVICE
    scenario = single(SERVICE, rate=rate, kinds=[0] * servers, chunk=4096, seed=5)
    simulation = Simulation(scenario, factor=factor)
    warmup = REQUESTS / rate / 10
    simulation.measure(warmup, warmup + REQUESTS / rate)
    simulation.advance(warmup + REQUESTS / rate)
    simulation.drain()
    return simulation.outcome()


def wait_in_mdc(load: float, servers: int) -> float:
    """Mean wait in M/D/c, s, from the chain of the numbers in the system one service time apart.

    After a service time all who were served at its beginning have left, and a Poisson number has come.
    """
    states = 60 * servers
    weights = np.arange(states)
    expected = load * servers
    poisson = np.exp(
        weights * math.log(expected) - expected - np.array([math.lgamma(n + 1) for n in weights])
    )
    moves = np.zeros((states, states))
    for number in range(states):
        left = max(number - servers, 0)
        moves[number, left:] = poisson[: states - left]
    moves[:, -1] += 1 - moves.sum(axis=1)
    equations = np.vstack((moves.T - np.eye(states), np.ones(states)))
    shares = np.linalg.lstsq(equations, np.r_[np.zeros(states), 1.0], rcond=None)[0]
    waiting = float(np.maximum(weights - servers, 0) @ shares)
    return waiting / (expected / SERVICE)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_mm1(load: float) -> None:
    """Exponential execution times: mean wait, and the exponential distribution of the latency."""
    session = measured(load, factor=exponential).sessions[0]
    latency = SERVICE / (1 - load)

    assert session.mean_queueing == pytest.approx(latency - SERVICE, rel=2 * TOLERANCE)
    assert session.latency(0.5) == pytest.approx(latency * math.log(2), rel=2 * TOLERANCE)
    assert session.latency(0.95) == pytest.approx(latency * math.log(20), rel=2 * TOLERANCE)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_md1(load: float) -> None:
    """Constant execution times: half the wait of M/M/1; the accelerator is busy for the load."""
    outcome = measured(load)

    wait = SERVICE * load / (2 * (1 - load))
    assert outcome.sessions[0].mean_queueing == pytest.approx(wait, rel=2 * TOLERANCE)
    assert outcome.utilisation[0] == pytest.approx(load, rel=TOLERANCE)


@pytest.mark.parametrize(("load", "servers"), [(0.8, 2), (0.9, 4)])
def test_mdc(load: float, servers: int) -> None:
    """Several accelerators share one queue."""
    outcome = measured(load, servers)

    assert outcome.sessions[0].mean_queueing == pytest.approx(wait_in_mdc(load, servers), rel=3 * TOLERANCE)
    assert outcome.mean_utilisation == pytest.approx(load, rel=TOLERANCE)


def test_mdc_of_one_is_md1() -> None:
    """The reference itself: for one server it is the known formula."""
    assert wait_in_mdc(0.8, 1) == pytest.approx(SERVICE * 0.8 / (2 * 0.2), rel=1e-6)
