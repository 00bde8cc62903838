"""What it takes to go from one pool to another: instances to start and to stop, time, and money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.pools.bound import bounds

if TYPE_CHECKING:
    from tuner.planning.pools.plan import PoolPlan
    from tuner.planning.pools.scenario import MixedScenario

__all__ = ["STARTUP", "Running", "Switch", "make_switch", "running_pool"]

STARTUP = 60.0
"""s until a new instance serves: renting takes tens of seconds (section 4), then a model is loaded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """The steps from one pool to another, and what they cost.

    New instances are started first; those that go are stopped when the new ones serve. So what is started is
    paid for while it does nothing yet, and nothing is lost.
    """

    start: dict[str, int]
    """Instances to start, by type."""
    stop: dict[str, int]
    """Instances to stop, by type."""
    seconds: float
    """Until the new pool serves."""
    cost: float
    """$, once: of what is started, until it serves."""
    saving: float
    """$/h that the new pool costs less; negative if it costs more."""

    @property
    def none(self) -> bool:
        """Whether nothing is to be done."""
        return not (self.start or self.stop)

    @property
    def payback(self) -> float:
        """Time after which the saving has paid for the switch, s; infinite if nothing is saved."""
        return self.cost / self.saving * 3600 if self.saving > 0 else float("inf")

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
        now: Instances by type that run.
        then: Instances by type that are to run.
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
        saving=-sum(count * price[name] for name, count in change.items()),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """The pool that runs, beside the one that a plan chooses."""

    counts: dict[str, int]
    """Instances by type."""
    bound: float
    """Of its throughput, queries/s; 0 if it cannot serve the largest queries in time."""
    gain: float
    """The chosen pool's bound over this one, less 1; infinite if this one serves nothing."""
    switch: Switch
    """To the chosen pool."""

    @property
    def text(self) -> str:
        """What a switch gains and costs, in a sentence."""
        if self.switch.none:
            return "That is the pool of the file."
        gain = f"{self.gain:+.0%}" if self.bound else "more than nothing"
        saving = self.switch.saving
        money = f"{abs(saving):.4g} $/h {'less' if saving > 0 else 'more'}" if saving else "the same price"
        return (
            f"Against the {_listed(self.counts)} of the file: bound {gain}, {money}. "
            f"To switch, {self.switch.text}: {self.switch.seconds:.0f} s and {self.switch.cost:.2g} $."
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "counts": self.counts,
            "bound": round(self.bound, 4),
            "gain": round(self.gain, 4) if self.bound else None,
            "switch": self.switch.to_json(),
        }


def running_pool(scenario: MixedScenario, plan: PoolPlan) -> Running | None:
    """Return the pool of the scenario's file beside the one that was chosen; None if the file has none.

    Raises:
        InvalidInput: It has a type that the catalogue does not offer for the model.
    """
    if scenario.instances is None:
        return None
    names = plan.offers.names
    counts = dict.fromkeys(names, 0)
    for rented in scenario.instances:
        if rented.type not in counts:
            fix = f"use {', '.join(names)}"
            raise InvalidInput(f"instances {rented.type}", "is not offered for the model", fix)
        counts[rented.type] += rented.count
    pool = np.array([list(counts.values())])
    serves = bool(pool[0, plan.terms.base].any())
    bound = float(bounds(pool, plan.terms)[0]) if serves else 0.0
    price = dict(zip(names, plan.offers.price.tolist(), strict=True))
    return Running(
        counts={name: count for name, count in counts.items() if count},
        bound=bound,
        gain=plan.chosen.bound / bound - 1 if bound else float("inf"),
        switch=make_switch(counts, plan.chosen.counts, price),
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in counts.items())
