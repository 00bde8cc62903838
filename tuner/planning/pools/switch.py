"""A switch from one pool to another: instances to start and to stop, time, and money."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.pools.bound import bounds
from tuner.planning.pools.demand import PlanningScenario
from tuner.planning.pools.plan import PoolPlan

__all__ = ["STARTUP", "Running", "Switch", "make_switch", "running_pool"]

STARTUP = 60.0
"""s until a new instance serves: renting takes tens of seconds (section 4), then it loads the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """The steps from one pool to another, and what they cost.

    New instances start first; old ones stop when the new ones serve. No request is lost, and the new
    instances cost money before they serve.
    """

    start: dict[str, int]
    """Instances to start, by type."""
    stop: dict[str, int]
    """Instances to stop, by type."""
    seconds: float
    """Until the new pool serves, s."""
    cost: float
    """Price of the new instances until they serve, $."""
    saving: float
    """Difference in price, $/h; negative if the new pool costs more."""

    @property
    def none(self) -> bool:
        """Whether there is nothing to start or stop."""
        return not (self.start or self.stop)

    @property
    def payback(self) -> float:
        """Time after which the saving has paid for the switch, s; infinite if nothing is saved."""
        return self.cost / self.saving * 3600 if self.saving > 0 else float("inf")

    @property
    def money(self) -> str:
        """The difference in price in words."""
        if not self.saving:
            return "the same price"
        return f"{abs(self.saving):.4g} $/h {'less' if self.saving > 0 else 'more'}"

    @property
    def text(self) -> str:
        """The steps in words."""
        parts = [
            f"{verb} {_listed(some)}" for verb, some in (("start", self.start), ("stop", self.stop)) if some
        ]
        return " and ".join(parts) or "nothing to start or stop"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "start": self.start,
            "stop": self.stop,
            "seconds": self.seconds,
            "cost": round(self.cost, 6),
            "saving": round(self.saving, 6),
        }


def make_switch(
    now: Mapping[str, int], then: Mapping[str, int], price: Mapping[str, float], seconds: float = STARTUP
) -> Switch:
    """Return the steps from one pool to another.

    Args:
        now: Running instances by type.
        then: Instances by type after the switch.
        price: $/h by type.
        seconds: Until a new instance serves.
    """
    change = {name: then.get(name, 0) - now.get(name, 0) for name in price}
    start = {name: count for name, count in change.items() if count > 0}
    stop = {name: -count for name, count in change.items() if count < 0}
    return Switch(
        start=start,
        stop=stop,
        seconds=seconds if start else 0.0,
        cost=sum(count * price[name] for name, count in start.items()) * seconds / 3600,
        # Rounded, as 3 x 0.1 is not 0.3; and nothing is 0.0 rather than -0.0.
        saving=round(sum(-count * price[name] for name, count in change.items()), 9) + 0.0,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """The running pool, compared with the one that a plan chooses."""

    counts: dict[str, int]
    """Instances by type."""
    bound: float
    """Upper bound of its throughput, requests/s; 0 if it cannot serve the largest requests in time."""
    gain: float
    """The chosen pool's bound over this one, less 1; infinite if this one serves nothing. Of goodputs if
    pools were simulated."""
    switch: Switch
    """To the chosen pool."""
    simulated: float | None = None
    """Its goodput in a simulation, requests/s."""

    @property
    def text(self) -> str:
        """Gain and cost of a switch, in a sentence."""
        if self.switch.none:
            return "That is the pool of the file."
        gain = f"{self.gain:+.0%}" if math.isfinite(self.gain) else "more than nothing"
        what = "bound" if self.simulated is None else "goodput"
        return (
            f"Against the {_listed(self.counts)} of the file: {what} {gain}, {self.switch.money}. "
            f"To switch, {self.switch.text}: {self.switch.seconds:.0f} s and {self.switch.cost:.2g} $."
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "counts": self.counts,
            "bound": round(self.bound, 4),
            "gain": round(self.gain, 4) if math.isfinite(self.gain) else None,
            "simulated": None if self.simulated is None else round(self.simulated, 4),
            "switch": self.switch.to_json(),
        }


def running_pool(
    scenario: PlanningScenario, plan: PoolPlan, goodput: Callable[[tuple[int, ...]], float] | None = None
) -> Running | None:
    """Return the pool that a scenario rents now, compared with the plan's; None if it rents none.

    Args:
        scenario: With the pool.
        plan: What is proposed.
        goodput: Simulates a pool, if the plan's were simulated; without it bounds are compared.

    Raises:
        InvalidInput: The catalogue does not offer one of its types for the model.
    """
    if scenario.rented is None:
        return None
    names = plan.offers.names
    counts = dict.fromkeys(names, 0)
    for name, count in scenario.rented.items():
        if name not in counts:
            raise InvalidInput(f"instances {name}", "is not offered for the model", f"use {', '.join(names)}")
        counts[name] = count
    pool = np.array([list(counts.values())])
    serves = bool(pool[0, plan.terms.base].any())
    bound = float(bounds(pool, plan.terms)[0])
    simulated = None if goodput is None else goodput(tuple(counts.values())) if serves else 0.0
    before, after = (
        (bound, plan.chosen.bound) if simulated is None else (simulated, plan.chosen.simulated or 0)
    )
    price = dict(zip(names, plan.offers.price.tolist(), strict=True))
    return Running(
        counts={name: count for name, count in counts.items() if count},
        bound=bound,
        gain=after / before - 1 if before else math.inf,
        switch=make_switch(counts, plan.chosen.counts, price),
        simulated=simulated,
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in counts.items())
