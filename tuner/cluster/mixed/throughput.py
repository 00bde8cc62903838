"""Allowable throughput: the highest rate at which every session keeps its quantile within QoS.

The paper raises the rate until QoS is violated (section 7); here the highest rate is bracketed, beginning
near what no policy can exceed, then bisected. Every rate is tried with the same queries, faster or slower, so
that two rates differ by the rate and not by luck; a rate that is too high is not simulated to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.goodput import highest
from tuner.cluster.mixed.cluster import MixedCluster
from tuner.cluster.mixed.outcome import MixedOutcome, simulate_mixed, simulate_while_kept
from tuner.planning.pools.ceiling import ceilings

__all__ = ["Allowable", "RateTrial", "allowable_throughput"]

TOLERANCE = 0.005
"""The result is at most so far below the next rate known to be too high, relative."""


class RateTrial(NamedTuple):
    """One rate that was tried."""

    rate: float
    """Queries/s of all sessions together."""
    excess: float
    """The worst session's bad rate, over what its quantile allows; above 1 of a run that was cut short."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowable:
    """What was found."""

    rate: float
    """The highest total rate, queries/s; 0 if there is none, or none that was asked for."""
    outcome: MixedOutcome
    """The simulation at that rate; at the lowest rate tried if there is none."""
    trials: tuple[RateTrial, ...]
    """All rates tried, in order."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``tuner goodput --json`` for a mixed cluster."""
        content = self.outcome.to_json()
        total = float(self.outcome.cluster.rates.sum())
        for session, rate in zip(content["sessions"], self.outcome.cluster.rates.tolist(), strict=True):
            session["allowable_throughput"] = self.rate * rate / total
        return {"allowable_throughput": self.rate, **content}


def allowable_throughput(
    cluster: MixedCluster,
    *,
    tolerance: float = TOLERANCE,
    at_least: float = 0.0,
    progress: Callable[[RateTrial], None] | None = None,
) -> Allowable:
    """Search the highest rate.

    The oracle has one throughput, that at which it serves all queries; nothing is searched then.

    Args:
        cluster: Says in which proportion the sessions' rates are.
        tolerance: As ``TOLERANCE``.
        at_least: Queries/s below which the rate does not matter: if not even this is kept, it counts as 0
            after a single trial. So the best of many clusters is found without searching most of them.
        progress: Told of every rate tried.
    """
    trials: list[RateTrial] = []
    outcomes: dict[float, MixedOutcome] = {}
    total = float(cluster.rates.sum())

    def kept(multiplier: float) -> bool:
        outcome = outcomes[multiplier] = simulate_while_kept(cluster.scaled(multiplier))
        trials.append(RateTrial(total * multiplier, outcome.excess))
        if progress:
            progress(trials[-1])
        return outcome.kept

    if cluster.policy == "oracle":
        outcome = simulate_mixed(cluster)
        rate = outcome.outcome.rate if outcome.kept else 0.0
        return Allowable(rate=rate, outcome=outcome, trials=(RateTrial(rate, outcome.excess),))
    if at_least and not kept(at_least / total):
        return Allowable(rate=0.0, outcome=outcomes[at_least / total], trials=tuple(trials))
    loosest = 1 - min(session.quantile for session in cluster.sessions)
    multiplier = highest(kept, most_rate(cluster) / total, loosest, tolerance)
    outcome = outcomes[multiplier] if multiplier else simulate_mixed(cluster.scaled(min(outcomes)))
    return Allowable(rate=float(multiplier * total), outcome=outcome, trials=tuple(trials))


def most_rate(cluster: MixedCluster) -> float:
    """Return about the most queries/s of all sessions that the pool could execute."""
    pool = np.array([list(cluster.pool.values())])
    spec = cluster.cluster_spec()
    load = 0.0  # share of the pool's time that a total of 1 query/s takes
    shares = cluster.rates / cluster.rates.sum()
    for index, session in enumerate(cluster.sessions):
        latency, probability = spec.sessions[index].latency, cluster.sizes[index].probability
        probability = probability[: latency.shape[1]]
        most = float(ceilings(pool, latency, session.qos, probability, session.quantile)[0])
        if most == 0:  # nobody keeps the QoS target at large sizes
            most = float((pool / (latency @ probability)).sum())
        load += shares[index] / most
    return 1 / load
