"""Symphony, Figure 4: goodput of deferred over work-conserving batching on a sample of the grid of Table 3.

There are three rivals: ``eager`` goes by deadline; ``undeferred`` is the deferred scheduler that defers
nothing, with its other rules unchanged; ``beta lambda`` is the deferred scheduler whose batches may also go
when they have more than beta * lambda requests, as section 4.3 describes it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.microbenchmark import (
    MIXED,
    RATIOS,
    SAMPLE_SEED,
    SHAPES,
    Point,
    cases,
    line,
    mixed,
    points,
    rate,
)
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["plot", "run"]

NAME = "symphony-fig4"
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
Ratios = dict[Point, list[float]]
"""Of each cluster the ratio of goodputs, per seed."""


class Task(NamedTuple):
    """One cluster with one seed, under all policies."""

    point: Point
    requests: float
    seed: int


def run(options: Options) -> Result:
    """Measure the goodput of every cluster under every policy."""
    tasks = make_tasks(options)
    rates: dict[Point, list[dict[str, float]]] = {}
    for task, found in zip(tasks, options.run_all(measure, tasks, "clusters and seeds"), strict=True):
        rates.setdefault(task.point, []).append(found)
    over = {rival: ratios(rates, "symphony", rival) for rival in RIVALS}
    details = [line(point, **one) for point, seeds in rates.items() for one in seeds]
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration={
            "clusters": len(rates),
            "sampled": len([task for task in tasks if task.requests == SAMPLE_REQUESTS]),
            "requests": max(task.requests for task in tasks),
            "requests, sampled": SAMPLE_REQUESTS,
            "sample seed": SAMPLE_SEED,
        },
        rows=make_rows(over),
        series=make_series(over),
        details={"clusters": details},
    )


def make_tasks(options: Options) -> list[Task]:
    """Return what is measured: many clusters with one seed, those of the curves with several."""
    seeds = range(1, options.seeds + 1)
    if options.quick:
        return [Task(point, QUICK_REQUESTS, seed) for point in points(quick=True) for seed in seeds]
    careful = list(dict.fromkeys([*mixed(), *cases()]))
    rest = [Task(point, SAMPLE_REQUESTS, 1) for point in points(quick=False) if point not in set(careful)]
    return [*rest, *(Task(point, REQUESTS, seed) for point in careful for seed in seeds)]


def measure(task: Task) -> dict[str, float]:
    """Return the goodput under every policy, requests/s."""
    return {
        name: round(rate(task.point, policy, options, requests=task.requests, seed=task.seed), 1)
        for name, (policy, options) in POLICIES.items()
    }


def ratios(rates: dict[Point, list[dict[str, float]]], ours: str, theirs: str) -> Ratios:
    """Return the ratio of two policies' goodputs per cluster and seed."""
    return {point: [one[ours] / one[theirs] for one in seeds] for point, seeds in rates.items()}


class Group(NamedTuple):
    """Clusters that the text of the paper gives figures for."""

    name: str
    belongs: Callable[[Point], bool]
    low: float | None = None
    """Published least and greatest ratio."""
    high: float | None = None
    note: str = ""


GROUPS = (
    Group("all clusters", lambda point: True),  # noqa: ARG005
    Group("mixed zoo", lambda point: point.model == MIXED, 1.34, 1.89),
    Group("DenseNet121 at 30 ms", lambda point: point[0] == "DenseNet121" and point.slo_ms == 30, 1.14, 2.52),
    Group("BERT", lambda point: point.model == "BERT", note="published: similar"),
)


def make_rows(over: dict[str, Ratios]) -> list[Row]:
    """Return the figures that the text of the paper gives, over each rival."""
    rows = []
    for rival, found in over.items():
        middle = {point: statistics.median(values) for point, values in found.items()}
        told = rival in WORK_CONSERVING
        for group in GROUPS:
            values = [value for point, value in middle.items() if group.belongs(point)]
            if values:
                rows += _group(rival, group, values, told)
        rows += _shares(rival, list(middle.values()), told)
    return rows


def _group(rival: str, group: Group, values: Sequence[float], told: bool) -> list[Row]:
    """The median over the clusters of a group, and the extremes where the paper gives them."""
    name = f"over {rival}: {group.name}"
    notes = [f"{len(values)} cluster{'s' * (len(values) != 1)}", group.note * told]
    rows = [row(name, values, unit="ratio", note="; ".join(note for note in notes if note))]
    if told and group.low is not None:
        for end, given, value in (("least", group.low, min(values)), ("greatest", group.high, max(values))):
            rows.append(Row(id=f"{name}, {end}", published=given, measured=round(value, 4), unit="ratio"))
    return rows


def _shares(rival: str, values: Sequence[float], told: bool) -> list[Row]:
    """How many clusters lie above a ratio."""
    given = {0.95: "published: nearly all", 1.5: "published: more than 0.1"}
    return [
        Row(
            id=f"over {rival}: share of ratios >= {limit:g}",
            measured=round(sum(value >= limit for value in values) / len(values), 4),
            unit="of the clusters",
            note=text * told,
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
            chosen = [Point(name, 32, 2.0, slo, shape) for shape in SHAPES]
            label = f"over {rival}, {slo} ms" if name != "BERT" else f"over {rival}"
            _add(series, label, panel, [(p.shape, found[p]) for p in chosen if p in found], SHAPES)
        middles = [statistics.median(values) for values in found.values()]
        series.append(shares_below(f"over {rival}", PANELS[3], middles))
    return series


def shares_below(name: str, panel: str, values: Sequence[float]) -> Series:
    """Return a curve of the share of values below, at most of so many points that it looks the same."""
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


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the ratio for the paper's four groups of clusters."""
    title = "Goodput of deferred batching over that of its rivals"
    figure, axes = style.figure(title, rows=2, columns=2, size=(8.4, 6.0))
    labels = ("accelerators per model", "shape of gaps (1: Poisson, less: burstier)") * 2
    for place, (axis, panel) in enumerate(zip(axes.flat, PANELS, strict=True)):
        for one in result.panel(panel):
            color = style.look("", _color(one.name)).color
            line, marker = ("--", "s") if _second(one.name) else ("-", "o")
            ends = place == 3
            axis.plot(one.x, one.y, color=color, ls=line, marker="" if ends else marker, ms=4, label=one.name)
        if place == 3:
            axis.axvline(1, color=style.MUTED, lw=1)
            axis.set(title=panel, xlabel="ratio of goodputs", ylabel="share of clusters below", ylim=(0, 1))
        else:
            axis.axhline(1, color=style.MUTED, lw=1)
            axis.set(title=panel, xlabel=labels[0 if place == 0 else 1], ylabel="ratio of goodputs")
            low, high = axis.get_ylim()
            axis.set_ylim(low, high + 0.3 * (high - low))  # room for the legend
        if result.panel(panel):
            style.legend(
                axis,
                loc="lower right" if place == 3 else "upper left",
                fontsize=6.5,
                ncols=2 if place < 2 else 1,
            )
    return [style.save(figure, folder, NAME)]


def _color(name: str) -> int:
    return next(number for number, rival in enumerate(RIVALS) if name.startswith(f"over {rival}"))


def _second(name: str) -> bool:
    return name.endswith(("gamma(0.3)", "50 ms"))
