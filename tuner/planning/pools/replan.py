"""Replanning: decides when another pool is worth a switch, because the load or the sizes have changed.

It has no clock and no network: the caller reports every request with its time, and asks for a decision a few
times a minute. The plan uses the sizes of the last 10,000 requests (section 5.2 of the Kairos paper). If the
last thousand differ from the sizes of the current plan by more than chance allows (Kolmogorov-Smirnov test),
the plan uses only that thousand, so that a change takes effect before 10,000 requests have passed.

A pool is assumed to serve ``share`` of its bound; Kairos's distribution served more than that for every model
of the paper. A pool is enough if that covers the load with some ``headroom``. The decision:

=============================== =====================================================================
the running pool                decision
=============================== =====================================================================
misses the SLO at a size that   switch to the pool that the plan chooses, if its bound is higher by at
comes, or is too small for the  least ``least_gain``
load
is enough                       switch to the cheapest pool that is enough with some ``slack``, if that
                                saves at least ``least_gain`` of the price, and pays for the switch
                                within ``horizon``
=============================== =====================================================================

Every decision gives its reason, the gain and the cost of the switch. The table is ours; the paper plans for
the highest throughput whatever the load, which is what the first row does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import SupportsIndex

import numpy as np

from tuner.errors import InvalidInput
from tuner.option import is_number
from tuner.planning.pools.bound import bounds
from tuner.planning.pools.catalogue import InstanceType, make_offers
from tuner.planning.pools.demand import Demand
from tuner.planning.pools.plan import PoolPlan
from tuner.planning.pools.planner import plan_instances
from tuner.planning.pools.pool import pools_within
from tuner.planning.pools.switch import STARTUP, Switch, make_switch
from tuner.workload.sizes import MONITORED, SizeDistribution, SizeMonitor

__all__ = ["PoolDecision", "Replanner", "Rules"]

RECENT = 1000
"""Requests over which the rate is measured and a change of the sizes is tested."""
SURE = 2.23
"""Threshold of the Kolmogorov-Smirnov statistic times sqrt(requests); chance exceeds it once in 10,000.
Between samples of n and of m requests, n m / (n + m) count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """When a switch is worth it."""

    share: float = 0.75
    """Share of its bound that a pool is assumed to serve."""
    headroom: float = 1.2
    """Multiple of the present load that a pool should serve."""
    slack: float = 0.1
    """What a cheaper pool must serve beyond that, relative, so that a fluctuating load causes no switches."""
    least_gain: float = 0.05
    """Least relative gain that is worth a switch."""
    horizon: float = 3600.0
    """s within which a saving must pay for the switch."""
    startup: float = STARTUP
    """s until a new instance serves."""
    rest: float = 300.0
    """s after a switch without another one to save money; a pool that is too small waits ``startup`` only."""

    def __post_init__(self) -> None:
        if not (0 < self.share <= 1 <= self.headroom and self.least_gain >= 0 and self.slack >= 0):
            raise ValueError(
                f"`0 < share <= 1 <= headroom` and gains of at least 0 must hold, but got {self}"
            )
        if not (self.horizon > 0 and self.startup >= 0 and self.rest >= 0):
            raise ValueError(f"times must not be negative, and the horizon positive, but got {self}")


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolDecision:
    """What to do now, and why."""

    do: str
    """``keep`` or ``switch``."""
    pool: dict[str, int]
    """Instances by type that should run."""
    reason: str
    rate: float
    """The load, requests/s."""
    serves: float
    """What the running pool is assumed to serve now, requests/s."""
    would_serve: float
    """What ``pool`` is assumed to serve, requests/s."""
    switch: Switch
    """From what runs to ``pool``."""
    changed: bool
    """Whether the sizes have changed."""

    @property
    def gain(self) -> float:
        """Relative gain in requests/s: 0 if the pool is kept, infinite if the running one serves none."""
        if self.do == "keep":
            return 0.0
        return self.would_serve / self.serves - 1 if self.serves else float("inf")

    @property
    def sentence(self) -> str:
        """The advice in words, with what it would gain and cost."""
        if self.do == "keep":
            return f"the pool can stay: {self.reason}"
        switch = self.switch
        gain = f"{self.gain:+.0%} requests/s" if math.isfinite(self.gain) else "the first in time"
        return (
            f"another pool is advised: {switch.text} ({gain}, {switch.money}; "
            f"the switch takes {switch.seconds:.0f} s and costs {switch.cost:.2g} $); {self.reason}"
        )


class Replanner:
    """Watches the requests of a session, and decides whether another pool should serve them.

    It begins with the running pool. Call :meth:`observe` for every request, :meth:`decide` a few times a
    minute, :meth:`switched` after a switch was carried out, and :meth:`clock_restarted` where times go back.

    Args:
        session: The model and its SLO.
        types: The catalogue, with learned profiles if there are any.
        budget: $/h.
        pool: Running instances by type.
        planned: The sizes that the pool was chosen for; None if unknown.
        rules: When a switch is worth it.

    Raises:
        InvalidInput: The session has no model, the budget is not positive, or the pool has a type that is not
            offered, or a number of instances that cannot be.
    """

    def __init__(
        self,
        session: Demand,
        types: tuple[InstanceType, ...],
        budget: float,
        pool: Mapping[str, int],
        *,
        planned: SizeDistribution | None = None,
        rules: Rules | None = None,
    ) -> None:
        if session.model is None:
            raise InvalidInput(f"session {session.name}", "has no `model`", "name one of the catalogue")
        if not (is_number(budget) and 0 < budget < math.inf):
            raise InvalidInput("budget", f"must be $/h above 0, but got {budget!r}")
        self._session = session
        self._model = session.model
        self._types = types
        self._budget = budget
        self._rules = rules or Rules()
        self._pool = self._checked(pool)
        self._planned = planned
        self._monitor = SizeMonitor(MONITORED)
        self._recent = SizeMonitor(RECENT)
        self._times = np.zeros(RECENT)  # (RECENT,) s, a ring
        self._seen = 0  # times, since the clock began
        self._now = -np.inf  # s, the latest time that was told
        self._switched_at = -np.inf

    @property
    def pool(self) -> dict[str, int]:
        """Running instances by type."""
        return dict(self._pool)

    @property
    def rate(self) -> float:
        """Rate of the last thousand requests until now, requests/s; 0 before the second."""
        count = min(self._seen, RECENT)
        if count < 2:
            return 0.0
        oldest = self._times[(self._seen - count) % RECENT]
        return float((count - 1) / max(self._now - oldest, 1e-9))

    def observe(self, now: float, items: int) -> None:
        """Note a request: its arrival, s, and its size.

        Raises:
            ValueError: The time is not finite, or requests have no such size; nothing is noted.
        """
        if not math.isfinite(now):
            raise ValueError(f"the time of a request must be finite, but got {now=}")
        self._monitor.observe(items)
        self._recent.observe(items)
        self._now = max(self._now, now)
        self._times[self._seen % RECENT] = now
        self._seen += 1

    def observe_window(self, begin: float, end: float, items: np.ndarray) -> None:
        """Note the requests of a window, as if they had come evenly.

        Args:
            begin: When the window began, s.
            end: When it ended, s.
            items: Their sizes, in any order.   # (n,)

        Raises:
            ValueError: A time is not finite, or requests have no such size; nothing is noted.
        """
        if not (math.isfinite(begin) and math.isfinite(end)):
            raise ValueError(f"the times of a window must be finite, but got {begin=}, {end=}")
        self._monitor.observe(items)
        self._recent.observe(items)
        self._now = max(self._now, end)
        times = begin + (end - begin) * (np.arange(items.size) + 1) / max(items.size, 1)
        last = times[-RECENT:]
        places = (self._seen + items.size - last.size + np.arange(last.size)) % RECENT
        self._times[places] = last
        self._seen += items.size

    def switched(self, pool: Mapping[str, int], now: float) -> None:
        """Note that another pool runs from now on, s."""
        self._pool = self._checked(pool)
        self._switched_at = now
        if len(self._monitor):
            self._planned = self._sizes(self._has_changed())

    def clock_restarted(self) -> None:
        """Forget all times, because those from now on are of another clock; the sizes stay."""
        self._seen = 0
        self._now = self._switched_at = -np.inf

    def decide(self, now: float) -> PoolDecision:
        """Return the decision for a time, s.

        Raises:
            InvalidInput: No pool within the budget can serve the sizes that come.
        """
        self._now = max(self._now, now)
        if self._seen < RECENT:
            return self._keep(f"only {self._seen} requests were seen, {RECENT} are needed")
        since = now - self._switched_at  # s
        if since < self._rules.startup:
            return self._keep(f"the last switch was {since:.0f} s ago")
        changed = self._has_changed()
        sizes = self._sizes(changed)
        offers = make_offers(self._types, self._model, sizes)
        plan = plan_instances(self._session, sizes, offers, self._budget)
        names = plan.offers.names
        runs = np.array([[self._pool.get(name, 0) for name in names]])
        serves = self._rules.share * float(bounds(runs, plan.terms)[0])
        needed = self._rules.headroom * self.rate
        if serves >= needed and since < self._rules.rest:
            reason = f"the pool is enough, and the last switch was {since:.0f} s ago"
            return self._keep(reason, serves, changed=changed)
        if serves >= needed:
            return self._cheaper(plan, serves, needed, changed)
        return self._larger(plan, serves, changed)

    def _larger(self, plan: PoolPlan, serves: float, changed: bool) -> PoolDecision:
        """Decide for a pool that is too small: the plan's pool, if its bound is higher."""
        would_serve = self._rules.share * plan.chosen.bound
        pool = {name: count for name, count in plan.chosen.counts.items() if count}
        why = "the sizes have changed" if changed else "the load has grown"
        if serves == 0:
            why = f"no instance meets {self._session.slo_ms:g} ms at {plan.sizes.largest} items"
        better = would_serve > serves * (1 + self._rules.least_gain)
        head = f"{why}: {self.rate:.4g} requests/s come, the pool serves about {serves:.4g}"
        if not better or pool == self._pool:
            reason = f"{head}, and no pool within {self._budget:g} $/h serves much more"
            return self._keep(reason, serves, changed=changed)
        reason = f"{head}, the chosen one about {would_serve:.4g}"
        return self._decision("switch", pool, reason, serves=serves, would_serve=would_serve, changed=changed)

    def _cheaper(self, plan: PoolPlan, serves: float, needed: float, changed: bool) -> PoolDecision:
        """Decide for a pool that is enough: the cheapest one that is, if that saves enough."""
        offers = plan.offers
        pools = pools_within(offers.price, offers.max_count, plan.terms.base, self._budget)
        bound = bounds(pools, plan.terms)
        enough = np.flatnonzero(self._rules.share * bound >= needed * (1 + self._rules.slack))
        price = pools @ offers.price
        best = enough[np.lexsort((-bound[enough], np.round(price[enough], 9)))[0]] if enough.size else -1
        head = f"{self.rate:.4g} requests/s come, the pool serves about {serves:.4g}"
        if best < 0:
            return self._keep(head, serves, changed=changed)
        pool = {name: n for name, n in zip(offers.names, pools[best].tolist(), strict=True) if n}
        switch = self._switch(pool)
        cost = sum(kind.price * self._pool.get(kind.name, 0) for kind in self._types)
        if switch.saving < self._rules.least_gain * cost or switch.saving <= 0:
            reason = f"{head}, and no pool that is enough is much cheaper"
            return self._keep(reason, serves, changed=changed)
        if switch.payback > self._rules.horizon:
            reason = f"{head}; a cheaper pool would pay for the switch only after {switch.payback:.0f} s"
            return self._keep(reason, serves, changed=changed)
        reason = f"{head}; {switch.saving:.4g} $/h less are enough"
        would_serve = self._rules.share * float(bound[best])
        return self._decision("switch", pool, reason, serves=serves, would_serve=would_serve, changed=changed)

    def _keep(self, reason: str, serves: float = 0.0, *, changed: bool = False) -> PoolDecision:
        """Return the decision to keep the pool; what it serves is 0 where that is not known yet."""
        return self._decision("keep", self._pool, reason, serves=serves, would_serve=serves, changed=changed)

    def _decision(
        self,
        do: str,
        pool: Mapping[str, int],
        reason: str,
        *,
        serves: float,
        would_serve: float,
        changed: bool,
    ) -> PoolDecision:
        return PoolDecision(
            do=do,
            pool=dict(pool),
            reason=reason,
            rate=self.rate,
            serves=serves,
            would_serve=would_serve,
            switch=self._switch(pool),
            changed=changed,
        )

    def _switch(self, pool: Mapping[str, int]) -> Switch:
        price = {kind.name: kind.price for kind in self._types}
        return make_switch(self._pool, pool, price, self._rules.startup)

    def _has_changed(self) -> bool:
        """Whether the recent sizes differ from the planned or the older ones by more than chance allows."""
        known, recent = self._planned, self._recent.distribution()
        if known is not None:
            count = recent.requests / (1 + recent.requests / known.requests)
        elif len(self._monitor) < 2 * RECENT:
            return False
        else:
            # The recent ones are among these, and so nearer to them than to others: that makes up for it.
            known, count = self._monitor.distribution(), recent.requests
        apart = np.abs(np.cumsum(recent.probability) - np.cumsum(known.probability)).max()
        return bool(apart * np.sqrt(count) > SURE)

    def _sizes(self, changed: bool) -> SizeDistribution:
        return (self._recent if changed else self._monitor).distribution()

    def _checked(self, pool: Mapping[str, int]) -> dict[str, int]:
        known = [kind.name for kind in self._types]
        for name in pool:
            if name not in known:
                raise InvalidInput(f"pool {name}", "is not in the catalogue", f"use {', '.join(known)}")
            if not (isinstance(pool[name], SupportsIndex) and pool[name] >= 0):
                raise InvalidInput(f"pool {name}", f"must be a number of instances, but got {pool[name]!r}")
        return {name: pool[name] for name in known if pool.get(name, 0)}
