"""Goodput: the highest total rate at which few enough requests are late or dropped.

Every session must answer its ``quantile`` of the requests within its SLO. All rates of a scenario are
multiplied by one number. Its highest good value is first bracketed, beginning near what the accelerators
could execute at best, then bisected. Every rate is tried with the same seed, which gives the same requests
faster or slower; so two rates differ by the rate, and not by luck. The result depends on the proportions of
the rates in the scenario only.

A bad rate of 1 % cannot be estimated from few requests. If a session would have fewer than ``LEAST_REQUESTS``
in the measured part, or fewer than ``FEWEST`` of them may be bad, that part is lengthened up to ``LONGEST``
times; scenarios with a schedule or a trace, and those that are measured over a number of requests, are taken
as they are. Of a trace the same part is measured at every rate, and the rate is that of the requests that
came in it. Near the limit the bad rate of n requests has a standard error of about ``0.1 / sqrt(n)`` (0.3 %
for 1,000), and of many sessions the unluckiest counts: measure longer if it matters.

A scenario that is measured over a number of requests is not simulated to its end where a rate is too high: it
stops when more requests are late or dropped than all of them together allow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tuner.cluster.epochs import simulate_epochs
from tuner.cluster.outcome import Outcome, within
from tuner.cluster.scenario import Scenario
from tuner.cluster.simulation import simulate
from tuner.errors import InvalidInput
from tuner.planning.pools.ceiling import ceilings
from tuner.rounding import ROUNDING
from tuner.scheduling.cluster import SessionSpec

__all__ = [
    "Good",
    "Goodput",
    "TriedRate",
    "bracket",
    "capacity",
    "check_requests_come",
    "goodput",
    "highest",
    "long_enough",
    "requests_at",
]

FIRST = 0.8
"""The first rate tried, as a share of the capacity."""
GROWTH = 1.2
"""Factor between the first and the second rate tried; it is squared at each further step, up to ``MOST``."""
MOST = 16.0
"""Largest factor between two rates, and the multiple of the capacity beyond which no rate is tried."""
LOWEST = 1e-4
"""Share of the capacity below which a rate counts as none."""
LEAST_REQUESTS = 1000
"""Least requests of every session; the simulation is lengthened to have them, up to ``LONGEST`` times."""
FEWEST = 10
"""Requests that may be late or dropped, at least, for their share to be more than luck."""
LONGEST = 20.0
"""Largest factor by which the measured part is lengthened."""
TOLERANCE = 0.005
"""Relative distance of the result from a rate that is known to be too high, at most."""
CLOSE = 1.02
"""Factor between the first two rates tried where the first is the goodput with another seed."""
MOST_REQUESTS = 2e8
"""Most requests of one simulation: more take minutes, and are most likely due to a mistaken profile."""
MARGIN = 1.2
"""Factor on a session's share of a given number of requests: by chance more may be its own."""


class Good(NamedTuple):
    """Which bad rates are good."""

    limit: float | None = None
    """The largest share of late or dropped requests; if None, what the quantile of each session leaves."""
    overall: bool = False
    """Whether that holds for all requests together, instead of for those of every session."""

    def allowed(self, quantile: float) -> float:
        """Return the share of late or dropped requests that is allowed to a session with this quantile."""
        return 1 - quantile if self.limit is None else self.limit


class TriedRate(NamedTuple):
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
    """The result of a search."""

    rate: float
    """The highest total rate within the limit, requests/s; 0 if there is none."""
    multiplier: float
    """Of the scenario's rates, at that rate."""
    outcome: Outcome
    """The simulation at that rate; at the lowest rate tried if there is none."""
    evaluations: tuple[TriedRate, ...]
    """All rates tried, in order."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``tuner goodput --json``."""
        return {"rate": self.rate, **self.outcome.to_json()}


def goodput(
    scenario: Scenario,
    *,
    good: Good = Good(),  # noqa: B008 - it does not change
    tolerance: float = TOLERANCE,
    least_requests: int | None = None,
    at_least: float = 0.0,
    near: float | None = None,
    progress: Callable[[TriedRate], None] | None = None,
    run: Callable[[Scenario], Outcome] | None = None,
) -> Goodput:
    """Search the highest rate.

    The oracle has one rate, that at which it serves all requests; nothing is searched for it.

    Args:
        scenario: Gives the proportions of the sessions' rates.
        good: Which bad rates are good.
        tolerance: As ``TOLERANCE``.
        least_requests: Of every session, up to ``LONGEST`` times the time of the scenario; if None,
            ``LEAST_REQUESTS`` and as many as it takes to allow ``FEWEST`` bad ones.
        at_least: Rate, requests/s, below which the result does not matter: if that rate is not good, the
            result is 0 after one trial. To find the best of many clusters, give the best rate so far. Not
            used with a trace, whose rate is known after a trial only.
        near: A multiplier near the result, such as that of another seed; the search begins there.
        progress: Called after every rate tried.
        run: Simulates a scenario in place of :func:`~tuner.cluster.simulation.simulate`, or of
            :func:`~tuner.cluster.epochs.simulate_epochs` if it has a planner.

    Raises:
        ValueError: The limit or the tolerance makes no sense.
        InvalidInput: Too many requests would have to be simulated, for the accelerators are so fast, or none
            comes; or the planner needs accelerators and a time, and the scenario has something else.
    """
    limit = good.limit
    if not (0 <= (limit or 0) < 1 and 0 < tolerance < 1):
        raise ValueError(f"`0 <= limit < 1` and `0 < tolerance < 1` must hold; got {limit=}, {tolerance=}")
    check_requests_come(scenario)
    allowed = np.array([good.allowed(session.quantile) for session in scenario.each_session])
    if least_requests is None:
        least_requests = _least_requests(scenario, allowed, good.overall)
    search = _Search(
        scenario,
        allowed=allowed,
        overall=good.overall,
        least_requests=least_requests,
        progress=progress,
        run=run,
    )
    if scenario.at_once:
        return search.result(1.0 if search.is_good(1.0) else 0.0, whole=False)
    total = scenario.total_rate
    if at_least and not scenario.traced and not search.is_good(at_least / total):
        return search.result(0.0, whole=False)
    full = capacity(scenario) / total
    _check_requests(scenario, full, least_requests)
    first, growth = (FIRST * full, GROWTH) if near is None else (near, CLOSE)
    between = bracket(search.is_good, full, float(allowed.max()), first, growth)
    return search.result(highest(search.is_good, between, tolerance))


class _Search:
    """The rates tried in one search; :meth:`is_good` tries another, :meth:`result` sums up."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        allowed: np.ndarray,
        overall: bool,
        least_requests: int,
        progress: Callable[[TriedRate], None] | None,
        run: Callable[[Scenario], Outcome] | None,
    ) -> None:
        self._scenario = scenario
        self._allowed = allowed  # (M,) share of late or dropped requests
        self._overall = overall
        self._least_requests = least_requests
        self._progress = progress
        self._run = run or self._simulate
        self._tried: list[TriedRate] = []
        self._outcomes: dict[float, Outcome] = {}

    def is_good(self, multiplier: float) -> bool:
        """Try a multiple of the scenario's rates; return whether it is good."""
        tried = long_enough(self._scenario.scaled(multiplier), self._least_requests)
        outcome = self._outcomes[multiplier] = self._run(tried)
        enough = self._overall_kept if self._overall else self._each_kept
        good = outcome.requests > 0 and enough(outcome)  # without requests nothing is known
        bad_rate = outcome.bad_rate if self._overall else outcome.worst_bad_rate
        rate = outcome.rate if tried.at_once or tried.traced else tried.total_rate
        self._tried.append(TriedRate(multiplier, rate, bad_rate, good))
        if self._progress:
            self._progress(self._tried[-1])
        return good

    def result(self, multiplier: float, *, whole: bool = True) -> Goodput:
        """Return the result for the highest good multiplier; 0 if there is none.

        Args:
            multiplier: A good one, or 0.
            whole: Whether, without a good rate, the lowest one is simulated again to its end.
        """
        outcome = self._outcomes[multiplier or min(self._outcomes)]
        if not multiplier and whole and self._scenario.requests is not None:
            outcome = simulate(self._scenario.scaled(min(self._outcomes)))
        return Goodput(
            rate=next((one.rate for one in self._tried if one.multiplier == multiplier), 0.0),
            multiplier=multiplier,
            outcome=outcome,
            evaluations=tuple(self._tried),
        )

    def _each_kept(self, outcome: Outcome) -> bool:
        pairs = zip(outcome.sessions, self._allowed.tolist(), strict=True)
        return all(within(session.bad_rate, allowed) for session, allowed in pairs)

    def _overall_kept(self, outcome: Outcome) -> bool:
        requests = np.array([session.requests for session in outcome.sessions])
        return within(outcome.bad_rate, float(self._allowed @ requests) / outcome.requests)

    def _simulate(self, scenario: Scenario) -> Outcome:
        if scenario.planner is not None:
            return simulate_epochs(scenario).outcome
        if scenario.requests is None or scenario.at_once or self._overall or not scenario.steady:
            return simulate(scenario)
        rates = np.array([session.mean_rate(math.inf) for session in scenario.each_session])
        shares = rates / rates.sum() * (MARGIN if rates.size > 1 else 1.0)
        return simulate(scenario, most_bad=scenario.requests * shares * self._allowed)


def _least_requests(scenario: Scenario, allowed: np.ndarray, overall: bool) -> int:
    """Return how many requests the rarest session must have; as many as usual where none may be bad.

    Args:
        scenario: Gives the proportions of the rates.
        allowed: The share of bad requests that is allowed to each session.   # (M,)
        overall: Whether all requests together must allow ``FEWEST`` bad ones, and not those of each session.
    """
    rates = np.array([session.mean_rate(scenario.duration) for session in scenario.each_session])  # (M,)
    shares = rates / rates.sum()
    least, part = (allowed @ shares, shares.min()) if overall else (allowed.min(), 1.0)
    return LEAST_REQUESTS if least == 0 else max(LEAST_REQUESTS, round(FEWEST / least * part))


def check_requests_come(scenario: Scenario) -> None:
    """Raise InvalidInput if by their schedules no session has requests in the time that is simulated."""
    if not scenario.at_once and not any(
        session.mean_rate(scenario.duration) for session in scenario.each_session
    ):
        problem = f"no request comes in the {scenario.duration:g} s that are simulated"
        raise InvalidInput("rate", problem, "measure longer")


def _check_requests(scenario: Scenario, full: float, least_requests: int) -> None:
    """Raise InvalidInput if the rates to try bring more requests than anybody can wait for."""
    if scenario.requests is not None or scenario.traced:
        return
    requests, rate = requests_at(scenario, full, least_requests), full * scenario.total_rate
    if requests > MOST_REQUESTS:
        seconds = requests / rate
        rare = ", for the rarest session," if seconds > scenario.duration * (1 + ROUNDING) else ""
        problem = f"the accelerators could execute {rate:.2g} requests/s"
        fix = "check the profiles (alpha_ms, beta_ms), or lower `seconds` and `warmup_seconds`"
        raise InvalidInput(
            "goodput", f"{problem}, and {seconds:g} s of that{rare} are {requests:.1g} requests", fix
        )


def requests_at(scenario: Scenario, multiplier: float, least_requests: int | None = None) -> float:
    """Return about how many requests a trial at a multiple of the rates has; see :func:`long_enough`."""
    tried = long_enough(scenario.scaled(multiplier), least_requests)
    return tried.requests or tried.total_rate * tried.duration


def highest(is_good: Callable[[float], bool], bracket: tuple[float, float], tolerance: float) -> float:
    """Return the highest multiplier that is good; 0 if none is.

    Args:
        is_good: Simulates a multiplier; returns whether few enough requests are late or dropped.
        bracket: A multiplier that is good, or 0, and one that is not.
        tolerance: As ``TOLERANCE``.
    """
    low, high = bracket
    while low and high - low > tolerance * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_good(middle) else (low, middle)
    return low


def capacity(scenario: Scenario) -> float:
    """Estimate the highest total rate that the accelerators could execute, requests/s.

    Under a batching policy every session executes in the batches that take the least time per request and end
    within its SLO. Under a distribution policy it is the ceiling of every session alone. Where no accelerator
    meets its SLO it is what they execute one by one. The accelerators are shared by all sessions alike, which
    is near the truth.
    """
    spec = scenario.cluster_spec()
    counts = np.bincount(spec.kinds, minlength=len(scenario.hardware.kinds))  # (K,)
    rates = [session.mean_rate(scenario.duration) for session in scenario.each_session]
    load, total = 0.0, sum(rates)  # share of the accelerators that 1 request/s in all takes, and requests/s
    for session, rate, probability in zip(spec.sessions, rates, scenario.size_probabilities, strict=True):
        if scenario.distributes:
            most = _distributed(session, probability, counts)
        else:
            most = _batched(session, counts)
        load += rate / total / most
    return 1.0 / load


def _batched(session: SessionSpec, counts: np.ndarray) -> float:
    """Return the highest rate of a session in batches on these accelerators.   # counts: (K,)."""
    latency = session.latency[:, 1:]  # (K, B)
    throughput = np.where(latency <= session.slo, np.arange(1, latency.shape[1] + 1) / latency, 0)
    most = float(counts @ throughput.max(axis=1))
    if most == 0:  # no kind meets the SLO
        most = float((counts / latency[:, 0]).sum())
    return most


def _distributed(session: SessionSpec, probability: np.ndarray, counts: np.ndarray) -> float:
    """Return about the highest rate of a session whose requests execute alone.   # probability: (S+1,)."""
    latency = session.latency
    most = float(ceilings(counts[None, :], latency, session.slo, probability, session.quantile)[0])
    if most == 0:  # no kind meets the SLO at large sizes
        most = float((counts / (latency @ probability)).sum())
    return most


def long_enough(scenario: Scenario, least_requests: int | None = None) -> Scenario:
    """Return the scenario, up to ``LONGEST`` times as long, so that every session has that many requests.

    If None, as many as the quantiles of its sessions take.
    """
    rates = [session.rate for session in scenario.each_session if isinstance(session.rate, float)]
    if scenario.requests is not None or scenario.traced or len(rates) < len(scenario.each_session):
        return scenario
    if least_requests is None:
        allowed = np.array([1.0 - session.quantile for session in scenario.each_session])
        least_requests = _least_requests(scenario, allowed, overall=False)
    seconds = min(least_requests / min(rates), LONGEST * scenario.seconds)
    return scenario if seconds <= scenario.seconds else scenario.model_copy(update={"seconds": seconds})


def bracket(
    is_good: Callable[[float], bool], full: float, limit: float, first: float, factor: float
) -> tuple[float, float]:
    """Return a multiplier that is good, or 0, and a higher one that is not; one twice if all are good.

    Args:
        is_good: Simulates a multiplier; returns whether few enough requests are late or dropped.
        full: About the multiplier at which the load is the whole capacity.
        limit: The largest good bad rate: no multiplier far beyond ``full / (1 - limit)`` can be good.
        first: The multiplier to begin with.
        factor: Between the first and the second.
    """
    multiplier = first
    rising = is_good(multiplier)
    while True:
        tried = multiplier
        multiplier = tried * factor if rising else max(tried / factor, LOWEST * full)
        if multiplier == tried:
            return 0.0, tried
        if is_good(multiplier) != rising:
            return (tried, multiplier) if rising else (multiplier, tried)
        if rising and multiplier > MOST * full / (1 - limit):
            return multiplier, multiplier
        factor = min(factor * factor, MOST)
