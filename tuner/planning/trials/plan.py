"""Plans a pool: chooses among those with the highest ceilings the one that serves most in simulations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.pools.bound import Terms, auxiliary_limited, bounds, make_terms
from tuner.planning.pools.catalogue import Offers
from tuner.planning.pools.ceiling import ceilings, kept_mass
from tuner.planning.pools.choice import Homogeneous
from tuner.planning.pools.plan import PlannedPool, PoolPlan
from tuner.planning.pools.planner import SHOWN, Order, check_servable
from tuner.planning.pools.reason import trial_reasons
from tuner.planning.trials.candidate import Candidates, kept_sizes, make_candidates
from tuner.planning.trials.trial import FIRST, LAST, Evaluate, Trials, run_trials

__all__ = ["plan_by_trials"]


def plan_by_trials(order: Order, evaluate: Evaluate) -> PoolPlan:
    """Choose the pool that serves most in simulations of the candidates with the highest ceilings.

    Args:
        order: What is asked for.
        evaluate: Simulates a pool.

    Raises:
        InvalidInput: No type meets the SLO at the quantile of the sizes, or the budget buys none that does,
            or no pool serves anything in the simulations.
    """
    session, offers = order.session, order.offers
    kept = kept_sizes(order.sizes, session.quantile)
    mass = kept_mass(order.sizes.probability, session.quantile)
    # Like the ceilings, the bounds are of all requests, of which some need not be served.
    terms = make_terms(offers.latency, session.slo, mass)
    check_servable(session, kept, offers, terms, order.budget)
    candidates = make_candidates(offers, terms, session.slo, mass, order.budget)
    trials = run_trials(candidates, evaluate)
    if not any(trials.finalists.values()):
        problem = (
            f"no pool within the budget answers {session.quantile:g} of the requests within "
            f"{session.slo * 1e3:g} ms in the simulations, at any rate"
        )
        fix = "raise slo_ms or the budget, or look at the delays of `network` and at `noise`"
        raise InvalidInput(f"session {session.name}", problem, fix)
    top = _most_promising(order, terms, candidates, trials)
    plan = PoolPlan(
        session=session,
        sizes=order.sizes,
        budget=order.budget,
        offers=offers,
        terms=terms,
        pools=candidates.total,
        top=top,
        chosen=top[0],
        agreed=False,
        alone=False,
        homogeneous=_homogeneous(trials, offers, order.budget),
        tried=trials.tried,
    )
    texts = trial_reasons(plan, kept.largest, len(trials.finalists), (FIRST, LAST))
    return replace(plan, why=texts)


def _most_promising(
    order: Order, terms: Terms, candidates: Candidates, trials: Trials
) -> tuple[PlannedPool, ...]:
    """Return the pools that are shown: the finalists, best first, then those with the highest ceilings."""
    offers, session = order.offers, order.session
    others = (tuple(pool) for pool in candidates.pools[: SHOWN + len(trials.finalists)].tolist())
    shown = [*trials.finalists, *(pool for pool in others if pool not in trials.finalists)][:SHOWN]
    pools = np.array(shown)  # (n, T)
    bound, cost = bounds(pools, terms), pools @ offers.price
    ceiling = ceilings(pools, offers.latency, session.slo, order.sizes.probability, session.quantile)
    spare = auxiliary_limited(pools, terms).tolist()
    return tuple(
        PlannedPool(
            counts=dict(zip(offers.names, pool, strict=True)),
            bound=float(bound[place]),
            ceiling=float(ceiling[place]),
            cost=float(cost[place]),
            bottleneck="auxiliary" if spare[place] else "base",
            distance=None,
            simulated=trials.finalists.get(pool) or None,
        )
        for place, pool in enumerate(shown)
    )


def _homogeneous(trials: Trials, offers: Offers, budget: float) -> Homogeneous:
    """Return the best pool of one type among the finalists; there is always one."""
    alone = {pool: rate for pool, rate in trials.finalists.items() if np.count_nonzero(pool) == 1}
    pool = max(alone, key=lambda pool: alone[pool])
    kind = int(np.flatnonzero(pool)[0])
    whole = min(budget / float(offers.price[kind]), int(offers.max_count[kind]))  # instances
    return Homogeneous(kind, pool[kind], alone[pool], alone[pool] * whole / pool[kind])
