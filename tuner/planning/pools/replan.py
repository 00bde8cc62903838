"""When to rent another pool: the load or the query sizes have changed, and the change is worth a switch.

No clock and no network: whoever drives it tells it of every query with its time, and asks now and then what
to do. It plans from the sizes of the last 10,000 queries (section 5.2 of the Kairos paper). A change of the
distribution is noticed earlier than those 10,000 could show it: if the last thousand differ from what is
planned with more than chance allows (Kolmogorov and Smirnov's test), only they are planned from.

A pool is taken to serve ``share`` of its bound, less than what was measured for Kairos's distribution on
every model of the paper. A pool that then serves the load with some ``headroom`` is enough. The decision:

=============================== =====================================================================
the pool that runs              what is done
=============================== =====================================================================
cannot keep QoS at a size that  switch to the pool that the plan chooses
comes, or is too small for the
load
is enough                       switch to the cheapest pool that is enough, with some ``slack``, if that
                                saves at least ``least_gain`` of its price, and pays for the switch
                                within ``horizon``
=============================== =====================================================================

A pool that is too small is also left only for one with a bound higher by ``least_gain``. Every decision says
why, what is gained and what the switch costs. The table is ours; the paper plans for the highest throughput
whatever the load, which is what the first row does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.pools.bound import bounds
from tuner.planning.pools.catalogue import InstanceType, make_offers
from tuner.planning.pools.plan import PoolPlan
from tuner.planning.pools.planner import plan_instances
from tuner.planning.pools.pool import pools_within
from tuner.planning.pools.scenario import QuerySession
from tuner.planning.pools.sizes import MONITORED, SizeDistribution, SizeMonitor
from tuner.planning.pools.switch import STARTUP, Switch, make_switch

__all__ = ["Decision", "Replanner", "Rules"]

RECENT = 1000
"""Queries that a change of the distribution is looked for in, and that the rate is measured over."""
SURE = 2.23
"""Of Kolmogorov and Smirnov's statistic times the root of the queries: by chance once in 10,000 looks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What makes a switch worth it."""

    share: float = 0.75
    """Of its bound, that a pool is taken to serve."""
    headroom: float = 1.2
    """A pool should serve so many times the present load."""
    slack: float = 0.1
    """A cheaper pool must serve so much more than that, relative: a load that wavers changes no pools."""
    least_gain: float = 0.05
    """Relative; for less nothing is switched."""
    horizon: float = 3600.0
    """s within which a saving must pay for the switch."""
    startup: float = STARTUP
    """s until a new instance serves."""
    rest: float = 300.0
    """s after a switch in which none is made to save money; a pool too small waits for ``startup`` only."""

    def __post_init__(self) -> None:
        if not (0 < self.share <= 1 <= self.headroom and self.least_gain >= 0 and self.slack >= 0):
            raise ValueError(
                f"`0 < share <= 1 <= headroom` and gains of at least 0 must hold, but got {self}"
            )
        if not (self.horizon > 0 and self.startup >= 0 and self.rest >= 0):
            raise ValueError(f"times must not be negative, and the horizon positive, but got {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """What to do now, and why."""

    do: str
    """``keep`` or ``switch``."""
    pool: dict[str, int]
    """Instances by type that should run."""
    reason: str
    rate: float
    """The load, queries/s."""
    serves: float
    """What the pool that runs is taken to serve now, queries/s."""
    would_serve: float
    """What ``pool`` is."""
    switch: Switch
    """From what runs to ``pool``."""
    changed: bool
    """Whether the distribution of sizes was seen to change."""

    @property
    def gain(self) -> float:
        """By how much more queries/s would be served, relative; infinite if none are now."""
        return self.would_serve / self.serves - 1 if self.serves else float("inf")


class Replanner:
    """Watches the queries of a session, and decides whether another pool should serve them.

    It begins with the pool that runs. Tell it of every query with :meth:`observe`; ask :meth:`decide` now and
    then, a few times a minute or so; when a switch was carried out, say so with :meth:`switched`.

    Args:
        session: The model and its QoS target.
        types: What can be rented; with learned profiles if there are any.
        budget: $/h.
        pool: Instances by type that run.
        planned: The distribution that the pool was chosen for; None if unknown.
        rules: What makes a switch worth it.

    Raises:
        InvalidInput: The pool has a type that is not offered.
    """

    def __init__(
        self,
        session: QuerySession,
        types: tuple[InstanceType, ...],
        budget: float,
        pool: Mapping[str, int],
        *,
        planned: SizeDistribution | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._session = session
        self._types = types
        self._budget = budget
        self._rules = rules or Rules()
        self._pool = self._checked(pool)
        self._planned = planned
        self._monitor = SizeMonitor(MONITORED)
        self._recent = SizeMonitor(RECENT)
        self._times = np.zeros(RECENT)  # (RECENT,) s, a ring
        self._seen = 0
        self._switched_at = -np.inf

    @property
    def pool(self) -> dict[str, int]:
        """Instances by type that run."""
        return dict(self._pool)

    @property
    def rate(self) -> float:
        """Queries/s over the last thousand; 0 before there are two."""
        count = min(self._seen, RECENT)
        if count < 2:
            return 0.0
        newest = self._times[(self._seen - 1) % RECENT]
        oldest = self._times[(self._seen - count) % RECENT]
        return float((count - 1) / max(newest - oldest, 1e-9))

    def observe(self, now: float, items: int) -> None:
        """Note a query that came at a time, s, with so many items."""
        self._times[self._seen % RECENT] = now
        self._seen += 1
        self._monitor.observe(items)
        self._recent.observe(items)

    def switched(self, pool: Mapping[str, int], now: float) -> None:
        """Note that another pool runs from now on."""
        self._pool = self._checked(pool)
        self._switched_at = now
        self._planned = self._sizes(self._has_changed())

    def decide(self, now: float) -> Decision:
        """Return what to do now, s.

        Raises:
            InvalidInput: No pool within the budget can serve the sizes that come.
        """
        if len(self._recent) < RECENT:
            return self._keep(f"only {len(self._recent)} queries were seen, {RECENT} are needed")
        since = now - self._switched_at  # s
        if since < self._rules.startup:
            return self._keep(f"the last switch was {since:.0f} s ago")
        changed = self._has_changed()
        sizes = self._sizes(changed)
        offers = make_offers(self._types, self._session.model, sizes)
        plan = plan_instances(self._session, sizes, offers, self._budget)
        names = plan.offers.names
        runs = np.array([[self._pool.get(name, 0) for name in names]])
        serves = self._rules.share * float(bounds(runs, plan.terms)[0])
        if not runs[0, plan.terms.base].any():
            serves = 0.0
        needed = self._rules.headroom * self.rate
        if serves >= needed and since < self._rules.rest:
            reason = f"the pool is enough, and the last switch was {since:.0f} s ago"
            return self._decision("keep", self._pool, reason, (serves, serves), changed)
        if serves >= needed:
            return self._cheaper(plan, serves, needed, changed)
        return self._larger(plan, serves, changed)

    def _larger(self, plan: PoolPlan, serves: float, changed: bool) -> Decision:
        """The pool is too small: switch to what the plan chooses, if that is better."""
        would_serve = self._rules.share * plan.chosen.bound
        pool = {name: count for name, count in plan.chosen.counts.items() if count}
        why = "the sizes have changed" if changed else "the load has grown"
        if serves == 0:
            why = f"no instance keeps {self._session.qos_ms:g} ms at {plan.sizes.largest} items"
        better = would_serve > serves * (1 + self._rules.least_gain)
        head = f"{why}: {self.rate:.4g} queries/s come, the pool serves about {serves:.4g}"
        if not better or pool == self._pool:
            reason = f"{head}, and no pool within {self._budget:g} $/h serves much more"
            return self._decision("keep", self._pool, reason, (serves, serves), changed)
        reason = f"{head}, the chosen one about {would_serve:.4g}"
        return self._decision("switch", pool, reason, (serves, would_serve), changed)

    def _cheaper(self, plan: PoolPlan, serves: float, needed: float, changed: bool) -> Decision:
        """The pool is enough: switch to the cheapest that is, if that saves enough."""
        offers = plan.offers
        pools = pools_within(offers.price, offers.max_count, plan.terms.base, self._budget)
        bound = bounds(pools, plan.terms)
        enough = np.flatnonzero(self._rules.share * bound >= needed * (1 + self._rules.slack))
        price = pools @ offers.price
        best = enough[np.lexsort((-bound[enough], np.round(price[enough], 9)))[0]] if enough.size else -1
        head = f"{self.rate:.4g} queries/s come, the pool serves about {serves:.4g}"
        if best < 0:
            return self._decision("keep", self._pool, head, (serves, serves), changed)
        pool = {name: n for name, n in zip(offers.names, pools[best].tolist(), strict=True) if n}
        switch = self._switch(pool)
        cost = sum(kind.price * self._pool.get(kind.name, 0) for kind in self._types)
        if switch.saving < self._rules.least_gain * cost or switch.saving <= 0:
            reason = f"{head}, and no pool that is enough is much cheaper"
            return self._decision("keep", self._pool, reason, (serves, serves), changed)
        if switch.payback > self._rules.horizon:
            reason = f"{head}; a cheaper pool would pay for the switch only after {switch.payback:.0f} s"
            return self._decision("keep", self._pool, reason, (serves, serves), changed)
        reason = f"{head}; {switch.saving:.4g} $/h less are enough"
        would_serve = self._rules.share * float(bound[best])
        return self._decision("switch", pool, reason, (serves, would_serve), changed)

    def _keep(self, reason: str) -> Decision:
        """Nothing can be said yet, or nothing may be done."""
        return self._decision("keep", self._pool, reason, (0.0, 0.0), False)

    def _decision(
        self, do: str, pool: Mapping[str, int], reason: str, serve: tuple[float, float], changed: bool
    ) -> Decision:
        return Decision(
            do=do,
            pool=dict(pool),
            reason=reason,
            rate=self.rate,
            serves=serve[0],
            would_serve=serve[1],
            switch=self._switch(pool),
            changed=changed,
        )

    def _switch(self, pool: Mapping[str, int]) -> Switch:
        price = {kind.name: kind.price for kind in self._types}
        return make_switch(self._pool, pool, price, self._rules.startup)

    def _has_changed(self) -> bool:
        """Whether the recent sizes differ from those planned with, or the older ones, by more than chance."""
        known = self._planned
        if known is None:
            if len(self._monitor) < 2 * RECENT:
                return False
            known = self._monitor.distribution()
        recent = self._recent.distribution()
        apart = np.abs(np.cumsum(recent.probability) - np.cumsum(known.probability)).max()
        return bool(apart * np.sqrt(len(self._recent)) > SURE)

    def _sizes(self, changed: bool) -> SizeDistribution:
        return (self._recent if changed else self._monitor).distribution()

    def _checked(self, pool: Mapping[str, int]) -> dict[str, int]:
        known = [kind.name for kind in self._types]
        for name in pool:
            if name not in known:
                raise InvalidInput(f"pool {name}", "is not in the catalogue", f"use {', '.join(known)}")
        return {name: pool[name] for name in known if pool.get(name, 0)}
