"""Symphony, Table 2: frontends that each go round the backends on their own give them uneven loads.

Requests come with exponential gaps. Each frontend has a stream of its own and sends its requests to the
backends in turn, beginning anywhere. Counted is how many requests one backend gets in a window of fixed
length (RPW); the standard deviation is over all windows and backends. In one long run the turns of the
frontends drift slowly against each other, so we take many short runs, each with a new beginning.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["Frontends", "UnevenFrontends", "expected_std", "spread"]

BACKENDS = 100
SETUPS = ((10_000.0, 0.4), (2_000.0, 0.2))  # requests/s, s
PUBLISHED = {(10_000.0, 1): 0.753, (10_000.0, 25): 2.463, (2_000.0, 1): 0.396, (2_000.0, 25): 1.860}
COUNTS = (1, 2, 5, 10, 25, 50, 100)
WINDOWS = 20
"""Windows in one run."""


class Frontends(NamedTuple):
    """One simulation."""

    rate: float
    """Requests/s of all frontends together."""
    window: float
    """s"""
    number: int


@experiment(
    name="symphony-table2",
    title="Spread of the requests per window that a backend gets from 1 and from 25 frontends",
    paper="Symphony",
    minutes=2,
)
class UnevenFrontends(Experiment[Frontends, float]):
    """The standard deviation of the requests per window, in both setups for several numbers of frontends."""

    runs = Scaled(2000, quick=40)

    def tasks(self) -> list[Frontends]:
        return [Frontends(*setup, count) for setup in SETUPS for count in COUNTS]

    def measure(self, task: Frontends, seed: int) -> float:
        return spread(task, self.runs, seed)

    def rows(self, found: Answers[Frontends, float]) -> Iterator[Row]:
        for rate, window in SETUPS:
            for count in (1, 25):
                yield row(
                    f"{rate:g} requests/s, {window * 1e3:g} ms, {count} frontend{'s' * (count > 1)}",
                    found[Frontends(rate, window, count)],
                    unit="requests per window",
                    published=PUBLISHED[rate, count],
                    note=f"tends to {expected_std(rate, window, count):.3f} (computed)",
                )

    def series(self, found: Answers[Frontends, float]) -> Iterator[Series]:
        for setup in SETUPS:
            simulated = [found[Frontends(*setup, count)] for count in COUNTS]
            exact = [[expected_std(*setup, count)] for count in COUNTS]
            yield curve("simulated", COUNTS, simulated, panel=_panel(*setup))
            yield curve("computed", COUNTS, exact, panel=_panel(*setup))

    def configuration(self) -> dict[str, Any]:
        return {"backends": BACKENDS, "windows": WINDOWS, "runs": self.runs}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the spread against the number of frontends."""
        title = f"More frontends, more uneven: requests per window at each of {BACKENDS} backends"
        figure, axes = style.figure(title, columns=len(SETUPS))
        for axis, (rate, window) in zip(axes.flat, SETUPS, strict=True):
            panel = _panel(rate, window)
            simulated, computed = result.panel(panel)
            style.curves(axis, [simulated])
            axis.plot(computed.x, computed.y, color=style.INK, ls=":", lw=1.4, label="computed")
            given = {count: value for (r, count), value in PUBLISHED.items() if r == rate}
            style.published(axis, list(given), list(given.values()), "published, Table 2")
            limit = math.sqrt(rate * window / BACKENDS)
            axis.axhline(limit, color=style.MUTED, ls="--", lw=1, label="backends chosen at random")
            axis.set(title=panel, xlabel="frontends", ylabel="standard deviation, requests", xscale="log")
            axis.set_xticks(COUNTS, [str(count) for count in COUNTS])
            axis.minorticks_off()
            axis.set_ylim(bottom=0)
            style.legend(axis, loc="best")
        return [style.Drawing(figure)]


def spread(task: Frontends, runs: int, seed: int) -> float:
    """Return the standard deviation of the requests per window and backend."""
    generator = np.random.default_rng([seed, task.number, int(task.rate)])
    total, squares = 0, 0
    for _ in range(runs):
        counts = _requests(task, generator)
        total += int(counts.sum())
        squares += int((counts * counts).sum())
    number = runs * WINDOWS * BACKENDS
    return math.sqrt(squares / number - (total / number) ** 2)


def _requests(task: Frontends, generator: np.random.Generator) -> np.ndarray:
    """Requests of one run per window and backend.   # (WINDOWS * BACKENDS,)."""
    mean = task.rate / task.number * WINDOWS * task.window  # requests of one frontend
    enough = int(mean + 8 * math.sqrt(mean) + 16)
    gaps = generator.standard_exponential((task.number, enough))
    windows = np.cumsum(gaps, axis=1) / mean * WINDOWS  # (F, n) in lengths of a window
    assert windows[:, -1].min() >= WINDOWS, "more arrivals must be drawn"
    turns = generator.integers(BACKENDS, size=(task.number, 1)) + np.arange(enough)
    slots = windows.astype(np.int64) * BACKENDS + turns % BACKENDS
    return np.bincount(slots[windows < WINDOWS], minlength=WINDOWS * BACKENDS)


def expected_std(rate: float, window: float, frontends: int) -> float:
    """Return what the standard deviation tends to.

    Of the n requests that a frontend gets in a window, a backend gets n/B rounded down or up, up with the
    probability of the fraction f, because the turn is anywhere when the window begins. n is Poisson. So the
    variance is Var(n)/B^2 + E[f(1-f)] for each frontend, and the frontends are independent.
    """
    mean = rate * window / frontends
    n = np.arange(int(mean + 12 * math.sqrt(mean) + 20))
    logarithms = np.concatenate(([0.0], np.cumsum(np.log(n[1:]))))
    probability = np.exp(n * math.log(mean) - mean - logarithms)
    fraction = (n % BACKENDS) / BACKENDS
    rounding = float((probability * fraction * (1 - fraction)).sum())
    return math.sqrt(frontends * (mean / BACKENDS**2 + rounding))


def _panel(rate: float, window: float) -> str:
    return f"{rate:,.0f} requests/s, windows of {window * 1e3:g} ms"
