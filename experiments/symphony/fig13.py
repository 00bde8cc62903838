"""Symphony, Figure 13: what a slow or unsteady network costs.

Twenty equally popular models like ResNet50 run on 32 accelerators. From the decision to the batch's start on
its accelerator passes a delay that is drawn for each batch: lognormal, its median that of the network, its
tail longer and longer. The scheduler allows for what 99 % of the draws stay below. The second run of each
point has that very allowance as a constant delay: what the two differ by is the work of the tail alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from statistics import NormalDist, median
from typing import Any, NamedTuple

from tuner.cluster import Network, Scenario
from tuner.cluster.goodput import goodput
from tuner.experiments.frame.experiment import Answers, Experiment, Scaled, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.zoo import GTX_1080TI, model
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["NetworkDelay", "NetworkTails", "network"]

MODEL = model("ResNet50", GTX_1080TI)
SESSIONS, ACCELERATORS = 20, 32
RANGES = {  # name -> (median, 99 % quantiles), ms; the least quantile is the median: a constant delay
    "RDMA": (0.024, (0.024, 0.03, 0.05, 0.1, 0.2)),
    "TCP": (0.25, (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)),
}
DRAWN, CONSTANT = "drawn", "constant"


class NetworkDelay(NamedTuple):
    """A network under an SLO."""

    range: str
    slo_ms: int
    quantile_ms: float
    """99 % of the delays are shorter."""
    kind: str
    """``drawn``, or ``constant``: always the quantile."""


@experiment(
    name="symphony-fig13",
    title="Goodput with ever longer tails of the network's delay",
    paper="Symphony",
    minutes=3,
)
class NetworkTails(Experiment[NetworkDelay, float]):
    """The goodput for each SLO and delay, requests/s."""

    slos = Scaled((20, 25, 50, 100), quick=(20, 100))  # ms
    seconds = Scaled(10.0, quick=1.0)

    def tasks(self) -> Iterator[NetworkDelay]:
        for name, (_, quantiles) in RANGES.items():
            for slo, quantile, kind in product(self.slos, quantiles, (DRAWN, CONSTANT)):
                yield NetworkDelay(name, slo, quantile, kind)

    def measure(self, task: NetworkDelay, seed: int) -> float:
        scenario = Scenario(
            policy="symphony",
            accelerators=ACCELERATORS,
            rate=1000.0,
            sessions=(MODEL.session(task.slo_ms, copies=SESSIONS),),
            network=network(task),
            seconds=self.seconds,
            warmup_seconds=0.5,
            seed=seed,
        )
        return goodput(scenario, tolerance=0.002).rate

    def rows(self, found: Answers[NetworkDelay, float]) -> Iterator[Row]:
        """The goodput with the fastest network, and what is left of it with longer tails."""
        for slo in self.slos:
            base = found[_fastest(slo)]
            yield row(f"SLO {slo} ms, {RANGES['RDMA'][0] * 1e3:g} us, constant", base, unit="requests/s")
            for name, quantile in (("RDMA", 0.05), ("RDMA", 0.2), ("TCP", 1.0), ("TCP", 4.0), ("TCP", 8.0)):
                shares, still = (
                    _relative(found[NetworkDelay(name, slo, quantile, kind)], base)
                    for kind in (DRAWN, CONSTANT)
                )
                note = f"with this delay as a constant {median(still):.3f}"
                yield row(
                    f"SLO {slo} ms, {name}, 99 % below {quantile:g} ms", shares, unit="of that", note=note
                )

    def series(self, found: Answers[NetworkDelay, float]) -> Iterator[Series]:
        for name, (_, quantiles) in RANGES.items():
            for slo, kind in product(self.slos, (DRAWN, CONSTANT)):
                base = found[_fastest(slo)]
                shares = [
                    _relative(found[NetworkDelay(name, slo, quantile, kind)], base) for quantile in quantiles
                ]
                yield curve(f"{slo} ms, {kind}", quantiles, shares, panel=name)

    def configuration(self) -> dict[str, Any]:
        return {"sessions": SESSIONS, "accelerators": ACCELERATORS, "seconds": self.seconds}

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the share of the goodput that is left against the allowance, one panel for each range."""
        figure, axes = style.figure(
            "The tighter the SLO, the dearer the network's tail", columns=len(RANGES), sharey=True
        )
        for axis, name in zip(axes.flat, RANGES, strict=True):
            panel = result.panel(name)
            solid = [one for one in panel if one.name.endswith(DRAWN)]
            style.curves(axis, solid)
            for index, one in enumerate(one for one in panel if one.name.endswith(CONSTANT)):
                color = style.look("", index).color
                axis.plot(one.x, [float(y or 0) for y in one.y], color=color, ls=":", lw=1.2)
            middle = RANGES[name][0]
            axis.set(title=f"{name}: median {middle:g} ms", xlabel="99 % of the delays are below, ms")
            axis.set(xscale="log", ylim=(0, 1.08))
            axis.set_xticks(solid[0].x, [f"{x:g}" for x in solid[0].x])
            axis.minorticks_off()
        axes.flat[0].set_ylabel("goodput, share of that at 24 us")
        style.legend(axes.flat[0], loc="lower left", title="dotted: constant", title_fontsize=8)
        return [style.Drawing(figure)]


def network(task: NetworkDelay) -> Network:
    """Return the delays of a task."""
    middle = RANGES[task.range][0]
    if task.kind == CONSTANT or task.quantile_ms == middle:
        return Network(control_ms=task.quantile_ms)
    sigma = math.log(task.quantile_ms / middle) / NormalDist().inv_cdf(0.99)
    return Network(control_ms=f"lognormal:{middle:g},{sigma!r}")


def _fastest(slo: int) -> NetworkDelay:
    """The fastest steady network, with which the others are compared."""
    return NetworkDelay("RDMA", slo, RANGES["RDMA"][0], CONSTANT)


def _relative(rates: list[float], base: list[float]) -> list[float]:
    """Divide the rate of each seed by that seed's rate with the fastest steady network."""
    return [rate / first for rate, first in zip(rates, base, strict=True)]
