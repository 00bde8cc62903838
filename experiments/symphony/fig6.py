"""Symphony, Figure 6: goodput of the mixed model zoos on 64 accelerators, under each system's scheduler."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from tuner.cluster.goodput import Good, goodput
from tuner.cluster.scenario import Scenario
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import A100, GTX_1080TI, Model, strong, weak, zoo_scenario
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["Bar", "ZooGoodput", "ZooRates", "chosen", "scenario"]

ACCELERATORS = 64
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
IN_TEXT = "published for both zoos: 2 to 2.4"


class Bar(NamedTuple):
    """One bar of the figure: models of a zoo under a system."""

    zoo: str
    models: str
    system: str


class ZooRates(NamedTuple):
    """The highest rates with at most 1 % bad requests of every model, and of all together, requests/s."""

    each: float
    overall: float


@experiment(
    name="symphony-fig6",
    title="Goodput of the mixed model zoos on 64 accelerators",
    paper="Symphony",
    minutes=1,
)
class ZooGoodput(Experiment[Bar, ZooRates]):
    """The goodput of every zoo under every system."""

    first_seed = 1
    requests = Scaled(200_000.0, quick=20_000.0)

    def tasks(self) -> list[Bar]:
        return [Bar(*each) for each in product(ZOOS, SETS, SYSTEMS)]

    def measure(self, task: Bar, seed: int) -> ZooRates:
        cluster = scenario(task, self.requests, seed)
        return ZooRates(
            round(goodput(cluster).rate, 1), round(goodput(cluster, good=Good(overall=True)).rate, 1)
        )

    def rows(self, found: Answers[Bar, ZooRates]) -> Iterator[Row]:
        """Symphony's goodput over that of the best of the paper's baselines, what frontends cost, and all."""
        for zoo, models in product(ZOOS, SETS):
            name = f"{zoo}, {models}"
            answers = {system: found[Bar(zoo, models, system)] for system in SYSTEMS}
            each = {system: [answer.each for answer in some] for system, some in answers.items()}
            overall = {system: [answer.overall for answer in some] for system, some in answers.items()}
            published = PUBLISHED.get((zoo, models))
            note = IN_TEXT if models == "all" else ""
            yield _gain(f"{name}: symphony over the best baseline", each, published, note)
            yield _gain(f"{name}: the same, 1 % of all requests", overall, published, note)
            yield _loss(f"{name}: loss from 8 frontends", each, overall)
            for system, rates in each.items():
                yield row(f"{name}: {system}", rates, unit="requests/s")

    def series(self, found: Answers[Bar, ZooRates]) -> Iterator[Series]:
        """A height for each set of models, per zoo and system."""
        for zoo, system in product(ZOOS, SYSTEMS):
            heights = [[answer.each for answer in found[Bar(zoo, models, system)]] for models in SETS]
            yield curve(system, range(len(SETS)), heights, panel=zoo)

    def configuration(self) -> dict[str, Any]:
        return {"accelerators": ACCELERATORS, "requests": self.requests}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the bars of both zoos."""
        title = f"Goodput of the model zoos on {ACCELERATORS} accelerators"
        figure, axes = style.figure(title, columns=2, size=(10, 4))
        for axis, zoo in zip(axes.flat, ZOOS, strict=True):
            labels = [f"{models}\n{len(chosen(zoo, models))} models" for models in SETS]
            style.bars(axis, labels, [(one.name, one.y) for one in result.panel(zoo)])
            count = len(SETS)
            start = list(SYSTEMS).index("nexus, 8 frontends") * count
            for bar in axis.patches[start : start + count]:
                bar.set_alpha(0.45)
            axis.set(title=f"{zoo}: Table {5 if zoo == '1080Ti' else 6}", ylabel="goodput, requests/s")
            style.legend(axis, loc="upper left" if zoo == "A100" else "best")
        return [style.Drawing(figure)]


def chosen(zoo: str, models: str) -> tuple[Model, ...]:
    """Return the models of a bar."""
    everything = ZOOS[zoo]
    return {"all": everything, "gt2": strong(everything), "lt2": weak(everything)}[models]


def scenario(task: Bar, requests: float, seed: int) -> Scenario:
    """Return the cluster of a bar; all models are equally popular and arrivals are Poisson."""
    policy, frontends = SYSTEMS[task.system]
    return zoo_scenario(
        requests,
        policy=policy,
        frontends=frontends,
        accelerators=ACCELERATORS,
        sessions=tuple(one.session() for one in chosen(task.zoo, task.models)),
        seed=seed,
    )


def _gain(name: str, rates: dict[str, list[float]], published: float | None, text: str) -> Row:
    best = max(BASELINES, key=lambda system: statistics.median(rates[system]))
    values = [ours / theirs for ours, theirs in zip(rates["symphony"], rates[best], strict=True)]
    note = "; ".join(part for part in (f"best baseline: {best}", text) if part)
    return row(name, values, unit="ratio", published=published, note=note)


def _loss(name: str, each: dict[str, list[float]], overall: dict[str, list[float]]) -> Row:
    one, many = BASELINES[:2]
    losses = [[1 - b / a for a, b in zip(rates[one], rates[many], strict=True)] for rates in (each, overall)]
    note = f"{statistics.median(losses[1]):.0%} where 1 % of all requests may be bad; published 11 % to 45 %"
    return row(name, losses[0], unit="of the goodput of nexus", note=note)
