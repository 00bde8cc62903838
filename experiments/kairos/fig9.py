"""Kairos, Figure 9: its throughput against rival distribution policies, which get the oracle's best pool."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import (
    LABELS,
    POLICIES,
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
from tuner.experiments.kairos.pools import measured_pools
from tuner.report import style
from tuner.report.series import curve

__all__ = ["plot", "run"]

NAME = "kairos-fig9"
PUBLISHED = {"ribbon": 1.5}
"""Section 8.2: "around 1.5 times the throughput of Ribbon", up to 1.44 times that of drs and clkwrk."""
LEAST = {"ribbon": 1.4, "drs": 1.0, "clkwrk": 1.0}
"""What we set out to reach, on the same pool."""
CHOSEN, BEST, GIVEN = "kairos", "kairos+", "the oracle's best pool"
"""Whose pool; if Kairos chooses the oracle's best, there is one."""


def run(options: Options) -> Result:
    """Measure every policy on the pool that Kairos chooses and on the one that is best for the oracle."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    seeds = range(1, options.seeds + 1)
    pools = {model: _pools(options.folder, model) for model in LABELS}
    cells = [
        Cell(Setting(model, queries=queries), pool, policy, seed)
        for model in LABELS
        for pool in dict.fromkeys(pools[model].values())
        for policy in POLICIES
        for seed in seeds
    ]
    found = dict(zip(cells, options.run_all(measure, cells, "models, policies and seeds"), strict=True))

    def rates(model: str, which: str, policy: str) -> list[float]:
        setting = Setting(model, queries=queries)
        return [found[Cell(setting, pools[model][which], policy, seed)] for seed in seeds]

    rows: list[Row] = []
    for model, label in LABELS.items():
        for pool, which in {pools[model][which]: which for which in (GIVEN, CHOSEN)}.items():
            name = f"{label}, {which} {name_of(pool)}"
            rows += _rows(name, partial(rates, model, which))
    bars = [(CHOSEN, CHOSEN, "kairos"), (BEST, BEST, "kairos")]
    others = ("ribbon", "drs", "clkwrk", "clkwrk, refusing", "kairos, refusing", "oracle")
    bars += [(policy, GIVEN, policy) for policy in others]
    series = [
        curve(name, range(len(LABELS)), [rates(model, which, policy) for model in LABELS])
        for name, which, policy in bars
    ]
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(queries),
        rows=rows,
        series=series,
    )


def _pools(folder: Path, model: str) -> dict[str, Pool]:
    """Kairos's choice, the pool that Kairos+ finds, and the oracle's best."""
    measured = measured_pools(folder, model)
    best = {policy: max(rates, key=lambda pool: rates[pool]) for policy, rates in measured.items()}
    return {CHOSEN: make_space(Setting(model)).chosen, BEST: best["kairos"], GIVEN: best["oracle"]}


def _rows(name: str, rates: Callable[[str], list[float]]) -> list[Row]:
    kairos = rates("kairos")
    rows = [row(f"{name}: {policy}", rates(policy), unit="queries/s") for policy in POLICIES]
    for policy in POLICIES[2:]:
        ratios = [
            one / other if other else float("inf") for one, other in zip(kairos, rates(policy), strict=True)
        ]
        note = f"target: at least {LEAST[policy]:g}" if policy in LEAST else ""
        rows.append(
            row(
                f"{name}: kairos over {policy}",
                ratios,
                unit="times",
                published=PUBLISHED.get(policy),
                note=note,
            )
        )
    return rows


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw, for each model, all policies relative to the oracle."""
    figure, axes = style.figure(
        "All on the oracle's best pool, but kairos on its choice and kairos+ on the best", size=(9, 3.6)
    )
    (axis,) = axes.flat
    oracle = next(one for one in result.series if one.name == "oracle")
    heights = [
        (one.name, [(y or 0.0) / (top or 1.0) for y, top in zip(one.y, oracle.y, strict=True)])
        for one in result.series
        if one.name != "oracle"
    ]
    style.bars(axis, list(LABELS.values()), heights)
    axis.axhline(1, color=style.INK, lw=1, ls="--", label="oracle")
    axis.set(ylabel="allowable throughput over the oracle's", ylim=(0, 1.3))
    style.legend(axis, ncols=4, loc="upper center")
    return [style.save(figure, folder, NAME)]
