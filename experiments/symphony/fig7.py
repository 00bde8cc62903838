"""Symphony, Figure 7: goodput of 20 equal models on 32 accelerators against the SLO, for four workloads."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import NamedTuple

from tuner.cluster.goodput import capacity, goodput
from tuner.cluster.scenario import Scenario, Session
from tuner.experiments.frame.options import Options
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.microbenchmark import NETWORK
from tuner.experiments.zoo import GTX_1080TI, model
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["plot", "run"]

NAME = "symphony-fig7"
MODEL = model("ResNet50", GTX_1080TI)
MODELS, ACCELERATORS = 20, 32
SLOS = (15, 20, 25, 30, 40, 50, 75, 100)  # ms
POPULARITIES = {"equally popular": "equal", "Zipf 0.9": "zipf:0.9"}
ARRIVALS = {"Poisson": "poisson", "gamma 0.05": "gamma:0.05"}
POLICIES = ("symphony", "eager", "nexus", "clockwork")
REQUESTS, QUICK_REQUESTS = 100_000.0, 10_000.0
TIGHT, LOOSE = 25, 100
"""ms, of the rows."""


class Task(NamedTuple):
    """One point with one seed."""

    popularity: str
    arrivals: str
    slo_ms: int
    policy: str
    requests: float
    seed: int


Rates = dict[tuple[str, str, int, str], list[float]]
"""Goodput per popularity, arrivals, SLO and policy, of each seed, requests/s."""


def run(options: Options) -> Result:
    """Measure the goodput of every workload under every policy."""
    requests = QUICK_REQUESTS if options.quick else REQUESTS
    slos = (TIGHT, LOOSE) if options.quick else SLOS
    tasks = [
        Task(*setting, requests, seed)
        for setting in product(POPULARITIES, ARRIVALS, slos, POLICIES)
        for seed in range(1, options.seeds + 1)
    ]
    rates: Rates = {}
    for task, found in zip(tasks, options.run_all(measure, tasks, "points and seeds"), strict=True):
        rates.setdefault((task.popularity, task.arrivals, task.slo_ms, task.policy), []).append(found)
    return Result(
        experiment=NAME,
        seeds=options.seeds,
        configuration={"models": MODELS, "accelerators": ACCELERATORS, "requests": requests},
        rows=make_rows(rates),
        series=make_series(rates, slos),
    )


def scenario(task: Task) -> Scenario:
    """Return the cluster of a task."""
    session = Session(
        name=MODEL.name,
        alpha_ms=MODEL.alpha_ms,
        beta_ms=MODEL.beta_ms,
        slo_ms=float(task.slo_ms),
        arrival=ARRIVALS[task.arrivals],
        copies=MODELS,
    )
    empty = Scenario(
        policy=task.policy,
        accelerators=ACCELERATORS,
        rate=1000.0,
        popularity=POPULARITIES[task.popularity],
        sessions=(session,),
        network=NETWORK,
        warmup_seconds=1.0,
        seed=task.seed,
    )
    return empty.model_copy(update={"seconds": task.requests / capacity(empty)})


def measure(task: Task) -> float:
    """Return the goodput: at most 1 % of the requests of each model are bad, requests/s."""
    return round(goodput(scenario(task)).rate, 1)


def make_rows(rates: Rates) -> list[Row]:
    """Return the goodputs at a tight and at a loose SLO."""
    return [
        row(f"{popularity}, {arrivals}, {slo} ms: {policy}", values, unit="requests/s")
        for (popularity, arrivals, slo, policy), values in rates.items()
        if slo in (TIGHT, LOOSE)
    ]


def make_series(rates: Rates, slos: tuple[int, ...]) -> list[Series]:
    """Return a curve per workload and policy."""
    return [
        curve(
            policy,
            slos,
            [rates[popularity, arrivals, slo, policy] for slo in slos],
            panel=_panel(popularity, arrivals),
        )
        for popularity, arrivals, policy in product(POPULARITIES, ARRIVALS, POLICIES)
    ]


def _panel(popularity: str, arrivals: str) -> str:
    return f"{popularity}, {arrivals}"


def plot(result: Result, folder: Path) -> list[Path]:
    """Draw the goodput against the SLO, a panel for each workload."""
    title = f"Goodput of {MODELS} models like ResNet50 on {ACCELERATORS} accelerators"
    figure, axes = style.figure(title, rows=2, columns=2, sharex=True, sharey=True)
    for axis, (popularity, arrivals) in zip(axes.flat, product(POPULARITIES, ARRIVALS), strict=True):
        panel = _panel(popularity, arrivals)
        style.curves(axis, result.panel(panel))
        axis.set(title=panel, ylim=(0, None))
    for axis in axes[-1]:
        axis.set_xlabel("SLO, ms")
    for axis in axes[:, 0]:
        axis.set_ylabel("goodput, requests/s")
    style.legend(axes[0, 0], loc="lower right")
    return [style.save(figure, folder, NAME)]
