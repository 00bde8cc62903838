"""The reasons for a plan, in sentences for the person who rents the instances."""

from __future__ import annotations

from tuner.planning.pools.choice import AGREEING, CANDIDATES
from tuner.planning.pools.plan import PoolPlan

__all__ = ["reasons", "trial_reasons"]


def reasons(plan: PoolPlan) -> tuple[str, ...]:
    """Return what was compared, what each type can serve, how the pool was chosen, and what limits it."""
    return (
        f"{plan.pools:,} pools cost at most {plan.budget:g} $/h and have an instance that meets "
        f"{plan.session.slo_ms:g} ms at {plan.sizes.largest} items ({_bases(plan)}).",
        *_auxiliaries(plan),
        _rule(plan),
        _limit(plan),
        _gain(plan),
    )


def trial_reasons(plan: PoolPlan, largest: int, finalists: int, requests: tuple[int, int]) -> tuple[str, ...]:
    """Return the same for a pool that was chosen by simulation.

    Args:
        plan: The plan.
        largest: Items of the largest request that must be in time.
        finalists: Pools in the second round.
        requests: Of each simulation in the two rounds.
    """
    name, instances = plan.offers.names[plan.homogeneous.kind], plan.homogeneous.instances
    same = {kind: count for kind, count in plan.chosen.counts.items() if count} == {name: instances}
    return (
        f"{plan.pools:,} pools cost at most {plan.budget:g} $/h and have an instance that meets "
        f"{plan.session.slo_ms:g} ms at {largest} items, within which {plan.session.quantile:g} of the "
        f"requests are ({_bases(plan)}).",
        f"Simulated: {plan.tried} of the pools with the highest ceilings with {requests[0]:,} requests, and "
        f"the best {finalists} again with {requests[1]:,}, among them the best pool of one type.",
        f"Mixed pools gain nothing here: {instances} x {name} is the best pool of one type, too."
        if same
        else f"It serves {plan.gain:.2f} times as much as {instances} x {name}, the best pool of one type, "
        f"which serves {plan.homogeneous.rate:,.4g} requests/s.",
    )


def _gain(plan: PoolPlan) -> str:
    name, instances = plan.offers.names[plan.homogeneous.kind], plan.homogeneous.instances
    if {kind: count for kind, count in plan.chosen.counts.items() if count} == {name: instances}:
        return f"Mixed pools gain nothing here: {instances} x {name} is the best pool of one type, too."
    most = int(plan.offers.max_count[plan.homogeneous.kind])
    scaled = ", scaled up to the whole budget" if instances < most else ", all that there are of it"
    return f"The bound is {plan.gain:.2f} times that of {instances} x {name}{scaled}."


def _bases(plan: PoolPlan) -> str:
    return " or ".join(plan.offers.names[index] for index in plan.terms.base.nonzero()[0].tolist())


def _auxiliaries(plan: PoolPlan) -> list[str]:
    texts = []
    for index, name in enumerate(plan.offers.names):
        cutoff = int(plan.terms.cutoff[index])
        if not plan.terms.base[index] and cutoff:
            share = f"{plan.terms.share[index]:.1%} of the requests"
            texts.append(f"{name} meets {plan.session.slo_ms:g} ms up to {cutoff} items, {share}.")
        elif not plan.terms.base[index]:
            texts.append(f"{name} meets {plan.session.slo_ms:g} ms at no size that comes, and is of no use.")
    return texts


def _rule(plan: PoolPlan) -> str:
    count = min(plan.pools, AGREEING)
    if count == 1:
        return "It is the only pool."
    if plan.alone:
        return "The highest bound needs no auxiliary instances, so it is taken."
    if plan.agreed:
        return f"The {count} highest bounds have the same base instances, so the highest is taken."
    candidates = min(plan.pools, CANDIDATES)
    return (
        f"The {count} highest bounds differ in base instances, so of the {candidates} highest "
        f"the one nearest to the others is taken (summed squared distance {plan.chosen.distance})."
    )


def _limit(plan: PoolPlan) -> str:
    counts = list(plan.chosen.counts.values())
    mixed = any(count and not base for count, base in zip(counts, plan.terms.base, strict=True))
    if not mixed:
        return "No auxiliary instances are worth their price."
    if plan.chosen.bottleneck == "base":
        return f"The requests that only {_bases(plan)} can serve in time limit the throughput."
    return f"The auxiliary instances are always busy; {_bases(plan)} has time left for small requests, too."
