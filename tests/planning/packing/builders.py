"""Session loads for tests."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.plan import ClusterPlan


def line(name: str, rate: float, *, slo: float = 0.1, memory: float = 0.0, beta: float = 0.01) -> SessionLoad:
    """A session with l(b) = 2 ms * b + beta."""
    latency = 0.002 * np.arange(int((slo - beta) / 0.002) + 1) + beta
    latency[0] = 0.0
    return SessionLoad(name=name, latency=latency, budget=slo, rate=rate, memory=memory)


def random_loads(rng: np.random.Generator, count: int, most: float = 120.0) -> list[SessionLoad]:
    """Sessions of all kinds, each of which some accelerator can serve."""
    loads = []
    for index in range(count):
        alpha, beta = rng.uniform(0.0005, 0.008), rng.uniform(0.002, 0.02)
        slo = rng.uniform(2.2, 8.0) * (alpha + beta)
        latency = alpha * np.arange(int((slo - beta) / alpha) + 1) + beta
        latency[0] = 0.0
        rate, memory = rng.uniform(1, most), rng.uniform(50, 400)
        loads.append(SessionLoad(name=f"s{index}", latency=latency, budget=slo, rate=rate, memory=memory))
    return loads


def uneven_loads(rng: np.random.Generator, count: int) -> list[SessionLoad]:
    """Sessions below a whole accelerator whose throughput rises and falls with the batch."""
    loads = []
    for index in range(count):
        latency = np.concatenate([[0.0], np.sort(rng.uniform(0.001, 0.03, rng.integers(1, 9)))])
        slo = rng.uniform(2.2, 8.0) * float(latency[1])
        one = SessionLoad(name=f"s{index}", latency=latency, budget=slo, rate=1.0)
        loads.append(replace(one, rate=one.peak * rng.uniform(0.3, 0.999)))
    return loads


def served(plan: ClusterPlan) -> dict[str, float]:
    """requests/s of every session of a plan."""
    return {name: sum(rates.values()) for name, rates in plan.hosted.items()}


def assert_feasible(plan: ClusterPlan, loads: list[SessionLoad], memory: float = float("inf")) -> None:
    """Every backend keeps the budgets of its sessions, its duty cycle and its memory."""
    known = {load.name: load for load in loads}
    for backend in plan.backends:
        latencies = [float(known[one.name].latency[one.batch]) for one in backend.sessions]
        assert sum(latencies) <= backend.cycle * (1 + 1e-6)
        assert sum(known[one.name].memory for one in backend.sessions) <= memory * (1 + 1e-9)
        for one, latency in zip(backend.sessions, latencies, strict=True):
            assert backend.cycle + latency <= known[one.name].budget + 1e-6
            assert one.batch >= one.rate * backend.cycle - 1e-6
