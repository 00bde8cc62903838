"""Symphony, Table 4: the goodput of one model on 8 accelerators under Symphony, Nexus, Clockwork and eager.

Requests are Poisson, and the network takes as long as the authors' code allows for. Goodput is the highest
rate at which at most 1 % of the requests are late or dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuner.experiments.frame.experiment import Answers, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.experiments.symphony.clusters.two_models import IDEAL, SYSTEMS, Alone, AtGoodput, panel_name
from tuner.experiments.zoo import TABLE_4, Setup
from tuner.report import style

__all__ = ["GoodputAndBatch", "TwoModelGoodput"]

PUBLISHED = {
    "ResNet50": {"symphony": 5169, "nexus": 3965, "clockwork": 2036},
    "InceptionResNetV2": {"symphony": 907, "nexus": 590, "clockwork": 482},
}
BATCH = {"ResNet50": (13, 17), "InceptionResNetV2": (7, 9)}
"""Where Symphony's median batch is expected."""
NOTES = {
    "nexus": "1 frontend",
    "clockwork": "takes work 10 ms ahead, 5 ms before the deadline: its defaults",
    "clockwork, nothing ahead": "schedule_ahead 0: takes work only when it is free",
    "eager": "work-conserving, by deadline: ours",
}


class GoodputAndBatch(NamedTuple):
    """A goodput, and what the batches were at that rate."""

    rate: float
    median_batch: float


@experiment(
    name="symphony-table4",
    title="Goodput of one model on 8 accelerators under Symphony, Nexus, Clockwork and eager",
    paper="Symphony",
    minutes=1,
)
class TwoModelGoodput(AtGoodput[GoodputAndBatch]):
    """The goodput of both models under every system."""

    systems = tuple(SYSTEMS)

    def measure(self, task: Alone, seed: int) -> GoodputAndBatch:
        found = self.search(task, seed)
        return GoodputAndBatch(found.rate, found.outcome.sessions[0].median_batch)

    def rows(self, found: Answers[Alone, GoodputAndBatch]) -> Iterator[Row]:
        for (model, system), values in found.items():
            name, batch_note = f"{model}, {system}", ""
            if system == "symphony":
                low, high = BATCH[model]
                batch_note = f"expected {low} to {high}; of batches, not of requests"
            yield row(
                f"{name}: goodput", [value.rate for value in values], unit="requests/s",
                published=PUBLISHED[model].get(system), note=NOTES.get(system, ""),
            )  # fmt: skip
            batches = [value.median_batch for value in values]
            yield row(f"{name}: median batch", batches, unit="requests", note=batch_note)

    def points(
        self, _: Setup, system: str, values: list[GoodputAndBatch]
    ) -> tuple[list[int], list[list[float]]]:
        return [self.systems.index(system)], [[value.rate for value in values]]

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw the goodputs side by side."""
        figure, axes = style.figure("Goodput of one model on 8 accelerators, Poisson arrivals", columns=2)
        for axis, setup in zip(axes.flat, TABLE_4, strict=True):
            model = setup.model.name
            for one in result.panel(panel_name(setup)):
                look = style.look(one.name)
                height, alpha = one.y[0] or 0.0, 0.6 if "," in one.name else 1.0
                axis.bar(one.x, [height], 0.7, color=look.color, alpha=alpha)
                axis.annotate(
                    f"{height:,.0f}", (one.x[0], 0), (0, 5), textcoords="offset points", ha="center",
                    fontsize=8, color="white", weight="bold",
                )  # fmt: skip
            places = [list(SYSTEMS).index(system) for system in PUBLISHED[model]]
            style.published(axis, places, list(PUBLISHED[model].values()), "published, Table 4")
            axis.axhline(IDEAL[model], color=style.MUTED, ls="--", lw=1, label="staggered, even arrivals")
            axis.set(title=panel_name(setup), ylabel="goodput, requests/s", ylim=(0, IDEAL[model] * 1.25))
            labels = [system.replace(", ", "\n").replace("nothing ", "nothing\n") for system in SYSTEMS]
            axis.set_xticks(range(len(SYSTEMS)), labels, fontsize=7)
            style.legend(axis, loc="upper center", ncols=2)
        return [style.Drawing(figure)]
