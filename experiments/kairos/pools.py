"""Kairos: what every pool within 2.5 $/h really serves; figures 10, 11, 13 and 14 are drawn from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tuner.errors import InvalidInput
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import (
    LABELS,
    QUERIES,
    QUICK_QUERIES,
    Cell,
    Pool,
    Setting,
    Space,
    configuration,
    make_space,
    measure,
    name_of,
)
from tuner.planning.pools.ceiling import ceilings
from tuner.planning.pools.paper import QOS
from tuner.planning.pools.sizes import parse_sizes
from tuner.report import style
from tuner.report.series import curve

__all__ = ["measured_pools", "plot", "run"]

NAME = "kairos-pools"
MEASURED = ("kairos", "oracle")
QUICK_POOLS = 12
NEAR = 0.01
"""Pools within so much of the best cannot be told from it."""


def run(options: Options) -> Result:
    """Measure every pool of every model with both policies."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    spaces = {model: make_space(Setting(model, queries=queries)) for model in LABELS}
    seeds = range(1, options.seeds + 1)
    cells = [
        Cell(space.setting, pool, policy, seed)
        for space in spaces.values()
        for pool in _pools(space, options.quick)
        for policy in MEASURED
        for seed in seeds
    ]
    found = dict(zip(cells, options.run_all(measure, cells, "pools"), strict=True))
    rows: list[Row] = []
    series = []
    details: dict[str, Any] = {}
    for model, space in spaces.items():
        pools = _pools(space, options.quick)
        rates = {
            policy: np.array(
                [[found[Cell(space.setting, pool, policy, seed)] for seed in seeds] for pool in pools]
            )
            for policy in MEASURED
        }
        index = {tuple(pool): at for at, pool in enumerate(space.pools.tolist())}
        bound = np.array([space.bound[index[pool]] for pool in pools])
        rows += _rows(model, pools, bound, rates["kairos"])
        rows += _oracle_rows(space, pools, bound, rates["oracle"])
        places, panel = bound.tolist(), LABELS[model]
        series += [curve(policy, places, rates[policy].tolist(), panel=panel) for policy in MEASURED]
        details[model] = {
            "pools": pools,
            "bound": np.round(bound, 4).tolist(),
            **{policy: np.round(np.median(rates[policy], axis=1), 4).tolist() for policy in MEASURED},
        }
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(queries),
        rows=rows,
        series=series,
        details=details,
    )


def measured_pools(folder: Path, model: str) -> dict[str, dict[Pool, float]]:
    """Return the stored throughput of every pool, by policy and pool, queries/s.

    Raises:
        InvalidInput: The experiment was not run yet.
    """
    path = folder / f"{NAME}.json"
    if not path.exists():
        raise InvalidInput("NAME", f"needs the result of {NAME}", f"run `tuner experiment run {NAME}` first")
    details = Result.load(path).details[model]
    pools = [tuple(pool) for pool in details["pools"]]
    return {policy: dict(zip(pools, details[policy], strict=True)) for policy in MEASURED}


def _pools(space: Space, quick: bool) -> list[Pool]:
    """All pools, the highest bound first; a few of them for a quick look."""
    order = space.order[:QUICK_POOLS] if quick else space.order
    return [tuple(pool) for pool in space.pools[order].tolist()]


def _rows(model: str, pools: list[Pool], bound: np.ndarray, rates: np.ndarray) -> list[Row]:
    """What the bounds are worth.   # bound: (n,), rates: (n, seeds) queries/s, highest bound first."""
    label = LABELS[model]
    best = rates.argmax(axis=0)  # (seeds,)
    top = rates.max(axis=0)
    ranks = [1 + int(np.flatnonzero(column >= (1 - NEAR) * column.max())[0]) for column in rates.T]
    names = sorted({name_of(pools[index]) for index in best.tolist()})
    return [
        row(f"{label}: best pool", top.tolist(), unit="queries/s", note=" ".join(names)),
        row(
            f"{label}: its place among the bounds",
            (best + 1).tolist(),
            unit="of " + str(len(pools)),
            note=f"the first pool within {NEAR:.0%} of it: {max(ranks)}",
        ),
        row(f"{label}: bound over measured, best pool", (bound[best] / top).tolist(), unit="times"),
        row(
            f"{label}: most that a pool exceeds its bound by",
            (100 * (rates / bound[:, None] - 1).max(axis=0)).tolist(),
            unit="%",
            note="eq. 15 is no limit of every policy; `ceiling` of the plan is",
        ),
        row(
            f"{label}: rank correlation of bound and measured",
            [_rank_correlation(bound, column) for column in rates.T],
        ),
    ]


def _oracle_rows(space: Space, pools: list[Pool], bound: np.ndarray, rates: np.ndarray) -> list[Row]:
    """How near the oracle, who serves all queries, comes to the bound and to the ceiling; as above."""
    setting = space.setting
    probability = parse_sizes(setting.sizes).probability
    ceiling = ceilings(np.array(pools), space.offers.latency, QOS[setting.model], probability)  # (n,)
    label = LABELS[setting.model]
    return [
        row(
            f"{label}: most that the oracle exceeds the bound of a pool by",
            (100 * (rates / bound[:, None] - 1).max(axis=0)).tolist(),
            unit="%",
        ),
        row(
            f"{label}: most of the ceiling that the oracle serves",
            (100 * (rates / ceiling[:, None]).max(axis=0)).tolist(),
            unit="%",
            note="the ceiling of all queries; no policy is above it",
        ),
    ]


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's correlation of values without ties."""
    first, second = (np.argsort(np.argsort(values)) - (one.size - 1) / 2 for values in (one, other))
    return float(first @ second) / float(first @ first)


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the measured throughput of each pool against its bound."""
    figure, axes = style.figure(
        "Every pool within 2.5 $/h: measured throughput against its bound", columns=5, size=(14, 3.2)
    )
    for axis, label in zip(axes.flat, LABELS.values(), strict=True):
        top = 0.0
        for index, one in enumerate(result.panel(label)):
            heights = [height or 0.0 for height in one.y]
            color, marker = style.look(one.name, index)
            axis.scatter(one.x, heights, s=9, color=color, marker=marker, label=one.name, alpha=0.7, lw=0)
            top = max(top, *one.x, *heights)
        axis.plot([0, top], [0, top], color=style.MUTED, lw=1, ls="--", label="bound")
        axis.set(title=label, xlabel="bound, queries/s", xlim=(0, top * 1.05), ylim=(0, top * 1.05))
    axes.flat[0].set_ylabel("allowable throughput, queries/s")
    style.legend(axes.flat[0], loc="upper left")
    return [style.save(figure, folder, NAME)]
