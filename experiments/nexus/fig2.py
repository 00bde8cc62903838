"""Nexus, Table 2 and Figure 2: the worked example of squishy bin packing.

Three models have a table of batches each. Where their rates are high, each fills accelerators of its own.
At the low rates of the example A gets a duty cycle, in which B has room beside it, and C has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tuner.experiments.frame.experiment import Answers, Experiment, experiment
from tuner.experiments.frame.result import Result, Row, row
from tuner.planning.packing.form import LoadProfile
from tuner.planning.packing.load import SessionLoad
from tuner.planning.packing.squishy import PackedNode, pack
from tuner.planning.pools.catalogue import Table
from tuner.report import style
from tuner.report.series import Series, curve

__all__ = ["TABLE_2", "Example", "Turn", "WorkedExample", "example_loads"]

TABLE_2 = {
    "A": (200, {4: 50.0, 8: 75.0, 16: 100.0}),
    "B": (250, {4: 50.0, 8: 90.0, 16: 125.0}),
    "C": (250, {4: 60.0, 8: 95.0, 16: 125.0}),
}
"""SLO, ms, and ms by batch size."""
LOW = {"A": 64.0, "B": 32.0, "C": 32.0}
"""Requests/s of Figure 2(b)."""
HIGH = 1000.0
"""Requests/s that take several accelerators."""
SATURATED = {"A": (16, 160.0), "B": (16, 128.0), "C": (16, 128.0)}
"""Published: the batch, and requests/s of an accelerator of its own."""
TOGETHER = ("A", "AB", "AC", "ABC")


class Example(NamedTuple):
    """Models that are packed."""

    models: str
    high: bool
    """Whether their rates are high, or those of Figure 2(b)."""

    @property
    def name(self) -> str:
        """In words."""
        return " and ".join(filter(None, (", ".join(self.models[:-1]), self.models[-1])))


class Turn(NamedTuple):
    """What a model has of an accelerator."""

    model: str
    rate: float
    """Requests/s"""
    batch: int
    begin: float
    """ms from the beginning of the duty cycle."""
    end: float
    cycle: float
    """Length of the duty cycle, ms."""

    @property
    def latency(self) -> float:
        """The longest of a request, ms: it waits for a duty cycle, and for its batch."""
        return self.cycle + self.end - self.begin


Plan = tuple[dict[str, Turn], ...]
"""Of each accelerator the turns by model."""


@experiment(
    name="nexus-fig2",
    title="The worked example: who shares an accelerator, in which batches and which duty cycle",
    paper="Nexus",
    minutes=0.1,
    repeated=False,
)
class WorkedExample(Experiment[Example, Plan]):
    """Packs the three models alone at high rates, and together at low ones."""

    def tasks(self) -> list[Example]:
        return [
            *(Example(model, high=True) for model in TABLE_2),
            *(Example(models, high=False) for models in TOGETHER),
        ]

    def measure(self, task: Example, seed: int) -> Plan:  # noqa: ARG002 - nothing is random
        loads = example_loads({model: HIGH if task.high else LOW[model] for model in task.models})
        return tuple(_turns(loads, node) for node in pack(loads))

    def rows(self, found: Answers[Example, Plan]) -> Iterator[Row]:
        plans = {task: plan for task, (plan,) in found.items()}
        for model, (batch, rate) in SATURATED.items():
            turn = plans[Example(model, high=True)][0][model]
            name = f"{model} at {HIGH:g} requests/s"
            yield row(f"{name}: batch", [turn.batch], unit="requests", published=batch)
            yield row(f"{name}: of an accelerator", [turn.rate], unit="requests/s", published=rate)
        alone = plans[Example("A", high=False)][0]["A"]
        yield row("A at 64 requests/s: duty cycle", [alone.cycle], unit="ms", published=125)
        yield row("A at 64 requests/s: batch", [alone.batch], unit="requests", published=8)
        yield row("A at 64 requests/s: executes", [alone.end - alone.begin], unit="ms", published=75)
        yield row("A at 64 requests/s: longest latency", [alone.latency], unit="ms", published=200)
        beside = plans[Example("AB", high=False)][0]["B"]
        yield row("B beside A: batch", [beside.batch], unit="requests", published=4)
        yield row("B beside A: executes", [beside.end - beside.begin], unit="ms", published=50)
        yield row("B beside A: longest latency", [beside.latency], unit="ms", published=175)
        for models, published in (("AB", 1), ("AC", 2), ("ABC", None)):
            task = Example(models, high=False)
            yield row(
                f"{task.name}: accelerators",
                [len(plans[task])],
                published=published,
                note="; ".join(" with ".join(node) for node in plans[task]),
            )

    def series(self, found: Answers[Example, Plan]) -> Iterator[Series]:
        (plan,) = found[Example("ABC", high=False)]
        for accelerator, turns in enumerate(plan):
            for turn in turns.values():
                yield curve(turn.model, [turn.begin, turn.end], [[accelerator + 1]] * 2)

    @staticmethod
    def draw(result: Result) -> list[style.Drawing]:
        """Draw one duty cycle of each accelerator."""
        figure, axes = style.figure("One duty cycle of each accelerator", size=(5.6, 2.4))
        axis = axes[0, 0]
        for index, one in enumerate(result.panel()):
            begin, end = one.x
            color = style.look(one.name, index).color
            axis.barh(
                style.floats(one.y)[0], end - begin, left=begin, height=0.5, color=color, label=one.name
            )
        axis.axvline(125, color=style.INK, ls=":", lw=1.4, label="duty cycle of A and B")
        axis.set(xlabel="ms", ylabel="accelerator", yticks=[1, 2], xlim=(0, 190), ylim=(2.6, 0.4))
        style.legend(axis, loc="lower right")
        return [style.Drawing(figure)]


def example_loads(rates: dict[str, float]) -> list[SessionLoad]:
    """Return models of Table 2 at these rates, requests/s."""
    return [
        SessionLoad(
            name=model,
            latency=LoadProfile(profile_ms=Table(TABLE_2[model][1])).latency(1.0),
            budget=TABLE_2[model][0] / 1e3,
            rate=rate,
        )
        for model, rate in rates.items()
    ]


def _turns(loads: list[SessionLoad], node: PackedNode) -> dict[str, Turn]:
    """Return the turns of an accelerator, which execute one after the other."""
    turns, begin = dict[str, Turn](), 0.0
    for (index, rate), batch in zip(node.loads, node.batches, strict=True):
        load = loads[index]
        end = begin + 1e3 * float(load.latency[batch])
        turns[load.name] = Turn(load.name, rate, batch, begin, end, 1e3 * node.cycle)
        begin = end
    return turns
