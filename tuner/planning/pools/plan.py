"""A plan: the instances that were chosen for a session within a budget, and what they were chosen from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tuner.planning.pools.bound import Terms
from tuner.planning.pools.catalogue import Offers
from tuner.planning.pools.choice import Homogeneous
from tuner.planning.pools.demand import Demand
from tuner.workload.sizes import SizeDistribution

__all__ = ["PlannedPool", "PoolPlan"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedPool:
    """A pool with its upper bound."""

    counts: dict[str, int]
    """Instances by type."""
    bound: float
    """Of the throughput, requests/s."""
    cost: float
    """$/h."""
    ceiling: float
    """Limit for every policy that meets the SLO for the session's ``quantile`` of requests, requests/s."""
    bottleneck: str
    """``base`` or ``auxiliary`` instances."""
    distance: int | None
    """Summed squared distance to the other candidates; None if the pool is no candidate."""
    simulated: float | None = None
    """Goodput in a simulation, requests/s; None without one, or if it showed less than another pool's."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values for the result file."""
        return {
            "instances": [{"type": name, "count": count} for name, count in self.counts.items() if count],
            "counts": list(self.counts.values()),
            "bound": round(self.bound, 4),
            "ceiling": round(self.ceiling, 4),
            "cost": round(self.cost, 6),
            "bottleneck": self.bottleneck,
            "distance": self.distance,
            "simulated": None if self.simulated is None else round(self.simulated, 4),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolPlan:
    """The pool that was chosen, and what it was chosen from."""

    session: Demand
    sizes: SizeDistribution
    budget: float
    """$/h."""
    offers: Offers
    terms: Terms
    pools: int
    """Within the budget."""
    top: tuple[PlannedPool, ...]
    """The highest bounds, best first."""
    chosen: PlannedPool
    agreed: bool
    """Whether the highest bounds have the same base instances; then the distance is not used."""
    alone: bool
    """Whether the pool with the highest bound has no auxiliary instances; then the distance is not used."""
    homogeneous: Homogeneous
    tried: int = 0
    """Pools that were simulated; 0 under the paper's rule, which simulates none."""
    why: tuple[str, ...] = ()
    """The reasons, in sentences."""

    @property
    def gain(self) -> float:
        """The chosen pool's bound over the throughput of the best homogeneous pool, scaled to the budget.

        Of simulated pools: the goodput over that of the best homogeneous pool.
        """
        if self.tried:
            return (self.chosen.simulated or 0.0) / (self.homogeneous.rate or math.inf)
        return self.chosen.bound / self.homogeneous.scaled_rate

    def to_json(self) -> dict[str, Any]:
        """Return plain values for the result file."""
        same = self.homogeneous
        return {
            "session": self.session.name,
            "model": self.session.model,
            "slo_ms": self.session.slo_ms,
            "quantile": self.session.quantile,
            "sizes": self.sizes.name,
            "budget": self.budget,
            "pools": self.pools,
            "rule": "simulated" if self.tried else "paper",
            "tried": self.tried,
            "chosen": self.chosen.to_json(),
            "gain": round(self.gain, 4),
            "homogeneous": {
                "instances": [{"type": self.offers.names[same.kind], "count": same.instances}],
                "throughput": round(same.rate, 4),
                "scaled_throughput": round(same.scaled_rate, 4),
            },
            "types": [self._type(index) for index in range(len(self.offers.names))],
            "top": [pool.to_json() for pool in self.top],
            "why": list(self.why),
            "notes": list(self.offers.notes),
        }

    def _type(self, index: int) -> dict[str, Any]:
        cutoff, terms = int(self.terms.cutoff[index]), self.terms
        rates = terms.base_rate[index] if terms.base[index] else terms.small_rate[index, index]
        return {
            "name": self.offers.names[index],
            "price": float(self.offers.price[index]),
            "base": bool(terms.base[index]),
            "largest_within_slo": cutoff,
            "share": round(float(terms.share[index]), 6),
            "throughput": round(float(rates), 4),
        }
