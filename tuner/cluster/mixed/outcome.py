"""What came of a simulated mixed cluster: per session how many queries kept QoS, and who served them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.cluster.mixed.cluster import MixedCluster
from tuner.cluster.outcome import Outcome, SessionOutcome
from tuner.cluster.simulation import Simulation, simulate
from tuner.scheduling.log import EventLog

__all__ = ["MixedOutcome", "simulate_mixed", "simulate_while_kept"]

INSTANT = 1e-12
"""s; long enough to tell the oracle of all queries."""
PIECES = 20
"""Of the time, after each of which it is checked whether QoS can still be kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MixedOutcome:
    """The result of one simulation.

    >>> simulate_mixed(cluster).kept   # doctest: +SKIP
    True
    """

    cluster: MixedCluster
    outcome: Outcome

    @property
    def kept(self) -> bool:
        """Whether every session has its quantile of queries within QoS."""
        pairs = zip(self.cluster.sessions, self.outcome.sessions, strict=True)
        return all(one.bad_rate <= 1 - session.quantile + 1e-12 for session, one in pairs)

    @property
    def excess(self) -> float:
        """The bad rate of the session that is worst off, over what its quantile allows."""
        pairs = zip(self.cluster.sessions, self.outcome.sessions, strict=True)
        return max(one.bad_rate / (1 - session.quantile) for session, one in pairs)

    def busy(self) -> dict[str, float]:
        """Return the share of the time that the instances of each type executed, on average."""
        shares, first = {}, 0
        for name, count in self.cluster.pool.items():
            shares[name] = sum(self.outcome.utilisation[first : first + count]) / count
            first += count
        return shares

    def served(self, session: SessionOutcome) -> dict[str, int]:
        """Return the queries of a session that each type answered."""
        return dict(zip(self.cluster.pool, session.served.tolist(), strict=True))

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``tuner simulate --json`` for a mixed cluster."""
        pool = self.cluster.pool
        return {
            "instances": [{"type": name, "count": count} for name, count in pool.items()],
            "cost": round(self.cluster.cost, 6),
            "queries": self.outcome.requests,
            "rate": self.outcome.rate,
            "kept": self.kept,
            "sessions": [self._session(index) for index in range(len(self.cluster.sessions))],
            "utilisation": self.busy(),
        }

    def _session(self, index: int) -> dict[str, Any]:
        session, one = self.cluster.sessions[index], self.outcome.sessions[index]
        row = one.to_json()
        for name in ("mean_batch", "median_batch"):
            del row[name]  # every query is a batch of its own
        return {
            "name": session.name,
            "model": session.model,
            "qos_ms": session.qos_ms,
            "quantile": session.quantile,
            "rate": one.rate,
            "within_qos": 1 - one.bad_rate,
            "kept": one.bad_rate <= 1 - session.quantile + 1e-12,
            **{name: value for name, value in row.items() if name != "name"},
            "served": self.served(one),
        }


def simulate_mixed(
    cluster: MixedCluster,
    *,
    log: EventLog | None = None,
    progress: Callable[[float], None] | None = None,
) -> MixedOutcome:
    """Simulate all queries of a cluster from beginning to end.

    Args:
        cluster: What to simulate; its sessions' rates count, 1 query/s where there is none.
        log: Records what happens.
        progress: Called often with the share done so far, in [0, 1].
    """
    if cluster.policy != "oracle":
        return MixedOutcome(cluster=cluster, outcome=simulate(cluster, log=log, progress=progress))
    simulation = Simulation(cluster, log=log)
    simulation.advance(INSTANT)
    simulation.drain()
    return MixedOutcome(cluster=cluster, outcome=simulation.outcome())


def simulate_while_kept(cluster: MixedCluster) -> MixedOutcome:
    """Simulate a cluster until it is done, or sure not to keep QoS; an overload is cut short.

    Not for the oracle. If it is cut short, the outcome is that of the queries up to then.
    """
    simulation = Simulation(cluster)
    simulation.measure(0.0, cluster.seconds)
    # Of several sessions it is not known yet how many queries each has; a fifth more than its share is safe.
    shares = cluster.rates / cluster.rates.sum() * (1.2 if len(cluster.sessions) > 1 else 1.0)
    most = cluster.queries * shares * (1 - np.array([one.quantile for one in cluster.sessions]))  # (M,)
    for until in np.linspace(0.0, cluster.seconds, PIECES + 1)[1:].tolist():
        for _ in simulation.steps(until):
            pass
        counts = simulation.totals.sessions
        if (counts["late"] + counts["dropped"] > most).any():
            return MixedOutcome(cluster=cluster, outcome=simulation.outcome())
    simulation.drain()
    return MixedOutcome(cluster=cluster, outcome=simulation.outcome())
