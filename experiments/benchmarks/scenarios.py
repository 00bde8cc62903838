"""The clusters that the benchmarks run on."""

from __future__ import annotations

import numpy as np

from tuner.cluster.scenario import Scenario, Session
from tuner.experiments.zoo import A100, GTX_1080TI, NETWORK, TABLE_4, model
from tuner.scheduling.analysis import staggered

__all__ = ["SIZES", "arrivals", "cluster", "grid"]

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
    """Return a scenario with about the given number of requests, all of which count.

    Args:
        size: One of ``SIZES``.
        policy: Its name.
        requests: How many arrive.
    """
    if size == "1 x 8":
        setup = TABLE_4[0]
        sessions, accelerators = [setup.model.session(setup.slo_ms)], setup.accelerators
    elif size == "37 x 64":
        sessions, accelerators = [one.session() for one in A100], 64
    else:
        sessions, accelerators = [model("ResNet50", GTX_1080TI).session(100, copies=20)], 512
    return _scenario(policy, sessions, accelerators, RATES[policy][size], requests)


def grid(sessions: int, accelerators: int, policy: str, requests: int) -> Scenario:
    """Return a cluster of equal sessions with a load in proportion to its size, for seeing how cost grows."""
    one, slo = model("ResNet50", GTX_1080TI), 100
    rate = LOAD * staggered(one.latency(slo), slo / 1e3, max(accelerators // sessions, 1)).rate
    rate *= accelerators / max(accelerators // sessions, 1)
    return _scenario(policy, [one.session(slo, copies=sessions)], accelerators, rate, requests)


def arrivals(scenario: Scenario, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first requests of a scenario: when they arrive and their sessions.   # (n,) s, (n,) i8."""
    stream = scenario.make_requests()
    times, sessions = [], []
    missing = count
    while missing > 0:
        chunk = stream.next_chunk()
        times.append(chunk.time)
        sessions.append(chunk.session.copy())
        missing -= chunk.time.size
    return np.concatenate(times)[:count], np.concatenate(sessions)[:count]


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
