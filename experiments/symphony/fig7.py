"""Symphony, Figure 7: goodput of 20 equal models on 32 accelerators against the SLO, for four workloads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from tuner.cluster.goodput import goodput
from tuner.cluster.scenario import Scenario
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import GTX_1080TI, model, zoo_scenario
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["GoodputBySlo", "Popular", "scenario"]

MODEL = model("ResNet50", GTX_1080TI)
MODELS, ACCELERATORS = 20, 32
POPULARITIES = {"equally popular": "equal", "Zipf 0.9": "zipf:0.9"}
ARRIVALS = {"Poisson": "poisson", "gamma 0.05": "gamma:0.05"}
POLICIES = ("symphony", "eager", "nexus", "clockwork")
TIGHT, LOOSE = 25, 100
"""ms, of the rows."""


class Popular(NamedTuple):
    """One workload with an SLO, under a policy."""

    popularity: str
    arrivals: str
    slo_ms: int
    policy: str


@experiment(
    name="symphony-fig7",
    title="Goodput against the SLO: popularity and burstiness of 20 equal models",
    paper="Symphony",
    minutes=1,
)
class GoodputBySlo(Experiment[Popular, float]):
    """The goodput of every workload under every policy: at most 1 % of a model's requests are bad."""

    first_seed = 1
    slos = Scaled((15, 20, 25, 30, 40, 50, 75, 100), quick=(TIGHT, LOOSE))  # ms
    requests = Scaled(100_000.0, quick=10_000.0)

    def tasks(self) -> list[Popular]:
        return [Popular(*each) for each in product(POPULARITIES, ARRIVALS, self.slos, POLICIES)]

    def measure(self, task: Popular, seed: int) -> float:
        return round(goodput(scenario(task, self.requests, seed)).rate, 1)

    def rows(self, found: Answers[Popular, float]) -> Iterator[Row]:
        """The goodputs at a tight and at a loose SLO."""
        for (popularity, arrivals, slo, policy), rates in found.items():
            if slo in (TIGHT, LOOSE):
                yield row(f"{popularity}, {arrivals}, {slo} ms: {policy}", rates, unit="requests/s")

    def series(self, found: Answers[Popular, float]) -> Iterator[Series]:
        for popularity, arrivals, policy in product(POPULARITIES, ARRIVALS, POLICIES):
            rates = [found[Popular(popularity, arrivals, slo, policy)] for slo in self.slos]
            yield curve(policy, self.slos, rates, panel=_panel(popularity, arrivals))

    def configuration(self) -> dict[str, Any]:
        return {"models": MODELS, "accelerators": ACCELERATORS, "requests": self.requests}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
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
        return [style.Drawing(figure)]


def scenario(task: Popular, requests: float, seed: int) -> Scenario:
    """Return the cluster of a task."""
    session = MODEL.session(task.slo_ms, arrival=ARRIVALS[task.arrivals], copies=MODELS)
    return zoo_scenario(
        requests,
        policy=task.policy,
        accelerators=ACCELERATORS,
        popularity=POPULARITIES[task.popularity],
        sessions=(session,),
        seed=seed,
    )


def _panel(popularity: str, arrivals: str) -> str:
    return f"{popularity}, {arrivals}"
