"""Kairos, Figure 11: how many pools Kairos+ tries until the best is found, against other searches.

All measure with Kairos's distribution, and all prune sub-configurations; only Kairos+ knows the bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import LABELS, Pool, PoolExperiment, PoolSetting, make_space
from tuner.experiments.kairos.pools import measured_pools
from tuner.experiments.kairos.search import until_best
from tuner.planning.pools.rivals import RIVALS
from tuner.planning.pools.search import kairos_plus
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["RivalSearches", "StoredSearch"]

SEARCHES = ("kairos+", *RIVALS)
WORDS = {"bayesian": "bayesian (ribbon)"}


class StoredSearch(NamedTuple):
    """A search on the stored goodputs of a model's pools."""

    model: str
    name: str


@experiment(
    name="kairos-fig11",
    title="Pools that Kairos+ tries against random, annealing, genetic and Bayesian search",
    paper="Kairos",
    minutes=5,
)
class RivalSearches(PoolExperiment[StoredSearch, int]):
    """The number of pools that were tried when the best had been."""

    first_seed = 0
    runs = Scaled(30, quick=2)
    """Of a random search per seed of the experiment."""

    def tasks(self) -> list[StoredSearch]:
        return [StoredSearch(model, name) for model in LABELS for name in SEARCHES]

    def seeds_of(self, task: StoredSearch) -> Sequence[int]:
        """Kairos+ draws nothing at random; one search of the others is mostly luck."""
        return range(1 if task.name == "kairos+" else self._runs)

    def measure(self, task: StoredSearch, seed: int) -> int:
        space = make_space(PoolSetting(task.model))
        rates = measured_pools(self.options.folder, task.model)["kairos"]
        # A quick run of the other experiment stores the pools with the highest bounds only.
        known = np.array([tuple(pool) in rates for pool in space.pools.tolist()])
        pools, bound = space.pools[known], space.bound[known]
        if task.name == "kairos+":
            places = np.cumsum(known) - 1  # of each pool among those that are known
            order = places[space.order[known[space.order]]]
            return until_best(kairos_plus(pools, bound, order, rates.__getitem__))
        best = max(rates, key=lambda pool: rates[pool])
        tried: list[Pool] = []

        def evaluate(pool: Pool) -> float:
            tried.append(pool)
            return rates[pool]

        RIVALS[task.name](pools, evaluate, np.random.default_rng((seed, 11)), None)
        return tried.index(best) + 1 if best in tried else len(tried)

    def rows(self, found: Answers[StoredSearch, int]) -> Iterator[Row]:
        for name in SEARCHES:
            for model, label in LABELS.items():
                counts = [float(count) for count in found[StoredSearch(model, name)]]
                note = f"{len(counts)} searches" * (len(counts) > 1)
                yield row(f"{label}, {WORDS.get(name, name)}", counts, unit="pools", note=note)

    def series(self, found: Answers[StoredSearch, int]) -> Iterator[Series]:
        for name in SEARCHES:
            counts = [found[StoredSearch(model, name)] for model in LABELS]
            yield curve(WORDS.get(name, name), range(len(LABELS)), counts)

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"requests": "as in kairos-pools", "searches": self._runs}

    @property
    def _runs(self) -> int:
        return self.runs if self.options.quick else self.runs * self.options.seeds

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the counts on a logarithmic axis, with the spread over seeds."""
        figure, axes = style.figure("Pools tried until the best of 331 is found", size=(8, 3.6))
        (axis,) = axes.flat
        style.bars(axis, list(LABELS.values()), [(one.name, one.y) for one in result.series])
        axis.set(ylabel="pools tried, median of the searches", yscale="log", ylim=(0.7, 500))
        style.legend(axis, ncols=3, loc="upper left")
        return [style.Drawing(figure)]
