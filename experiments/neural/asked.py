"""Whether the agent with the neural estimator does what was asked of it, on many servers never seen before.

:mod:`tuner.experiments.neural.held_out` compares agents on forty servers, and medians of so few differ by a
third from those of forty others. Here one agent, the default, tunes more servers, and each median has an
interval. Run it with ``--seeds 100``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import quantile_test

from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Row
from tuner.experiments.neural.held_out import ASKED, WINDOWS, HeldOutTask, learn
from tuner.experiments.neural.servers import TRUTHS, HeldOutServer, Learning

__all__ = ["ManyServers"]

FIRST = 61000
"""The seed of the first server, far from those of training and tuning."""
CONFIDENCE = 0.9
"""Of the intervals of the medians."""
WORST = 0.9
"""The quantile that bounds the worst tenth."""
ASKED_OF_WORST, ASKED_OF_BROKEN = 20.0, 5.0
"""What was asked for in every cell, per cent."""


@experiment(
    name="neural-asked",
    title="What was asked of the agent with the neural estimator, on many servers that it has never seen",
    minutes=16,
    shown=30,
)
class ManyServers(Experiment[HeldOutTask, Learning]):
    """Lets the default agent tune servers of each kind for which something was asked."""

    first_seed = FIRST
    windows = Scaled(WINDOWS, quick=10)

    def tasks(self) -> list[HeldOutTask]:
        return [HeldOutTask(family, truth) for family, truth in ASKED]

    def measure(self, task: HeldOutTask, seed: int) -> Learning:
        return learn("rrl", HeldOutServer(task.family, TRUTHS[task.truth], seed), seed, self.windows)

    def rows(self, found: Answers[HeldOutTask, Learning]) -> Iterator[Row]:
        for task, learnings in found.items():
            name = f"{task.family}, {task.truth}"
            above, settled = ASKED[task.family, task.truth]
            costs = [100 * one.above for one in learnings]
            yield _median(f"{name}: mean cost above the oracle's", costs, "%", above)
            worst = float(np.quantile(costs, WORST))
            yield _share(f"{name}: the same, worst tenth", worst, ASKED_OF_WORST)
            windows = [one.settled for one in learnings]
            yield _median(f"{name}: windows until within 5 % for good", windows, "windows", settled)
            never = 100 * float(np.mean(np.isinf(windows)))
            yield _share(f"{name}: servers that never are", never, None)
            broken = 100 * float(np.mean([one.broken for one in learnings]))
            yield _share(f"{name}: windows above 1.5 times the SLO", broken, ASKED_OF_BROKEN)

    def configuration(self) -> dict[str, Any]:
        return {
            "windows": self.windows,
            "seeds": "each is a server",
            "first server": FIRST,
            "low and high": f"{CONFIDENCE:.0%} interval of the median, by order statistics",
        }


def _median(name: str, values: Sequence[float], unit: str, asked: float) -> Row:
    """Return a row with the median, its interval, and the chance of it if the true one were as asked.

    The interval is by order statistics: it assumes nothing of how the values are spread, and those that were
    never reached count as the largest.
    """
    test = quantile_test(values, q=asked, p=0.5)
    bounds = test.confidence_interval(CONFIDENCE)
    note = f"asked for: at most {asked:g}; p {test.pvalue:.2g} if the median were that"
    middle, low, high = (_finite(value) for value in (np.median(values), bounds.low, bounds.high))
    return Row(id=name, measured=middle, low=low, high=high, unit=unit, note=note)


def _share(name: str, value: float, asked: float | None) -> Row:
    note = "" if asked is None else f"asked for: at most {asked:g}"
    return Row(id=name, measured=value, unit="%", note=note)


def _finite(value: float) -> float | None:
    """Return a value that a result can hold: none for what was never reached."""
    return float(value) if math.isfinite(value) else None
