"""Kairos, Figure 11: how many pools Kairos+ tries until the best is found, against other searches.

All measure with Kairos's distribution, and all prune sub-configurations; only Kairos+ knows the bounds.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import LABELS, Setting, configuration, make_space
from tuner.experiments.kairos.pools import measured_pools
from tuner.experiments.kairos.search import until_best
from tuner.planning.pools.rivals import RIVALS
from tuner.planning.pools.search import kairos_plus
from tuner.report import style
from tuner.report.series import curve

__all__ = ["plot", "run"]

NAME = "kairos-fig11"
SEARCHES = ("kairos+", *RIVALS)
WORDS = {"bayesian": "bayesian (ribbon)"}
RUNS, QUICK_RUNS = 30, 2
"""Of a random search per seed of the experiment."""


class Task(NamedTuple):
    """One search, with its random numbers."""

    model: str
    name: str
    seed: int
    folder: Path


def run(options: Options) -> Result:
    """Run every search on the stored throughputs of all pools, with many seeds."""
    runs = QUICK_RUNS if options.quick else RUNS * options.seeds
    tasks = [
        Task(model, name, seed, options.folder)
        for model in LABELS
        for name in SEARCHES
        for seed in range(1 if name == "kairos+" else runs)
    ]
    found = dict(zip(tasks, options.run_all(search, tasks, "searches"), strict=True))
    rows: list[Row] = []
    series = []
    for name in SEARCHES:
        counts = [[n for t, n in found.items() if (t.model, t.name) == (model, name)] for model in LABELS]
        words = WORDS.get(name, name)
        series.append(curve(words, range(len(LABELS)), counts))
        rows += [
            row(
                f"{label}, {words}",
                [float(n) for n in some],
                unit="pools",
                note=f"{len(some)} searches" * (len(some) > 1),
            )
            for label, some in zip(LABELS.values(), counts, strict=True)
        ]
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(0) | {"queries": "as in kairos-pools", "searches": runs},
        rows=rows,
        series=series,
    )


def search(task: Task) -> int:
    """Return how many pools were tried when the best had been."""
    space, rates = make_space(Setting(task.model)), measured_pools(task.folder, task.model)["kairos"]
    if task.name == "kairos+":
        return until_best(kairos_plus(space.pools, space.bound, space.order, rates.__getitem__))
    generator = np.random.default_rng((task.seed, 11))
    best = max(rates, key=lambda pool: rates[pool])
    tried: list[tuple[int, ...]] = []

    def evaluate(pool: tuple[int, ...]) -> float:
        tried.append(pool)
        return rates[pool]

    RIVALS[task.name](space.pools, evaluate, generator, None)
    return tried.index(best) + 1 if best in tried else len(tried)


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the counts on a logarithmic axis, with the spread over seeds."""
    figure, axes = style.figure("Pools tried until the best of 331 is found", size=(8, 3.6))
    (axis,) = axes.flat
    style.bars(axis, list(LABELS.values()), [(one.name, one.y) for one in result.series])
    axis.set(ylabel="pools tried, median of the searches", yscale="log", ylim=(0.7, 500))
    style.legend(axis, ncols=3, loc="upper left")
    return [style.save(figure, folder, NAME)]
