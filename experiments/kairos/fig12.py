"""Kairos, Figure 12: what each scheme tries after the sizes of RM2's queries have become Gaussian.

Kairos chooses once, from bounds. Kairos+ tries pools from the highest bound down. The rivals search anew by
Ribbon's Bayesian optimisation, each under its own distribution policy.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import (
    GAUSSIAN,
    QUERIES,
    QUICK_QUERIES,
    Cell,
    Pool,
    Setting,
    configuration,
    make_space,
    measure,
    name_of,
)
from tuner.planning.pools.rivals import bayesian_search
from tuner.planning.pools.search import kairos_plus
from tuner.report import style
from tuner.report.series import curve

__all__ = ["plot", "run"]

NAME = "kairos-fig12"
MODEL = "rm2"
SHOWN, QUICK_SHOWN = 20, 3
SCHEMES = ("kairos", "kairos+", "ribbon", "drs", "clkwrk", "clkwrk, refusing")
ORACLE = 15.0
"""%, within which of the oracle Kairos and Kairos+ are published to be."""


class Task(NamedTuple):
    """One scheme's first evaluations."""

    scheme: str
    seed: int
    queries: int
    limit: int


def run(options: Options) -> Result:
    """Let every scheme react, with every seed; search the oracle's best pool among all."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    limit = QUICK_SHOWN if options.quick else SHOWN
    setting = Setting(MODEL, sizes=GAUSSIAN, queries=queries)
    space, seeds = make_space(setting), range(1, options.seeds + 1)
    tasks = [Task(scheme, seed, queries, limit) for scheme in SCHEMES for seed in seeds]
    found = dict(zip(tasks, options.run_all(react, tasks, "schemes and seeds"), strict=True))
    pools = [tuple(pool) for pool in space.pools[space.order[: limit if options.quick else None]].tolist()]
    cells = [Cell(setting, pool, "oracle") for pool in pools]
    oracle = max(options.run_all(measure, cells, "oracle"))
    rows: list[Row] = [row("oracle, best pool", [oracle], unit="queries/s")]
    series = []
    for scheme in SCHEMES:
        runs = [found[Task(scheme, seed, queries, limit)] for seed in seeds]
        steps = range(limit)
        rates = [[one[min(step, len(one) - 1)][1] for one in runs] for step in steps]
        series.append(curve(scheme, [step + 1 for step in steps], rates))
        best = [max(rate for _, rate in one) for one in runs]
        rows.append(
            row(f"{scheme}: best of {limit} evaluations", best, unit="queries/s", note=_note(scheme, runs))
        )
        below = [100 * (1 - rate / oracle) for rate in best]
        published = ORACLE if scheme in SCHEMES[:2] else None
        rows.append(row(f"{scheme}: below the oracle", below, unit="%", published=published))
    once = [one[0][1] for one in (found[Task("kairos", seed, queries, limit)] for seed in seeds)]
    for scheme in SCHEMES[2:]:
        runs = [found[Task(scheme, seed, queries, limit)] for seed in seeds]
        waits = [
            float(next((n for n, (_, rate) in enumerate(one, 1) if rate >= goal), np.inf))
            for one, goal in zip(runs, once, strict=True)
        ]
        rows.append(row(f"{scheme}: evaluations until it serves what kairos does", waits, unit="pools"))
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(queries) | {"model": MODEL, "sizes": GAUSSIAN},
        rows=rows,
        series=series,
    )


def react(task: Task) -> list[tuple[Pool, float]]:
    """Return the pools that a scheme tries after the change, and what they serve; the last one stays."""
    setting = Setting(MODEL, sizes=GAUSSIAN, queries=task.queries)
    space = make_space(setting)
    policy = "kairos" if task.scheme == "kairos+" else task.scheme

    def evaluate(pool: Pool) -> float:
        return measure(Cell(setting, pool, policy, task.seed))

    if task.scheme == "kairos":
        return [(space.chosen, evaluate(space.chosen))]
    if task.scheme == "kairos+":
        found = kairos_plus(space.pools, space.bound, space.order, evaluate, task.limit)
        assert found.pool is not None
        return [*found.evaluations, (found.pool, found.rate)]
    generator = np.random.default_rng((task.seed, 12))
    return list(bayesian_search(space.pools, evaluate, generator, task.limit).evaluations)


def _note(scheme: str, runs: list[list[tuple[Pool, float]]]) -> str:
    if scheme == "kairos":
        return f"{name_of(runs[0][0][0])}, in one step"
    if scheme == "kairos+":
        return f"{name_of(runs[0][-1][0])}, sure after {max(len(one) - 1 for one in runs)} evaluations"
    return ""


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the throughput of the pool that each scheme runs at each step."""
    figure, axes = style.figure("RM2 after its sizes became Gaussian: the pools that are tried", size=(8, 4))
    (axis,) = axes.flat
    for one in result.series:
        color, marker = style.look(one.name)
        axis.plot(one.x, [y or 0.0 for y in one.y], color=color, marker=marker, ms=4, lw=1.2, label=one.name)
    oracle = next(each.measured for each in result.rows if each.id.startswith("oracle"))
    axis.axhline(oracle or 0.0, color=style.INK, lw=1, ls="--", label="oracle, best pool")
    axis.set(xlabel="evaluation", ylabel="allowable throughput, queries/s", ylim=(0, 155))
    axis.set_xticks([1, *range(5, len(result.series[0].x) + 1, 5)])
    style.legend(axis, ncols=4, fontsize=7, loc="upper center")
    return [style.save(figure, folder, NAME)]
