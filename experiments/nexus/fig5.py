"""Nexus, Figure 5: lazy dropping under even and under Poisson arrivals at 90 % of the optimum.

Early dropping (section 6.3) is drawn beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tuner.cluster import simulate
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.nexus.one_accelerator import ALPHAS, OPTIMUM, SLO, scenario
from tuner.report import style
from tuner.report.series import curve

__all__ = ["plot", "run"]

NAME = "nexus-fig5"
LOAD = 0.9
"""Of the optimum."""
ARRIVALS = {"uniform": "constant", "Poisson": "poisson"}
SECONDS, QUICK_SECONDS = 1000.0, 40.0
SHOWN = (1.0, 1.4, 1.8)
"""The alphas that have rows."""


class Task(NamedTuple):
    """One simulation."""

    alpha: float
    drop: str
    arrival: str
    seconds: float
    seed: int


class Found(NamedTuple):
    """What came of it."""

    bad: float  # % of the requests
    batch: float  # mean


def run(options: Options) -> Result:
    """Simulate every alpha, drop rule and kind of arrivals."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    tasks = [
        Task(alpha, drop, arrival, seconds, seed)
        for drop in ("lazy", "early")
        for arrival in ARRIVALS
        for alpha in ALPHAS
        for seed in range(options.seeds)
    ]
    found = dict(
        zip(tasks, options.run_all(measure, tasks, "rules, arrivals, alphas and seeds"), strict=True)
    )
    rows: list[Row] = []
    series = []
    for drop in ("lazy", "early"):
        for arrival in ARRIVALS:
            name = f"{drop}, {arrival}"
            values = [
                [found[t] for t in tasks if (t.drop, t.arrival, t.alpha) == (drop, arrival, alpha)]
                for alpha in ALPHAS
            ]
            for alpha, each in zip(ALPHAS, values, strict=True):
                if alpha in SHOWN:
                    note = f"mean batch {sorted(v.batch for v in each)[len(each) // 2]:.1f}"
                    bad = [v.bad for v in each]
                    rows.append(row(f"{name}, alpha {alpha}: bad rate", bad, unit="%", note=note))
            series.append(curve(name, ALPHAS, [[v.bad for v in each] for each in values]))
    configuration = {"slo_ms": SLO, "rate": LOAD * OPTIMUM, "measured_seconds": seconds}
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration,
        rows=rows,
        series=series,
    )


def measure(task: Task) -> Found:
    """Simulate one accelerator."""
    tried = scenario(
        task.alpha,
        task.drop,
        rate=LOAD * OPTIMUM,
        arrival=ARRIVALS[task.arrival],
        seconds=task.seconds,
        seed=task.seed,
    )
    outcome = simulate(tried)
    return Found(100 * outcome.bad_rate, outcome.sessions[0].mean_batch)


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the bad rate against alpha."""
    figure, axes = style.figure("Dropping at 90 % of the optimum, SLO 100 ms", size=(6.4, 3.8))
    axis = axes[0, 0]
    style.curves(axis, result.panel())
    axis.set(xlabel="alpha, ms per request (beta falls from 25 to 5 ms)", ylabel="late or dropped, %")
    axis.set_ylim(bottom=-1)
    style.legend(axis, loc="center left")
    return [style.save(figure, folder, NAME)]
