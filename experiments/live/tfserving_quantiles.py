"""What TensorFlow Serving's buckets cost in precision, on real latencies of a server under load.

The latencies that clients saw are put into the server's buckets, and their quantiles read from there: as we
do, and by the straight line that is usual. Beside that, the server's own histogram of the same windows: it
is below the clients' by the network and the wait in front of the server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tuner.adapters.metrics.histogram import Histogram
from tuner.experiments.frame.experiment import Answers, OneTaskExperiment, Scaled, experiment
from tuner.experiments.frame.result import Row, row
from tuner.experiments.live.testbed import tfserving
from tuner.profiler.attachment import Attachment

__all__ = ["ServerQuantiles"]

RATE = 60.0
SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
SIZES = (4.0, 8.0, 16.0, 32.0)
TIMEOUTS = (0.0, 0.005)


class QuantileErrors(NamedTuple):
    """Relative errors of a quantile in one window."""

    ours: float
    """As we interpolate."""
    line: float
    """By a straight line, as is usual."""
    below: float
    """The server's own quantile over the clients', less 1."""


@experiment(
    name="tfserving-quantiles",
    title="Quantiles from TensorFlow Serving's histogram beside those that clients see",
    minutes=3,
    live=True,
)
class ServerQuantiles(OneTaskExperiment[list[dict[str, QuantileErrors]]]):
    """Compares the ways to read a quantile in windows under several configurations."""

    windows = Scaled(8, quick=2)
    seconds = Scaled(15.0, quick=3.0)

    def measure(self, _: None, seed: int) -> list[dict[str, QuantileErrors]]:
        found = []
        with tfserving(RATE, seed=seed) as attachment:
            for number in range(self.windows):
                wanted = attachment.space.default.replace(
                    max_batch_size=SIZES[number % 4], batch_timeout=TIMEOUTS[number % 2]
                )
                attachment.clock.sleep(attachment.backend.apply(wanted).settle)
                found.append(self._window(attachment))
                self.report(f"{number + 1}/{self.windows}  {attachment.space.format(wanted)}")
        return found

    def _window(self, attachment: Attachment) -> dict[str, QuantileErrors]:
        load, clock = attachment.load, attachment.clock
        assert load is not None, "the testbed sends a load of its own"
        before, begin = attachment.backend.counters().latencies, clock.now()
        clock.sleep(self.seconds)
        after, end = attachment.backend.counters().latencies, clock.now()
        assert before is not None
        assert after is not None
        seen = load.sample(begin, end).latency
        seen = seen[~np.isnan(seen)]
        counted, served = bucketed(seen, after.bounds), after.since(before)
        errors = {}
        for name, share in SHARES.items():
            truth = float(np.quantile(seen, share))
            errors[name] = QuantileErrors(
                abs(counted.quantile(share) / truth - 1),
                abs(straight_line(counted, share) / truth - 1),
                served.quantile(share) / truth - 1,
            )
        return errors

    def rows(self, found: Answers[None, list[dict[str, QuantileErrors]]]) -> Iterator[Row]:
        windows = [window for run in found[None] for window in run]
        for name in SHARES:
            errors = [window[name] for window in windows]
            yield row(f"{name} off, as interpolated", [100 * each.ours for each in errors], unit="%")
            yield row(f"{name} off, by a straight line", [100 * each.line for each in errors], unit="%")
            below = [100 * each.below for each in errors]
            yield row(f"{name} of the server over the clients'", below, unit="%")

    def configuration(self) -> dict[str, Any]:
        return {"rate": RATE, "windows": self.windows, "seconds": self.seconds}


def bucketed(latency: np.ndarray, bounds: np.ndarray) -> Histogram:
    """Return latencies as the server would count them; what equals a bound is above it."""
    places = np.searchsorted(bounds, latency, side="right")
    return Histogram(bounds, np.bincount(places, minlength=bounds.size))


def straight_line(counted: Histogram, share: float) -> float:
    """Return a quantile as Prometheus' ``histogram_quantile`` draws it, s."""
    total = counted.counts.sum()
    if total == 0:
        return math.nan
    cumulated = np.cumsum(counted.counts)
    place = int(np.searchsorted(cumulated, share * total))
    low = counted.bounds[place - 1] if place else 0.0
    inside = (share * total - (cumulated[place] - counted.counts[place])) / counted.counts[place]
    return float(low + (counted.bounds[place] - low) * inside)
