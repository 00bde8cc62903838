"""Symphony, Figure 4: goodput of deferred over work-conserving batching on a sample of the grid of Table 3.

There are three rivals: ``eager`` goes by deadline; ``undeferred`` is the deferred scheduler that defers
nothing, with its other rules unchanged; ``beta lambda`` is the deferred scheduler whose batches may also go
when they have more than beta * lambda requests, as section 4.3 describes it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tuner.experiments.frame.experiment import Answers, Experiment, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.clusters.microbenchmark import (
    MIXED,
    RATIOS,
    SAMPLE_SEED,
    SHAPES,
    ClusterPoint,
    cases,
    line,
    mixed,
    points,
    rate,
)
from tuner.report import style
from tuner.report.series import Series, curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["DeferredBatching", "make_rows", "make_series", "ratios", "shares_below"]

REQUESTS, SAMPLE_REQUESTS, QUICK_REQUESTS = 40_000.0, 20_000.0, 4_000.0
"""Per trial: of the zoo and the curves with every seed, of the sample with one, of a quick run."""
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "symphony": ("symphony", {}),
    "eager": ("eager", {}),
    "undeferred": ("symphony", {"deferral": 0.0}),
    "beta lambda": ("symphony", {"schedulable": "beta_lambda"}),
}
WORK_CONSERVING = ("eager", "undeferred")
"""Those that the paper's rival may be compared with."""
RIVALS = ("eager", "undeferred", "beta lambda")
PANELS = ("mixed zoo of 35 models", "32 x DenseNet121, 30 and 50 ms", "32 x BERT, 30 ms", "all clusters")
CURVE_POINTS = 400
Ratios = dict[ClusterPoint, list[float]]
"""Of each cluster the ratio of goodputs, per seed."""


class Compared(NamedTuple):
    """One cluster, under all policies."""

    point: ClusterPoint
    requests: float
    """About how many arrive in a trial."""


@experiment(
    name="symphony-fig4",
    title="Goodput of deferred over work-conserving batching on a sample of the grid of Table 3",
    paper="Symphony",
    minutes=6,
)
class DeferredBatching(Experiment[Compared, dict[str, float]]):
    """The goodput of every cluster under every policy, requests/s."""

    first_seed = 1

    def tasks(self) -> list[Compared]:
        """Many clusters are measured with one seed, those of the curves with all."""
        if self.options.quick:
            return [Compared(point, QUICK_REQUESTS) for point in points(quick=True)]
        careful = list(dict.fromkeys([*mixed(), *cases()]))
        rest = [point for point in points(quick=False) if point not in set(careful)]
        return [
            *(Compared(point, SAMPLE_REQUESTS) for point in rest),
            *(Compared(point, REQUESTS) for point in careful),
        ]

    def seeds_of(self, task: Compared) -> Sequence[int]:
        return (self.first_seed,) if task.requests == SAMPLE_REQUESTS else super().seeds_of(task)

    def measure(self, task: Compared, seed: int) -> dict[str, float]:
        return {
            name: round(rate(task.point, policy, options, requests=task.requests, seed=seed), 1)
            for name, (policy, options) in POLICIES.items()
        }

    def rows(self, found: Answers[Compared, dict[str, float]]) -> list[Row]:
        return make_rows(_over_rivals(found))

    def series(self, found: Answers[Compared, dict[str, float]]) -> list[Series]:
        return make_series(_over_rivals(found))

    def configuration(self) -> dict[str, Any]:
        tasks = self.tasks()
        return {
            "clusters": len(tasks),
            "sampled": sum(task.requests == SAMPLE_REQUESTS for task in tasks),
            "requests": max(task.requests for task in tasks),
            "requests, sampled": SAMPLE_REQUESTS,
            "sample seed": SAMPLE_SEED,
        }

    def details(self, found: Answers[Compared, dict[str, float]]) -> dict[str, Any]:
        return {"clusters": [line(task.point, **one) for task, seeds in found.items() for one in seeds]}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the ratio for the paper's four groups of clusters."""
        title = "Goodput of deferred batching over that of its rivals"
        figure, axes = style.figure(title, rows=2, columns=2, size=(8.4, 6.0))
        for place, (axis, panel) in enumerate(zip(axes.flat, PANELS, strict=True)):
            for one in result.panel(panel):
                color = style.look("", _color(one.name)).color
                dashes, marker = ("--", "s") if _second(one.name) else ("-", "o")
                marker = "" if panel == PANELS[3] else marker
                axis.plot(one.x, one.y, color=color, ls=dashes, marker=marker, ms=4, label=one.name)
            _label(axis, place)
        return [style.Drawing(figure)]


def _label(axis: Axes, place: int) -> None:
    """Label a panel; its legend has room above the curves, or below the distributions of the last."""
    drawn, last = bool(axis.lines), place == 3
    if last:
        axis.axvline(1, color=style.MUTED, lw=1)
        axis.set(xlabel="ratio of goodputs", ylabel="share of clusters below", ylim=(0, 1))
    else:
        axis.axhline(1, color=style.MUTED, lw=1)
        gaps = "shape of gaps (1: Poisson, less: burstier)"
        axis.set(xlabel=gaps if place else "accelerators per model", ylabel="ratio of goodputs")
        low, high = axis.get_ylim()
        axis.set_ylim(low, high + 0.3 * (high - low))
    axis.set_title(PANELS[place])
    if drawn:
        where = "lower right" if last else "upper left"
        style.legend(axis, loc=where, fontsize=6.5, ncols=2 if place < 2 else 1)


def _over_rivals(found: Answers[Compared, dict[str, float]]) -> dict[str, Ratios]:
    rates = {task.point: answers for task, answers in found.items()}
    return {rival: ratios(rates, "symphony", rival) for rival in RIVALS}


def ratios(rates: dict[ClusterPoint, list[dict[str, float]]], ours: str, theirs: str) -> Ratios:
    """Return the ratio of two policies' goodputs per cluster and seed."""
    return {point: [one[ours] / one[theirs] for one in seeds] for point, seeds in rates.items()}


class ClusterGroup(NamedTuple):
    """Clusters that the text of the paper gives figures for."""

    name: str
    belongs: Callable[[ClusterPoint], bool]
    low: float | None = None
    """Published least and greatest ratio."""
    high: float | None = None
    note: str = ""


GROUPS = (
    ClusterGroup("all clusters", lambda point: True),  # noqa: ARG005
    ClusterGroup("mixed zoo", lambda point: point.model == MIXED, 1.34, 1.89),
    ClusterGroup(
        "DenseNet121 at 30 ms", lambda point: point[0] == "DenseNet121" and point.slo_ms == 30, 1.14, 2.52
    ),
    ClusterGroup("BERT", lambda point: point.model == "BERT", note="published: similar"),
)


def make_rows(over: dict[str, Ratios]) -> list[Row]:
    """Return the figures that the text of the paper gives, over each rival."""
    rows = []
    for rival, found in over.items():
        middle = {point: statistics.median(values) for point, values in found.items()}
        published = rival in WORK_CONSERVING
        for group in GROUPS:
            values = [value for point, value in middle.items() if group.belongs(point)]
            if values:
                rows += _group(rival, group, values, published)
        rows += _shares(rival, list(middle.values()), published)
    return rows


def _group(rival: str, group: ClusterGroup, values: Sequence[float], published: bool) -> list[Row]:
    """The median over the clusters of a group, and the extremes where the paper gives them."""
    name = f"over {rival}: {group.name}"
    notes = [f"{len(values)} cluster{'s' * (len(values) != 1)}", group.note * published]
    rows = [row(name, values, unit="ratio", note="; ".join(note for note in notes if note))]
    if published and group.low is not None:
        for end, given, value in (("least", group.low, min(values)), ("greatest", group.high, max(values))):
            rows.append(Row(id=f"{name}, {end}", published=given, measured=round(value, 4), unit="ratio"))
    return rows


def _shares(rival: str, values: Sequence[float], published: bool) -> list[Row]:
    """How many clusters lie above a ratio."""
    given = {0.95: "published: nearly all", 1.5: "published: more than 0.1"}
    return [
        Row(
            id=f"over {rival}: share of ratios >= {limit:g}",
            measured=round(sum(value >= limit for value in values) / len(values), 4),
            unit="of the clusters",
            note=text * published,
        )
        for limit, text in given.items()
    ]


def make_series(over: dict[str, Ratios]) -> list[Series]:
    """Return the curves of the four panels."""
    series: list[Series] = []
    for rival, found in over.items():
        for shape in (1.0, 0.3):
            _add(
                series,
                f"over {rival}, {_burst(shape)}",
                PANELS[0],
                [(p.ratio, found[p]) for p in found if p.model == MIXED and p.shape == shape],
                RATIOS,
            )
        for panel, name, slo in (
            (PANELS[1], "DenseNet121", 30),
            (PANELS[1], "DenseNet121", 50),
            (PANELS[2], "BERT", 30),
        ):
            chosen = [ClusterPoint(name, 32, 2.0, slo, shape) for shape in SHAPES]
            label = f"over {rival}, {slo} ms" if name != "BERT" else f"over {rival}"
            _add(series, label, panel, [(p.shape, found[p]) for p in chosen if p in found], SHAPES)
        middles = [statistics.median(values) for values in found.values()]
        series.append(shares_below(f"over {rival}", PANELS[3], middles))
    return series


def shares_below(name: str, panel: str, values: Sequence[float]) -> Series:
    """Return a curve of the share of values below, with as many points as look the same."""
    count = min(len(values), CURVE_POINTS)
    shares = (np.arange(count) + 0.5) / count
    return Series(
        name=name, panel=panel, x=np.quantile(values, shares).round(5).tolist(), y=shares.round(5).tolist()
    )


def _add(
    series: list[Series],
    name: str,
    panel: str,
    found: Sequence[tuple[float, list[float]]],
    order: Sequence[float],
) -> None:
    """Add a curve if there is something to draw."""
    known = dict(found)
    x = [value for value in order if value in known]
    if x:
        series.append(curve(name, x, [known[value] for value in x], panel=panel))


def _burst(shape: float) -> str:
    return "Poisson" if shape == 1.0 else f"gamma({shape:g})"


def _color(name: str) -> int:
    return next(number for number, rival in enumerate(RIVALS) if name.startswith(f"over {rival}"))


def _second(name: str) -> bool:
    return name.endswith(("gamma(0.3)", "50 ms"))
