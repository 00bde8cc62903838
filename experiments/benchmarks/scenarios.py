"""The clusters that the benchmarks run on."""

from __future__ import annotations

import numpy as np

from tuner.cluster.scenario import Network, Scenario, Session
from tuner.experiments.zoo import A100, GTX_1080TI, TABLE_4, Model, model
from tuner.scheduling.analysis import staggered
from tuner.scheduling.cluster import linear_latency

__all__ = ["NETWORK", "SIZES", "arrivals", "cluster", "grid"]

NETWORK = Network(control_ms=0.1, data_ms_per_request=0.05, response_ms=2.0)
"""What the paper's scheduler allows for."""
SIZES = ("1 x 8", "37 x 64", "20 x 512")
"""Sessions x accelerators: ResNet50 of Table 4; the zoo of Table 6; 20 like ResNet50 of Table 5, 100 ms."""
RATES = {
    "symphony": {"1 x 8": 5_000.0, "37 x 64": 14_200.0, "20 x 512": 212_000.0},
    "eager": {"1 x 8": 4_100.0, "37 x 64": 8_280.0, "20 x 512": 214_000.0},
}
"""Requests/s of all sessions: 90 % of the policy's goodput; symphony's first is the user's guide's."""
LOAD = 0.8
"""Of a grid's clusters, as a share of the ideal."""


def cluster(size: str, policy: str, requests: int) -> Scenario:
    """Return a scenario of about so many requests, all of which count.

    Args:
        size: One of ``SIZES``.
        policy: Its name.
        requests: How many arrive.
    """
    if size == "1 x 8":
        setup = TABLE_4[0]
        sessions, accelerators = [_session(setup.model, setup.slo_ms)], setup.accelerators
    elif size == "37 x 64":
        sessions, accelerators = [_session(one, one.slo_ms) for one in A100], 64
    else:
        sessions, accelerators = [_session(model("ResNet50", GTX_1080TI), 100, copies=20)], 512
    return _scenario(policy, sessions, accelerators, RATES[policy][size], requests)


def grid(sessions: int, accelerators: int, policy: str, requests: int) -> Scenario:
    """Return a cluster of equal sessions with a load in proportion to its size, for seeing how cost grows."""
    one, slo = model("ResNet50", GTX_1080TI), 100
    latency = linear_latency(one.alpha_ms / 1e3, one.beta_ms / 1e3, slo / 1e3)
    rate = LOAD * staggered(latency, slo / 1e3, max(accelerators // sessions, 1)).rate
    rate *= accelerators / max(accelerators // sessions, 1)
    return _scenario(policy, [_session(one, slo, copies=sessions)], accelerators, rate, requests)


def arrivals(scenario: Scenario, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first requests of a scenario: when they arrive and their sessions.   # (n,) s, (n,) i8."""
    workload = scenario.make_workload()
    times, sessions = [], []
    missing = count
    while missing > 0:
        chunk = workload.next_chunk()
        times.append(chunk.time)
        sessions.append(chunk.session.copy())
        missing -= chunk.time.size
    return np.concatenate(times)[:count], np.concatenate(sessions)[:count]


def _session(one: Model, slo_ms: float, copies: int = 1) -> Session:
    return Session(
        name=one.name, alpha_ms=one.alpha_ms, beta_ms=one.beta_ms, slo_ms=float(slo_ms), copies=copies
    )


def _scenario(
    policy: str, sessions: list[Session], accelerators: int, rate: float, requests: int
) -> Scenario:
    return Scenario(
        policy=policy,
        accelerators=accelerators,
        rate=rate,
        sessions=tuple(sessions),
        network=NETWORK,
        seconds=requests / rate,
        warmup_seconds=0.0,
        seed=1,
    )
