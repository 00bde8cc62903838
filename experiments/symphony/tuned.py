"""Symphony, Table 3 tuned: the scheduler's knobs chosen for each cluster, against symphony and eager.

For every cluster of the sample a few configurations of the knobs (:mod:`tuner.scheduling.knobs`) are tried
on the arrivals of one seed. The one with the highest goodput is then measured on other seeds, beside the
deferred scheduler as it is and the eager one. There are two choices: among the first knobs, and with the
dispatch order, a later one, too.

Of many clusters some fall below a limit by chance. One that does is tuned and measured once more, on other
arrivals and more of them, and that counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.clusters.microbenchmark import (
    MIXED,
    MODELS,
    ClusterPoint,
    keeps,
    line,
    points,
    rate,
)
from tuner.experiments.symphony.fig4 import shares_below
from tuner.report import style
from tuner.report.series import Series
from tuner.scheduling.knobs import DROP_RULES

__all__ = ["ToTune", "TunedCluster", "TunedKnobs"]

TRAIN_SEED = 1000
WORTH = 1.002
"""A configuration must be this much better than one before it to be chosen."""
FINE = 0.002
"""Tolerance of the goodputs that count."""
ALLOWED = 0.99
"""The tuned scheduler should be nowhere below this share of the better rival."""
DOUBTFUL = 0.995
"""Clusters below this share are measured again."""
AGAIN = 4
"""How many times the requests these have then, with the next seeds."""
KNOBS = ("deferral", "target_batch", "drop")
CHOICES: tuple[tuple[float, bool, str], ...] = (
    (1.0, True, "window"),  # the defaults
    (0.0, True, "lazy"),  # as eager as can be
    (1.0, True, "lazy"),
    (1.0, False, "window"),
    (1.0, False, "early"),
    (0.5, True, "lazy"),
    (0.5, True, "window"),
    (0.5, False, "early"),
    (0.0, True, "window"),
    (0.0, False, "early"),
)
ORDERED = ((0.0, True, "lazy"), (1.0, True, "lazy"), (0.5, True, "lazy"))
"""Those that are also tried with the dispatch order by deadline; the first is then what eager does."""
PANELS = ("gain over symphony", "against the better of the two")


class ToTune(NamedTuple):
    """One cluster."""

    point: ClusterPoint
    train_requests: float
    requests: float
    seeds: int


class TunedCluster(NamedTuple):
    """What is known of one cluster; rates are medians over the seeds, requests/s."""

    point: ClusterPoint
    tuned: float
    reordered: float
    """With the dispatch order chosen, too."""
    symphony: float
    eager: float
    knobs: dict[str, Any]
    options: dict[str, Any]
    """The second choice."""
    again: bool = False
    """Whether this is the second measurement."""

    @property
    def better(self) -> float:
        """Goodput of the better rival, requests/s."""
        return max(self.symphony, self.eager)


def candidates() -> list[dict[str, Any]]:
    """Return the configurations of the knobs that are tried, the defaults first."""
    assert all(rule in DROP_RULES for *_, rule in CHOICES)
    return [dict(zip(KNOBS, choice, strict=True)) for choice in CHOICES]


def reordered() -> list[dict[str, Any]]:
    """Return the configurations with another dispatch order."""
    return [{**dict(zip(KNOBS, choice, strict=True)), "order": "deadline"} for choice in ORDERED]


@experiment(
    name="symphony-tuned",
    title="The scheduler's knobs tuned for each of these clusters, against symphony and eager",
    paper="Symphony",
    minutes=60,
)
class TunedKnobs(Experiment[ClusterPoint, TunedCluster]):
    """Tunes the knobs for every cluster, and measures the choice on other seeds."""

    train_requests = Scaled(20_000.0, quick=4_000.0)
    requests = Scaled(40_000.0, quick=4_000.0)

    def tasks(self) -> list[ClusterPoint]:
        return points(self.options.quick)

    def seeds_of(self, _: ClusterPoint) -> Sequence[int]:
        """Each cluster is tuned once, and that takes several seeds."""
        return (0,)

    def measure(self, point: ClusterPoint, _: int) -> TunedCluster:
        return tune(ToTune(point, self.train_requests, self.requests, self.options.seeds))

    def rows(self, found: Answers[ClusterPoint, TunedCluster]) -> list[Row]:
        return make_rows([one for (one,) in found.values()])

    def series(self, found: Answers[ClusterPoint, TunedCluster]) -> list[Series]:
        return make_series([one for (one,) in found.values()])

    def configuration(self) -> dict[str, Any]:
        return {
            "clusters": len(self.tasks()),
            "requests": self.requests,
            "tried on": self.train_requests,
        }

    def details(self, found: Answers[ClusterPoint, TunedCluster]) -> dict[str, Any]:
        return {
            "clusters": [describe(one) for (one,) in found.values()],
            "measured again": sum(one.again for (one,) in found.values()),
        }

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw how the ratios are distributed."""
        figure, axes = style.figure(
            "The scheduler's knobs, tuned for each cluster on other arrivals than it is measured on",
            columns=2,
            size=(9.5, 3.9),
        )
        labels = ("goodput over that of symphony", "goodput over that of the better of symphony and eager")
        for axis, panel, label in zip(axes.flat, PANELS, labels, strict=True):
            for one in result.panel(panel):
                dashed = "order" in one.name
                color = style.look(one.name).color
                axis.plot(one.x, one.y, color=color, ls="--" if dashed else "-", lw=1.6, label=one.name)
            axis.axvline(1, color=style.MUTED, lw=1)
            axis.set(title=panel, xlabel=label, ylabel="share of clusters below", ylim=(0, 1))
            style.legend(axis, loc="best")
        return [style.Drawing(figure)]


def tune(task: ToTune) -> TunedCluster:
    """Choose on one seed, measure on others; where the result is doubtful, once more with new ones."""
    found = attempt(task, TRAIN_SEED, range(1, task.seeds + 1))
    if found.reordered >= DOUBTFUL * found.better:
        return found
    more = task._replace(train_requests=AGAIN * task.train_requests, requests=AGAIN * task.requests)
    seeds = range(task.seeds + 1, 2 * task.seeds + 1)
    return attempt(more, TRAIN_SEED + 1, seeds)._replace(again=True)


def attempt(task: ToTune, train_seed: int, seeds: range) -> TunedCluster:
    """Choose on one seed, measure on others."""
    point = task.point
    knobs, free = choose(point, task.train_requests, train_seed)
    known: dict[str, float] = {}

    def measured(policy: str, options: dict[str, Any]) -> float:
        key = f"{policy} {options}"
        if key not in known:
            known[key] = statistics.median(
                rate(point, policy, options, requests=task.requests, seed=seed, tolerance=FINE)
                for seed in seeds
            )
        return round(known[key], 1)

    return TunedCluster(
        point=point,
        tuned=measured("symphony", knobs),
        reordered=measured("symphony", free),
        symphony=measured("symphony", candidates()[0]),
        eager=measured("eager", {}),
        knobs=knobs,
        options=free,
    )


def choose(point: ClusterPoint, requests: float, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the best configuration of the first knobs, and the best of all.

    One after the other: a later one takes the place of the best so far if it keeps the limit at a rate that
    is clearly higher; only then its own goodput is searched.
    """
    tried = candidates() + reordered()
    best, goodput = tried[0], rate(point, "symphony", tried[0], requests=requests, seed=seed)
    choices = []
    for place, options in enumerate(tried[1:], 1):
        if place == len(CHOICES):
            choices.append(best)
        aim = WORTH * goodput
        if keeps(point, "symphony", options, aim, requests=requests, seed=seed):
            best = options
            goodput = max(aim, rate(point, "symphony", options, requests=requests, seed=seed))
    return choices[0], best


def describe(one: TunedCluster) -> str:
    """Return all that is known of a cluster in a line."""
    rates = {
        "tuned": one.tuned,
        "with its order": one.reordered,
        "symphony": one.symphony,
        "eager": one.eager,
    }
    knobs, options = (" ".join(map(str, each.values())) for each in (one.knobs, one.options))
    return line(one.point, **rates, knobs=knobs, free=options, **({"measured": "again"} if one.again else {}))


def make_rows(found: Sequence[TunedCluster]) -> list[Row]:
    """Return what the tuning is worth."""
    rows: list[Row] = []
    for name, values in (
        ("tuned", [one.tuned for one in found]),
        ("tuned with its dispatch order", [one.reordered for one in found]),
    ):
        pairs = list(zip(values, found, strict=True))
        below = [value / one.better for value, one in pairs]
        count = sum(value < ALLOWED for value in below)
        rows += [
            row(f"{name} over symphony", [value / one.symphony for value, one in pairs], unit="ratio"),
            row(f"{name} over eager", [value / one.eager for value, one in pairs], unit="ratio"),
            row(
                f"{name} over the better of the two",
                below,
                unit="ratio",
                note=f"{count} of {len(found):,} clusters below {ALLOWED:g}; {_where(found, below)}",
            ),
        ]
    for name in (*MODELS, MIXED):
        values = [one.tuned / one.symphony for one in found if one.point.model == name]
        if values:
            rows.append(row(f"tuned over symphony: {name}", values, unit="ratio"))
    return rows


def _where(found: Sequence[TunedCluster], below: Sequence[float]) -> str:
    """Name the cluster with the least ratio."""
    point = found[int(np.argmin(below))].point
    slo = f" at {point.slo_ms} ms" if point.slo_ms else ""
    return (
        f"least for {point.number} x {point.model}{slo}, {point.accelerators} accelerators, "
        f"gamma({point.shape:g})"
    )


def make_series(found: Sequence[TunedCluster]) -> list[Series]:
    """Return the sorted ratios: per curve and panel the share of clusters below."""
    curves = {
        PANELS[0]: {
            "tuned": [one.tuned / one.symphony for one in found],
            "tuned with its dispatch order": [one.reordered / one.symphony for one in found],
            "eager": [one.eager / one.symphony for one in found],
        },
        PANELS[1]: {
            "tuned": [one.tuned / one.better for one in found],
            "symphony": [one.symphony / one.better for one in found],
            "eager": [one.eager / one.better for one in found],
        },
    }
    return [
        shares_below(name, panel, values) for panel, named in curves.items() for name, values in named.items()
    ]
