"""Kairos: what every pool within 2.5 $/h really serves; figures 9, 10, 11, 13 and 14 build on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from tuner.errors import InvalidInput
from tuner.experiments.frame.experiment import Answers, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import LABELS, UNIT, Cell, CellExperiment, Pool, PoolSpace, name_of
from tuner.planning.pools.ceiling import ceilings
from tuner.planning.pools.paper import SLOS
from tuner.report import style
from tuner.report.series import Series, curve
from tuner.workload.sizes import parse_sizes

__all__ = ["EveryPool", "first_seed_pools", "measured_pools"]

NAME = "kairos-pools"
FIX = f"run `tuner experiment run {NAME} --seeds 1` first"
MEASURED = ("kairos", "oracle")
QUICK_POOLS = 12
NEAR = 0.01
"""Pools within this share of the best cannot be distinguished from it."""


@experiment(
    name="kairos-pools",
    title="Goodput of every pool within 2.5 $/h against its bound",
    paper="Kairos",
    minutes=20,
)
class EveryPool(CellExperiment):
    """Every pool of every model under both policies."""

    def tasks(self) -> list[Cell]:
        return [
            Cell(space.setting, pool, policy)
            for space in self.spaces().values()
            for pool in self._pools(space)
            for policy in MEASURED
        ]

    def rows(self, found: Answers[Cell, float]) -> Iterator[Row]:
        for model, space in self.spaces().items():
            pools, bound = self._pools(space), self._bounds(space)
            yield from _rows(model, pools, bound, self._rates(found, space, "kairos"))
            yield from _oracle_rows(space, pools, bound, self._rates(found, space, "oracle"))

    def series(self, found: Answers[Cell, float]) -> Iterator[Series]:
        for model, space in self.spaces().items():
            for policy in MEASURED:
                rates = self._rates(found, space, policy)
                yield curve(policy, self._bounds(space).tolist(), rates.tolist(), panel=LABELS[model])

    def details(self, found: Answers[Cell, float]) -> dict[str, Any]:
        return {
            model: {
                "pools": self._pools(space),
                "bound": np.round(self._bounds(space), 4).tolist(),
                **{
                    policy: np.round(np.median(self._rates(found, space, policy), axis=1), 4).tolist()
                    for policy in MEASURED
                },
            }
            for model, space in self.spaces().items()
        }

    def _pools(self, space: PoolSpace) -> list[Pool]:
        """All pools, the highest bound first; a few of them for a quick look."""
        return space.highest(self._count)

    def _bounds(self, space: PoolSpace) -> np.ndarray:
        """The bounds of these pools.   # (n,) requests/s."""
        return np.asarray(space.bound[space.order[: self._count]])

    @property
    def _count(self) -> int | None:
        return QUICK_POOLS if self.options.quick else None

    def _rates(self, found: Answers[Cell, float], space: PoolSpace, policy: str) -> np.ndarray:
        """What these pools serve.   # (n, seeds) requests/s."""
        return np.array([found[Cell(space.setting, pool, policy)] for pool in self._pools(space)])

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the measured goodput of each pool against its bound."""
        figure, axes = style.figure(
            "Every pool within 2.5 $/h: measured goodput against its bound", columns=5, size=(14, 3.2)
        )
        for axis, label in zip(axes.flat, LABELS.values(), strict=True):
            top = 0.0
            for index, one in enumerate(result.panel(label)):
                heights = [height or 0.0 for height in one.y]
                color, marker = style.look(one.name, index)
                axis.scatter(one.x, heights, s=9, color=color, marker=marker, label=one.name, alpha=0.7, lw=0)
                top = max(top, *one.x, *heights)
            axis.plot([0, top], [0, top], color=style.MUTED, lw=1, ls="--", label="bound")
            axis.set(title=label, xlabel="bound, requests/s", xlim=(0, top * 1.05), ylim=(0, top * 1.05))
        axes.flat[0].set_ylabel("goodput, requests/s")
        style.legend(axes.flat[0], loc="upper left")
        return [style.Drawing(figure)]


def measured_pools(folder: Path, model: str) -> dict[str, dict[Pool, float]]:
    """Return the stored goodput of every pool, by policy and pool, requests/s.

    Of several seeds it is the median.

    Raises:
        InvalidInput: The experiment was not run yet.
    """
    details = _stored(folder).details[model]
    pools = [tuple(pool) for pool in details["pools"]]
    return {policy: dict(zip(pools, details[policy], strict=True)) for policy in MEASURED}


def first_seed_pools(folder: Path) -> dict[str, dict[Pool, float]]:
    """Return the stored goodput of every pool under Kairos with the first seed, by model, requests/s.

    Raises:
        InvalidInput: The experiment was not run yet, or with more seeds, of which it stores the medians.
    """
    if (seeds := _stored(folder).seeds) != 1:
        raise InvalidInput("NAME", f"needs the result of {NAME} with one seed, but it is of {seeds}", FIX)
    return {model: measured_pools(folder, model)["kairos"] for model in LABELS}


def _stored(folder: Path) -> Result:
    path = folder / f"{NAME}.json"
    if not path.exists():
        raise InvalidInput("NAME", f"needs the result of {NAME}", FIX)
    return _read(path, path.stat().st_mtime_ns)


@cache
def _read(path: Path, _: int) -> Result:
    """Read a result once, as long as the file is the same."""
    return Result.load(path)


def _rows(model: str, pools: list[Pool], bound: np.ndarray, rates: np.ndarray) -> Iterator[Row]:
    """What the bounds are worth.   # bound: (n,), rates: (n, seeds) requests/s, highest bound first."""
    label = LABELS[model]
    best = rates.argmax(axis=0)  # (seeds,)
    top = rates.max(axis=0)
    ranks = [1 + int(np.flatnonzero(column >= (1 - NEAR) * column.max())[0]) for column in rates.T]
    names = sorted({name_of(pools[index]) for index in best.tolist()})
    yield row(f"{label}: best pool", top.tolist(), unit=UNIT, note=" ".join(names))
    yield row(
        f"{label}: its place among the bounds",
        (best + 1).tolist(),
        unit="of " + str(len(pools)),
        note=f"the first pool within {NEAR:.0%} of it: {max(ranks)}",
    )
    yield row(f"{label}: bound over measured, best pool", (bound[best] / top).tolist(), unit="times")
    yield row(
        f"{label}: most that a pool exceeds its bound by",
        (100 * (rates / bound[:, None] - 1).max(axis=0)).tolist(),
        unit="%",
        note="eq. 15 is no limit of every policy; `ceiling` of the plan is",
    )
    correlations = [float(spearmanr(bound, column).statistic) for column in rates.T]
    yield row(f"{label}: rank correlation of bound and measured", correlations)


def _oracle_rows(space: PoolSpace, pools: list[Pool], bound: np.ndarray, rates: np.ndarray) -> Iterator[Row]:
    """How near the oracle, who serves all requests, comes to the bound and to the ceiling; as above."""
    setting = space.setting
    probability = parse_sizes(setting.sizes).probability
    ceiling = ceilings(np.array(pools), space.offers.latency, SLOS[setting.model], probability)  # (n,)
    label = LABELS[setting.model]
    yield row(
        f"{label}: most that the oracle exceeds the bound of a pool by",
        (100 * (rates / bound[:, None] - 1).max(axis=0)).tolist(),
        unit="%",
    )
    yield row(
        f"{label}: most of the ceiling that the oracle serves",
        (100 * (rates / ceiling[:, None]).max(axis=0)).tolist(),
        unit="%",
        note="the ceiling of all requests; no policy is above it",
    )
