"""Kairos, Figure 10: how many pools must be tried to find the best for each distribution policy.

All are searched by Kairos+ (algorithm 1): from the highest bound down, with both prunings.
"""

from __future__ import annotations

from pathlib import Path

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import (
    LABELS,
    QUERIES,
    QUICK_QUERIES,
    Setting,
    configuration,
    name_of,
)
from tuner.experiments.kairos.pools import measured_pools
from tuner.experiments.kairos.search import QUICK_LIMIT, Search, search, until_best
from tuner.planning.pools.search import Found
from tuner.report import style
from tuner.report.series import curve

__all__ = ["plot", "run"]

NAME = "kairos-fig10"
POLICIES = ("kairos", "ribbon", "clkwrk", "drs")
STORED = 1
"""The seed with which all pools were measured."""
UNTIL_BEST, UNTIL_SURE = "until the best is tried", "until none can be better"


Searches = dict[tuple[str, str], list[Found]]
"""By model and policy, one per seed."""


def run(options: Options) -> Result:
    """Search the best pool of every model under every policy, with every seed."""
    queries = QUICK_QUERIES if options.quick else QUERIES
    limit = QUICK_LIMIT if options.quick else None
    tasks = []
    for model in LABELS:
        stored = {} if options.quick else measured_pools(options.folder, model)["kairos"]
        for policy in POLICIES:
            for seed in range(1, options.seeds + 1):
                known = tuple(stored.items()) if (policy, seed) == ("kairos", STORED) else ()
                tasks.append(Search(Setting(model, queries=queries), policy, seed, limit, known))
    found: Searches = {}
    for task, one in zip(tasks, options.run_all(search, tasks, "searches"), strict=True):
        found.setdefault((task.setting.model, task.policy), []).append(one)
    rows: list[Row] = []
    series = []
    for panel, count in ((UNTIL_BEST, until_best), (UNTIL_SURE, lambda one: len(one.evaluations))):
        for policy in POLICIES:
            shares = [[100 * count(one) / one.pools for one in found[model, policy]] for model in LABELS]
            series.append(curve(policy, range(len(LABELS)), shares, panel=panel))
    for (model, policy), searches in found.items():
        rows += _rows(f"{LABELS[model]}, {policy}", searches, policy)
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration=configuration(queries) | {"search": "kairos+"},
        rows=rows,
        series=series,
    )


def _rows(name: str, searches: list[Found], policy: str) -> list[Row]:
    best = max(searches, key=lambda one: one.rate)
    names = " ".join(dict.fromkeys(name_of(one.pool) for one in searches if one.pool))
    note = f"best {names}, {best.rate:.4g} queries/s" if best.pool else "none serves anything"
    published = 1.0 if policy == "kairos" else None
    counts = "; ".join(
        f"{len(one.evaluations)} tried, {one.pruned_by_bound} pruned by bound, {one.pruned_as_part} as parts"
        for one in searches
    )
    return [
        row(
            f"{name}: tried {UNTIL_BEST}",
            [100 * until_best(one) / one.pools for one in searches],
            unit="%",
            published=published,
            note=f"{' '.join(str(until_best(one)) for one in searches)} of {best.pools} pools; {note}",
        ),
        row(
            f"{name}: tried {UNTIL_SURE}",
            [100 * len(one.evaluations) / one.pools for one in searches],
            unit="%",
            published=published,
            note=counts,
        ),
    ]


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the shares on a logarithmic axis."""
    figure, axes = style.figure("Pools that Kairos+ tries, of 331", columns=2, sharey=True)
    for axis, panel in zip(axes.flat, (UNTIL_BEST, UNTIL_SURE), strict=True):
        style.bars(axis, list(LABELS.values()), [(one.name, one.y) for one in result.panel(panel)])
        axis.axhline(1, color=style.INK, lw=1, ls="--", label="published for Kairos+: below")
        axis.set(title=panel, yscale="log", ylim=(0.2, 150))
        axis.tick_params(axis="x", labelsize=7)
    axes.flat[0].set_ylabel("of the search space, %")
    style.legend(axes.flat[1], ncols=2, loc="upper left", fontsize=7)
    return [style.save(figure, folder, NAME)]
