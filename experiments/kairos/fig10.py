"""Kairos, Figure 10: how many pools must be tried to find the best for each distribution policy.

All are searched by Kairos+ (algorithm 1): from the highest bound down, with both prunings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tuner.experiments.frame.experiment import Answers, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.kairos.cell import LABELS, PoolExperiment, name_of
from tuner.experiments.kairos.pools import first_seed_pools
from tuner.experiments.kairos.search import QUICK_LIMIT, PoolSearch, search_pools, until_best
from tuner.planning.pools.search import SearchResult
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["PoolsTried"]

POLICIES = ("kairos", "ribbon", "clkwrk", "drs")
STORED = ("kairos", 1)
"""The policy and seed with which all pools were measured before."""
UNTIL_BEST, UNTIL_SURE = "until the best is tried", "until none can be better"


@experiment(
    name="kairos-fig10",
    title="Pools that must be tried to find the best for each distribution policy",
    paper="Kairos",
    minutes=6,
)
class PoolsTried(PoolExperiment[PoolSearch, SearchResult]):
    """Searches the best pool of every model under every policy."""

    limit = Scaled[int | None](None, quick=QUICK_LIMIT)
    """Pools that a search tries."""

    def tasks(self) -> list[PoolSearch]:
        return [self._search(model, policy) for model in LABELS for policy in POLICIES]

    def prepare(self) -> None:
        """Read what all pools serve; those of a quick run have other requests."""
        self._stored = {} if self.options.quick else first_seed_pools(self.options.folder)

    def measure(self, task: PoolSearch, seed: int) -> SearchResult:
        known = self._stored.get(task.setting.model, {}) if (task.policy, seed) == STORED else {}
        return search_pools(task, seed, self.rate, known)

    def rows(self, found: Answers[PoolSearch, SearchResult]) -> Iterator[Row]:
        for task, searches in found.items():
            yield from _rows(f"{LABELS[task.setting.model]}, {task.policy}", searches, task.policy)

    def series(self, found: Answers[PoolSearch, SearchResult]) -> Iterator[Series]:
        for panel, count in ((UNTIL_BEST, until_best), (UNTIL_SURE, lambda one: len(one.evaluations))):
            for policy in POLICIES:
                shares = [
                    [100 * count(one) / one.pools for one in found[self._search(model, policy)]]
                    for model in LABELS
                ]
                yield curve(policy, range(len(LABELS)), shares, panel=panel)

    def configuration(self) -> dict[str, Any]:
        return super().configuration() | {"search": "kairos+"}

    def _search(self, model: str, policy: str) -> PoolSearch:
        return PoolSearch(self.setting(model), policy, self.limit)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the shares on a logarithmic axis."""
        figure, axes = style.figure("Pools that Kairos+ tries, of 331", columns=2, sharey=True)
        for axis, panel in zip(axes.flat, (UNTIL_BEST, UNTIL_SURE), strict=True):
            style.bars(axis, list(LABELS.values()), [(one.name, one.y) for one in result.panel(panel)])
            axis.axhline(1, color=style.INK, lw=1, ls="--", label="published for Kairos+: below")
            axis.set(title=panel, yscale="log", ylim=(0.2, 150))
            axis.tick_params(axis="x", labelsize=7)
        axes.flat[0].set_ylabel("of the search space, %")
        style.legend(axes.flat[1], ncols=2, loc="upper left", fontsize=7)
        return [style.Drawing(figure)]


def _rows(name: str, searches: list[SearchResult], policy: str) -> Iterator[Row]:
    best = max(searches, key=lambda one: one.rate)
    names = " ".join(dict.fromkeys(name_of(one.pool) for one in searches if one.pool))
    note = f"best {names}, {best.rate:.4g} requests/s" if best.pool else "none serves anything"
    published = 1.0 if policy == "kairos" else None
    yield row(
        f"{name}: tried {UNTIL_BEST}",
        [100 * until_best(one) / one.pools for one in searches],
        unit="%",
        published=published,
        note=f"{' '.join(str(until_best(one)) for one in searches)} of {best.pools} pools; {note}",
    )
    yield row(
        f"{name}: tried {UNTIL_SURE}",
        [100 * len(one.evaluations) / one.pools for one in searches],
        unit="%",
        published=published,
        note="; ".join(
            f"{len(one.evaluations)} tried, {one.pruned_by_bound} pruned by bound, "
            f"{one.pruned_as_part} as parts"
            for one in searches
        ),
    )
