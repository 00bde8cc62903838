"""Planning: which instances to rent for a session within a budget, and why (Kairos, section 5.2).

This is the paper's rule; `tuner/planning/trials` goes beyond it. No pool is measured. The pool is chosen from
upper bounds of the throughput, which need only the profiles and the sizes of the requests. The bound ignores
the session's quantile: it holds every request to the SLO.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.pools.bound import Terms, auxiliary_limited, bounds, make_terms
from tuner.planning.pools.catalogue import InstanceType, Offers, make_offers
from tuner.planning.pools.ceiling import ceilings
from tuner.planning.pools.choice import best_homogeneous, choose
from tuner.planning.pools.demand import Demand, PlanningScenario
from tuner.planning.pools.learned import LearnedFile, with_profiles
from tuner.planning.pools.plan import PlannedPool, PoolPlan
from tuner.planning.pools.pool import pools_within, ranked
from tuner.planning.pools.reason import reasons
from tuner.workload.sizes import SizeDistribution

__all__ = ["SHOWN", "Order", "check_servable", "make_order", "plan_instances", "plan_order", "plan_scenario"]

SHOWN = 20
"""Pools in a plan, as in Fig. 13."""


class Order(NamedTuple):
    """What a plan is asked for."""

    session: Demand
    sizes: SizeDistribution
    offers: Offers
    types: tuple[InstanceType, ...]
    """The instance types that run the model, with learned profiles, in the order of the offers."""
    budget: float
    """$/h."""


def plan_scenario(scenario: PlanningScenario, learned: LearnedFile | None = None) -> PoolPlan:
    """Plan the instances of a scenario by the paper's rule; see :func:`make_order`."""
    return plan_order(make_order(scenario, learned))


def plan_order(order: Order) -> PoolPlan:
    """Plan by the paper's rule; see :func:`plan_instances`."""
    return plan_instances(order.session, order.sizes, order.offers, order.budget)


def make_order(scenario: PlanningScenario, learned: LearnedFile | None = None) -> Order:
    """Return what a scenario asks a plan for.

    Args:
        scenario: One session, a catalogue and a budget.
        learned: Profiles that replace the catalogue's.

    Raises:
        TunerError: The scenario lacks something that a plan needs.
    """
    if len(scenario.sessions) > 1:
        names = ", ".join(session.name for session in scenario.sessions)
        raise InvalidInput(
            "sessions", f"a plan is for one session, but got {names}", "write a file with a budget for each"
        )
    if scenario.budget is None:
        raise InvalidInput("budget", "is missing", "write how many $/h the instances may cost: budget: 2.5")
    session = scenario.sessions[0]
    sizes, model = session.size_distribution(), session.model
    if model is None:
        fix = "write the name that it has in the catalogue: model: rm2"
        raise InvalidInput(f"session {session.name}", "has no `model`", fix)
    if sizes is None:
        fix = "write how many items requests have: sizes: paper"
        raise InvalidInput(f"session {session.name}", "has no `sizes`", fix)
    types, notes = scenario.types, tuple[str, ...]()
    if learned is not None:
        types, notes = with_profiles(types, learned, model, sizes)
    offers = make_offers(types, model, sizes)
    offers = offers._replace(notes=(*notes, *offers.notes))
    fit = tuple(kind for kind in types if kind.name in offers.names)
    return Order(session, sizes, offers, fit, scenario.budget)


def plan_instances(session: Demand, sizes: SizeDistribution, offers: Offers, budget: float) -> PoolPlan:
    """Choose the pool for a session.

    Args:
        session: The model and its SLO; its own sizes are ignored.
        sizes: The sizes of its requests, from a file or a :class:`~tuner.workload.sizes.SizeMonitor`.
        offers: What can be rented for the model.
        budget: $/h.

    Raises:
        InvalidInput: No type meets the SLO at the largest size, or the budget buys none that does.
    """
    terms = make_terms(offers.latency, session.slo, sizes.probability)
    check_servable(session, sizes, offers, terms, budget)
    pools = pools_within(offers.price, offers.max_count, terms.base, budget)
    bound, cost = bounds(pools, terms), pools @ offers.price
    order = ranked(bound, cost)
    choice = choose(pools, order, terms.base)
    homogeneous = best_homogeneous(offers.price, offers.max_count, terms.base_rate, budget)
    shown = order[:SHOWN].tolist()
    spare = auxiliary_limited(pools[shown], terms).tolist()
    ceiling = ceilings(pools[shown], offers.latency, session.slo, sizes.probability, session.quantile)
    top = tuple(
        PlannedPool(
            counts=dict(zip(offers.names, pools[index].tolist(), strict=True)),
            bound=float(bound[index]),
            ceiling=float(ceiling[rank]),
            cost=float(cost[index]),
            bottleneck="auxiliary" if spare[rank] else "base",
            distance=int(choice.distance[rank]) if rank < len(choice.distance) else None,
        )
        for rank, index in enumerate(shown)
    )
    plan = PoolPlan(
        session=session,
        sizes=sizes,
        budget=budget,
        offers=offers,
        terms=terms,
        pools=len(pools),
        top=top,
        chosen=top[shown.index(choice.pool)],
        agreed=choice.agreed,
        alone=choice.alone,
        homogeneous=homogeneous,
    )
    return replace(plan, why=reasons(plan))


def check_servable(
    session: Demand, sizes: SizeDistribution, offers: Offers, terms: Terms, budget: float
) -> None:
    """Check that a pool within the budget meets the SLO at every size that counts.

    Args:
        session: The model and its SLO; its own sizes are ignored.
        sizes: Those that count.
        offers: What can be rented for the model.
        terms: Of these sizes.
        budget: $/h.

    Raises:
        InvalidInput: No type meets the SLO at the largest size, or the budget buys none that does.
    """
    _check_base(session, sizes, offers, terms)
    _check_budget(offers, terms, budget)


def _check_base(session: Demand, sizes: SizeDistribution, offers: Offers, terms: Terms) -> None:
    if terms.base.any():
        return
    failures = [
        f"{name} needs {offers.latency[index, sizes.largest] * 1e3:.4g} ms and meets it "
        + (f"up to {terms.cutoff[index]} items" if terms.cutoff[index] else "at no size that comes")
        for index, name in enumerate(offers.names)
    ]
    raise InvalidInput(
        f"session {session.name}",
        f"no instance type meets slo_ms {session.slo_ms:g} at the largest size, {sizes.largest} items: "
        + "; ".join(failures),
        "raise slo_ms, or add a faster instance type",
    )


def _check_budget(offers: Offers, terms: Terms, budget: float) -> None:
    base = np.flatnonzero(terms.base)
    cheapest, least = int(offers.price.argmin()), int(base[offers.price[base].argmin()])
    if offers.price[least] <= budget * (1 + 1e-9):
        return
    needed = f"{offers.names[least]}, which costs {offers.price[least]:g} $/h"
    if offers.price[cheapest] > budget:
        problem = f"{budget:g} $/h buys no instance; the cheapest costs {offers.price[cheapest]:g} $/h"
        raise InvalidInput("budget", problem, f"the largest requests need at least one {needed}")
    problem = f"{budget:g} $/h buys no instance that meets slo_ms at the largest size"
    raise InvalidInput("budget", problem, f"one {needed}, is needed at least")
