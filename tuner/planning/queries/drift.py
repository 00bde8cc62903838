"""Splits a query again when its gammas or its rate drift (Nexus, sections 4.2 and 6.2).

Report the requests of every stage once an epoch. Of each call the recent requests on both sides are kept, old
ones fading with every epoch in which the caller was asked; their ratio is gamma. The SLO is split again when
the split in force would need noticeably more accelerators at the gammas of today than the best split, or does
not keep the SLO any more. A change of the rate alone changes no split, as the accelerators of all stages grow
alike; but at worst (``worst_case``) a batch gathers more slowly when the rate falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tuner.errors import InvalidInput
from tuner.planning.queries.greedy import TOLERANCE
from tuner.planning.queries.plan import QueryPlan, plan_query
from tuner.planning.queries.query import Choices, Query
from tuner.planning.queries.rivals import accelerators
from tuner.planning.queries.split import Batches, choices_of

__all__ = ["QueryWatch"]

FADING = 0.5
"""What an epoch counts, relative to the next in which the caller was asked."""
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
        """Count one epoch. What is left out is 0, as a ``Counter`` does: nothing was asked, or called.

        Args:
            seconds: Its length.
            requests: Of each stage.
            calls: Requests that a stage made to another, by their names.

        Raises:
            InvalidInput: The length is not positive, or the query has no such stage or call. Nothing is
                counted then.
        """
        if not 0 < seconds < math.inf:
            raise InvalidInput("seconds", f"{seconds} is not a positive number of seconds")
        stages = self._query.by_name
        pairs = [(caller, call.stage) for caller in stages for call in stages[caller].next]
        if unknown := set(requests) - set(stages):
            problem = f"the query has no stage {min(unknown)!r}"
            raise InvalidInput("requests", problem, f"it has {', '.join(stages)}")
        if strange := set(calls) - set(pairs):
            caller, called = min(strange)
            raise InvalidInput("calls", f"no stage {caller!r} calls {called!r} in the query")
        if asked := requests.get(self._query.order[0], 0):  # of an epoch without any, nothing was seen
            self._rate = asked / seconds
        for pair in pairs:
            came = requests.get(pair[0], 0)
            kept = FADING if came else 1.0  # what is known of it is not forgotten in a lull
            self._callers[pair] = kept * self._callers.get(pair, 0.0) + came
            self._calls[pair] = kept * self._calls.get(pair, 0.0) + calls.get(pair, 0)

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
        """Return the new split, which is in force from then on; None if the present one is good enough.

        Raises:
            InvalidInput: No split keeps the SLO today.
        """
        today = self.query
        plan, choices = plan_query(today), choices_of(today)
        batches = {stage.name: stage.batch for stage in self.plan.stages}
        present = sum(accelerators(today, choices, batches).values())
        if plan.accelerators > present * (1 - self._worth) and _in_time(today, choices, batches):
            return None
        self.plan = plan
        return plan


def _in_time(query: Query, choices: dict[str, Choices], batches: Batches) -> bool:
    """Whether a query is answered within its SLO with these batches."""
    times = {
        name: float(each.time[np.searchsorted(each.batch, batches[name])]) for name, each in choices.items()
    }
    return max(query.through(times).values()) <= query.slo * (1 + TOLERANCE)
