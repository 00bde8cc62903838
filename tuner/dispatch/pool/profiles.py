"""The profile of a model on a server, learned from the batches that are sent to it.

For each batch size the last durations are kept. Between the sizes that were seen runs a line, fitted to their
medians; a size that was seen often has its own median. Scheduling needs the time that a batch hardly ever
exceeds, so all of it is multiplied by a factor: a high quantile of duration over median. Until enough is
known, a prior stands in, which counts as a few executions of the smallest and of the largest batch.

A machine that has changed shows as durations that are, for a while, all above or all below what was expected:
then what was measured before is forgotten.
"""

from __future__ import annotations

from collections import deque
from statistics import median

import numpy as np

__all__ = ["LearnedProfile", "prior_table"]

KEPT = 40
"""Latest durations of each batch size that are kept."""
ENOUGH = 8
"""Executions of a batch size from which on it has a median of its own; also those between two fits, and those
until which the first batch of each size is fitted at once."""
PRIOR = 2.0
"""How many executions of the smallest and of the largest batch the prior counts as."""
RECENT = 24
"""Latest durations, of any size, that tell whether the machine has changed."""
LATELY = 4
"""Latest durations, of any size, that are remembered whatever is forgotten. A server that hung once is not
waited for as long again for many batches."""
DRIFT = 1.35
"""The machine has changed if the median ratio of recent to expected durations is this or its inverse."""
DOUBTED_AFTER = 10.0
"""s without a batch after which what was learned keeps no request away: nothing else would show it wrong."""
MOST_SPREAD = 3.0
"""Largest factor from a median to a quantile: larger ones are due to the machine, not to the model."""
SPREAD = 200
"""Latest durations, of any size, that the factor from a median to a quantile is learned from."""


def prior_table(largest: int, slo: float) -> np.ndarray:
    """Return what is assumed of a model that nobody knows: the largest batch takes half of the SLO.

    Args:
        largest: The largest batch.
        slo: s.
    """
    table = np.linspace(0.25, 0.5, largest + 1) * slo  # (B+1,) s
    table[0] = 0.0
    return table


class LearnedProfile:
    """How long batches take on one server.

    Args:
        prior: The profile that is assumed until enough is known.   # (B+1,) s
    """

    def __init__(self, prior: np.ndarray) -> None:
        self.executions = 0
        """How many batches it has seen."""
        self.drifts = 0
        """How often the machine was found to have changed."""
        self._prior = prior
        self._lately: deque[float] = deque(maxlen=LATELY)  # s
        self.seen = -np.inf
        """When the last batch ended, s."""
        self.forget()

    @property
    def largest(self) -> int:
        """The largest batch."""
        return self._prior.size - 1

    @property
    def tried(self) -> bool:
        """Whether enough batches were executed for it to be no mere assumption."""
        return self._known() >= ENOUGH

    def sure(self, now: float) -> bool:
        """Return whether it may keep requests away: it was tried, also of late."""
        return self.tried and now - self.seen <= DOUBTED_AFTER

    def _known(self) -> int:
        """Return how many durations are kept."""
        return sum(map(len, self._durations.values()))

    @property
    def longest_lately(self) -> float:
        """The longest duration of the last batches, s; 0 before the first."""
        return max(self._lately, default=0.0)

    def forget(self) -> None:
        """Go back to the prior."""
        self._durations: dict[int, deque[float]] = {}
        self._last: dict[int, float] = {}  # size -> when such a batch ended last, s
        self._recent: deque[tuple[int, float, float]] = deque(maxlen=RECENT)  # size, s, ratio to expected
        self._ratios: deque[float] = deque(maxlen=SPREAD)
        self._middle = self._prior
        self._tables: dict[float, np.ndarray] = {}  # quantile -> what `table` returns until the next fit

    def doubt(self, least: int, now: float) -> None:
        """Forget what was measured of batches of at least some items that are not executed any more.

        They may be taken for so slow that none is sent: nothing else would show that they are not.
        """
        old = {size for size in self._durations if size >= least and now - self._last[size] > DOUBTED_AFTER}
        if not old:
            return
        if len(old) == len(self._durations):
            self.forget()
            return
        self._durations = {size: found for size, found in self._durations.items() if size not in old}
        self._recent = deque((one for one in self._recent if one[0] not in old), maxlen=RECENT)
        self._middle = self._fitted()
        self._tables.clear()

    def assume(self, prior: np.ndarray) -> None:
        """Take another prior, and largest batch; what was learned of the sizes that it has stays.

        Args:
            prior: As in the constructor.   # (B+1,) s
        """
        learned = self._middle is not self._prior
        self._prior = self._middle = prior
        self._durations = {size: found for size, found in self._durations.items() if size <= self.largest}
        self._recent = deque((one for one in self._recent if one[0] <= self.largest), maxlen=RECENT)
        if learned and self._durations:
            self._middle = self._fitted()
        self._tables.clear()

    def observe(self, size: int, seconds: float, now: float) -> None:
        """Learn from a batch.

        Args:
            size: Its items.
            seconds: How long the server worked on it.
            now: When it ended, s.
        """
        if not 0 < size < self._prior.size:
            return
        self.executions += 1
        self.seen = self._last[size] = now
        self._lately.append(seconds)
        ratio = seconds / self._middle[size]
        self._recent.append((size, seconds, ratio))
        known = self._durations.setdefault(size, deque(maxlen=KEPT))
        if len(known) >= ENOUGH:
            self._ratios.append(ratio)
        known.append(seconds)
        first = len(known) == 1 and not self.tried
        if first or self.executions % ENOUGH == 0 or self._known() == ENOUGH:
            self._middle = self._fitted()
            self._look_for_drift()
            self._tables.clear()

    def has_executed(self, size: int) -> bool:
        """Return whether a batch of this size, or a larger one, was executed."""
        return any(known >= size for known in self._durations)

    def _look_for_drift(self) -> None:
        if len(self._recent) < RECENT or self._known() < 3 * RECENT:
            return
        moved = median(ratio for _, _, ratio in self._recent)
        if 1 / DRIFT < moved < DRIFT:
            return
        recent, last = list(self._recent), self._last
        self.forget()
        self._last = last
        self.drifts += 1
        for size, seconds, _ in recent:
            self._durations.setdefault(size, deque(maxlen=KEPT)).append(seconds)
        self._middle = self._fitted()

    def _fitted(self) -> np.ndarray:
        """Return the median duration by batch size.   # (B+1,) s."""
        last = self._prior.size - 1
        points = [(size, median(values), float(len(values))) for size, values in self._durations.items()]
        seen = sum(weight for *_, weight in points)
        # The prior says less, the more is known; its form stays where sizes were never seen.
        share = PRIOR / (1 + seen / ENOUGH)
        scale = median(value / self._prior[size] for size, value, _ in points)
        points += [(size, float(self._prior[size] * scale), share) for size in {1, last}]
        sizes, values, weights = (np.array(column, float) for column in zip(*points, strict=True))
        line = _line(sizes, values, weights, last)
        for size, durations in self._durations.items():
            if len(durations) >= ENOUGH:
                line[size] = median(durations)
        line[1:] = np.maximum.accumulate(line[1:])
        return line

    def table(self, quantile: float) -> np.ndarray:
        """Return how long a batch may take, by its size; it does not fall with it.   # (B+1,) s.

        It is the same array until the next fit, for every batch asks: do not change it.

        Args:
            quantile: Share of the batches that should not take longer.
        """
        table = self._tables.get(quantile)
        if table is None:
            factor = 1.0
            if len(self._ratios) >= ENOUGH:
                factor = min(max(float(np.quantile(self._ratios, quantile)), 1.0), MOST_SPREAD)
            table = self._tables[quantile] = self._middle * factor
            table[0] = 0.0
        return table


def _line(sizes: np.ndarray, values: np.ndarray, weights: np.ndarray, last: int) -> np.ndarray:
    """Return a weighted least-squares line that neither falls nor begins below 0.   # (last + 1,) s."""
    mean_size, mean = np.average(sizes, weights=weights), np.average(values, weights=weights)
    spread = np.average((sizes - mean_size) ** 2, weights=weights)
    alpha = 0.0
    if spread > 0:
        alpha = max(float(np.average((sizes - mean_size) * (values - mean), weights=weights) / spread), 0.0)
    beta = float(mean - alpha * mean_size)
    if beta < 0:
        alpha, beta = (
            float(np.average(values * sizes, weights=weights) / np.average(sizes**2, weights=weights)),
            0.0,
        )
    line = alpha * np.arange(last + 1) + beta
    line[0] = 0.0
    return np.asarray(np.maximum(line, 1e-6))
