"""Chooses the plan of Nexus with which given accelerators serve most, by simulation.

The best of several plans is improved step by step: at a rate that is just too high for it, the session that
loses most gets relief from other accelerators, by the first move after which the worst session loses less. A
move needs one simulation, a comparison of plans several.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.goodput import capacity, check_requests_come, goodput, long_enough, requests_at
from tuner.cluster.scenario import Scenario
from tuner.cluster.scenario.checks import sizes_problem
from tuner.cluster.scenario.options import make_options
from tuner.cluster.simulation import simulate
from tuner.errors import InvalidInput
from tuner.planning.packing.form import MOST_BACKENDS
from tuner.scheduling.batching.nexus_balance import candidate_placements, moves
from tuner.scheduling.batching.nexus_plan import Placement
from tuner.scheduling.cluster import ClusterSpec

__all__ = ["POLICY", "ChosenPlacement", "choose_placement"]

POLICY = "nexus"
"""The policy whose option a placement is, and under which it is simulated."""
MORE = 1.005
"""Times as many requests as before must be served for a plan to be better."""
TOLERANCE = 0.01
"""Of a rate."""
MOST_REQUESTS = 5e7
"""Of each simulation, about ten seconds of one core; a search has from twenty to two hundred simulations."""
MOVES = 100
"""Most moves that are simulated."""
LESS = 0.98
"""Times as much the worst session must lose for a move to be worth it."""
HIGHER = 1.01
"""From one rate that a plan serves to the next."""


class ChosenPlacement(NamedTuple):
    """The plan that was chosen, and what it serves under other arrivals than those it was chosen by.

    Rates are in requests/s, within the quantile of every session.
    """

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


def choose_placement(scenario: Scenario, *, note: Callable[[str], None] = lambda _: None) -> ChosenPlacement:
    """Return the plan with which the scenario's accelerators serve the most.

    Plans are chosen with the next seed. What the chosen one and the policy's own serve is simulated with the
    scenario's, of which the chosen one may serve less.

    Args:
        scenario: With accelerators and the rates that are planned for, in proportion: the option ``rates`` of
            the policy, or those of its sessions.
        note: Is told of every plan before it is simulated for the first time, and of the last simulations.

    Raises:
        InvalidInput: A session has sizes, of which the policy knows nothing; or no request comes in the time
            that is simulated, or so many that it would take hours; or there is not one rate per session.
    """
    for index, session in enumerate(scenario.sessions):
        if session.sizes is not None:
            raise InvalidInput(f"sessions[{index}].sizes", sizes_problem(POLICY))
    options = scenario.options if scenario.policy in (None, POLICY) else {}
    given = scenario.model_copy(update={"policy": POLICY, "planner": None, "options": options})
    check_requests_come(given)
    _check_size(given)
    rates = make_options(POLICY, options).rates
    if rates is None:
        rates = [session.mean_rate(given.duration) for session in given.each_session]
    search = _PlacementSearch(given.model_copy(update={"seed": given.seed + 1}), note)
    # Each plan is made when the one before was simulated: to make all takes long for many accelerators.
    plans = candidate_placements(given.cluster_spec(), rates)
    own = next(plans)
    for plan in chain([own], plans):
        search.compare(plan)
    search.improve()
    note("the best of them")
    packed = goodput(_with(given, own), tolerance=TOLERANCE).rate
    rate = goodput(_with(given, search.best), tolerance=TOLERANCE).rate if search.best != own else packed
    return ChosenPlacement(search.best, rate, packed, search.tried)


def _check_size(scenario: Scenario) -> None:
    """Raise InvalidInput if the search would take hours."""
    count = len(scenario.cluster_spec().kinds)
    if count > MOST_BACKENDS:
        raise InvalidInput("accelerators", f"are {count:,}", f"plan for {MOST_BACKENDS:,} at most")
    requests = requests_at(scenario, capacity(scenario) / scenario.total_rate)
    if requests > MOST_REQUESTS:
        problem = f"each simulation would be of about {requests:.0e} requests to {count:,} accelerators"
        name, lower = "seconds", "`seconds` and `warmup_seconds`, or plan for fewer accelerators"
        if scenario.requests is not None:
            name, lower = "requests", "them"
        fix = f"at most {MOST_REQUESTS:.0e}: lower {lower}"
        raise InvalidInput(name, problem, fix)


class _PlacementSearch:
    """The plans that were simulated under one scenario, and the best of them."""

    def __init__(self, scenario: Scenario, note: Callable[[str], None]) -> None:
        self.best = Placement(())
        self._scenario = scenario
        self._note = note
        self._known: set[Placement] = set()
        self._moves = 0
        self._highest = 0.0  # requests/s
        self._near: float | None = None

    @property
    def tried(self) -> int:
        """How many different plans were simulated."""
        return len(self._known)

    def compare(self, plan: Placement) -> None:
        """Search a plan's goodput, and keep the plan if it serves more than the best so far."""
        self._note_plan(plan)
        found = goodput(
            _with(self._scenario, plan),
            tolerance=TOLERANCE,
            at_least=MORE * self._highest,
            near=self._near,
        )
        if found.rate > self._highest or not self.best.backends:
            self.best, self._highest, self._near = plan, found.rate, found.multiplier or None

    def improve(self) -> None:
        """Improve the best plan by moves, each of which lets the session that loses most lose less."""
        if self._near is None or self._scenario.at_once:
            return
        spec, multiplier = self._scenario.cluster_spec(), HIGHER * self._near
        plan, strain = self.best, self._strain(self.best, multiplier)
        for _ in range(MOVES):  # bounded, for with a low quantile no rate is too high
            if strain.max() <= 1:
                multiplier *= HIGHER
                strain = self._strain(plan, multiplier)
            elif (better := self._relieve_worst(spec, plan, strain, multiplier)) is not None:
                plan, strain = better
            else:
                break
        if plan != self.best:
            self.compare(plan)

    def _relieve_worst(
        self, spec: ClusterSpec, plan: Placement, strain: np.ndarray, multiplier: float
    ) -> tuple[Placement, np.ndarray] | None:
        """Return the first moved plan whose worst session loses less, and its strain; None without one."""
        for moved in moves(spec, plan, strain.tolist()):
            if self._moves == MOVES:
                break
            self._moves += 1
            self._note_plan(moved)
            found = self._strain(moved, multiplier)
            if found.max() < LESS * strain.max():
                return moved, found
        return None

    def _strain(self, plan: Placement, multiplier: float) -> np.ndarray:
        """Simulate a plan; return its strain: each session's bad rate over its largest good one.   # (M,)."""
        outcome = simulate(long_enough(_with(self._scenario, plan).scaled(multiplier)))
        return np.array([one.bad_rate / (1 - one.quantile) for one in outcome.sessions])

    def _note_plan(self, plan: Placement) -> None:
        """Count a plan and report it, unless it was simulated before."""
        if plan not in self._known:
            self._known.add(plan)
            self._note(f"plan {self.tried}")


def _with(scenario: Scenario, plan: Placement) -> Scenario:
    return scenario.model_copy(update={"options": {**scenario.options, "placement": plan}})
