"""Plain twins of what tuner.planning.pools computes with arrays: slow, written like the paper's equations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np


def equation_9(large: float, share: float) -> float:
    """One base and one auxiliary instance, the base being the bottleneck."""
    return large / (1 - share)


def equation_11(base: float, large: float, small: float, share: float) -> float:
    """One base and one auxiliary instance, the auxiliary being the bottleneck."""
    return small / share + (large - (1 - share) / share * small) / large * base


def equation_12(u: int, large: float, share: float) -> float:
    """u base instances are the bottleneck."""
    return u * large / (1 - share)


def equation_13(u: int, v: int, base: float, large: float, small: float, share: float) -> float:
    """v auxiliary instances are the bottleneck."""
    return v * small / share + (u * large - (1 - share) / share * v * small) / (u * large) * u * base


def rates(latency: np.ndarray, slo: float, sizes: Sequence[int]) -> tuple[float, float, float, float, int]:
    """Q_b, Q_b^s+, Q_a, f and s of a base type (first) and an auxiliary one, from a list of requests."""
    base, auxiliary = latency
    cutoff = max((size for size in set(sizes) if auxiliary[size] <= slo), default=0)
    small = [size for size in sizes if size <= cutoff]
    large = [size for size in sizes if size > cutoff]
    return (
        len(sizes) / sum(base[size] for size in sizes),
        len(large) / sum(base[size] for size in large),
        len(small) / sum(auxiliary[size] for size in small),
        len(small) / len(sizes),
        cutoff,
    )


def pools_within(
    price: np.ndarray, max_count: np.ndarray, base: np.ndarray, budget: float
) -> list[tuple[int, ...]]:
    """All combinations, one by one."""
    found = []
    for pool in product(*(range(most + 1) for most in max_count)):
        cost = sum(count * one for count, one in zip(pool, price, strict=True))
        if cost <= budget * (1 + 1e-9) and any(n for n, is_base in zip(pool, base, strict=True) if is_base):
            found.append(pool)
    return found


def throughput(
    pool: np.ndarray,
    latency: np.ndarray,
    slo: float,
    sizes: Sequence[int],
    probability: np.ndarray,
    shares: Sequence[Sequence[float]],
) -> float:
    """Requests/s of a pool whose type i gets shares[i][k] of the requests of sizes[k], all within the SLO."""
    most = float("inf")
    for kind, count in enumerate(pool):
        work = 0.0
        for k, size in enumerate(sizes):
            if shares[kind][k]:
                assert latency[kind][size] <= slo
                work += shares[kind][k] * probability[size] * latency[kind][size]
        if work:
            most = min(most, count / work)
    return most
