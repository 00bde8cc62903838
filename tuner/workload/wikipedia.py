"""A rate like that of a large web site: a daily cycle, slow random changes, and sudden spikes.

RRL drives its servers with Wikipedia's traffic of 2007 (Urdaneta, Pierre and van Steen: Wikipedia workload
analysis for decentralized hosting, Computer Networks 53(11), 2009): a daily cycle with a deep, short night
and a long day of about twice its load, noise around it, and sudden rises. The trace itself is too large to
come with a tuner, so this is its shape, not its numbers; the constants are ours:

* ``days`` 2 per episode: RRL's runs of about 3,000 one-minute iterations last two days.
* ``swing`` 0.3: nights at 63 % and days at 123 % of the mean, a ratio of about 2. The cycle is a cosine with
  a quarter of its second harmonic, which makes the night short and the day flat.
* ``noise`` 0.05: standard deviation of the logarithm of slow changes, which are forgotten within an hour.
* ``spikes`` 4 per episode on average, at random moments: a rise to 130 to 160 % of the rate (``height``)
  within one window, which then decays by 1/e in a hundredth of the episode (``length``).

The nominal rate is the mean of the daily cycle; spikes come on top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tuner.workload.workload import Workload, middles, parameter

__all__ = ["Wikipedia"]

HARMONIC = 0.25
"""Share of the second harmonic in the cycle."""
MORNING = 0.25
"""Where in its day an episode begins, as a share of the day counted from the depth of the night."""
MEMORY = 1 / 24
"""Days after which a slow change is forgotten to 1/e."""


@dataclass(frozen=True, kw_only=True)
class Wikipedia(Workload):
    """A daily cycle, slow random changes, and sudden spikes."""

    name: ClassVar[str] = "wikipedia"
    about: ClassVar[str] = "a web site's days and nights, with noise and sudden spikes"

    days: float = parameter(2.0, "days per episode", least=0.01, most=1000)
    swing: float = parameter(0.3, "size of the daily cycle, relative to the mean", most=0.75)
    noise: float = parameter(0.05, "standard deviation of slow random changes, relative", most=1)
    spikes: float = parameter(4.0, "spikes per episode on average", most=1000)
    height: float = parameter(1.6, "highest spike, relative to the rate without it", least=1, most=100)
    length: float = parameter(0.01, "time in which a spike decays to 1/e, as a share of the episode", most=1)

    def relative(self, windows: int, generator: np.random.Generator) -> np.ndarray:  # noqa: D102
        # Each part draws from a stream of its own: more noise does not move the spikes.
        slow, sudden = (np.random.default_rng(seed) for seed in generator.integers(2**62, size=2))
        factor = self._changes(windows, slow) * self._spikes(windows, sudden)
        return np.asarray(self._cycle(windows) * factor)

    def _cycle(self, windows: int) -> np.ndarray:
        angle = 2 * math.pi * (MORNING + self.days * middles(windows))
        return np.asarray(1 - self.swing * (np.cos(angle) + HARMONIC * np.cos(2 * angle)))

    def _changes(self, windows: int, generator: np.random.Generator) -> np.ndarray:
        """Return lognormal factors of mean 1 that are alike in neighbouring windows (Ornstein-Uhlenbeck)."""
        kept = math.exp(-self.days / (windows * MEMORY))
        draws = generator.standard_normal(windows)
        value, logarithms = draws[0], np.empty(windows)
        for window, draw in enumerate(draws.tolist()):
            value = draw if window == 0 else kept * value + math.sqrt(1 - kept**2) * draw
            logarithms[window] = value
        return np.asarray(np.exp(self.noise * logarithms - self.noise**2 / 2))

    def _spikes(self, windows: int, generator: np.random.Generator) -> np.ndarray:
        count = int(generator.poisson(self.spikes))
        starts = generator.integers(0, windows, count)
        rises = (self.height - 1) * generator.uniform(0.5, 1.0, count)
        decay = max(self.length * windows, 1e-9)  # windows
        factor = np.ones(windows)
        for start, rise in zip(starts.tolist(), rises.tolist(), strict=True):
            shape = 1 + rise * np.exp(-np.arange(windows - start) / decay)
            factor[start:] = np.maximum(factor[start:], shape)  # two at once are no higher than one
        return factor
