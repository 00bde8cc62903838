"""Symphony, Figure 1: what several frontends that know nothing of each other cost the goodput of Nexus.

The paper varies the accelerators from 8 to 64, the models from 1 to 37 and the SLO from 20 to 100 ms, without
saying which go together. Ours are clusters from each end of these ranges and from between.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import median
from typing import Any, NamedTuple

from tuner.cluster.goodput import goodput
from tuner.cluster.scenario import Scenario
from tuner.experiments.frame.drawing import curves_drawn
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import A100, GTX_1080TI, model, zoo_scenario
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["FrontendCluster", "FrontendLoss", "SplitFrontends", "scenario"]

PUBLISHED = (5.0, 40.0)
"""% of the goodput that is lost, at least and at most, "in various settings"."""
SHOWN = 8
"""Frontends of the rows."""
ZOO = "A100 zoo"


class FrontendCluster(NamedTuple):
    """A cluster."""

    model: str
    """Of Table 5; or ``ZOO``: all models of Table 6."""
    number: int
    """Models."""
    slo_ms: int
    """0: each its own, 20 ms and more."""
    accelerators: int

    @property
    def name(self) -> str:
        """For people."""
        slo = f"{self.slo_ms} ms" if self.slo_ms else "own SLOs"
        return f"{self.number} x {self.model}, {slo}, {self.accelerators} accelerators"


CLUSTERS = (
    FrontendCluster("ResNet50", 1, 20, 8),
    FrontendCluster("ResNet50", 1, 100, 8),
    FrontendCluster("ResNet50", 1, 25, 64),
    FrontendCluster("InceptionV3", 4, 100, 16),
    FrontendCluster("ResNet50", 10, 50, 24),
    FrontendCluster("ResNet50", 20, 25, 32),
    FrontendCluster(ZOO, len(A100), 0, 64),
)


class SplitFrontends(NamedTuple):
    """A cluster whose requests come to a number of frontends."""

    cluster: FrontendCluster
    frontends: int


@experiment(
    name="symphony-fig1",
    title="Goodput that Nexus loses to several frontends",
    paper="Symphony",
    minutes=2,
)
class FrontendLoss(Experiment[SplitFrontends, float]):
    """The goodput of every cluster with 1 to 32 frontends, requests/s."""

    first_seed = 1
    clusters = Scaled(CLUSTERS, quick=CLUSTERS[:2])
    frontends = Scaled((1, 2, 4, 8, 16, 32), quick=(1, SHOWN))
    requests = Scaled(100_000.0, quick=5_000.0)

    def tasks(self) -> list[SplitFrontends]:
        return [SplitFrontends(*each) for each in product(self.clusters, self.frontends)]

    def measure(self, task: SplitFrontends, seed: int) -> float:
        return round(goodput(scenario(task, self.requests, seed)).rate, 1)

    def rows(self, found: Answers[SplitFrontends, float]) -> Iterator[Row]:
        lost = {cluster: _lost(found, cluster, SHOWN) for cluster in self.clusters}
        of_seeds = list(zip(*lost.values(), strict=True))
        for name, choose, published in zip(("least", "greatest"), (min, max), PUBLISHED, strict=True):
            yield row(
                f"{name} loss of all clusters from {SHOWN} frontends",
                [choose(losses) for losses in of_seeds],
                unit="%",
                published=published,
                note="published: of all settings, whatever the frontends",
            )
        for cluster, losses in lost.items():
            one, many = (median(found[SplitFrontends(cluster, count)]) for count in (1, SHOWN))
            note = f"{many:,.0f} against {one:,.0f} requests/s"
            yield row(f"{cluster.name}: loss from {SHOWN} frontends", losses, unit="%", note=note)

    def series(self, found: Answers[SplitFrontends, float]) -> Iterator[Series]:
        for cluster in self.clusters:
            losses = [_lost(found, cluster, count) for count in self.frontends]
            yield curve(cluster.name, self.frontends, losses)

    def configuration(self) -> dict[str, Any]:
        return {"requests": self.requests, "arrivals": "Poisson", "bad_rate": 0.01}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the loss against the number of frontends."""
        drawing, axis = curves_drawn(
            result,
            "Goodput that Nexus loses to several frontends",
            size=(7.2, 4.2),
            legend="upper left",
            xlabel="frontends",
            ylabel="goodput lost, %",
            ylim=(-5, 145),
            xscale="log",
        )
        axis.axhspan(*PUBLISHED, color="0.93", zorder=0)
        counts = [int(count) for count in result.panel()[0].x]
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.minorticks_off()
        return [drawing]


def scenario(task: SplitFrontends, requests: float, seed: int) -> Scenario:
    """Return the cluster of a task under Nexus; all models are equally popular and arrivals are Poisson."""
    cluster = task.cluster
    models = A100 if cluster.model == ZOO else (model(cluster.model, GTX_1080TI),)
    copies = cluster.number // len(models)
    return zoo_scenario(
        requests,
        policy="nexus",
        frontends=task.frontends,
        accelerators=cluster.accelerators,
        sessions=tuple(one.session(cluster.slo_ms or None, copies=copies) for one in models),
        seed=seed,
    )


def _lost(found: Answers[SplitFrontends, float], cluster: FrontendCluster, frontends: int) -> list[float]:
    """Of each seed, % of the goodput of one frontend."""
    pairs = zip(found[SplitFrontends(cluster, 1)], found[SplitFrontends(cluster, frontends)], strict=True)
    return [100 * (1 - many / one) for one, many in pairs]
