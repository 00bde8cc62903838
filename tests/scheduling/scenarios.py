"""Small clusters and random scenarios for the tests of the schedulers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tests.scheduling.drive import ARRIVE, DROPPED, FINISH, SENT, WAKE, Entry, drive
from tests.scheduling.naive_symphony import Base, Told
from tuner.scheduling.cluster import ClusterSpec, Delays, SessionSpec, linear_latency

__all__ = ["RESNET50", "Scenario", "assert_twin", "linear", "one", "random_scenario", "sent"]

MS = 1e-3
RESNET50 = (1.053 * MS, 5.072 * MS, 25 * MS)


class Scenario(NamedTuple):
    spec: ClusterSpec
    arrivals: list[tuple[float, int, int]]
    slowness: Callable[[int], float]


def linear(name: str, alpha: float, beta: float, slo: float) -> SessionSpec:
    """A session with a linear profile; s."""
    return SessionSpec(name=name, slo=slo, latency=linear_latency(alpha, beta, slo)[None])


def one(alpha: float, beta: float, slo: float, accelerators: int = 1, **delays: float) -> ClusterSpec:
    """One session with a linear profile; s."""
    return ClusterSpec(
        sessions=[linear("a", alpha, beta, slo)], kinds=[0] * accelerators, delays=Delays(**delays)
    )


def sent(log: Sequence[Entry], kind: str = SENT) -> list[tuple[float, tuple[int, ...]]]:
    """Time, in ms to the microsecond, and requests of every command of a kind."""
    return [(round(entry.time / MS, 3), entry.numbers) for entry in log if entry.kind == kind]


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
    return Scenario(spec, arrivals, lambda batch: 1.0 if exact else float(factors[batch % 500]))


def assert_twin(policy: Any, twin: Base, scenario: Scenario) -> int:
    """Assert that the plain twin gives the same commands at every event; return how many there were."""
    log = drive(policy, scenario.arrivals, slowness=scenario.slowness)
    told: list[Told] = []
    commands = 0
    for entry in log:
        if entry.kind in {SENT, DROPPED}:
            expected = told.pop(0)
            actual = (entry.kind, entry.session, entry.numbers, entry.accelerator)
            assert expected[:4] == actual, entry.time
            commands += 1
            if entry.kind == SENT:
                np.testing.assert_allclose(expected[4:], (entry.start, entry.finish), atol=1e-9)
            continue
        assert told == [], entry.time
        if entry.kind == ARRIVE:
            told = list(twin.arrive(entry.session, entry.numbers[0], entry.time))
        elif entry.kind == FINISH:
            told = list(twin.finish(entry.accelerator, entry.time))
        else:
            assert entry.kind == WAKE
            assert abs(twin.wake_at - entry.time) < 1e-9
            told = list(twin.wake(entry.time))
    assert told == []
    return commands
