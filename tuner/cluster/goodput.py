"""Goodput: the highest total rate at which few enough requests are late or dropped.

All rates of a scenario are multiplied by one number, whose highest good value is searched: first bracketed,
beginning near what the accelerators could execute at best, then bisected. Every rate is tried with the same
seed, which gives the same requests faster or slower; so two rates differ by the rate, and not by luck.
The result does not depend on how high the rates in the scenario are, only on their proportions.

A bad rate of 1 % cannot be told from few requests. If a session would have fewer than ``least_requests`` in
the measured part, that part is lengthened, though not beyond ``LONGEST`` times; scenarios with a schedule
or a trace are taken as they are. Near the limit the bad rate of n requests has a standard error of about
``0.1 / sqrt(n)`` (0.3 % for 1,000), and of many sessions the unluckiest counts: measure longer if it matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.outcome import Outcome
from tuner.cluster.scenario import Scenario
from tuner.cluster.simulation import simulate

__all__ = ["Goodput", "Trial", "capacity", "goodput", "highest"]

FIRST = 0.8
"""The first rate tried, as a share of the capacity."""
GROWTH = 1.2
"""The second is this much higher or lower; the factor is squared from step to step, up to ``MOST``."""
MOST = 16.0
LOWEST = 1e-4
"""Share of the capacity below which a rate counts as none."""
LONGEST = 20.0
"""The measured part is lengthened at most so many times."""


class Trial(NamedTuple):
    """One rate that was tried."""

    multiplier: float
    rate: float
    """Requests/s of all sessions together."""
    bad_rate: float
    """Of the worst session, or overall."""
    kept: bool
    """Whether it is within the limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goodput:
    """What was found."""

    rate: float
    """The highest total rate within the limit, requests/s; 0 if there is none."""
    multiplier: float
    """Of the scenario's rates, at that rate."""
    outcome: Outcome
    """The simulation at that rate; at the lowest rate tried if there is none."""
    evaluations: tuple[Trial, ...]
    """All rates tried, in order."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``tuner goodput --json``."""
        return {"rate": self.rate, **self.outcome.to_json()}


def goodput(
    scenario: Scenario,
    *,
    limit: float = 0.01,
    overall: bool = False,
    tolerance: float = 0.005,
    least_requests: int = 1000,
    progress: Callable[[Trial], None] | None = None,
    run: Callable[[Scenario], Outcome] = simulate,
) -> Goodput:
    """Search the highest rate.

    Args:
        scenario: Says in which proportion the sessions' rates are.
        limit: The largest share of late or dropped requests that is good.
        overall: Whether it holds for all requests together, instead of for those of every session.
        tolerance: The result is at most so far below the next rate known to be too high, relative.
        least_requests: How many every session must have, if lengthening the simulation can do it.
        progress: Told of every rate tried.
        run: Simulates one rate.

    Raises:
        ValueError: The limit or the tolerance makes no sense.
    """
    if not (0 <= limit < 1 and 0 < tolerance < 1):
        raise ValueError(
            f"`0 <= limit < 1` and `0 < tolerance < 1` must hold, but got {limit=}, {tolerance=}"
        )
    trials: list[Trial] = []
    outcomes: dict[float, Outcome] = {}

    def kept(multiplier: float) -> bool:
        tried = long_enough(scenario.scaled(multiplier), least_requests)
        outcome = outcomes[multiplier] = run(tried)
        bad_rate = outcome.bad_rate if overall else outcome.worst_bad_rate
        good = bad_rate <= limit and outcome.requests > 0  # of no requests nothing is known
        trials.append(Trial(multiplier, tried.total_rate, bad_rate, good))
        if progress:
            progress(trials[-1])
        return trials[-1].kept

    low = highest(kept, capacity(scenario) / scenario.total_rate, limit, tolerance)
    return Goodput(
        rate=next((trial.rate for trial in trials if trial.multiplier == low), 0.0),
        multiplier=low,
        outcome=outcomes[low or min(outcomes)],
        evaluations=tuple(trials),
    )


def highest(kept: Callable[[float], bool], full: float, limit: float, tolerance: float) -> float:
    """Return the highest multiplier that is good; 0 if none is.

    Args:
        kept: Tries one, and returns whether it is good.
        full: The multiplier that takes the whole capacity, about.
        limit: Of the bad rate; more than ``full / (1 - limit)`` can never be good for long.
        tolerance: The result is at most so far below one known to be too high, relative.
    """
    low, high = _bracket(kept, full, limit)
    while low and high - low > tolerance * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    return low


def capacity(scenario: Scenario) -> float:
    """Return the total rate that the accelerators could execute without a pause, requests/s.

    Every session in the batches that execute fastest per request and within its SLO; with unlike
    accelerators all of them are shared by all sessions alike, which is near the truth.
    """
    spec = scenario.cluster_spec()
    counts = np.bincount(spec.kinds, minlength=len(scenario.kinds))  # (K,)
    rates = [session.mean_rate(scenario.duration) for session in scenario.each_session]
    load = 0.0  # share of the accelerators that a rate of 1 request/s in all takes
    for session, rate in zip(spec.sessions, rates, strict=True):
        latency = session.latency[:, 1:]  # (K, B)
        throughput = np.where(latency <= session.slo, np.arange(1, latency.shape[1] + 1) / latency, 0)
        load += rate / sum(rates) / float(counts @ throughput.max(axis=1))
    return 1.0 / load


def long_enough(scenario: Scenario, least_requests: int) -> Scenario:
    """Return a scenario in which every session has so many requests, if that does not take too long."""
    rates = [session.rate for session in scenario.each_session if isinstance(session.rate, float)]
    plain = not any(session.arrival.startswith("trace:") for session in scenario.sessions)
    if not plain or len(rates) < len(scenario.each_session):
        return scenario
    seconds = min(least_requests / min(rates), LONGEST * scenario.seconds)
    return scenario if seconds <= scenario.seconds else scenario.model_copy(update={"seconds": seconds})


def _bracket(kept: Callable[[float], bool], full: float, limit: float) -> tuple[float, float]:
    """Return a multiplier that is good, or 0, and a higher one that is not; one twice if all are good."""
    multiplier, factor = FIRST * full, GROWTH
    rising = kept(multiplier)
    while True:
        tried = multiplier
        multiplier = tried * factor if rising else max(tried / factor, LOWEST * full)
        if multiplier == tried:
            return 0.0, tried
        if kept(multiplier) != rising:
            return (tried, multiplier) if rising else (multiplier, tried)
        if multiplier > MOST * full / (1 - limit):
            return multiplier, multiplier
        factor = min(factor * factor, MOST)
