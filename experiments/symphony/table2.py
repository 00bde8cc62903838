"""Symphony, Table 2: frontends that each go round the backends on their own give them uneven loads.

Requests come with exponential gaps. Each frontend has a stream of its own and sends its requests to the
backends in turn, beginning anywhere. Counted is how many requests one backend gets in a window of fixed
length (RPW); the standard deviation is over all windows and backends. In one long run the turns of the
frontends drift slowly against each other, so we take many short runs, each beginning anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.report import style
from tuner.report.series import curve

__all__ = ["expected_std", "plot", "run"]

NAME = "symphony-table2"
BACKENDS = 100
SETUPS = ((10_000.0, 0.4), (2_000.0, 0.2))  # requests/s, s
PUBLISHED = {(10_000.0, 1): 0.753, (10_000.0, 25): 2.463, (2_000.0, 1): 0.396, (2_000.0, 25): 1.860}
FRONTENDS = (1, 2, 5, 10, 25, 50, 100)
RUNS, QUICK_RUNS = 2000, 40
WINDOWS = 20
"""Windows in one run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One simulation."""

    rate: float
    """Requests/s of all frontends together."""
    window: float
    """s"""
    frontends: int
    runs: int
    seed: int


def run(options: Options) -> Result:
    """Simulate both setups for several numbers of frontends."""
    runs = QUICK_RUNS if options.quick else RUNS
    tasks = list(_tasks(options.seeds, runs))
    found = dict(zip(tasks, options.run_all(spread, tasks, "setups and seeds"), strict=True))
    rows: list[Row] = []
    series = []
    for rate, window in SETUPS:
        values = {
            count: [found[t] for t in tasks if (t.rate, t.frontends) == (rate, count)] for count in FRONTENDS
        }
        for count in (1, 25):
            exact = expected_std(rate, window, count)
            rows.append(
                row(
                    f"{rate:g} requests/s, {window * 1e3:g} ms, {count} frontend{'s' * (count > 1)}",
                    values[count],
                    unit="requests per window",
                    published=PUBLISHED[rate, count],
                    note=f"tends to {exact:.3f} (computed)",
                )
            )
        panel = _panel(rate, window)
        series.append(curve("simulated", FRONTENDS, list(values.values()), panel=panel))
        exact_values = [[expected_std(rate, window, count)] for count in FRONTENDS]
        series.append(curve("computed", FRONTENDS, exact_values, panel=panel))
    configuration = {"backends": BACKENDS, "windows": WINDOWS, "runs": runs}
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration,
        rows=rows,
        series=series,
    )


def _tasks(seeds: int, runs: int) -> Iterator[Task]:
    for rate, window in SETUPS:
        for count in FRONTENDS:
            for seed in range(seeds):
                yield Task(rate=rate, window=window, frontends=count, runs=runs, seed=seed)


def spread(task: Task) -> float:
    """Return the standard deviation of the requests per window and backend."""
    generator = np.random.default_rng([task.seed, task.frontends, int(task.rate)])
    total, squares = 0, 0
    for _ in range(task.runs):
        counts = _counts(task, generator)
        total += int(counts.sum())
        squares += int((counts * counts).sum())
    number = task.runs * WINDOWS * BACKENDS
    return math.sqrt(squares / number - (total / number) ** 2)


def _counts(task: Task, generator: np.random.Generator) -> np.ndarray:
    """Requests of one run per window and backend.   # (WINDOWS * BACKENDS,)."""
    mean = task.rate / task.frontends * WINDOWS * task.window  # requests of one frontend
    enough = int(mean + 8 * math.sqrt(mean) + 16)
    gaps = generator.standard_exponential((task.frontends, enough))
    windows = np.cumsum(gaps, axis=1) / mean * WINDOWS  # (F, n) in lengths of a window
    assert windows[:, -1].min() >= WINDOWS, "more arrivals must be drawn"
    turns = generator.integers(BACKENDS, size=(task.frontends, 1)) + np.arange(enough)
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


def plot(result: Result, folder: Path) -> list[Path]:
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
        axis.set_xticks(FRONTENDS, [str(count) for count in FRONTENDS])
        axis.minorticks_off()
        axis.set_ylim(bottom=0)
        style.legend(axis, loc="best")
    return [style.save(figure, folder, NAME)]
