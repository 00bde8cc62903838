"""Nexus, Figure 9: the throughput with early and with lazy dropping at which 99 % keep the SLO of 100 ms."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tuner.envs.simulator.cluster.goodput import goodput
from tuner.experiments import style
from tuner.experiments.nexus.one_accelerator import ALPHAS, OPTIMUM, SLO, scenario
from tuner.experiments.options import Options
from tuner.experiments.parallel import run_all
from tuner.experiments.result import Result, Row, curve, row

__all__ = ["plot", "run"]

NAME = "nexus-fig9"
PUBLISHED = {1.0: 23.0, 1.8: 5.0}
"""Gain of early over lazy dropping, %; read from the curve ("up to 25 %" in the text)."""
CAPS = {"planned": "batches up to the planned 25", "profile": "batches as large as deadlines allow"}
SECONDS, QUICK_SECONDS = 1000.0, 60.0
THROUGHPUT, GAIN = "throughput", "gain"


class Task(NamedTuple):
    """One search."""

    alpha: float
    drop: str
    cap: str
    seconds: float
    seed: int


def run(options: Options) -> Result:
    """Search every alpha, drop rule, cap and seed."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    seeds = range(options.seeds)
    tasks = [
        Task(alpha, drop, cap, seconds, seed)
        for alpha in ALPHAS
        for cap in CAPS
        for drop in ("early", "lazy")
        for seed in seeds
    ]
    found = dict(zip(tasks, run_all(measure, tasks, options, "alphas, rules and seeds"), strict=True))
    rows: list[Row] = []
    series = []
    for cap, words in CAPS.items():
        rates = {
            drop: [[found[Task(alpha, drop, cap, seconds, seed)] for seed in seeds] for alpha in ALPHAS]
            for drop in ("early", "lazy")
        }
        for drop, values in rates.items():
            series.append(curve(f"{drop} drop", ALPHAS, values, panel=f"{THROUGHPUT}, {words}"))
        gains = [
            [100 * (early / lazy - 1) for early, lazy in zip(*pair, strict=True)]
            for pair in zip(rates["early"], rates["lazy"], strict=True)
        ]
        series.append(curve(words, ALPHAS, gains, panel=GAIN))
        rows += _rows(cap, gains, rates)
    configuration = {"slo_ms": SLO, "optimum": OPTIMUM, "measured_seconds": seconds, "bad_rate": 0.01}
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration,
        rows=rows,
        series=series,
    )


def measure(task: Task) -> float:
    """Search one throughput, requests/s."""
    tried = scenario(task.alpha, task.drop, cap=task.cap, seconds=task.seconds, seed=task.seed)
    return goodput(tried, tolerance=0.002).rate


def _rows(cap: str, gains: list[list[float]], rates: dict[str, list[list[float]]]) -> list[Row]:
    rows = []
    for alpha, values, early, lazy in zip(ALPHAS, gains, rates["early"], rates["lazy"], strict=True):
        middle = len(values) // 2
        note = f"{sorted(early)[middle]:.0f} against {sorted(lazy)[middle]:.0f} requests/s"
        published = PUBLISHED.get(alpha) if cap == "planned" else None
        name = f"alpha {alpha}: early over lazy drop" + (", batches not capped" if cap == "profile" else "")
        rows.append(row(name, values, unit="%", published=published, note=note))
    return rows


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the throughputs and the gain against alpha."""
    figure, axes = style.figure("Early against lazy dropping, Poisson arrivals, SLO 100 ms", columns=2)
    left, right = axes.flat
    style.curves(left, result.panel(f"{THROUGHPUT}, {CAPS['planned']}"))
    left.axhline(OPTIMUM, color=style.MUTED, ls="--", lw=1, label="optimum")
    left.set(title=CAPS["planned"], ylabel="throughput with 99 % good, requests/s", ylim=(0, OPTIMUM * 1.08))
    style.legend(left, loc="lower right")
    style.curves(right, result.panel(GAIN))
    style.published(right, list(PUBLISHED), list(PUBLISHED.values()), "published, Figure 9")
    right.set(title="gain", ylabel="early over lazy drop, %")
    right.set_ylim(bottom=0)
    style.legend(right, loc="lower left")
    for axis in (left, right):
        axis.set_xlabel("alpha, ms per request (beta falls from 25 to 5 ms)")
    return [style.save(figure, folder, NAME)]
