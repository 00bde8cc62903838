"""What TensorFlow Serving's buckets cost in precision, on real latencies of a server under load.

The latencies that clients saw are put into the server's buckets, and their quantiles read from there: as we
do, and by the straight line that is usual. Beside that, the server's own histogram of the same windows: it
is below the clients' by the network and the wait in front of the server.
"""

from __future__ import annotations

import math

import numpy as np

from tuner.adapters.metrics.histogram import Histogram
from tuner.experiments.frame.catalogue import Options
from tuner.experiments.frame.result import Result, row
from tuner.experiments.live.testbed import tfserving

__all__ = ["run"]

RATE = 60.0
SHARES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}
SIZES = (4.0, 8.0, 16.0, 32.0)
TIMEOUTS = (0.0, 0.005)


def run(options: Options) -> Result:
    """Compare the ways to read a quantile in windows under several configurations."""
    windows, seconds = (2, 3.0) if options.quick else (8, 15.0)
    errors: dict[tuple[str, str], list[float]] = {
        (name, way): [] for name in SHARES for way in ("ours", "line")
    }
    below: dict[str, list[float]] = {name: [] for name in SHARES}
    for seed in range(options.seeds):
        with tfserving(RATE, seed=seed) as attachment:
            backend, clients = attachment.backend, attachment.load
            assert clients is not None, "the bench sends a load of its own"
            for number in range(windows):
                wanted = attachment.space.default.replace(
                    max_batch_size=SIZES[number % 4], batch_timeout=TIMEOUTS[number % 2]
                )
                attachment.clock.sleep(backend.apply(wanted).settle)
                before, begin = backend.counters().latencies, attachment.clock.now()
                attachment.clock.sleep(seconds)
                after, end = backend.counters().latencies, attachment.clock.now()
                assert before is not None
                assert after is not None
                seen = clients.sample(begin, end).latency
                seen = seen[~np.isnan(seen)]
                counted, told = bucketed(seen, after.bounds), after.since(before)
                for name, share in SHARES.items():
                    truth = float(np.quantile(seen, share))
                    errors[name, "ours"].append(abs(counted.quantile(share) / truth - 1))
                    errors[name, "line"].append(abs(straight_line(counted, share) / truth - 1))
                    below[name].append(told.quantile(share) / truth - 1)
                options.report(f"{number + 1}/{windows}  {attachment.space.format(wanted)}")
    rows = []
    for name in SHARES:
        rows += [
            row(f"{name} off, as interpolated", [100 * value for value in errors[name, "ours"]], unit="%"),
            row(f"{name} off, by a straight line", [100 * value for value in errors[name, "line"]], unit="%"),
            row(f"{name} of the server over the clients'", [100 * v for v in below[name]], unit="%"),
        ]
    return Result(
        experiment="tfserving-quantiles",
        seeds=options.seeds,
        configuration={"rate": RATE, "windows": windows, "seconds": seconds},
        rows=rows,
    )


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
