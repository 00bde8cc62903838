"""Symphony, section 4.2 and the analytic columns of Table 4: the ideal with and without coordination."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuner.experiments.frame.experiment import Answers, Experiment, experiment
from tuner.experiments.frame.result import Result, Row
from tuner.experiments.symphony.clusters.two_models import panel_name
from tuner.experiments.zoo import TABLE_4, Setup
from tuner.report import style
from tuner.report.series import Series
from tuner.scheduling.analysis import Ideal, fewest_accelerators, staggered, uncoordinated

__all__ = ["AnalyticIdeal"]

PUBLISHED = {  # model -> (batch, requests/s) without coordination, and staggered
    "ResNet50": ((7, 4501), (16, 5839)),
    "InceptionResNetV2": ((3, 713), (8, 1083)),
}
WAYS = ("no coordination", "staggered")
MOST = 32
"""Accelerators up to which the curves go."""


class Ideals(NamedTuple):
    """The ideals of a model, computed for 1 to ``MOST`` accelerators, each in both ways."""

    by_accelerators: list[tuple[Ideal, Ideal]]
    fewest: int
    """Accelerators that the published staggered goodput needs."""


@experiment(
    name="symphony-analytic",
    title="The ideal: batch size and goodput with and without coordination",
    paper="Symphony",
    minutes=0.1,
    repeated=False,
)
class AnalyticIdeal(Experiment[Setup, Ideals]):
    """Formulas for the two models of Table 4; nothing is simulated."""

    def tasks(self) -> tuple[Setup, ...]:
        return TABLE_4

    def measure(self, task: Setup, _: int) -> Ideals:
        slo = task.slo_ms / 1e3
        latency = task.model.latency(task.slo_ms)
        both = [
            (uncoordinated(latency, slo, count), staggered(latency, slo, count))
            for count in range(1, MOST + 1)
        ]
        return Ideals(both, fewest_accelerators(latency, slo, PUBLISHED[task.model.name][1][1]))

    def rows(self, found: Answers[Setup, Ideals]) -> Iterator[Row]:
        for setup, (ideals,) in found.items():
            model, published = setup.model.name, PUBLISHED[setup.model.name]
            both = ideals.by_accelerators[setup.accelerators - 1]
            for way, ideal, (batch, rate) in zip(WAYS, both, published, strict=True):
                wait = f"longest wait {ideal.queueing * 1e3:.2f} ms"
                yield Row(
                    id=f"{model}, {way}: batch", published=batch, measured=ideal.batch, unit="requests",
                    note=wait,
                )  # fmt: skip
                yield Row(
                    id=f"{model}, {way}: goodput", published=rate, measured=round(ideal.rate),
                    unit="requests/s",
                )  # fmt: skip
            yield Row(
                id=f"{model}: fewest accelerators",
                published=setup.accelerators,
                measured=ideals.fewest,
                note=f"equations 2 and 3 solved for N at {published[1][1]} requests/s",
            )

    def series(self, found: Answers[Setup, Ideals]) -> Iterator[Series]:
        counts = [float(count) for count in range(1, MOST + 1)]
        for setup, (ideals,) in found.items():
            for way, name in enumerate(WAYS):
                rates: list[float | None] = [
                    round(both[way].rate / count, 3)
                    for count, both in zip(counts, ideals.by_accelerators, strict=True)
                ]
                yield Series(name=name, panel=panel_name(setup), x=counts, y=rates)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the goodput per accelerator against the number of accelerators."""
        figure, axes = style.figure(
            "What coordination is worth, with perfectly even arrivals", columns=len(TABLE_4)
        )
        for axis, setup in zip(axes.flat, TABLE_4, strict=True):
            style.curves(axis, result.panel(panel_name(setup)))
            count = setup.accelerators
            rates = [rate / count for _, rate in PUBLISHED[setup.model.name]]
            style.published(axis, [count] * len(rates), rates, "published, Table 4")
            axis.set(
                title=panel_name(setup), xlabel="accelerators", ylabel="goodput per accelerator, requests/s"
            )
            axis.set_ylim(bottom=0)
            style.legend(axis, loc="lower right")
        return [style.Drawing(figure)]
