"""Splits a query again when its gammas or its rate drift (Nexus, sections 4.2 and 6.2).

Report the requests of every stage once an epoch. Of each call the recent requests on both sides are kept, old
ones fading; their ratio is gamma. The SLO is split again when the split in force would need noticeably more
accelerators at the gammas of today than the best split. A change of the rate alone changes no split, as the
accelerators of all stages grow alike.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.planning.queries.plan import QueryPlan, plan_query
from tuner.planning.queries.query import Query
from tuner.planning.queries.rivals import accelerators
from tuner.planning.queries.split import choices_of

__all__ = ["QueryWatch"]

FADING = 0.5
"""What an epoch counts, relative to the next."""
WORTH = 0.03
"""Share of the accelerators that a new split must save."""
FEWEST = 100
"""Requests of a caller, fading counted, before its gamma is believed."""


class QueryWatch:
    """Watches the calls of a query, and plans it again when that is worth it.

    It begins with the query as planned. Each epoch, call :meth:`observe`, then :meth:`replan`.

    Args:
        query: As it was planned.
        worth: Share of the accelerators that a new split must save.
    """

    def __init__(self, query: Query, *, worth: float = WORTH) -> None:
        self._query = query
        self._worth = worth
        self._callers: dict[tuple[str, str], float] = {}
        self._calls: dict[tuple[str, str], float] = {}
        self._rate = query.rate
        self.plan = plan_query(query)
        """The split in force."""

    def observe(
        self, seconds: float, requests: Mapping[str, int], calls: Mapping[tuple[str, str], int]
    ) -> None:
        """Count one epoch.

        Args:
            seconds: Its length.
            requests: Of each stage.
            calls: Requests that a stage made to another, by their names.
        """
        self._rate = max(requests.get(self._query.order[0], 0) / seconds, 1e-9)
        for (caller, called), count in calls.items():
            pair = (caller, called)
            self._callers[pair] = FADING * self._callers.get(pair, 0.0) + requests.get(caller, 0)
            self._calls[pair] = FADING * self._calls.get(pair, 0.0) + count

    @property
    def query(self) -> Query:
        """The query with the gammas and the rate of today."""
        gammas = {
            pair: max(self._calls[pair] / count, 1e-6)
            for pair, count in self._callers.items()
            if count >= FEWEST
        }
        return self._query.with_gammas(gammas, self._rate)

    def replan(self) -> QueryPlan | None:
        """Return the new split, which is in force from then on; None if the present one is good enough."""
        today = self.query
        plan = plan_query(today)
        batches = {stage.name: stage.batch for stage in self.plan.stages}
        present = sum(accelerators(today, choices_of(today), batches).values())
        if plan.accelerators > present * (1 - self._worth):
            return None
        self.plan = plan
        return plan
