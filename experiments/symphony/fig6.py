"""Symphony, Figure 6: goodput of the mixed model zoos on 64 accelerators, under each system's scheduler."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tuner.cluster.goodput import capacity, goodput
from tuner.cluster.scenario import Scenario, Session
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.microbenchmark import NETWORK
from tuner.experiments.zoo import A100, GTX_1080TI, Model, strong, weak
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["plot", "run"]

NAME = "symphony-fig6"
ACCELERATORS = 64
REQUESTS, QUICK_REQUESTS = 200_000.0, 20_000.0
ZOOS = {"1080Ti": GTX_1080TI, "A100": A100}
SETS = ("all", "gt2", "lt2")
SYSTEMS = {  # name -> policy and frontends
    "symphony": ("symphony", 1),
    "eager": ("eager", 1),
    "nexus, 1 frontend": ("nexus", 1),
    "nexus, 8 frontends": ("nexus", 8),
    "clockwork": ("clockwork", 1),
}
BASELINES = ("nexus, 1 frontend", "nexus, 8 frontends", "clockwork")
PUBLISHED = {  # (zoo, models) -> symphony over the best baseline
    ("1080Ti", "gt2"): 3.5,
    ("A100", "gt2"): 5.7,
    ("1080Ti", "lt2"): 1.23,
    ("A100", "lt2"): 1.10,
}
TOLD = "published for both zoos: 2 to 2.4"


class Task(NamedTuple):
    """One bar with one seed."""

    zoo: str
    models: str
    system: str
    requests: float
    seed: int


Rates = dict[tuple[str, str, str], list[tuple[float, float]]]
"""Goodput per zoo, models and system, of each seed: for every model, and overall, requests/s."""


def run(options: Options) -> Result:
    """Measure the goodput of every zoo under every system."""
    requests = QUICK_REQUESTS if options.quick else REQUESTS
    tasks = [
        Task(zoo, models, system, requests, seed)
        for zoo in ZOOS
        for models in SETS
        for system in SYSTEMS
        for seed in range(1, options.seeds + 1)
    ]
    rates: Rates = {}
    for task, found in zip(tasks, options.run_all(measure, tasks, "bars and seeds"), strict=True):
        rates.setdefault((task.zoo, task.models, task.system), []).append(found)
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration={"accelerators": ACCELERATORS, "requests": requests},
        rows=make_rows(rates),
        series=make_series(rates),
    )


def chosen(zoo: str, models: str) -> tuple[Model, ...]:
    """Return the models of a bar."""
    everything = ZOOS[zoo]
    return {"all": everything, "gt2": strong(everything), "lt2": weak(everything)}[models]


def scenario(task: Task) -> Scenario:
    """Return the cluster of a task; all models are equally popular and arrivals are Poisson."""
    policy, frontends = SYSTEMS[task.system]
    sessions = tuple(
        Session(name=one.name, alpha_ms=one.alpha_ms, beta_ms=one.beta_ms, slo_ms=float(one.slo_ms))
        for one in chosen(task.zoo, task.models)
    )
    empty = Scenario(
        policy=policy,
        frontends=frontends,
        accelerators=ACCELERATORS,
        rate=1000.0,
        sessions=sessions,
        network=NETWORK,
        warmup_seconds=1.0,
        seed=task.seed,
    )
    return empty.model_copy(update={"seconds": task.requests / capacity(empty)})


def measure(task: Task) -> tuple[float, float]:
    """Return the goodput: at most 1 % are bad of the requests of each model, and of all, requests/s."""
    cluster = scenario(task)
    return round(goodput(cluster).rate, 1), round(goodput(cluster, overall=True).rate, 1)


def make_rows(rates: Rates) -> list[Row]:
    """Return the goodputs, symphony's over the best of the paper's baselines, and what frontends cost."""
    rows = []
    for zoo in ZOOS:
        for models in SETS:
            name = f"{zoo}, {models}"
            every = {system: [one for one, _ in rates[zoo, models, system]] for system in SYSTEMS}
            overall = {system: [one for _, one in rates[zoo, models, system]] for system in SYSTEMS}
            published = PUBLISHED.get((zoo, models))
            told = TOLD if models == "all" else ""
            rows.append(_gain(f"{name}: symphony over the best baseline", every, published, told))
            rows.append(_gain(f"{name}: the same, 1 % of all requests", overall, published, told))
            rows.append(_loss(f"{name}: loss from 8 frontends", every, overall))
            rows += [row(f"{name}: {system}", values, unit="requests/s") for system, values in every.items()]
    return rows


def _gain(name: str, rates: dict[str, list[float]], published: float | None, told: str) -> Row:
    best = max(BASELINES, key=lambda system: statistics.median(rates[system]))
    values = [ours / theirs for ours, theirs in zip(rates["symphony"], rates[best], strict=True)]
    note = "; ".join(text for text in (f"best baseline: {best}", told) if text)
    return row(name, values, unit="ratio", published=published, note=note)


def _loss(name: str, every: dict[str, list[float]], overall: dict[str, list[float]]) -> Row:
    one, many = BASELINES[:2]
    losses = [[1 - b / a for a, b in zip(rates[one], rates[many], strict=True)] for rates in (every, overall)]
    note = f"{statistics.median(losses[1]):.0%} where 1 % of all requests may be bad; published 11 % to 45 %"
    return row(name, losses[0], unit="of the goodput of nexus", note=note)


def make_series(rates: Rates) -> list[Series]:
    """Return the bars: per zoo and system a height for each set of models."""
    places: Sequence[float] = range(len(SETS))
    return [
        curve(
            system,
            places,
            [[every for every, _ in rates[zoo, models, system]] for models in SETS],
            panel=zoo,
        )
        for zoo in ZOOS
        for system in SYSTEMS
    ]


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the bars of both zoos."""
    figure, axes = style.figure(
        f"Goodput of the model zoos on {ACCELERATORS} accelerators", columns=2, size=(10, 4)
    )
    for axis, zoo in zip(axes.flat, ZOOS, strict=True):
        labels = [f"{models}\n{len(chosen(zoo, models))} models" for models in SETS]
        style.bars(axis, labels, [(one.name, one.y) for one in result.panel(zoo)])
        count = len(SETS)
        start = list(SYSTEMS).index("nexus, 8 frontends") * count
        for bar in axis.patches[start : start + count]:
            bar.set_alpha(0.45)
        axis.set(title=f"{zoo}: Table {5 if zoo == '1080Ti' else 6}", ylabel="goodput, requests/s")
        style.legend(axis, loc="upper left" if zoo == "A100" else "best")
    return [style.save(figure, folder, NAME)]
