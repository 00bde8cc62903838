"""Small clusters and random scenarios for the tests of the schedulers."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec, linear_latency
from tuner.scheduling.vocabulary import DISPATCH, DROP
from tuner.testing.driver import PolicyRun

__all__ = [
    "MS",
    "RESNET50",
    "Scenario",
    "at",
    "dropped",
    "linear",
    "one",
    "random_scenario",
    "sent",
    "unlike_scenario",
]

MS = 1e-3
RESNET50 = (1.053 * MS, 5.072 * MS, 25 * MS)


class Scenario(NamedTuple):
    spec: ClusterSpec
    arrivals: list[tuple[float, int, int]]
    stretch: tuple[float, ...]


def linear(name: str, alpha: float, beta: float, slo: float) -> SessionSpec:
    """A session with a linear profile; s."""
    return SessionSpec(name=name, slo=slo, latency=linear_latency(alpha, beta, slo)[None])


def one(alpha: float, beta: float, slo: float, accelerators: int = 1, **delays: float) -> ClusterSpec:
    """One session with a linear profile; s."""
    return ClusterSpec(
        sessions=[linear("a", alpha, beta, slo)], kinds=[0] * accelerators, delays=Delays(**delays)
    )


def at(*times: float, session: int = 0) -> list[tuple[float, int, int]]:
    """Requests of a session at these times, ms."""
    return [(time * MS, session, 0) for time in times]


def sent(trace: PolicyRun) -> list[tuple[float, tuple[int, ...]]]:
    """Time, in ms to the microsecond, and requests of every batch."""
    return _commanded(trace, DISPATCH)


def dropped(trace: PolicyRun) -> list[tuple[float, tuple[int, ...]]]:
    """The same of every refusal."""
    return _commanded(trace, DROP)


def _commanded(trace: PolicyRun, kind: int) -> list[tuple[float, tuple[int, ...]]]:
    return [(round(now / MS, 3), each.numbers) for now, each in trace.commands if each.kind == kind]


def random_scenario(seed: int, requests: int = 120) -> Scenario:
    """A few sessions on a few accelerators of one or two kinds; with bursts, late batches and a network."""
    rng = np.random.default_rng(seed)
    kinds = int(rng.integers(1, 3))
    sessions = []
    for index in range(int(rng.integers(1, 4))):
        slo = float(rng.uniform(15, 60)) * MS
        table = [
            linear_latency(rng.uniform(0.2, 3) * MS, rng.uniform(0.3, 10) * MS, slo) for _ in range(kinds)
        ]
        largest = (
            int(rng.integers(1, min(map(len, table)))) if rng.random() < 0.3 else min(map(len, table)) - 1
        )
        latency = np.array([row[: largest + 1] for row in table])
        sessions.append(SessionSpec(name=f"s{index}", slo=slo, latency=latency))
    accelerators = int(rng.integers(1, 5))
    network = rng.random() < 0.6
    spec = ClusterSpec(
        sessions=sessions,
        kinds=[int(kind) for kind in rng.integers(0, kinds, accelerators)],
        delays=Delays(
            control=float(rng.uniform(0, 3)) * MS * network,
            data=float(rng.uniform(0, 0.2)) * MS * network,
            response=float(rng.uniform(0, 3)) * MS * network,
        ),
    )
    gaps = rng.gamma(rng.choice([0.1, 1.0, 20.0]), size=requests)
    times = np.cumsum(gaps / gaps.mean() * rng.choice([0.5, 1.0, 3.0]) * MS)
    arrivals = [(float(time), int(rng.integers(len(sessions))), 0) for time in times]
    factors = np.where(rng.random(500) < 0.3, rng.uniform(0.5, 2.5, 500), 1.0)
    exact = bool(rng.random() < 0.5)
    return Scenario(spec, arrivals, (1.0,) if exact else tuple(factors.tolist()))


def unlike_scenario(seed: int, requests: int = 120) -> Scenario:
    """A random scenario with a kind of accelerators more, which serves some sessions hardly or not at all."""
    scenario = random_scenario(seed, requests)
    rng = np.random.default_rng([seed, 2])
    sessions = []
    for session in scenario.spec.sessions:
        slower = session.latency[:1] * rng.uniform(1.5, 6)
        sessions.append(replace(session, latency=np.concatenate([session.latency, slower])))
    kinds = len(sessions[0].latency)
    added = [kinds - 1, *rng.integers(0, kinds, int(rng.integers(0, 3))).tolist()]
    order = rng.permutation([*scenario.spec.kinds, *added]).tolist()
    return scenario._replace(spec=replace(scenario.spec, sessions=sessions, kinds=order))
