"""Evidence: what is known of one configuration under one load, and how surely.

A window of few requests proves little, and old windows prove less than new ones. So each window counts as
much as its verdict on the SLO is sure, given its number of requests (:func:`margin`), and fades. Requests
that fail by chance speak against nothing (:meth:`FailedRequests.more_than`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

from tuner.measurement import QUANTILES, Measurement
from tuner.objective import Slo

__all__ = [
    "SPREAD",
    "ConfigurationRecord",
    "FailedRequests",
    "Margin",
    "Spread",
    "margin",
    "probability_kept",
]

FADING = 0.9
"""How much of a window's weight is left after the next one: servers change."""
SHARE = 0.9
"""Share of windows in which a configuration must keep the SLO."""
SPREAD = 0.1
"""Relative deviation of the cost of two windows of one configuration, where nothing is known of a server."""
PRIOR = 5
"""Windows that :data:`SPREAD` counts as. It is a guess, which the windows of a server soon outweigh."""
LARGEST = 1.0
"""Largest relative deviation that counts: one spike says nothing about the others."""
SEEN = 0.02
"""Least weight of the newest window in the spread."""
BETWEEN = 0.05
"""Relative deviation of a latency between windows of one configuration, however many requests they have."""
USUAL_SPREAD = 0.5
"""Standard deviation of the logarithm of latencies where no quantiles show it."""
LEAST_SURE = 1e-6
"""Windows that count at least, all together."""
TINY = 1e-9
"""s."""
BY_CHANCE = 0.05
"""Chance does not explain more failures that come about by it with a smaller probability than this."""
NORMAL = NormalDist()


class Margin(NamedTuple):
    """How far a latency is from the bound of the SLO."""

    excess: float
    """Logarithm of the latency over the bound; negative if the SLO was kept."""
    error: float
    """Its standard error."""

    @property
    def probability_kept(self) -> float:
        """The probability that the SLO was kept."""
        return NORMAL.cdf(-self.excess / self.error)


def margin(m: Measurement, slo: Slo) -> Margin:
    """Return how far a window was from the bound of the SLO, whose statistic must have been measured.

    The error follows from the number of requests that were timed, as if latencies were lognormal with the
    spread that the window's quantiles show. Requests of one batch wait together and count as one. However
    many there are, two windows of one configuration differ by :data:`BETWEEN`.
    """
    shown = ((m.latency(name), share) for name, share in reversed(QUANTILES.items()))
    high, share = next((pair for pair in shown if pair[0] > m.latency_p50 > 0), (math.nan, 0.0))
    spread = math.log(high / m.latency_p50) / NORMAL.inv_cdf(share) if share else USUAL_SPREAD
    together = max(1.0, m.batch_mean / m.rows)
    count = max(min(m.requests / together, m.timed), 1.0)
    if (wanted := QUANTILES.get(slo.statistic)) is None:
        sampling = math.sqrt(math.expm1(spread**2) / count)
    else:
        density = NORMAL.pdf(NORMAL.inv_cdf(wanted))
        sampling = spread * math.sqrt(wanted * (1 - wanted) / count) / density
    latency = max(m.latency(slo.statistic), TINY)
    return Margin(math.log(latency / slo.latency), math.hypot(sampling, BETWEEN))


def probability_kept(m: Measurement, slo: Slo) -> float:
    """Return the probability that a usable window kept the SLO; one with failed requests surely broke it."""
    return 0.0 if m.failures else margin(m, slo).probability_kept


class FailedRequests(NamedTuple):
    """How many requests failed in some time."""

    failed: int = 0
    asked: int = 0
    """Answered or failed."""

    @property
    def share(self) -> float:
        """Share of the requests that failed; 0 if there were none."""
        return self.failed / self.asked if self.asked > 0 else 0.0

    def more_than(self, others: FailedRequests) -> bool:
        """Whether a larger share failed than of other requests, by more than chance explains.

        It is Fisher's exact test. Where there were no others nobody knows what fails without any change: then
        one failure is enough.
        """
        if self.share <= others.share or others.asked <= 0:
            return self.share > others.share
        from scipy.stats import fisher_exact

        table = [[one.failed, one.asked - one.failed] for one in (self, others)]
        return bool(fisher_exact(table, alternative="greater").pvalue < BY_CHANCE)


@dataclass(slots=True)
class Spread:
    """How much the costs of two windows of one configuration differ, over all configurations of a server."""

    variance: float = SPREAD**2
    windows: int = PRIOR

    @property
    def deviation(self) -> float:
        """The relative standard deviation."""
        return math.sqrt(self.variance)

    def add(self, cost: float, record: ConfigurationRecord) -> None:
        """Add a window whose cost does not yet count in its configuration's record."""
        if not record.cost > 0:
            return
        deviation = min(abs(cost / record.cost - 1.0), LARGEST)
        self.windows += 1
        found = deviation**2 / (1.0 + 1.0 / record.weight)  # the mean that it is compared with scatters, too
        self.variance += max(1.0 / self.windows, SEEN) * (found - self.variance)


@dataclass(slots=True)
class ConfigurationRecord:
    """All windows of one configuration under one load level."""

    windows: int = 0
    weight: float = 0.0
    """Number of windows, in which old ones count less."""
    cost: float = 0.0
    """Mean cost, with the same weights."""
    sure: float = 0.0
    """Number of windows, in which each counts by how sure its verdict on the SLO is, and old ones less."""
    sure_kept: float = 0.0
    """The part of ``sure`` that kept the SLO."""

    @property
    def share(self) -> tuple[float, float]:
        """The least and the largest share of windows that keep the SLO, one standard error wide (Wilson)."""
        n = max(self.sure, LEAST_SURE)
        share = self.sure_kept / n
        half = math.sqrt(share * (1 - share) / n + 0.25 / n**2)
        return (share + 0.5 / n - half) / (1 + 1 / n), (share + 0.5 / n + half) / (1 + 1 / n)

    @property
    def good(self) -> bool:
        """Whether nothing speaks against it: it may well keep the SLO in nine windows of ten."""
        return self.share[1] >= SHARE

    @property
    def mostly_breaks(self) -> bool:
        """Whether it breaks the SLO at least as often as it keeps it."""
        return self.sure_kept <= self.sure / 2

    def error(self, spread: float) -> float:
        """Return the standard error of the mean cost, given the relative deviation of single windows."""
        return spread * self.cost / math.sqrt(self.weight)

    def worst(self, spread: float, broken: float) -> float:
        """Return what it costs at worst, by its windows: what was seen but once has to prove itself.

        Args:
            spread: Relative deviation of single windows.
            broken: What a window that breaks the SLO costs.
        """
        return self.cost + self.error(spread) + max(SHARE - self.share[0], 0.0) * broken

    def add(self, cost: float, probability: float) -> None:
        """Add a window, which kept the SLO with this probability."""
        self.windows += 1
        self.weight = FADING * self.weight + 1.0
        self.cost += (cost - self.cost) / self.weight
        sure = abs(2 * probability - 1)
        self.sure = FADING * self.sure + sure
        self.sure_kept = FADING * self.sure_kept + sure * (probability > 0.5)
