"""What a pool of instances serves: the simulations behind a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.cluster.goodput import goodput
from tuner.cluster.scenario import Scenario, Session
from tuner.cluster.scenario.penalty import penalty_note
from tuner.cluster.threshold import climb_threshold
from tuner.planning.pools.catalogue import InstanceType

__all__ = ["PoolTrial"]

TOLERANCE = 0.01
"""Of a rate."""
REQUESTS = 10_000
"""Of a simulation whose result is shown."""
POLICY = "kairos"
POISSON = "poisson"
TRACED = (
    "the pools are simulated under Poisson arrivals, not under the session's trace; simulate the chosen one "
    "under it with `tuner goodput`"
)


class PoolTrial:
    """Simulates pools of a scenario's catalogue under one policy.

    A pool chosen by shorter simulations was lucky in them, so a longer one, whose result is shown, has other
    requests; of the same seed the first of them would be the same.

    Args:
        scenario: With one session; its policy, if it distributes, serves the pools, otherwise ``kairos``.
        types: Of the catalogue, in the order in which pools count them.
    """

    def __init__(self, scenario: Scenario, types: Sequence[InstanceType]) -> None:
        distributes = scenario.policy is not None and scenario.distributes
        policy, options = (scenario.policy, scenario.options) if distributes else (POLICY, {})
        self._types = types
        self._fields = {
            "policy": policy,
            "options": options,
            "catalogue": tuple(types),
            "noise": scenario.noise,
            "network": scenario.network,
        }
        session = scenario.sessions[0]
        arrival = POISSON if session.traced else session.arrival
        self.notes: tuple[str, ...] = (TRACED,) if session.traced else ()
        """What in the file the simulations do not follow, and what is odd about them, in sentences."""
        if policy == POLICY and (note := _penalty_note(session, types, options, named=distributes)):
            self.notes += (note,)
        self._seed = scenario.seed
        self._session = session.model_copy(update={"rate": None, "arrival": arrival, "copies": 1})

    def __call__(self, pool: tuple[int, ...], requests: int, at_least: float) -> float:
        """Return the goodput, requests/s; 0 if it is below ``at_least``."""
        pairs = zip(self._types, pool, strict=True)
        instances = [{"type": kind.name, "count": count} for kind, count in pairs]
        fields = {
            **self._fields,
            "sessions": [self._session],
            "instances": instances,
            "requests": requests,
            "seed": self._seed + (requests < REQUESTS),
        }
        scenario = Scenario.model_validate(fields)
        if scenario.policy == "drs" and "threshold" not in scenario.options:
            # Not with `at_least`: where all is 0 a climb does not see which way is up.
            rate = climb_threshold(scenario, tolerance=TOLERANCE).best.rate
            return rate if rate >= at_least else 0.0
        return goodput(scenario, tolerance=TOLERANCE, at_least=at_least).rate

    def goodput(self, pool: tuple[int, ...]) -> float:
        """Return the goodput of one pool as precisely as a plan's, requests/s."""
        return self(pool, REQUESTS, 0.0)


def _penalty_note(
    session: Session, types: Sequence[InstanceType], options: Mapping[str, Any], *, named: bool
) -> str | None:
    """Say where the penalty of Kairos does not keep the requests of a plan from being late."""
    sizes = session.size_distribution()
    if sizes is None or session.model is None:
        return None
    items = np.array([sizes.largest])
    latency = {kind.name: float(kind.profile[session.model].latency(items)[0]) for kind in types}
    return penalty_note(session.name, latency, session.slo, sizes.largest, options, named=named)
