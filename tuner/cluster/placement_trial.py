"""Chooses the plan of Nexus with which given accelerators serve most, by simulation."""

from __future__ import annotations

from typing import Any, NamedTuple

from tuner.cluster.goodput import goodput
from tuner.cluster.scenario import Scenario
from tuner.scheduling.batching.nexus_balance import candidate_placements
from tuner.scheduling.batching.nexus_plan import Placement

__all__ = ["ChosenPlacement", "choose_placement"]

POLICY = "nexus"
MORE = 1.005
"""Times as many requests as before must be served for a plan to be better."""
TOLERANCE = 0.01
"""Of a rate."""


class ChosenPlacement(NamedTuple):
    """The plan that serves the most; rates in requests/s, within the quantile of every session."""

    placement: Placement
    rate: float
    packed: float
    """Of the plan that the policy makes by itself (Algorithm 1)."""
    tried: int
    """Different plans."""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as an option of the policy, and what it serves."""
        return {
            "placement": [[list(share) for share in row] for row in self.placement.backends],
            "rate": self.rate,
            "packed_rate": self.packed,
            "tried": self.tried,
        }


def choose_placement(scenario: Scenario) -> ChosenPlacement:
    """Return the plan with which the scenario's accelerators serve the most.

    Plans are chosen with the next seed; what the chosen one and the policy's own serve is simulated with the
    scenario's, and the better of the two is returned.

    Args:
        scenario: With accelerators and the rates that are planned for, in proportion.
    """
    options = scenario.options if scenario.policy in (None, POLICY) else {}
    given = scenario.model_copy(update={"policy": POLICY, "planner": None, "options": options})
    rates = [session.mean_rate(given.duration) for session in given.each_session]
    trial = given.model_copy(update={"seed": given.seed + 1})
    plans = list(candidate_placements(given.cluster_spec(), rates))
    best, highest, near = plans[0], 0.0, None
    for plan in plans:
        found = goodput(_with(trial, plan), tolerance=TOLERANCE, at_least=MORE * highest, near=near)
        if found.rate > highest:
            best, highest, near = plan, found.rate, found.multiplier
    packed = goodput(_with(given, plans[0]), tolerance=TOLERANCE).rate
    rate = goodput(_with(given, best), tolerance=TOLERANCE).rate if best != plans[0] else packed
    if rate < packed:
        best, rate = plans[0], packed
    return ChosenPlacement(best, rate, packed, len(plans))


def _with(scenario: Scenario, plan: Placement) -> Scenario:
    return scenario.model_copy(update={"options": {**scenario.options, "placement": plan}})
